"""The key of a cluster: one PEM file with a private key and its certificate, created by the run or by `openssl`.

The certificate authenticates the learner. Workers authenticate with a token that is derived from the private key. Any
machine that has the file can connect.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import os
import re
import ssl
import stat
from pathlib import Path
from typing import NamedTuple

from xagents.options.errors import OptionError

# the name in the certificate, for any address of the learner
NAME = 'xagents'
VALID_DAYS = 3650


class ExplorerCredentials(NamedTuple):
    """The part of a key that a worker needs: the certificate of the learner (PEM) and the token of the worker."""

    certificate: bytes
    token: str


def write_credentials(credentials: ExplorerCredentials) -> str:
    """Return credentials as one line."""
    return json.dumps([credentials.certificate.decode('ascii'), credentials.token])


def read_credentials(line: str) -> ExplorerCredentials:
    """Return the credentials in a line; see `write_credentials`."""
    certificate, token = json.loads(line)
    return ExplorerCredentials(certificate.encode('ascii'), token)


class ClusterKey(NamedTuple):
    """A private key and its certificate, both in PEM format."""

    private_key: bytes
    certificate: bytes

    @property
    def explorer_credentials(self) -> ExplorerCredentials:
        """The credentials of workers; the token is an HMAC that does not reveal the private key."""
        token = hmac.new(self.private_key, b'xagents: token of explorers', hashlib.sha256).hexdigest()
        return ExplorerCredentials(self.certificate, token)


def read_key(path: str) -> ClusterKey:
    """Return the key in a file.

    Raises:
        OptionError: If the file contains no key, or others can read it; the error names `cluster_key`.
    """
    try:
        status, data = os.stat(path), Path(path).read_bytes()
    except FileNotFoundError:
        raise OptionError('cluster_key', f'there is no file {path}') from None
    except OSError as error:
        raise OptionError('cluster_key', f'{path} cannot be read ({error.strerror})') from error
    found = parse_key(data)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
    except (OSError, ValueError):
        found = None
    if found is None:
        problem = f'{path} holds no private key with its certificate, expected the file that the run created'
        raise OptionError('cluster_key', problem)
    # the rule of ssh: a file of another owner, such as a mounted secret, is that owner's business
    if os.name == 'posix' and status.st_uid == os.getuid() and (mode := stat.S_IMODE(status.st_mode)) & 0o077:
        problem = (
            f'{path} can be read by other users (mode {mode:04o}), expected a file of yours alone: chmod 600 {path}'
        )
        raise OptionError('cluster_key', problem)
    return found


def parse_key(data: bytes) -> ClusterKey | None:
    """Return the key in the content of a file, or None if there is none."""
    blocks: dict[bytes, bytes] = {}
    for block in re.finditer(rb'-----BEGIN ([^-]*)-----.*?-----END \1-----', data, re.DOTALL):
        blocks[b'KEY' if block[1].endswith(b'PRIVATE KEY') else block[1]] = block[0] + b'\n'
    if not {b'KEY', b'CERTIFICATE'} <= blocks.keys():
        return None
    return ClusterKey(blocks[b'KEY'], blocks[b'CERTIFICATE'])


def make_key(path: str) -> None:
    """Write a new key to a file that only its owner can read; an existing file does not change.

    Raises:
        OptionError: If the package `cryptography` is not installed.
    """
    if os.path.exists(path):
        return
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        remedy = "pip install '.[cluster]', or create one with openssl (docs/explorers.md)"
        problem = f'got none, and the package that creates one is not installed: {remedy}'
        raise OptionError('cluster_key', problem) from None
    private_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(private_key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    key = private_key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    part = f'{path}.{os.getpid()}.part'
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 'wb') as file:
        file.write(key + certificate.public_bytes(serialization.Encoding.PEM))
    os.replace(part, path)
