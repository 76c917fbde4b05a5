"""Simulated clients that are like given ones: the rule and α by which they are assigned, and how near they come."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from network.partition.assigning import assign
from network.partition.groups import CLASSES, EMBEDDING
from network.partition.heterogeneity import earth_movers_distance, size_imbalance, sparse_counts
from network.partition.own_clients import BY_CLASS, Measured, OwnClients
from utils.errors import UserError
from utils.files import as_file_name, write_atomically

_DRAWS = 5
EMD, IMBALANCE = "emd", "size_imbalance"

Shares = Mapping[str, Callable[[np.ndarray, int], float]]  # of a target by its task, from client_of (N,) and clients


@dataclass(frozen=True)
class Simulated:
    """Clients assigned by a rule, beside those that they are to be like.

    `own` has the earth mover's distance to the population, the coefficient of variation of the sizes and the shares of
    targets between clients; `drawn` the same of the simulated clients, means over draws. `arguments` are those of
    `test_fed.py` where the grouping is a table's, which it assigns, of `make_partition.py` otherwise.
    """

    grouping: str
    rule: str
    alpha: float
    arguments: str
    own: Mapping[str, float]
    drawn: Mapping[str, float]

    @property
    def distance(self) -> float:
        """How far the simulated clients are from the given ones by EMD and sizes."""
        return sum(abs(self.own[name] - self.drawn[name]) for name in (EMD, IMBALANCE))

    def row(self) -> dict[str, Any]:
        """The numbers by name, for a table."""
        drawn = {f"{name}_simulated": value for name, value in self.drawn.items()}
        record = {"grouping": self.grouping, "rule": self.rule, "alpha": self.alpha, "arguments": self.arguments}
        return {**record, **self.own, **drawn}

    def sentence(self) -> str:
        """The way back in words."""
        words = {EMD: "EMD", IMBALANCE: "size imbalance"}
        near = "; ".join(
            f"{words.get(name, name)} {self.drawn[name]:.2f} (own {self.own[name]:.2f})" for name in self.own
        )
        return f"{self.grouping}: to simulate, {self.arguments}: {near}"

    def save(self, folder: Path) -> Path:
        """Write the arguments into a file that scripts take as `@FILE`; returns it."""
        path = folder / f"simulate_{as_file_name(self.grouping)}.txt"
        with write_atomically(path) as temporary:
            temporary.write_text(f"# {self.sentence()}\n{self.arguments}\n", encoding="utf-8")
        return path


def simulate(clients: OwnClients, measured: Measured, seed: int, shares: Shares) -> list[Simulated]:
    """The clients that each rule assigns at the equivalent α, those nearest to the given ones first.

    As many clients share out the images of the given ones, five times for each rule. A rule that cannot assign these
    images to so many clients is left out.

    Raises:
        UserError: where none can.
    """
    groups = clients.groupings[measured.name]
    client_of = np.where(groups >= 0, clients.client_of, -1)
    numbers, numbered = np.unique(client_of, return_inverse=True)
    client_of, n_clients = numbered - int(numbers[0] < 0), int((numbers >= 0).sum())
    groups = np.where(client_of >= 0, groups, -1)
    own = _measures(client_of, groups, n_clients, shares)
    simulated, reason = [], ""
    for rule, alpha in _rules(measured):
        try:
            assigned = [assign(rule, groups, n_clients, alpha, seed + n).client_of for n in range(_DRAWS)]
        except UserError as error:
            reason = str(error)
            continue
        measures = [_measures(one, groups, n_clients, shares) for one in assigned]
        drawn = {name: float(np.mean([values[name] for values in measures])) for name in own}
        split = _split(measured) if measured.name in clients.of_table else ""
        arguments = split + _arguments(rule, alpha, n_clients)
        simulated.append(Simulated(measured.name, rule, alpha, arguments, own, drawn))
    if not simulated:
        raise UserError(f"{measured.name}: no rule can assign these images to {n_clients} clients ({reason})")
    return sorted(simulated, key=lambda one: one.distance)


def _rules(measured: Measured) -> Iterator[tuple[str, float]]:
    """The rules that may assign such clients, each with the α of its convention."""
    alpha = measured.estimate.alpha
    if math.isinf(measured.estimate.high):
        yield "iid", math.inf
    if alpha == 0:
        yield "dirichlet_hsu", alpha
    elif math.isfinite(alpha):
        yield from (("equal_size", alpha), ("paper", alpha), ("dirichlet_per_class", measured.per_class))


def _measures(client_of: np.ndarray, groups: np.ndarray, n_clients: int, shares: Shares) -> dict[str, float]:
    counts = sparse_counts(client_of, groups, n_clients)
    sizes = np.bincount(client_of[client_of >= 0], minlength=n_clients)
    values = {EMD: earth_movers_distance(counts), IMBALANCE: size_imbalance(sizes[:, None])}
    return values | {f"{task}_share": share(client_of, n_clients) for task, share in shares.items()}


def _split(measured: Measured) -> str:
    """The arguments of `test_fed.py` that assign this grouping of a table."""
    return f"--type {CLASSES} " if measured.name == BY_CLASS else f"--type {EMBEDDING} --n_clusters {measured.groups} "


def _arguments(rule: str, alpha: float, n_clients: int) -> str:
    """The arguments that assign such clients."""
    of_alpha = f" --alpha {alpha:.3g}" if math.isfinite(alpha) else ""
    return f"--partition {rule}{of_alpha} --n_clients {n_clients}"
