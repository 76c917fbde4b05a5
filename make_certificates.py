"""Make the keys of a deployed federation: an authority, the server's certificate, and a key for each client."""

from argparse import Namespace
from pathlib import Path

from utils.args import POSITIVE_INT, Parser, number
from utils.errors import run_script


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    text = "names and addresses by which clients reach the server"
    parser.group("running").add_argument("--hosts", nargs="+", default=["localhost", "127.0.0.1"], help=text)
    parser.group("running").add_argument("--n_clients", type=POSITIVE_INT, required=True, help="number of clients")
    parser.group("running").add_argument(
        "--port", type=number(int, least=1, most=65535), default=8000, help="port of the SuperLink"
    )
    text = "days for which the certificates are valid"
    parser.group("running").add_argument("--days", type=number(int, least=1, most=36500), default=365, help=text)
    text = "folder for the keys; those that lie there are kept"
    parser.group("output").add_argument("--output_path", type=Path, default=Path("keys"), help=text)
    return parser.parse_args()


def main() -> None:
    """Write what is missing."""
    args = parse_args()
    from deploy.keys import make_keys, write_connection

    made = make_keys(args.output_path, args.hosts, args.n_clients, args.days)
    print(f"{len(made)} new files in {args.output_path}" if made else f"nothing is missing in {args.output_path}")
    home = write_connection(args.output_path, f"{args.hosts[0]}:{args.port}")
    print("server.key and ca.key stay with the server; client k gets client_<k>.key and ca.crt")
    print(f"for the programs of Flower on the server: export FLWR_HOME={home.resolve()}")


if __name__ == "__main__":
    run_script(main, requirements="requirements-flower.txt")
