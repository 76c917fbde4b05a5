"""The keys of a federation: for TLS an authority and the server's certificate, for authentication a key per client."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from utils.errors import UserError
from utils.files import write_atomically

AUTHORITY, SERVER = "ca", "server"


def make_keys(folder: Path, hosts: Sequence[str], n_clients: int, days: int) -> list[Path]:
    """Make what is missing of a federation's keys; returns the new files.

    `ca.crt` is what clients trust, `server.crt` what the server shows them, for these host names and addresses, and
    `client_<k>.pub` what the server knows client k by; the `.key` beside each is its secret, which only its owner's
    account may read. A client whose `.key` alone has gone keeps its pair; take the `.pub` away for another. Keys are on
    the curve P-384, as Flower takes them. UserError where a certificate that is there does not fit its key, its
    authority, the hosts or the present day, or where the authority's key has gone and something has to be signed.
    """
    names = [_general_name(host) for host in hosts]
    made: list[Path] = []
    for name in (AUTHORITY, SERVER):
        made += _certified(folder, name, names, timedelta(days=days))
    for client in range(n_clients):
        made += _pair(folder / f"client_{client}.key")
    return made


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


def _certified(folder: Path, name: str, hosts: Sequence[x509.GeneralName], valid: timedelta) -> list[Path]:
    """What was missing of the key and the certificate of the authority or of the server.

    The authority's key may be elsewhere where nothing has to be signed.
    """
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    if certificate.is_file() and (key.is_file() or name == AUTHORITY):
        _check(certificate, key, folder / f"{AUTHORITY}.crt", hosts)
        return []
    made = []
    if name == SERVER and not (gone := folder / f"{AUTHORITY}.key").is_file():
        remedy = f"put it back, or take {AUTHORITY}.crt away for a new authority, which all clients then need"
        raise UserError(f"{gone} is missing, and {certificate.name} has to be signed; {remedy}")
    if not key.is_file():
        made.append(_write_key(key, PrivateFormat.PKCS8))
    return [*made, _write(certificate, _signed(folder, name, hosts, valid))]


def _check(path: Path, key: Path, issuer: Path, hosts: Sequence[x509.GeneralName]) -> None:
    """UserError where the authority's or the server's certificate is not what its users need."""
    certificate, authority = (_read_certificate(file) for file in (path, issuer))
    since, until = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    remedy = "take it away, and another is made"
    if key.is_file() and certificate.public_key() != _read(key).public_key():
        raise UserError(f"{path} is not that of {key.name}; {remedy}")
    if not since <= datetime.now(UTC) <= until:
        raise UserError(f"{path} is valid from {since:%Y-%m-%d} until {until:%Y-%m-%d} only; {remedy}")
    if path == issuer:
        return
    try:
        certificate.verify_directly_issued_by(authority)
        of_hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (InvalidSignature, ValueError, TypeError) as error:
        raise UserError(f"{path} is not signed by {issuer.name}; {remedy}") from error
    except x509.ExtensionNotFound:
        of_hosts = x509.SubjectAlternativeName([])
    if other := [host for host in hosts if host not in of_hosts]:
        remedy = "give the --hosts that it was made with, or take it away"
        raise UserError(f"{path} is not of {other[0].value}; {remedy}")


def _signed(folder: Path, name: str, hosts: Sequence[x509.GeneralName], valid: timedelta) -> bytes:
    """A new certificate of the authority or of the server."""
    key, of_authority = (_read(folder / f"{owner}.key") for owner in (name, AUTHORITY))
    subject, issuer = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"federation {owner}")]) for owner in (name, AUTHORITY)
    )
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + valid)
    builder = builder.add_extension(x509.BasicConstraints(name == AUTHORITY, None), critical=True)
    known_by = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(of_authority.public_key())
    builder = builder.add_extension(known_by, critical=False).add_extension(signed_by, critical=False)
    if name == AUTHORITY:  # strict clients want to be told that it signs
        unused = dict.fromkeys(
            (
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "encipher_only",
                "decipher_only",
                "digital_signature",
            ),
            False,
        )
        usage = x509.KeyUsage(key_cert_sign=True, crl_sign=True, **unused)
        builder = builder.add_extension(usage, critical=True)
    else:
        of_server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        names = x509.SubjectAlternativeName(hosts)
        builder = builder.add_extension(names, critical=False).add_extension(of_server, critical=False)
    return builder.sign(of_authority, hashes.SHA384()).public_bytes(Encoding.PEM)


def _pair(path: Path) -> list[Path]:
    """What was missing of a client's private key in `path` and the public one beside it, as Flower reads them.

    A private key that has gone, to its owner's machine, is not missing: the server knows the client by the other one.
    """
    if path.with_suffix(".pub").is_file() and not path.is_file():
        return []
    made = [] if path.is_file() else [_write_key(path, PrivateFormat.OpenSSH)]
    public = _read(path, load_ssh_private_key).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    beside = path.with_suffix(".pub")
    return made if beside.is_file() else [*made, _write(beside, public)]


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        try:
            return x509.DNSName(host)
        except ValueError as error:
            raise UserError(f"--hosts: {host!r} is no name of a host ({error})") from error


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable certificate ({error}); take it away, and another is made") from error


def _read(
    path: Path, load: Callable[[bytes, bytes | None], object] = load_pem_private_key
) -> ec.EllipticCurvePrivateKey:
    remedy = f"take it away, and {path.stem}.crt or {path.stem}.pub with it"
    try:
        key = load(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UserError(f"{path}: not a readable key ({error}); {remedy}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UserError(f"{path}: not a key on an elliptic curve; {remedy}")
    return key


def _write_key(path: Path, kind: PrivateFormat) -> Path:
    """Write a new key; what lies beside it is another's, and goes first."""
    for beside in (path.with_suffix(suffix) for suffix in (".crt", ".pub")):
        if beside.is_file():
            beside.unlink()
    key = ec.generate_private_key(ec.SECP384R1())
    return _write(path, key.private_bytes(Encoding.PEM, kind, NoEncryption()))


def _write(path: Path, content: bytes) -> Path:
    """Write a file that only this account may read."""
    before = os.umask(0o077)
    try:
        with write_atomically(path) as temporary:
            temporary.write_bytes(content)
    finally:
        os.umask(before)
    return path
