"""Evaluation of a round's models: the server's, and the clients' personal ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from datasets.task_data import TaskData
from datasets.tasks import Task
from models.central.evaluation import evaluate, evaluate_trivial, mean_values
from models.central.metrics import error_names, metric_names, summarise
from network.engine.federated_data import FederatedData
from network.partition.client_images import ClientImages
from utils.streams import generator

# The splits of non-participating clients: images to train on, and held-out ones.
NON_PARTICIPATING = ("unseen_train", "unseen_test")


class Evaluation:
    """Loss and metrics by split, as columns of `metrics.csv`.

    `train` are the clients' training images, `local_test` each client's own held-out images, `test` the common ones.
    Over clients there are `<split>_<metric>_mean`, `_std` and `_worst`, without those clients that have nothing to
    count in a split; `<split>_clients` is how many have a loss there. The columns of personal models begin with
    `personal_`, those of non-participating clients, with the model that the method gives them, with `unseen_`:
    `unseen_train` are the images that such a client would train on, `unseen_test` its held-out ones. Where there are
    such clients, `out_of_sample_gap` is beside the others'.
    Where only some clients are evaluated, they are the same in every round, and drawn with equal chances, so that means
    and standard deviations are estimates of those over all clients, and the worst values are bounds.

    Args:
        data: the images, and which client has which.
        accelerator: the processes.
        n_clients: how many clients are evaluated; None for all.
        seed: the seed by which these are drawn.
        left_out: clients that do not count over clients, such as attackers.
        apart: evaluate the server's model on one client's images after the other, each in its client's process.
    """

    def __init__(
        self,
        data: FederatedData,
        accelerator: Accelerator,
        n_clients: int | None = None,
        seed: int = 0,
        left_out: Collection[int] = (),
        apart: bool = False,
    ) -> None:
        self.data = data
        self.images, self.clients, self.held_out = data.images, data.clients, data.held_out
        self.accelerator, self.n_clients, self.apart = accelerator, len(data.clients), apart
        self.evaluated = np.arange(self.n_clients)
        if n_clients is not None and n_clients < self.n_clients:
            drawn = generator("evaluated", seed).choice(self.n_clients, n_clients, replace=False)
            self.evaluated = np.sort(drawn)
            self.clients, self.held_out = (of_all.choose(self.evaluated) for of_all in (self.clients, self.held_out))
        self.left_out = left_out
        self._last_values: dict[
            str, np.ndarray
        ] = {}  # (clients, metrics) by split, of the models that were evaluated last

    def of_server(self, model: nn.Module, of_process: Collection[int]) -> dict[str, float]:
        """The columns of the server's model: one pass over the assigned images and one over the held-out ones.

        `of_process` are the clients of this process.
        """
        data = self.images
        test = evaluate(model, data, data.test, self.accelerator)
        if self.apart:
            values = self._of_each(model, lambda client: None, of_process)
        else:
            train = evaluate(model, data, self.clients.images, self.accelerator)
            # data.test is in order
            in_test = ClientImages(np.searchsorted(data.test, self.held_out.images), self.held_out.bounds)
            losses = [
                list(summarise(data.task, statistics, images).values())
                for statistics, images in ((train, self.clients.places), (test, in_test))
            ]
            values = _without(np.array(losses).T, self.evaluated, self.left_out)
        return self._columns(values) | {f"test_{name}": value for name, value in mean_values(data, test).items()}

    def of_clients(
        self, model: nn.Module, load: Callable[[int], None], of_process: Collection[int]
    ) -> dict[str, float]:
        """The columns of the personal models, each evaluated on its client's images in the client's process.

        `load` copies a client's model into `model`; `of_process` are the clients of this process.
        """
        return self._columns(self._of_each(model, load, of_process), "personal_")

    def of_models(
        self,
        model: nn.Module,
        load: Callable[[int], None],
        clients: Sequence[int],
        of_process: Collection[int],
        splits: Mapping[str, Sequence[np.ndarray]],
        left_out: Collection[int] = (),
    ) -> dict[str, float]:
        """The columns of models of clients' own, by split, of which each has the images of each of these clients.

        `load` and `of_process` are as for `of_clients`; the clients `left_out` do not count.
        """
        values = self._values(model, load, clients, of_process, list(splits.values()), left_out)
        return columns(self.images.task, values, splits)

    def _of_each(self, model: nn.Module, load: Callable[[int], None], of_process: Collection[int]) -> np.ndarray:
        """`_values` of the participants on their training and on their held-out images."""
        parts = [self.clients, self.held_out]
        return self._values(model, load, self.evaluated.tolist(), of_process, parts, self.left_out)

    def _values(
        self,
        model: nn.Module,
        load: Callable[[int], None],
        clients: Sequence[int],
        of_process: Collection[int],
        parts: Sequence[Sequence[np.ndarray]],
        left_out: Collection[int],
    ) -> np.ndarray:
        """The values of each client's model on its images in each part, (clients, metrics, parts); see `of_models`."""
        values = np.zeros((len(parts[0]), len(metric_names(self.images.task)), len(parts)))
        for row_of, client in enumerate(clients):
            if client in of_process and client not in left_out:
                load(client)
                values[row_of] = values_of(model, self.images, *(images[row_of] for images in parts))
        if self.accelerator.num_processes > 1:
            values = self.accelerator.reduce(torch.from_numpy(values).to(self.images.device), "sum").cpu().numpy()
        return _without(values, clients, left_out)

    def _columns(self, values: np.ndarray, whose: str = "") -> dict[str, float]:
        """The participants' columns of values on their training and held-out images, (clients, metrics, 2)."""
        self._last_values |= {f"{whose}train": values[:, :, 0], f"{whose}local_test": values[:, :, 1]}
        row = columns(self.images.task, values, [f"{whose}train", f"{whose}local_test"])
        gap = {f"{whose}out_of_sample_gap": out_of_sample_gap(*values[:, 0].T)} if self.data.non_participating else {}
        return row | gap

    def notes(self) -> list[str]:
        """A line for reports where only some clients are evaluated."""
        if len(self.evaluated) == self.n_clients:
            return []
        some = f"{len(self.evaluated):,} of {self.n_clients:,} clients"
        return [f"values on clients' images are those of {some}, drawn by the seed"]

    def of_non_participating(self, model: nn.Module) -> dict[str, float]:
        """The columns of non-participating clients, all with this model, in one pass over their images."""
        splits = self._non_participating()
        of_all = ClientImages.of([images for parts in splits.values() for images in parts])
        statistics = evaluate(model, self.images, of_all.images, self.accelerator)
        metrics = np.array(list(summarise(self.images.task, statistics, of_all.places).values()))
        values = np.stack(np.split(metrics, len(splits), axis=1), axis=-1).swapaxes(0, 1)  # (clients, metrics, splits)
        self._last_values |= {split: values[:, :, number] for number, split in enumerate(splits)}
        return columns(self.images.task, values, splits)

    def _non_participating(self) -> dict[str, Sequence[np.ndarray]]:
        """The images of non-participating clients by split."""
        of_splits = self.data.non_participating, self.data.non_participating_held_out
        return dict(zip(NON_PARTICIPATING, of_splits, strict=True))

    @property
    def done(self) -> bool:
        """Whether any models have been evaluated; not, where a run is taken up again after its last round."""
        return bool(self._last_values)

    def by_client(self) -> dict[str, np.ndarray]:
        """Each client's values with the models that were evaluated last, as columns; some must have been (`done`).

        `client` are the numbers of the clients that are evaluated, then those of the non-participating ones, `images`
        and `held_out_images` how many each has, and `<split>_<metric>` the values, nan where a client has none.
        """
        data, n = self.data, len(self.evaluated)
        non_participating = self.n_clients + np.arange(len(data.non_participating))
        further = {"images": data.non_participating, "held_out_images": data.non_participating_held_out}
        table: dict[str, np.ndarray] = {"client": np.append(self.evaluated, non_participating)}
        for name, known in (("images", self.clients), ("held_out_images", self.held_out)):
            table[name] = np.append(known.sizes, [len(images) for images in further[name]]).astype(np.int64)
        for split, values in self._last_values.items():
            around = (n, 0) if split in NON_PARTICIPATING else (0, len(non_participating))
            padded = np.pad(values, (around, (0, 0)), constant_values=np.nan)
            names = (f"{split}_{name}" for name in metric_names(self.images.task))
            table |= zip(names, padded.T, strict=True)
        return table

    def of_trivial(self) -> dict[str, dict[str, float]]:
        """Loss and metrics of the constant baseline by split: on the clients' splits, the mean over clients.

        It is made from the training images without those of non-participating clients.
        """
        splits: dict[str, Sequence[np.ndarray]] = {
            name: [images for i, images in zip(self.evaluated, of_all, strict=True) if i not in self.left_out]
            for name, of_all in (("train", self.clients), ("local_test", self.held_out))
        }
        if self.data.non_participating:
            splits |= self._non_participating()
        measured = {split: [images for images in parts if len(images)] for split, parts in splits.items()}
        parts = [images for of_split in measured.values() for images in of_split]
        results = iter(evaluate_trivial(self.data.known, *parts, self.images.test, accelerator=self.accelerator))
        of_clients = {split: [next(results) for _ in of_split] for split, of_split in measured.items()}
        test = next(results)
        means = {
            split: {name: float(_counted(np.array([value[name] for value in values])).mean()) for name in test}
            for split, values in of_clients.items()
        }
        rest = {split: means[split] for split in means if split not in ("train", "local_test")}
        return {"train": means["train"], "local_test": means["local_test"], "test": test, **rest}


