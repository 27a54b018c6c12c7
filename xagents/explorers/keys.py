"""The key of a cluster: one PEM file with a private key and the certificate of it, made by the run or by `openssl`.

The learner proves by it who it is; explorers show a token that is made of it. Whoever has the file is let in.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import os
import ssl
from pathlib import Path
from typing import NamedTuple

from xagents.options.errors import OptionError

# for whom the certificate is; where it stands does not matter
NAME = 'xagents'
VALID_DAYS = 3650


class ExplorerCredentials(NamedTuple):
    """What an explorer needs of a key: whom to believe, PEM, and what to show."""

    certificate: bytes
    token: str


class ClusterKey(NamedTuple):
    """A private key and its certificate, PEM each."""

    private_key: bytes
    certificate: bytes

    @property
    def explorer_credentials(self) -> ExplorerCredentials:
        """The part of it that explorers need; its token is a digest that tells nothing of the key."""
        token = hmac.new(self.private_key, b'xagents: token of explorers', hashlib.sha256).hexdigest()
        return ExplorerCredentials(self.certificate, token)


def read_key(path: str) -> ClusterKey:
    """Return the key in a file.

    Raises:
        OptionError: naming `cluster_key`, where it holds none.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise OptionError('cluster_key', f'{path} cannot be read ({error.strerror})') from error
    found = parse_key(data)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
    except (ssl.SSLError, OSError, ValueError):
        found = None
    if found is None:
        problem = f'{path} holds no private key with its certificate, expected the file that the run has made'
        raise OptionError('cluster_key', problem)
    return found


def parse_key(data: bytes) -> ClusterKey | None:
    """Return the key that the bytes of a file hold, if they do."""
    blocks: dict[bytes, bytes] = {}
    for part in data.split(b'-----BEGIN ')[1:]:
        kind, _, rest = part.partition(b'-----')
        end = b'-----END ' + kind + b'-----'
        if end in rest:
            blocks[b'KEY' if kind.endswith(b'PRIVATE KEY') else kind] = (
                b'-----BEGIN ' + kind + b'-----' + rest.partition(end)[0] + end + b'\n'
            )
    if not {b'KEY', b'CERTIFICATE'} <= blocks.keys():
        return None
    return ClusterKey(blocks[b'KEY'], blocks[b'CERTIFICATE'])


def make_key(path: str) -> None:
    """Write a new key to a file that only its user can read; one that is there stays.

    Raises:
        OptionError: where the package for it is missing.
    """
    if os.path.exists(path):
        return
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise OptionError(
            'cluster_key',
            "got none, and the package that makes one is missing: pip install 'xagents[cluster]', or make one by "
            'openssl (docs/explorers.md)',
        ) from None
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
