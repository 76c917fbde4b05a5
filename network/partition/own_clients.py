"""Clients that are there already, and the groups of their images: the input of `measure_clients.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from network.partition.arrays import read_labels
from network.partition.equivalent_alpha import Estimate, bootstrap, equivalent_alpha, merged, misfit, per_class_alpha
from network.partition.flower_partitions import is_flowers, read_flower
from network.partition.heterogeneity import class_variance_share, earth_movers_distances, sparse_counts
from utils.errors import UserError
from utils.words import in_order

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from datasets.table import Table

_IMAGE_SIZE = 32  # of targets, whose cells are 8 by 8
MERGED = (4, 8, 16, 32)  # numbers of groups at which the estimate is made as well
_PARTITION, BY_CLASS, BY_CLUSTERS = "assigned groups", "class", "clusters of "


@dataclass(frozen=True)
class OwnClients:
    """Who has which images: `client_of` (N,), -1 for nobody; and by each grouping's name, each image's group (N,).

    `of_table` are the groupings that a table of images has, which `test_fed.py` assigns.
    """

    client_of: np.ndarray
    groupings: Mapping[str, np.ndarray]
    of_table: Collection[str] = ()


def own_clients(
    clients: str | None,
    groups: Sequence[tuple[str, str]],
    partition_file: Path | None,
    table_of: Callable[[], tuple[Table, Path]] | None,
) -> OwnClients:
    """The clients of a file, of a column of the table or of a saved partition, and the groups of their images.

    Args:
        clients: a `.npy` file of each image's client, numbers or text, or the name of a column of natural groups.
        groups: names and `.npy` files of each image's group, see `network.partition.arrays.read_labels`; of Flower's
            partitions, names and columns.
        partition_file: a saved partition, in place of `clients`, whose groups are a grouping; or the folder of
            Flower's, whose classes are.
        table_of: called for the table of images and the folder of its clusters, where `clients` is a column, or with
            a saved partition of its images; None where such a partition has no table beside.

    Raises:
        UserError: where there are no groups, or files are of other images.
    """
    groupings: dict[str, np.ndarray] = {}
    of_table: dict[str, np.ndarray] = {}
    if partition_file is not None and is_flowers(partition_file):
        client_of, groupings = read_flower(partition_file, groups)
        groups = ()
    elif partition_file is not None:
        from network.partition.assigning import read_partition

        partition = read_partition(partition_file)
        client_of, groupings[_PARTITION] = partition.client_of, partition.groups
        if table_of is not None:
            of_table = _of_table(*table_of())
    elif clients is not None and clients.endswith(".npy"):
        client_of = read_labels(Path(clients), "clients")
    elif clients is not None and table_of is not None:
        table, assignments = table_of()
        client_of, of_table = _of_column(table, clients), _of_table(table, assignments)
    else:
        raise UserError("whose images? give --clients, a .npy file or a column of the table, or --partition_file")
    groupings |= of_table
    for name, path in groups:
        if name in groupings:
            raise UserError(f"--groups {name}={path}: another grouping is called {name}; give it another name")
        groupings[name] = read_labels(Path(path), "groups")
    if not groupings:
        raise UserError("clients differ by what? give --groups NAME=FILE, a .npy of each image's class or cluster")
    for name, values in groupings.items():
        if len(values) != len(client_of):
            raise UserError(f"{name}: {len(values)} groups but {len(client_of)} images; give files of the same images")
    return OwnClients(client_of, groupings, tuple(of_table))


def _of_column(table: Table, column: str) -> np.ndarray:
    """Each image's client by a column of natural groups, (N,)."""
    if column not in table.groups:
        known = ", ".join(table.groups) or "none"
        raise UserError(f"--clients {column}: the table of images has no such column of natural groups, but {known}")
    names = table.groups[column]
    return np.where(names == "", -1, in_order(names)[1])


def _of_table(table: Table, assignment_folder: Path) -> dict[str, np.ndarray]:
    """Each image's class and its clusters of each task, by name."""
    from network.partition.assignments import read_assignments

    groupings = {BY_CLASS: table.labels} if table.class_names else {}
    for path in sorted(assignment_folder.glob("assignments_*.npy")):
        task = path.stem.removeprefix("assignments_")
        try:
            groupings[f"{BY_CLUSTERS}{task}"] = read_assignments(task, table, assignment_folder)
        except UserError as error:
            print(f"left out: {error}")
    return groupings


