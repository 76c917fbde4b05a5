"""Stage 6: make an HTML page of a results folder: tables, figures, and the arguments and versions of its runs."""

from dataclasses import dataclass
from pathlib import Path

from utils.errors import UserError, run_script
from utils.settings import Settings, setting
from utils.stage import shared


@dataclass(frozen=True)
class PageSettings(Settings):
    """What is on the page, and where it goes."""

    result_path: Path = shared("result_path")
    report_file: Path | None = setting(
        None, "file of the page; default: report.html in the result path", Path, heading="options"
    )


def main() -> None:
    """Write the page; it needs no network, no server and no file beside it."""
    args = PageSettings.from_args(__doc__)
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
