"""Whether a federated round on the GPU computes what it does on the CPU, waits for nothing, and can be repeated."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from benchmarks.agreement import share_off
from benchmarks.generated import Scale, simulation_of
from benchmarks.on_gpu.measures import Measure, Result, Setup
from benchmarks.on_gpu.waiting import nothing_waits
from benchmarks.processes import elsewhere
from models.networks.precision import has_bf16
from network.engine.simulation import Simulation
from network.engine.trainer import LOSS

NETWORKS = {
    "tiny": Scale("tiny", 64, "group", n_clients=2, n_steps=5, lr=0.01),
    "efficientnet_lite0": Scale("efficientnet_lite0", 96, "batch", n_clients=2, n_steps=3, lr=0.01),
    "clip_vit_b32": Scale("clip_vit_b32", 224, "batch", n_clients=2, n_steps=2, batch_size=8, lr=0.01),
}
SMALL = {  # CLIP has 88 million parameters at any size: its kind and EfficientNet's, as small as timm has them
    "tiny": Scale("tiny", 16, "group", n_clients=2, n_steps=2, batch_size=4, images_a_client=8, lr=0.01),
    "efficientnet_lite0": Scale("timm:test_efficientnet", 32, "batch", 2, 1, 4, 4, lr=0.01),
    "clip_vit_b32": Scale("timm:test_vit", 32, "batch", 2, 1, 2, 2, lr=0.01),
}
# How far a loss, and the weights by the way that they have gone, may be off. TF32 has ten bits of a factor, bfloat16
# seven.
BOUNDS = {"single precision": (1e-4, 1e-2), "TF32": (1e-3, 0.05), "bfloat16": (2e-2, 0.2)}
NOTHING, EQUAL = "nothing", "equal to the bit"
_SINGLE, _TF32, _BF16 = BOUNDS
_SHOWN = (LOSS, "train_loss_mean", "test_loss")


@dataclass(frozen=True)
class Ends:
    """What a round ends with: losses by name, and the weights before and after it."""

    losses: dict[str, float]
    start: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]


def measures() -> list[Measure]:
    """The rows of all networks."""
    rows = []
    for network in NETWORKS:
        for precision, (of_loss, of_weights) in BOUNDS.items():
            rows.append(Measure(f"{network}, {precision}: losses off the CPU's", ".1e", most=of_loss))
            rows.append(Measure(f"{network}, {precision}: weights off, of the way", ".1e", most=of_weights))
        rows.append(Measure(f"{network}: what local training waits for", word=NOTHING))
        rows.append(Measure(f"{network}: a round repeated, deterministic", word=EQUAL))
    return rows


def measure(network: str, setup: Setup) -> Iterator[Result]:
    """The rows of a network."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # without which cuBLAS has no deterministic algorithms
    scale, device = (SMALL if setup.small else NETWORKS)[network], torch.device(setup.device)
    expected = elsewhere(a_round, scale, "cpu")  # before this process uses the GPU, because it is forked
    for precision in BOUNDS:
        if (precision == _TF32 and device.type == "cpu") or (precision == _BF16 and not has_bf16(device)):
            continue
        measured = a_round(scale, setup.device, precision)
        details = {"losses": measured.losses, "on the CPU": expected.losses, "network": scale.encoder}
        yield Result(f"{network}, {precision}: losses off the CPU's", losses_off(measured, expected), details)
        off = share_off(measured.weights, expected.weights, expected.start)
        yield Result(f"{network}, {precision}: weights off, of the way", off)
    yield Result(f"{network}: what local training waits for", waits_for(scale, device))
    yield Result(f"{network}: a round repeated, deterministic", repeated(scale, setup.device))


def a_round(scale: Scale, device: str, precision: str = _SINGLE) -> Ends:
    """A round with its evaluations, in the way of `test_fed.py`."""
    torch.backends.cudnn.allow_tf32 = precision == _TF32
    with tempfile.TemporaryDirectory() as folder:
        simulation = _simulation(scale, device, folder, "bf16" if precision == _BF16 else "fp32")
        start = _arrays(simulation.server)
        row = simulation.train()[-1]
        return Ends({name: row[name] for name in _SHOWN}, start, _arrays(simulation.server))


def losses_off(measured: Ends, expected: Ends) -> float:
    """The largest difference of a loss, as a share of the expected one."""
    return max(abs(measured.losses[name] - loss) / abs(loss) for name, loss in expected.losses.items())


def waits_for(scale: Scale, device: torch.device) -> str:
    """What the local training of a round's clients waits for from the device, if anything."""
    with tempfile.TemporaryDirectory() as folder:
        simulation = _simulation(scale, device.type, folder)
        simulation.resolve_vectorisation()
        _train_clients(simulation)  # the first time libraries choose their algorithms
        try:
            with nothing_waits(device):
                _train_clients(simulation)
        except RuntimeError as error:
            return str(error).splitlines()[0]
    return NOTHING


def repeated(scale: Scale, device: str) -> str:
    """Whether deterministic algorithms train a round to the same bits twice; which one there is not, else."""
    torch.use_deterministic_algorithms(True)
    try:
        first, second = (_trained(scale, device) for _ in range(2))
    except RuntimeError as error:
        return str(error).split(".")[0]
    finally:
        torch.use_deterministic_algorithms(False)
    other = [name for name, array in first.items() if not np.array_equal(array, second[name])]
    return f"{len(other)} of {len(first)} tensors differ" if other else EQUAL


def _trained(scale: Scale, device: str) -> dict[str, np.ndarray]:
    """The server's tensors after a round without evaluations."""
    with tempfile.TemporaryDirectory() as folder:
        simulation = _simulation(scale, device, folder)
        simulation.resolve_vectorisation()
        simulation._train_round(0)
        return _arrays(simulation.server)


def _simulation(scale: Scale, device: str, folder: str, precision: str = "fp32") -> Simulation:
    return simulation_of(scale, 1, Accelerator(cpu=device == "cpu"), Path(folder), precision)


def _train_clients(simulation: Simulation) -> None:
    for _ in simulation.trainer.train(simulation.cohort(0), simulation.server, 0):
        pass


def _arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.cpu().numpy().copy() for name, tensor in tensors.items()}
