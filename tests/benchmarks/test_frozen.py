"""The benchmark of frozen encoders, made small: both ways train the same, and ratios of both networks are printed."""

from __future__ import annotations

import pytest

from benchmarks import frozen
from benchmarks.generated import Scale


@pytest.mark.parametrize("half", [False, True])
def test_table_has_a_row_a_network(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, half: bool) -> None:
    small = {"n_clients": 2, "n_steps": 2, "batch_size": 4, "images_a_client": 6, "train": "decoder", "lr": 0.01}
    monkeypatch.setattr(
        frozen,
        "CASES",
        {
            "linear": Scale("timm:test_vit", 32, "batch", task="classification", decoder="linear", **small),
            "unet": Scale("tiny", 32, "group", task="reshading", decoder="unet", **small),
        },
    )
    monkeypatch.setattr("sys.argv", f"frozen --repeats 1 --use_accelerator False --half {half}".split())
    frozen.main()
    header, *rows = (line for line in capsys.readouterr().out.splitlines() if line.startswith("| "))
    assert [row.split("|")[1].strip() for row in rows] == ["linear", "unet"]
    assert "kept / runs" in header and "MACs allow" in header


def test_a_way_that_trains_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = frozen.EncoderOutputs.kept_in
    monkeypatch.setattr(frozen.EncoderOutputs, "kept_in", lambda self, folder: 1.1 * spoilt(self, folder))
    scale = Scale("tiny", 16, "group", 2, 2, 4, 6, task="reshading", decoder="unet", train="decoder")
    with pytest.raises(AssertionError, match="loss"):
        frozen.measure("spoilt", scale, 1, False, 1, frozen.Accelerator(cpu=True))
