"""The keys of a federation are what TLS and Flower take, and stay once they are made."""

from __future__ import annotations

import ssl
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from deploy import keys
from deploy.keys import make_keys, write_connection
from utils.errors import UserError


def test_the_servers_certificate_is_the_authoritys_and_of_its_hosts(tmp_path: Path) -> None:
    make_keys(tmp_path, ["server.example.org", "10.0.0.7"], 2, days=3)
    authority, server = (
        x509.load_pem_x509_certificate((tmp_path / f"{name}.crt").read_bytes()) for name in ("ca", "server")
    )
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["server.example.org"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7"]
    assert 3 <= (server.not_valid_after_utc - server.not_valid_before_utc).total_seconds() / 86400 < 3.1
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_each_client_has_a_pair_that_nobody_else_may_read(tmp_path: Path) -> None:
    make_keys(tmp_path, ["localhost"], 2, days=1)
    publics = set()
    for client in range(2):
        path = tmp_path / f"client_{client}.key"
        private = load_ssh_private_key(path.read_bytes(), None)
        public = load_ssh_public_key(path.with_suffix(".pub").read_bytes())
        assert isinstance(private, ec.EllipticCurvePrivateKey) and private.public_key() == public
        assert path.stat().st_mode & 0o777 == 0o600
        publics.add(path.with_suffix(".pub").read_bytes())
    assert len(publics) == 2


def test_what_is_there_stays_and_what_is_missing_is_made(tmp_path: Path) -> None:
    make_keys(tmp_path, ["localhost"], 1, days=1)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert make_keys(tmp_path, ["localhost"], 1, days=1) == []
    made = make_keys(tmp_path, ["localhost"], 2, days=1)
    assert {path.name for path in made} == {"client_1.key", "client_1.pub"}
    (tmp_path / "server.crt").unlink()
    (tmp_path / "client_0.pub").unlink()
    made = make_keys(tmp_path, ["other"], 2, days=1)
    assert [path.name for path in made] == ["server.crt", "client_0.pub"]
    assert all(path.read_bytes() == content for path, content in before.items() if path.name != "server.crt")


def test_a_client_whose_key_is_on_its_own_machine_keeps_its_pair(tmp_path: Path) -> None:
    make_keys(tmp_path, ["localhost"], 1, days=1)
    known = (tmp_path / "client_0.pub").read_bytes()
    (tmp_path / "client_0.key").rename(tmp_path / "elsewhere")
    assert {path.name for path in make_keys(tmp_path, ["localhost"], 2, days=1)} == {"client_1.key", "client_1.pub"}
    assert (tmp_path / "client_0.pub").read_bytes() == known and not (tmp_path / "client_0.key").exists()
    (tmp_path / "client_0.pub").unlink()
    assert {path.name for path in make_keys(tmp_path, ["localhost"], 2, days=1)} == {"client_0.key", "client_0.pub"}


def test_an_authority_whose_key_is_elsewhere_is_not_replaced(tmp_path: Path) -> None:
    """Its key is needed only where something is to be signed; the clients trust its certificate."""
    make_keys(tmp_path, ["localhost"], 1, days=1)
    authority = (tmp_path / "ca.crt").read_bytes()
    (tmp_path / "ca.key").unlink()
    assert [path.name for path in make_keys(tmp_path, ["localhost"], 2, days=1)] == ["client_1.key", "client_1.pub"]
    (tmp_path / "server.key").unlink()
    for _ in range(2):
        with pytest.raises(UserError, match=r"ca\.key is missing, and server\.crt has to be signed; put it back, or"):
            make_keys(tmp_path, ["localhost"], 2, days=1)
    assert (tmp_path / "ca.crt").read_bytes() == authority and not (tmp_path / "ca.key").exists()
    (tmp_path / "ca.crt").unlink()
    make_keys(tmp_path, ["localhost"], 2, days=1)
    assert shaken_hands(tmp_path, "localhost")


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("hosts", r"server\.crt is not of other; give the --hosts that it was made with, or take it away"),
        ("late", r"ca\.crt is valid from .* until .* only; take it away, and another is made"),
        ("ca.key", r"ca\.crt is not that of ca\.key; take it away"),
        ("server.key", r"server\.crt is not that of server\.key; take it away"),
        ("ca", r"server\.crt is not signed by ca\.crt; take it away"),
        ("text", r"server\.crt: not a readable certificate .*; take it away"),
    ],
)
def test_a_certificate_that_does_not_fit_is_named(
    fault: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, others = tmp_path / "ours", tmp_path / "others"
    for folder in (ours, others):
        make_keys(folder, ["localhost"], 1, days=1)
    for name in {"ca": ["ca.key", "ca.crt"], "ca.key": ["ca.key"], "server.key": ["server.key"]}.get(fault, []):
        (others / name).replace(ours / name)
    if fault == "text":
        (ours / "server.crt").write_text("none")
    if fault == "late":
        in_two_days = SimpleNamespace(now=lambda zone: datetime.now(zone) + timedelta(days=2))
        monkeypatch.setattr(keys, "datetime", in_two_days)
    before = {path: path.read_bytes() for path in ours.iterdir()}
    with pytest.raises(UserError, match=line):
        make_keys(ours, ["localhost", "other"] if fault == "hosts" else ["localhost"], 2, days=1)
    assert {path: path.read_bytes() for path in ours.iterdir()} == before


def test_keys_of_which_a_kill_has_left_half_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys have gone; their successors are written, and the process is killed at one write after the other."""

    class Killed(BaseException):
        pass

    write = keys._write
    make_keys(tmp_path, ["localhost"], 1, days=1)
    for done in range(4):
        for name in ("server.key", "client_0.key", "client_0.pub"):
            (tmp_path / name).unlink()
        writes = iter(range(done))

        def killed(path: Path, content: bytes, writes: Iterator[int] = writes) -> Path:
            if next(writes, None) is None:
                raise Killed
            return write(path, content)

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(keys, "_write", killed)
            make_keys(tmp_path, ["localhost"], 1, days=1)
        make_keys(tmp_path, ["localhost"], 1, days=1)
        assert shaken_hands(tmp_path, "localhost")
        private = load_ssh_private_key((tmp_path / "client_0.key").read_bytes(), None)
        public = load_ssh_public_key((tmp_path / "client_0.pub").read_bytes())
        assert isinstance(private, ec.EllipticCurvePrivateKey) and private.public_key() == public


def shaken_hands(folder: Path, host: str) -> bool:
    """Whether a client that trusts the authority takes the server for this host, by the strict rules of RFC 5280."""
    client, server = ssl.create_default_context(cafile=folder / "ca.crt"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=host), server.wrap_bio(up, down, server_side=True)]
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return all(end.cipher() is not None for end in ends)


def test_openssl_takes_the_server_for_its_hosts_and_for_no_other(tmp_path: Path) -> None:
    make_keys(tmp_path, ["server.example.org", "10.0.0.7"], 1, days=1)
    assert shaken_hands(tmp_path, "server.example.org") and shaken_hands(tmp_path, "10.0.0.7")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shaken_hands(tmp_path, "example.org")


def test_a_broken_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.key").write_text("no key")
    with pytest.raises(UserError, match=r"ca\.key: not a readable key"):
        make_keys(tmp_path, ["localhost"], 1, days=1)


def test_a_host_that_no_certificate_can_name_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--hosts: 'k\u00f6ln' is no name of a host"):
        make_keys(tmp_path / "keys", ["localhost", "k\u00f6ln"], 1, days=1)
    assert not (tmp_path / "keys").exists()


def test_flower_is_told_where_the_server_is(tmp_path: Path) -> None:
    said = tomllib.loads((write_connection(tmp_path, "server:8000") / "config.toml").read_text())["superlink"]
    assert said == {
        "default": "deployed",
        "deployed": {"address": "server:8000", "root-certificates": str(tmp_path.resolve() / "ca.crt")},
    }
