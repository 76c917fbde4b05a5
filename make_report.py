"""Stage 6: make an HTML page of a results folder: tables, figures, and the arguments and versions of its runs."""

from argparse import Namespace
from pathlib import Path

from utils.args import Parser
from utils.errors import UserError, run_script
from utils.stage import add_shared


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    add_shared(parser, "result_path")
    parser.add_argument("--report_file", type=Path, help="file of the page; default: report.html in the result path")
    return parser.parse_args()


def main() -> None:
    """Write the page; it needs no network, no server and no file beside it."""
    args = parse_args()
    from reports.page import report_page
    from utils.files import write_atomically

    if not args.result_path.is_dir():
        raise UserError(f"{args.result_path}: no such folder; see --result_path")
    path = args.report_file or args.result_path / "report.html"
    page = report_page(args.result_path)
    with write_atomically(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    print(f"{path}: {len(page.encode()) / 1e6:.1f} MB, opens in any browser")


if __name__ == "__main__":
    run_script(main)
