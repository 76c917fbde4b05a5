"""A federated round over the bare loop: the same steps on batches that are decoded and in place, and nothing else.

    python -m benchmarks.bare_loop                        (two minutes on two CPU cores)
    python -m benchmarks.bare_loop --scale paper --precision bf16 --vectorised_clients 1 5 25
                                                          (CLIP ViT-B/32 at 224 px; a GPU)

The bare loop is the limit: forward, backward and optimiser step of the same model in the same memory order, precision
and optimiser. Its time leaves out what joins clients to a federation (decoding, loading and averaging models, losses,
learning rates), which it does too, for the check that both end with the same weights and loss.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.agreement import check_values, check_weights
from benchmarks.generated import Scale, simulation_of
from benchmarks.tables import middle, print_table
from datasets.task_data import Batch
from losses import LOSSES
from models.central.evaluation import evaluate, mean_values
from models.networks.task_model import TaskModel
from network.engine.client import copy_into
from network.engine.simulation import Simulation
from network.engine.state import cast_like
from network.sampling import shuffled_epochs
from utils.args import POSITIVE_INT, Parser, number_or_auto
from utils.errors import run_script
from utils.streams import generator

SCALES = {
    "smallest": Scale("tiny", 16, "group", n_clients=2, n_steps=2, batch_size=4, images_a_client=8),  # for trying out
    "builtin": Scale("tiny", 32, "group", n_clients=10, n_steps=20),
    "conv64": Scale("tiny", 64, "group", n_clients=10, n_steps=20),
    "paper": Scale("clip_vit_b32", 224, "batch", n_clients=25, n_steps=50, lr=0.01),
}
TOLERANCES = {"fp32": 1e-3, "bf16": 5e-2}  # of the way that the weights have gone, and of the loss


def seconds_of(call: Callable[[], object], device: torch.device) -> float:
    """Seconds that a call takes, until the device has done its work."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - start


class BareLoop:
    """The rounds of a `Simulation` of FedAvg, written out plainly on a model of their own."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation, self.device = simulation, simulation.accelerator.device
        self.model = TaskModel(simulation.model.config).to(self.device).to(memory_format=torch.channels_last)
        self.model.bf16 = simulation.model.bf16
        self.server = {name: tensor.clone() for name, tensor in simulation.server.items()}
        self.loss_of = LOSSES[simulation.data.images.task.loss]

    def batches(self, client: int, round: int) -> list[Batch]:
        """What the client sees in a round, decoded."""
        federation, settings = self.simulation, self.simulation.config.local
        images = federation.data.clients[client]
        rng = generator("batches", federation.config.settings.rand_seed, round, client, "")
        plan = shuffled_epochs(len(images), settings.batch_size, settings.sgd_per_epoch, rng)
        return [federation.data.images.batch(torch.from_numpy(images[at]).to(self.device)) for at in plan]

    def step(self, batch: Batch, optimizer: torch.optim.Optimizer) -> None:
        """Forward, backward and optimiser step."""
        loss = self.loss_of(self.model(batch.images).output, batch.target, batch.valid).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    def optimizer(self, lr: Tensor) -> torch.optim.Optimizer:
        """The clients' optimiser, afresh."""
        momentum = self.simulation.config.local.momentum
        return torch.optim.SGD(self.model.parameters(), lr=lr, momentum=momentum, fused=True)

    def steps(self, round: int, batches: list[Batch], lr: Tensor, optimizer: torch.optim.Optimizer) -> None:
        """The steps of one client in a round."""
        settings = self.simulation.config.local
        for step, batch in enumerate(batches):
            progress = (round + step / len(batches)) / settings.n_rounds
            lr.fill_(settings.init_lr * 0.5 * (1.0 + math.cos(math.pi * progress)))
            self.step(batch, optimizer)

    def round(self, round: int) -> float:
        """One round of all clients; the seconds of their steps."""
        n_clients, seconds = len(self.simulation.data.clients), 0.0
        tensors, mean = self.model.state_dict(), {}
        for client in range(n_clients):
            batches = self.batches(client, round)
            copy_into(tensors, self.server)
            lr = torch.zeros((), device=self.device)
            self.model.train()
            seconds += seconds_of(partial(self.steps, round, batches, lr, self.optimizer(lr)), self.device)
            for name, tensor in tensors.items():
                mean[name] = mean.get(name, 0.0) + tensor.double() / n_clients
        self.server = {name: cast_like(mean[name], tensor) for name, tensor in tensors.items()}
        return seconds

    def flops(self) -> int:
        """Multiplications and additions of a step's matrix products and convolutions."""
        batch = self.batches(0, 0)[0]
        with FlopCounterMode(display=False) as counter:
            self.step(batch, self.optimizer(torch.zeros((), device=self.device)))
        return counter.get_total_flops()


