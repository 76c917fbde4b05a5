"""The benchmark of the bare loop, made small: both ways train the same, and a way that does not is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from benchmarks import bare_loop
from benchmarks.bare_loop import SCALES, BareLoop, check
from benchmarks.generated import simulation_of
from models.networks.precision import has_bf16


@pytest.mark.parametrize(("norm", "precision"), [("batch", "fp32"), ("group", "fp32"), ("group", "bf16")])
def test_table_has_a_row_a_scale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, norm: str, precision: str
) -> None:
    if precision == "bf16" and not has_bf16(torch.device("cpu")):
        pytest.skip("the processor has no bfloat16 arithmetic")
    monkeypatch.setitem(SCALES, "smallest", replace(SCALES["smallest"], norm=norm))
    command = f"bare_loop --scale smallest --repeats 2 --n_steps 3 --use_accelerator False --precision {precision}"
    monkeypatch.setattr("sys.argv", command.split())
    bare_loop.main()
    header, row = (line for line in capsys.readouterr().out.splitlines() if line.startswith("| "))
    assert "ours / bare" in header and row.split("|")[1].strip() == "smallest"


def test_a_way_that_trains_otherwise_is_found(tmp_path: Path) -> None:
    simulation = simulation_of(SCALES["smallest"], 2, Accelerator(cpu=True), tmp_path)
    bare = BareLoop(simulation)
    start = {name: tensor.numpy().copy() for name, tensor in bare.server.items()}
    for round in range(2):
        simulation._train_round(round)
        bare.round(round)
    check(simulation, bare, start, "fp32")
    bare.server = {name: tensor * 1.01 for name, tensor in bare.server.items()}
    with pytest.raises(AssertionError, match="off by"):
        check(simulation, bare, start, "fp32")


def test_operations_of_a_step_are_those_of_its_layers(tmp_path: Path) -> None:
    bare = BareLoop(simulation_of(SCALES["smallest"], 1, Accelerator(cpu=True), tmp_path))
    forward: list[int] = []

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        # A transposed convolution multiplies its weights once for each pixel that goes in, the others for each one out.
        pixels = inputs[0] if isinstance(layer, nn.ConvTranspose2d) else output
        places = pixels.numel() // pixels.shape[1]
        forward.append(2 * places * layer.weight.numel())

    for module in bare.model.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            module.register_forward_hook(count)
    flops = bare.flops()
    # Backward costs twice as much: gradients of weights and of inputs; but the images, first of all, need none.
    assert flops == 3 * sum(forward) - forward[0]
