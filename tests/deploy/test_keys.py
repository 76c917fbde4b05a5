"""The keys of a federation are what TLS and Flower take, and stay once they are made."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from deploy.keys import make_keys, write_connection
from utils.errors import UserError


def test_the_servers_certificate_is_the_authoritys_and_of_its_hosts(tmp_path: Path) -> None:
    make_keys(tmp_path, ["server.example.org", "10.0.0.7"], 2, days=3)
    authority, server = (x509.load_pem_x509_certificate((tmp_path / f"{name}.crt").read_bytes())
                         for name in ("ca", "server"))  # fmt: skip
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
    assert [path.name for path in make_keys(tmp_path, ["other"], 2, days=1)] == ["server.crt"]
    assert all(path.read_bytes() == content for path, content in before.items() if path.name != "server.crt")


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