def matrix_rate(precision: str, device: torch.device) -> float:
    """Operations a second of a large matrix product: the fastest of ten."""
    size = 8192 if device.type == "cuda" else 1024
    matrix = torch.rand(size, size, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    return 2 * size**3 / min(seconds_of(lambda: matrix @ matrix, device) for _ in range(10))


def check(simulation: Simulation, bare: BareLoop, start: Mapping[str, np.ndarray], precision: str) -> None:
    """AssertionError if both ways have not ended with the same model."""
    ours, theirs = ({n: t.cpu().numpy() for n, t in server.items()} for server in (simulation.server, bare.server))
    check_weights("Simulation", ours, theirs, start, TOLERANCES[precision])
    losses, images = [], simulation.data.images
    for server in (simulation.server, bare.server):
        bare.model.load_state_dict(server)
        statistics = evaluate(bare.model, images, images.test, None)
        losses.append(mean_values(images, statistics)["loss"])
    check_values("loss", *losses, TOLERANCES[precision])


@dataclass(frozen=True)
class Comparison:
    """Rounds of both ways, (repeats,) seconds each.

    `flops` are a step's operations, and `matrix_rate` the operations a second of a matrix product; `memory` is the peak
    of a round of ours on a GPU, in bytes. `disagreement` says how the ways have ended otherwise, if they have.
    """

    scale: Scale
    at_once: int
    parameters: int
    ours: np.ndarray
    bare: np.ndarray
    flops: int
    matrix_rate: float
    memory: int | None
    disagreement: str

    @property
    def images_a_second(self) -> np.ndarray:
        """Of ours."""
        return self.scale.n_clients * self.scale.n_steps * self.scale.batch_size / self.ours

    @property
    def rate(self) -> np.ndarray:
        """Operations a second of ours."""
        return self.flops * self.scale.n_clients * self.scale.n_steps / self.ours

    def row(self, name: str) -> dict[str, object]:
        """A row of the table."""
        n_steps = self.scale.n_clients * self.scale.n_steps
        return {
            "scale": name,
            "clients at once": self.at_once,
            "parameters": f"{self.parameters:,}",
            "bare, ms a step": middle(1e3 * self.bare / n_steps, 2),
            "ours, ms a step": middle(1e3 * self.ours / n_steps, 2),
            "ours / bare": middle(self.ours / self.bare, 3),
            "overhead a client, ms": middle(1e3 * (self.ours - self.bare) / self.scale.n_clients, 1),
            "TFLOP/s": middle(self.rate / 1e12, 3),
            "of the matrix rate": middle(self.rate / self.matrix_rate, 2),
            "GPU memory, GiB": "–" if self.memory is None else f"{self.memory / 2**30:.1f}",
        }


def compare(scale: Scale, at_once: int | None, repeats: int, precision: str, accelerator: Accelerator) -> Comparison:
    """Rounds of both ways in turn, after one of each that is not counted."""
    device = accelerator.device
    with tempfile.TemporaryDirectory() as folder:
        simulation = simulation_of(scale, repeats + 1, accelerator, Path(folder), precision, at_once)
        simulation.resolve_vectorisation()
        bare, seconds = BareLoop(simulation), {"ours": [], "bare": []}
        start = {key: tensor.cpu().numpy() for key, tensor in bare.server.items()}
        for round in range(repeats + 1):
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            seconds["ours"].append(seconds_of(lambda round=round: simulation._train_round(round), device))
            memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
            seconds["bare"].append(bare.round(round))
        disagreement = ""
        try:
            check(simulation, bare, start, precision)
        except AssertionError as error:
            disagreement = str(error)
        ours, least = (np.array(values[1:]) for values in seconds.values())
        size = sum(parameter.numel() for parameter in bare.model.parameters())
        return Comparison(
            scale,
            simulation.trainer.vectorisation["vectorised_clients"],
            size,
            ours,
            least,
            bare.flops(),
            matrix_rate(precision, device),
            memory,
            disagreement,
        )


def measure(
    name: str, scale: Scale, at_once: int | None, repeats: int, precision: str, accelerator: Accelerator
) -> dict[str, object]:
    """A row of the table; AssertionError if both ways have not ended with the same model."""
    compared = compare(scale, at_once, repeats, precision, accelerator)
    assert not compared.disagreement, compared.disagreement
    return compared.row(name)


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__.split("\n")[0])
    add = parser.add_argument
    add("--scale", nargs="+", choices=SCALES, default=["builtin", "conv64"], help="how large the federation is")
    add("--precision", choices=TOLERANCES, default="fp32", help="of both ways")
    add("--n_clients", type=POSITIVE_INT, help="instead of the scale's")
    add("--n_steps", type=POSITIVE_INT, help="steps per client and round, instead of the scale's")
    add("--image_size", type=POSITIVE_INT, help="instead of the scale's")
    add("--vectorised_clients", nargs="+", type=number_or_auto, default=[1], help="of ours; auto: what is fastest")
    add("--repeats", type=POSITIVE_INT, default=9, help="rounds of each way, beside one that is not counted")
    parser.add_flag("--use_accelerator", True, "compute on the GPU that accelerate finds; False keeps to the CPU")
    args = parser.parse_args()
    accelerator = Accelerator(cpu=not args.use_accelerator)
    changes = {name: vars(args)[name] for name in ("n_clients", "n_steps", "image_size") if vars(args)[name]}
    rows = [
        measure(name, replace(SCALES[name], **changes), at_once, args.repeats, args.precision, accelerator)
        for name in args.scale
        for at_once in args.vectorised_clients
    ]
    where = torch.cuda.get_device_name() if accelerator.device.type == "cuda" else f"{torch.get_num_threads()} threads"
    print_table(f"{args.precision}, {where}, median (min to max) of {args.repeats} rounds", rows)


if __name__ == "__main__":
    run_script(main)
