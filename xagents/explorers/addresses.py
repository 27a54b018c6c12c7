"""Addresses that are typed: where a learner listens for explorers."""

from __future__ import annotations

import socket

from xagents.options.errors import OptionError, did_you_mean

# values of --cluster other than an address
OTHER_VALUES = ('ray', 'here')


def parse_address(name: str, text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; raises OptionError for the option `name`."""
    host, colon, port = text.rpartition(':')
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
        others = (
            f', ray, ray://HOST:PORT or here{did_you_mean(text.lower(), OTHER_VALUES)}' if name == 'cluster' else ''
        )
        raise OptionError(name, f'got {text}, expected HOST:PORT, such as 10.0.0.1:5555{others}')
    return host, int(port)


def check_listening(host: str, port: int) -> None:
    """Check that something can listen at an address; raises OptionError naming `cluster`."""
    try:
        found = socket.getaddrinfo(host.strip('[]'), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(found[0][4])
            tried.listen()
    except OSError as error:
        raise OptionError('cluster', f'got {host}:{port}, where nothing can listen ({error.strerror})') from error
