"""The keys of a federation: for TLS an authority and the server's certificate, for authentication a key per client."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from utils.errors import UserError
from utils.files import write_atomically

AUTHORITY, SERVER = "ca", "server"


def make_keys(folder: Path, hosts: Sequence[str], n_clients: int, days: int) -> list[Path]:
    """Make what is missing of a federation's keys; returns the new files.

    `ca.crt` is what clients trust, `server.crt` what the server shows them, for these host names and addresses, and
    `client_<k>.pub` what the server knows client k by; the `.key` beside each is its secret, which only its owner's
    account may read. Keys are on the curve P-384, as Flower takes them. UserError where the authority's key has gone
    and something has to be signed.
    """
    names = [_general_name(host) for host in hosts]
    made: list[Path] = []
    for name in (AUTHORITY, SERVER, *(f"client_{client}" for client in range(n_clients))):
        if not (path := folder / f"{name}.key").is_file():
            key = ec.generate_private_key(ec.SECP384R1())
            of_client = name not in (AUTHORITY, SERVER)
            kind = PrivateFormat.OpenSSH if of_client else PrivateFormat.PKCS8  # as Flower reads them
            made.append(_write(path, key.private_bytes(Encoding.PEM, kind, NoEncryption())))
            path.with_suffix(".crt").unlink(missing_ok=True)  # it was another key's
            if of_client:
                public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
                made.append(_write(path.with_suffix(".pub"), public))
    return made + _certify(folder, names, timedelta(days=days))


def write_connection(folder: Path, address: str) -> Path:
    """Write what Flower's `flwr` is told of the SuperLink at this address; returns the folder for its `FLWR_HOME`."""
    home = folder / "flower"
    with write_atomically(home / "config.toml") as temporary:
        lines = [
            f"address = {json.dumps(address)}",
            f"root-certificates = {json.dumps(str(folder.resolve() / 'ca.crt'))}",
        ]
        temporary.write_text("\n".join(["[superlink]", 'default = "deployed"', "[superlink.deployed]", *lines, ""]))
    return home


def _certify(folder: Path, hosts: Sequence[x509.GeneralName], valid: timedelta) -> list[Path]:
    """The certificates that are missing."""
    keys = {name: _read(folder / f"{name}.key") for name in (AUTHORITY, SERVER)}
    made = []
    for name, key in keys.items():
        path = folder / f"{name}.crt"
        if path.is_file():
            continue
        subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"federation {each}")])
                           for each in (name, AUTHORITY))  # fmt: skip
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + valid)
        builder = builder.add_extension(x509.BasicConstraints(name == AUTHORITY, None), critical=True)
        of_authority = keys[AUTHORITY].public_key()
        known_by = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(known_by, critical=False).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(of_authority), critical=False
        )
        if name == SERVER:
            names = x509.SubjectAlternativeName(hosts)
            usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
            builder = builder.add_extension(names, critical=False).add_extension(usage, critical=False)
        signed = builder.sign(keys[AUTHORITY], hashes.SHA384())
        made.append(_write(path, signed.public_bytes(Encoding.PEM)))
    return made


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        try:
            return x509.DNSName(host)
        except ValueError as error:
            raise UserError(f"--hosts: {host!r} is no name of a host ({error})") from error


def _read(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not a readable key ({error}); take it away, and all .crt files with it") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UserError(f"{path}: not a key on an elliptic curve; take it away, and all .crt files with it")
    return key


def _write(path: Path, content: bytes) -> Path:
    """Write a file that only this account may read."""
    before = os.umask(0o077)
    try:
        with write_atomically(path) as temporary:
            temporary.write_bytes(content)
    finally:
        os.umask(before)
    return path