# What the loss of new images is made of: the two gaps of Yuan et al. 2022 (arXiv 2110.14216). All are means over
# clients, each counting the same, and all held-out images are of the table's common part, assigned to participants and
# non-participating clients together, by one rule.


def out_of_sample_gap(own: np.ndarray, new: np.ndarray) -> float:
    """The participants' loss on their held-out images minus that on their training images, over the same clients.

    It is what images cost that a known client has not trained on.

    Args:
        own: each client's loss on its training images (clients,).
        new: that on its held-out ones, nan where it has none: such a client counts in neither mean.
    """
    both = ~(np.isnan(own) | np.isnan(new))
    return float(_counted(new[both]).mean()) - float(_counted(own[both]).mean())


def participation_gaps(row: Mapping[str, float], non_participating: float) -> dict[str, float]:
    """The non-participating clients' loss on their held-out images minus the participants' on theirs, as columns.

    It is what a client costs that has not trained. The gap of personal models, to which the received model is compared,
    begins with `personal_`.

    Args:
        row: the participants' columns; nan where they have no held-out images.
        non_participating: the non-participating clients' mean loss.
    """
    known = {whose: row.get(f"{whose}local_test_loss_mean") for whose in ("", "personal_")}
    return {f"{whose}participation_gap": non_participating - loss for whose, loss in known.items() if loss is not None}


