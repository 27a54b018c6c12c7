"""Parse and check the address at which a learner listens for explorers."""

from __future__ import annotations

import socket

from xagents.options.errors import OptionError, did_you_mean

# values of --cluster other than an address
OTHER_VALUES = ('ray', 'here')


def parse_address(name: str, text: str) -> tuple[str, int]:
    """Return the host and the port of `HOST:PORT`.

    Args:
        name: the Python name of the option, for the error.
        text: the value of the option.

    Raises:
        OptionError: If `text` is not an address.
    """
    host, colon, port = text.rpartition(':')
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
        hint = did_you_mean(text.lower(), OTHER_VALUES)
        others = f', ray, ray://HOST:PORT or here{hint}' if name == 'cluster' else ''
        raise OptionError(name, f'got {text}, expected HOST:PORT, such as 10.0.0.1:5555{others}')
    return host, int(port)


def check_listening(host: str, port: int) -> None:
    """Check that this machine can listen at an address.

    Raises:
        OptionError: If it cannot; the error names `cluster`.
    """
    try:
        found = socket.getaddrinfo(host.strip('[]'), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(found[0][4])
            tried.listen()
    except OSError as error:
        raise OptionError('cluster', f'got {host}:{port}, cannot listen there ({error.strerror})') from error
