"""How fast rounds are on the GPU: a large network over its bare loop, small ones side by side, and a step captured."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from benchmarks.bare_loop import SCALES, BareLoop, compare, seconds_of
from benchmarks.generated import Scale, simulation_of
from benchmarks.on_gpu.measures import Measure, Result, Setup
from benchmarks.peer_processes import ours
from benchmarks.peers import CASES
from datasets.task_data import Batch
from models.networks.precision import has_bf16
from network.engine.simulation import Simulation
from network.engine.workspace import OneCopy, StackedCopies, VmappedCopies, Workspace

PAPER = replace(SCALES["paper"], n_steps=10)  # a fifth of the steps, to have several rounds
TRIAL = Scale("tiny", 16, "group", n_clients=5, n_steps=1, batch_size=4, images_a_client=4)
AT_ONCE = (1, 5, 25)
CROWDS = (25, 100)
STEPS = {"tiny at 64 px": SCALES["conv64"], "CLIP ViT-B/32": SCALES["paper"]}
_PAPER = "CLIP ViT-B/32 at 224 px, 25 clients, {} at once"
_DENSE = "dense network, {} clients"
_STEP = "a step of {}"
_WAYS = {"stacked": StackedCopies, "under vmap": VmappedCopies}


def paper_measures() -> list[Measure]:
    """The rows of `paper`."""
    rows = [Measure("a bfloat16 matrix product, TFLOP/s", ",.1f")]
    for at_once in AT_ONCE:
        first = at_once == AT_ONCE[0]
        name = _PAPER.format(at_once)
        rows += [
            Measure(f"{name}: images a second", ",.0f"),
            Measure(f"{name}: speed over the bare loop's", ".2f", least=0.9 if first else None),
            Measure(f"{name}: of the matrix rate", ".2f", least=0.4 if first else None),
            Measure(f"{name}: peak memory, GiB", ".1f"),
        ]
    return rows


def paper(setup: Setup) -> Iterator[Result]:
    """Rounds of the paper's federation over the bare loop, by how many clients train at once."""
    accelerator = Accelerator(cpu=setup.device == "cpu")
    precision = "bf16" if has_bf16(accelerator.device) else "fp32"
    for at_once in AT_ONCE:
        compared = compare(TRIAL if setup.small else PAPER, at_once, 1 if setup.small else 3, precision, accelerator)
        name, ratio = _PAPER.format(at_once), float(np.median(compared.bare / compared.ours))
        details = {"row": compared.row("paper"), "precision": precision, "disagreement": compared.disagreement}
        if at_once == AT_ONCE[0]:
            yield Result("a bfloat16 matrix product, TFLOP/s", compared.matrix_rate / 1e12, {"precision": precision})
        yield Result(f"{name}: images a second", float(np.median(compared.images_a_second)), details)
        yield Result(f"{name}: speed over the bare loop's", ratio)
        yield Result(f"{name}: of the matrix rate", float(np.median(compared.rate)) / compared.matrix_rate)
        if compared.memory is not None:
            yield Result(f"{name}: peak memory, GiB", compared.memory / 2**30)


def dense_measures() -> list[Measure]:
    """The rows of `dense`."""
    goals = {"stacked": 5.0, "under vmap": None}
    return [
        Measure(f"{_DENSE.format(n)}: {way} over one by one", ".1f", least=least)
        for n in CROWDS
        for way, least in goals.items()
    ]