def target_shares(table: Table, tasks: Sequence[str], n_images: int) -> dict[str, Callable[[np.ndarray, int], float]]:
    """By task, the share of its targets' variance that lies between clients, from `client_of` (N,) and their number.

    See `network.partition.explained.target_share`, whose cells of the targets hardly depend on the images' size.
    UserError where the table is of other images, or has no targets of a task.
    """
    import torch

    from datasets.task_data import TaskData
    from datasets.tasks import TASKS
    from network.partition.explained import target_share

    if len(table) != n_images:
        raise UserError(f"the table has {len(table)} images, but clients are given of {n_images}; give one of these")
    datas = {task: TaskData(table, table.bind(TASKS[task]), _IMAGE_SIZE, torch.device("cpu")) for task in tasks}
    return {task: partial(target_share, data) for task, data in datas.items()}


@dataclass(frozen=True)
class Measured:
    """How non-IID clients are by one grouping.

    `bootstrapped` is the interval of `network.partition.equivalent_alpha.bootstrap`, `fit` the p-value of `misfit`,
    `per_class` the α of rules that draw shares of each group, `by_groups` the estimates where groups are merged into
    fewer, by their number. `emd` is the clients' mean earth mover's distance to the population, weighted by size,
    `largest_emd` that of the client furthest away, `class_share` the share of the groups' variance between clients.
    """

    name: str
    groups: int
    estimate: Estimate
    bootstrapped: tuple[float, float]
    fit: float
    per_class: float
    by_groups: Mapping[int, float]
    emd: float
    largest_emd: float
    class_share: float

    @property
    def fits(self) -> bool:
        """Whether the counts look drawn from one Dirichlet distribution, as far as 5 % of chance go."""
        return self.fit > 0.05

    def row(self) -> dict[str, Any]:
        """The numbers by name, for a table."""
        estimate = self.estimate
        merged_into = {f"alpha_at_{n}_groups": self.by_groups.get(n) for n in MERGED}
        return {
            "grouping": self.name,
            "groups": self.groups,
            "clients": estimate.clients,
            "images": estimate.images,
            "alpha": estimate.alpha,
            "low": estimate.low,
            "high": estimate.high,
            "bootstrap_low": self.bootstrapped[0],
            "bootstrap_high": self.bootstrapped[1],
            "fit_p": self.fit,
            "alpha_per_class": self.per_class,
            **merged_into,
            "emd": self.emd,
            "largest_emd": self.largest_emd,
            "variance_share": self.class_share,
        }

    def sentence(self) -> str:
        """The answer in words."""
        estimate = self.estimate
        interval = f"[{_number(estimate.low)}, {_number(estimate.high)}]"
        if np.isinf(estimate.alpha):
            answer = f"like IID clients, α at least {_number(estimate.low)}"
        elif estimate.alpha == 0:
            answer = f"as different as clients can be, α at most {_number(estimate.high)}"
        else:
            answer = f"α = {_number(estimate.alpha)} {interval}"
        per_class = f"; as shares of each group, α = {_number(self.per_class)}" if 0 < estimate.alpha < np.inf else ""
        line = (
            f"{self.name}: {answer}{per_class} ({estimate.clients} clients, {estimate.images} images, {self.groups} "
            f"groups; EMD {self.emd:.2f}, at most {self.largest_emd:.2f})"
        )
        if self.fits or not 0 < estimate.alpha < np.inf:
            return line
        bounds = " to ".join(map(_number, self.bootstrapped))
        return f"{line}\n  no Dirichlet's mixtures (p {max(self.fit, 0.01):.2g}): by resampling clients, α is {bounds}"


def measure(clients: OwnClients, seed: int) -> list[Measured]:
    """How non-IID the clients are by each grouping; `seed` is that of resampling and merging.

    A grouping whose counts tell nothing is left out, in a line that says why; see `equivalent_alpha`. UserError where
    none is left.
    """
    measured = []
    for name, groups in clients.groupings.items():
        counts = sparse_counts(clients.client_of, groups, int(clients.client_of.max(initial=-1)) + 1)
        try:
            measured.append(_measured(name, counts, seed))
        except UserError as error:
            print(f"left out: {name}: {error}")
    if not measured:
        raise UserError("by none of the groupings can it be measured how the clients differ; the lines above say why")
    return measured


def _measured(name: str, counts: csr_array, seed: int) -> Measured:
    estimate = equivalent_alpha(counts)
    present = int((estimate.population > 0).sum())
    by_groups = {n: equivalent_alpha(merged(counts, n, seed)).alpha for n in MERGED if n < present}
    distances = earth_movers_distances(counts)
    sizes = np.asarray(counts.sum(axis=1))
    return Measured(
        name,
        present,
        estimate,
        bootstrap(counts, estimate, seed),
        misfit(counts, seed),
        per_class_alpha(estimate.alpha, estimate.population),
        by_groups,
        float(np.average(distances, weights=sizes)),
        float(distances[sizes > 0].max()),
        class_variance_share(counts),
    )


def _number(value: float) -> str:
    """Three digits, without the powers of ten of computers."""
    if not np.isfinite(value):
        return "∞"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