def values_of(model: nn.Module, data: TaskData, *parts: np.ndarray) -> np.ndarray:
    """Loss and metrics of a model on a client's images in each of these parts, (metrics, parts) float64."""
    statistics = evaluate(model, data, np.concatenate(parts), None)
    at = np.split(np.arange(len(statistics)), np.cumsum([len(images) for images in parts])[:-1])
    return np.stack(list(summarise(data.task, statistics, at).values()))


def _without(values: np.ndarray, clients: Sequence[int] | np.ndarray, left_out: Collection[int]) -> np.ndarray:
    """These clients' values, (clients, metrics, splits), with nan for those that are left out."""
    counts = ~np.isin(clients, sorted(left_out))
    return np.where(counts[:, None, None], values, np.nan)


def columns(task: Task, values: np.ndarray, splits: Iterable[str]) -> dict[str, float]:
    """The columns over clients from `values_of` each, (clients, metrics, splits); a client of nan does not count."""
    row: dict[str, float] = {}
    for number, split in enumerate(splits):
        of_clients = dict(zip(metric_names(task), values[:, :, number].T, strict=True))
        row[f"{split}_clients"] = int((~np.isnan(of_clients["loss"])).sum())
        row |= over_clients(split, of_clients, error_names(task))
    return row


def over_clients(split: str, values: Mapping[str, np.ndarray], errors: Collection[str]) -> dict[str, float]:
    """Mean, standard deviation and worst value over clients of each metric; nan where no client counts.

    The worst value is the largest for the metrics in `errors`, and the smallest for the others.
    """
    row: dict[str, float] = {}
    for name, of_client in values.items():
        counted = _counted(of_client)
        worst = counted.max() if name in errors else counted.min()
        for what, value in (("mean", counted.mean()), ("std", counted.std()), ("worst", worst)):
            row[f"{split}_{name}_{what}"] = float(value)
    return row


def _counted(values: np.ndarray) -> np.ndarray:
    """The values that are not nan, or a single nan if there is none."""
    counted = values[~np.isnan(values)]
    return counted if len(counted) else np.array([np.nan])
