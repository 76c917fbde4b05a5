"""Take part in a federation from a client's own machine: a SuperNode of Flower, and the process that trains for it."""

import os
import re
from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path

from utils.errors import UserError, run_script
from utils.settings import REQUIRED, Settings, setting


def address(text: str) -> str:
    """An argparse type: a host and a port, without which a SuperNode would be started again and again."""
    match = re.fullmatch(r".+:(\d{1,5})", text)
    if not match or not 0 < int(match[1]) < 65536:
        raise ArgumentTypeError(f"{text!r} is no HOST:PORT")
    return text


@dataclass(frozen=True, kw_only=True)
class ClientSettings(Settings):
    """Whose machine this is, and how it reaches the server."""

    superlink: str = setting(REQUIRED, "the server's SuperLink", address, metavar="HOST:PORT")
    root_certificates: Path | None = setting(
        None,
        "certificate of the authority that signed the SuperLink's; default: no encryption, for tests on one machine",
        Path,
    )
    private_key: Path | None = setting(None, "this client's key, by which the SuperLink knows it", Path)
    use_accelerator: bool = setting(True, "compute on a GPU that is there; False keeps to the CPU", bool)
    folder: Path = setting(
        REQUIRED,
        "this client's images: a folder that make_partition.py --export_clients wrote",
        Path,
        heading="data",
    )


def main() -> None:
    """Answer the server until stopped."""
    args = ClientSettings.from_args(__doc__)
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # Flower reads it when it is imported, its SuperNode as well
    from deploy.shares import read_share
    from deploy.worker import run_client

    if read_share(args.folder).client is None:
        raise UserError(f"{args.folder} has the server's images; give a client's")
    for name in ("root_certificates", "private_key"):
        if (path := getattr(args, name)) is not None and not path.is_file():
            raise UserError(f"{path}: no such file; see --{name}")
    if args.private_key and not args.root_certificates:
        raise UserError("--private_key needs a connection with TLS; give --root_certificates")
    run_client(args.superlink, args.folder, args.use_accelerator, args.root_certificates, args.private_key)


if __name__ == "__main__":
    run_script(main, requirements="requirements-flower.txt")
