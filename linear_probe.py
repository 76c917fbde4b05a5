"""Measure what a run's encoder has learnt: a linear probe of its features, and one of the same network untrained."""

from dataclasses import dataclass
from pathlib import Path

from utils.args import POSITIVE
from utils.errors import run_script
from utils.settings import REQUIRED, Settings, setting
from utils.stage import shared


@dataclass(frozen=True)
class ProbeSettings(Settings):
    """Which run's encoder is probed, and how."""

    run: Path = setting(REQUIRED, "directory of a run of test_fed.py", Path, heading="model")
    inverse_penalty: float = setting(
        1.0, "inverse strength of the probe's regularisation", POSITIVE, heading="training"
    )
    data_path: Path | None = shared("data_path")


def main() -> None:
    """Print the accuracy on global test and write it into linear_probe.json beside the run's summary."""
    args = ProbeSettings.from_args(__doc__)
    from network.linear_probe import probe_run
    from utils.files import write_json

    values = probe_run(args.run, args.data_path, args.inverse_penalty)
    write_json(args.run / "linear_probe.json", values)
    print(
        f"{args.run}: accuracy {values['accuracy']:.4f} on {values['n_test']} images of global test; "
        f"untrained {values['untrained']:.4f}, the commonest class {values['trivial']:.4f}"
    )


if __name__ == "__main__":
    run_script(main)
