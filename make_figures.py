"""Stage 5: draw a sweep's figures: loss or a metric by round, what clients have at each alpha, and what that costs."""

from utils.errors import run_script


def main() -> None:
    """Draw the figures and print their files."""
    from reports.stages.figures import FIGURES, FigureSettings

    settings = FigureSettings.from_args(__doc__)
    from reports.console import wrapped
    from reports.finished import Results, check_versions

    results = Results(settings.result_path)
    for line in check_versions(results, settings.mixed_versions):
        print(wrapped(line))
    for path in FIGURES[settings.figure](settings, results, settings.figure_path or settings.result_path / "figures"):
        print(path)


if __name__ == "__main__":
    run_script(main)
