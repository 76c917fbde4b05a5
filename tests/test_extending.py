"""What a newcomer writes: the worked examples of docs/extending.md do what the page says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.networks import encoders
from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel
from network.algorithms import ALGORITHMS
from network.partition import rules
from network.settings import LocalSettings
from tests.conftest import ROOT
from tests.network import quadratic as q
from utils.args import Parser
from utils.arguments import NON_NEGATIVE, Argument
from utils.errors import UserError
from utils.settings import add_settings, arguments_in, check_read, recorded, setting
from utils.stage import key


def example(definition: str, names: dict[str, Any] | None = None) -> Any:
    """What the page's example defines, run with these names at hand."""
    page = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    [code] = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if definition in code]
    found = dict(names or {})
    exec(compile(code, "docs/extending.md", "exec"), found)
    return found[definition.split()[1].split("(")[0]]


def test_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "clipped", example("class ClippedFedAvg(FedAvg)"))

    def clipped(update: np.ndarray, most: float) -> np.ndarray:
        return update * min(1.0, most / np.linalg.norm(update))

    for most in (0.1, 100.0):
        x = q.START
        for _ in range(2):
            x = q.average([x + clipped(q.descend(x, client) - x, most) for client in range(2)])
        method = q.method("clipped", clip=most)
        assert method.record() == {"clip": most}  # what args.json has
        assert q.close(q.server_of(q.trained(method, tmp_path / str(most))), x)


def test_setting_of_every_federation() -> None:
    """One field is the argument, its help, its place in a record, and what makes two runs the same or not."""
    names = {"dataclass": dataclass, "LocalSettings": LocalSettings, "setting": setting, "NON_NEGATIVE": NON_NEGATIVE}
    noisy = example("class NoisyInputs(LocalSettings)", names)
    parser = Parser("a script")
    add_settings(parser, noisy, "local training")
    assert re.search(r"--input_noise INPUT_NOISE\s+standard deviation of noise on images", parser.format_help())

    def record(words: str) -> dict[str, Any]:
        config = vars(parser.parse_args(words.split()))
        check_read(config, noisy)
        assert noisy.from_config(config | {"test_mode": False}).input_noise == config["input_noise"]
        return recorded(config, arguments_in(noisy))

    before = key(record(""))
    assert "input_noise" not in before and key(record("--input_noise 0")) == before
    assert key(record("--input_noise 0.5")) == before | {"input_noise": 0.5}
    with pytest.raises(UserError, match=r"--input_noise 0\.5 changes nothing with --augment flip"):
        record("--input_noise 0.5 --augment flip")


def test_partition_rule(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_here: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    rule = rules.Rule(
        example("def power_law("), {"exponent": Argument(1.0, "how fast", NON_NEGATIVE)}, uses_alpha=False
    )
    monkeypatch.setitem(rules.PARTITIONERS, "power_law", rule)
    np.save(tmp_path / "labels.npy", np.repeat([0, 1, 2], 50))

    def sizes(given: str) -> list[int]:
        run_here(f"make_partition.py --labels labels.npy --n_clients 4 {given} --output_path out")
        return [len(images) for images in json.loads((tmp_path / "out/clients.json").read_text())]

    # Beyond one each, 146 images as 1, 1/2, 1/3 and 1/4: 70.08, 35.04, 23.36 and 17.52.
    assert sizes("--partition power_law") == [71, 36, 24, 19]
    assert sorted(sizes("--partition power_law --exponent 0")) == [37, 37, 38, 38]
    with pytest.raises(SystemExit):
        sizes("--partition iid --exponent 1")
    assert "--exponent is not an argument of --partition iid but of power_law" in capsys.readouterr().err


def test_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = encoders.EncoderEntry(example("def _strided(", vars(encoders)), image_size=32, n_skips=3)
    monkeypatch.setitem(encoders.ENCODERS, "strided", entry)
    model = TaskModel(ModelConfig("normal", encoder="strided", image_size=32, norm="group"))
    outputs = model(torch.rand(2, 3, 32, 32))
    assert outputs.encoded.shape == (2, 64) and outputs.output.shape == (2, 3, 32, 32)
