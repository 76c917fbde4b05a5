"""Make the keys of a deployed federation: an authority, the server's certificate, and a key for each client."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from utils.args import POSITIVE_INT, number
from utils.errors import run_script
from utils.settings import REQUIRED, Settings, setting


@dataclass(frozen=True, kw_only=True)
class KeySettings(Settings):
    """Whose keys are made, and where."""

    hosts: Sequence[str] = setting(
        ("localhost", "127.0.0.1"), "names and addresses by which clients reach the server", nargs="+"
    )
    n_clients: int = setting(REQUIRED, "number of clients", POSITIVE_INT)
    port: int = setting(8000, "port of the SuperLink", number(int, least=1, most=65535))
    days: int = setting(365, "days for which the certificates are valid", number(int, least=1, most=36500))
    output_path: Path = setting(
        Path("keys"), "folder for the keys; those that lie there are kept", Path, heading="output"
    )


def main() -> None:
    """Write what is missing."""
    args = KeySettings.from_args(__doc__)
    from deploy.keys import make_keys, write_connection

    made = make_keys(args.output_path, args.hosts, args.n_clients, args.days)
    print(f"{len(made)} new files in {args.output_path}" if made else f"nothing is missing in {args.output_path}")
    home = write_connection(args.output_path, f"{args.hosts[0]}:{args.port}")
    print("server.key and ca.key stay with the server; client k gets client_<k>.key and ca.crt")
    print(f"for the programs of Flower on the server: export FLWR_HOME={home.resolve()}")


if __name__ == "__main__":
    run_script(main, requirements="requirements-flower.txt")