def dense(setup: Setup) -> Iterator[Result]:
    """How many times as fast clients of a small dense network train side by side, all at once, as one by one."""
    for n in CROWDS:
        federation = replace(CASES["dense"], n_clients=n, n_steps=1 if setup.small else 10, at_once=n)
        federation = replace(federation, device=setup.device)
        with tempfile.TemporaryDirectory() as folder:
            simulation = ours.simulation_of(federation, Path(folder))
            simulation.resolve_vectorisation()
            device, model = simulation.accelerator.device, simulation.model
            ways: dict[str, Callable[[int], Workspace]] = {
                "one by one": lru_cache(lambda _, model=model: OneCopy(model))
            }
            ways |= {way: lru_cache(partial(kind, model)) for way, kind in _WAYS.items()}

            def a_round(
                way: str, simulation: Simulation = simulation, ways: dict[str, Callable] = ways, n: int = n
            ) -> None:
                """A round of all clients in this way."""
                simulation.trainer.vectorisation["vectorised_clients"] = 1 if way == "one by one" else n
                simulation.trainer._workspace = ways[way]
                simulation._train_round(0)

            seconds = in_turns({way: partial(a_round, way) for way in ways}, device, 1 if setup.small else 7)
        for way in _WAYS:
            details = {name: 1e3 * taken for name, taken in seconds.items()}
            name = f"{_DENSE.format(n)}: {way} over one by one"
            yield Result(name, seconds["one by one"] / seconds[way], {"ms a round": details})


def step_measures() -> list[Measure]:
    """The rows of `steps`."""
    return [
        Measure(f"{_STEP.format(name)}: speed {way} over as it is", ".2f")
        for name in STEPS
        for way in ("as a CUDA graph", "compiled")
    ]


def steps(setup: Setup) -> Iterator[Result]:
    """Whether it would pay to capture a step of the bare loop as a CUDA graph, or to compile its network."""
    accelerator = Accelerator(cpu=setup.device == "cpu")
    device, precision = accelerator.device, "bf16" if has_bf16(accelerator.device) else "fp32"
    for name, scale in STEPS.items():
        scale = replace(TRIAL if setup.small else scale, n_clients=1)
        with tempfile.TemporaryDirectory() as folder:
            simulation = simulation_of(scale, 1, accelerator, Path(folder), precision)
            bare = BareLoop(simulation)
        batch, lr = bare.batches(0, 0)[0], torch.full((), 1e-4, device=device)
        bare.model.train()
        plain = partial(bare.step, batch, bare.optimizer(lr))
        for way, make in {"as a CUDA graph": captured, "compiled": compiled}.items():
            if device.type == "cpu" and (setup.small or way == "as a CUDA graph"):
                continue  # compilation takes a minute there, and graphs are CUDA's
            turns = {"plain": partial(repeat, plain), way: partial(repeat, make(bare, batch, lr))}
            seconds = in_turns(turns, device, 7)
            details = {"ms a step": {name: 1e3 * taken / _REPEATED for name, taken in seconds.items()}}
            row = f"{_STEP.format(name)}: speed {way} over as it is"
            yield Result(row, seconds["plain"] / seconds[way], details | {"precision": precision})


_REPEATED = 20


def repeat(step: Callable[[], object]) -> None:
    """So many steps that the clock's start and end do not count."""
    for _ in range(_REPEATED):
        step()


def captured(bare: BareLoop, batch: Batch, lr: Tensor) -> Callable[[], object]:
    """A step on this batch as a CUDA graph."""
    step, side = partial(bare.step, batch, bare.optimizer(lr)), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is made at the first steps must not be made while they are captured
        repeat(step)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def compiled(bare: BareLoop, batch: Batch, lr: Tensor) -> Callable[[], object]:
    """A step on this batch with the network compiled."""
    optimizer, network = bare.optimizer(lr), torch.compile(bare.model)

    def step() -> None:
        """Forward, backward and optimiser step."""
        loss = bare.loss_of(network(batch.images).output, batch.target, batch.valid).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def in_turns(ways: Mapping[str, Callable[[], object]], device: torch.device, turns: int) -> dict[str, float]:
    """The median of each way's seconds, of turns after one that is not counted."""
    taken = [{name: seconds_of(way, device) for name, way in ways.items()} for _ in range(turns + 1)]
    return {name: float(np.median([turn[name] for turn in taken[1:]])) for name in ways}
