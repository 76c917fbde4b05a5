"""What a client, an image and a state cost in each part of a federation: processor time, and memory where it counts.

    python -m benchmarks.unit_costs                     (some minutes on one core)
    python -m benchmarks.unit_costs --clients 1000000

Clients have thirteen images each. `docs/scaling.md` adds up from these what federations take that nobody has run.
"""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator

from benchmarks.generated import Scale, model_and_data
from benchmarks.tables import print_table
from models.central.evaluation import evaluate
from network.engine.dispersion import gradient_dispersion
from network.engine.state import ClientStates
from network.partition.assigning import assign, read_partition
from network.partition.client_images import ClientImages
from network.partition.explained import target_share
from network.partition.groups import within
from network.partition.held_out import assign_held_out
from network.partition.heterogeneity import frechet_distances, report
from network.sampling import SAMPLERS
from utils.args import POSITIVE_INT, Parser
from utils.errors import run_script

IMAGES_A_CLIENT, A_ROUND, N_CLASSES = 13, 100, 16
_FEW, _STATES, _D = 250, 200, 50  # clients with images, clients with a state, size of a projected embedding
_DRAWN_FROM = 10_000_000  # clients: a permutation of few would lie in the caches
_STATE = 126_480  # numbers, the weights of `conv` in benchmarks/peers.py


def seconds_of(call: Callable[[], object]) -> float:
    """Processor seconds of this process: what else the machine does counts little."""
    start = time.process_time()
    call()
    return time.process_time() - start


def row(part: str, seconds: float, n: int, unit: str, memory: str = "") -> dict[str, object]:
    """A row of the table: microseconds for each of n units."""
    return {"part": part, "processor time, µs": f"{1e6 * seconds / n:,.3g}", "for": unit, "memory": memory}


def of_partition(n_clients: int) -> Iterator[dict[str, object]]:
    """Assigning by user, by class and at random; what is measured without a model; held-out images; files."""
    rng, n = np.random.default_rng(0), IMAGES_A_CLIENT * n_clients
    n_all = n + n // 10
    users = np.append(rng.permutation(np.arange(n) % n_clients), rng.integers(n_clients, size=n_all - n))
    labels = rng.integers(N_CLASSES, size=n_all)
    train, test = np.arange(n), np.arange(n, n_all)
    for rule, groups in (("natural", users), ("equal_size", labels), ("iid", labels)):
        assigned = within(groups, train)
        tracemalloc.start()
        taken = seconds_of(lambda rule=rule, assigned=assigned: assign(rule, assigned, n_clients, 1.0, 0).clients)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        yield row(f"assigned, {rule}", taken, n, "an image", f"{peak / n:.0f} bytes an image")
    partition = assign("natural", within(users, train), n_clients, 1.0, 0)
    yield row("measures by class", seconds_of(lambda: report(partition.client_of, labels, n_clients)), n, "an image")
    clients, held_out = partition.clients, within(users, test)
    yield row(
        "held-out images assigned", seconds_of(lambda: assign_held_out(clients, users, held_out, 0)), n_all, "an image"
    )
    with tempfile.TemporaryDirectory() as folder:
        names = [f"photographs/{number:09d}.jpg" for number in range(n_all)]
        taken = seconds_of(lambda: partition.save(Path(folder), names, labels))
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        yield row("partition saved", taken, n, "an image", f"{size / n:.0f} bytes an image on disk")
        yield row("partition read", seconds_of(lambda: read_partition(Path(folder))), n, "an image")
    few = partition.client_of[:n] < 20_000
    embeddings = rng.normal(size=(int(few.sum()), _D)).astype(np.float32)
    owners, n_few = partition.client_of[:n][few], min(n_clients, 20_000)
    yield row(
        f"Fréchet distance, D = {_D}",
        seconds_of(lambda: frechet_distances(embeddings, owners, n_few)),
        n_few,
        "a client",
    )


def of_rounds(n_clients: int) -> Iterator[dict[str, object]]:
    """The choice of a round's clients, and states in checkpoints."""
    sizes = np.full(_DRAWN_FROM, IMAGES_A_CLIENT)
    for name, sampler in SAMPLERS.items():
        taken = min(seconds_of(lambda s=sampler: s(sizes, A_ROUND, np.random.default_rng(0))) for _ in range(5))
        yield row(f"a round's clients drawn, {name}", taken, _DRAWN_FROM, "a client of ten million")
    with tempfile.TemporaryDirectory() as folder:
        states = ClientStates(Path(folder), range(n_clients), n_clients, torch.device("cpu"))
        for client in range(_STATES):
            states.save(client, {"control": torch.zeros(_STATE)})
        taken = seconds_of(states.checkpoint)
        yield row("state written", taken, _STATES, "a client of the round", f"{4 * _STATE / 2**20:.1f} MiB on disk")


def of_models() -> Iterator[dict[str, object]]:
    """Passes over all images: depth from images of 32 px by the network `tiny`."""
    scale = Scale("tiny", 32, "group", n_clients=_FEW, n_steps=1, images_a_client=IMAGES_A_CLIENT)
    accelerator = Accelerator(cpu=True)
    model, data = model_and_data(scale, accelerator)
    data.batch(torch.zeros(1, dtype=torch.int64))  # decodes all images
    client_of, n = np.full(len(data), -1), len(data.train)
    client_of[:n] = np.arange(n) % _FEW
    clients = ClientImages.assigned(client_of, _FEW)
    yield row("target's share", seconds_of(lambda: target_share(data, client_of, _FEW)), n, "an image")
    yield row("V", seconds_of(lambda: gradient_dispersion(model, data, clients, accelerator)), _FEW, "a client")
    yield row("evaluation", seconds_of(lambda: evaluate(model, data, data.train, None)), n, "an image")


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("--clients", type=POSITIVE_INT, default=200_000, help="how many")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [*of_partition(args.clients), *of_rounds(args.clients), *of_models()]
    print_table(f"{args.clients:,} clients of {IMAGES_A_CLIENT} images, {A_ROUND} a round, one thread", rows)


if __name__ == "__main__":
    run_script(main)
