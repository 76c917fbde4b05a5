"""Which clients are non-participating, and that models and clusters of participants are made without their images."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from datasets.task_data import TaskData
from models.central.settings import TrainSettings
from models.central.training import CentralTraining, central_files
from models.embedding.embeddings import cluster, extract_embeddings
from models.embedding.projection import reduce_dimension
from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel
from network.engine.federated_data import FederatedData
from network.partition.assigning import Partition, read_partition
from network.partition.assignments import include_non_participating, save_assignments
from network.partition.groups import within
from network.partition.held_out import assign_held_out
from network.partition.non_participating import Whose, digest, set_aside
from network.partition.resolve import resolve_partition
from tests.network.partition.test_resolve import asked
from utils.errors import UserError


def of_sizes(*sizes: int) -> Partition:
    client_of = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    return Partition(np.append(client_of, [-1, -1]).astype(np.int32), np.zeros(sum(sizes) + 2, np.int64), len(sizes))


@pytest.mark.parametrize(("share", "number"), [(3, 3), (0.25, 2), (0.3, 2), (0.5, 4)])
def test_the_last_clients_are_the_non_participating_ones_and_keep_their_images(share: float, number: int) -> None:
    partition = of_sizes(*range(1, 9))
    apart = set_aside(partition, share, seed=5)
    assert apart.n_non_participating == number and apart.n_clients == 8
    assert sorted(map(list, apart.clients)) == sorted(map(list, partition.clients))
    assert sorted(apart.sizes[: 8 - number]) == list(apart.sizes[: 8 - number])  # the others keep their order
    known = apart.participants
    assert known.n_clients == 8 - number and len(known.clients) == 8 - number
    assert all(np.array_equal(a, b) for a, b in zip(known.clients, apart.clients, strict=False))
    assert (apart.client_of[-2:] == -1).all()


def test_a_larger_number_has_the_same_non_participating_clients_and_more() -> None:
    partition = of_sizes(*range(1, 9))
    few, more = (set(set_aside(partition, n, seed=2).sizes[-n:]) for n in (2, 5))
    assert few < more
    assert {tuple(set_aside(partition, 2, seed=seed).sizes[-2:]) for seed in range(9)} != {tuple(sorted(few))}


@pytest.mark.parametrize("asked_for", [8, 9, 0.01, 0.99])
def test_some_must_be_left_on_either_side(asked_for: float) -> None:
    with pytest.raises(UserError, match=f"--non_participating_clients {asked_for:g} of 8 clients"):
        set_aside(of_sizes(*range(1, 9)), asked_for, 0)


def test_a_saved_partition_keeps_its_non_participating_clients(
    data: TaskData, assignments: Path, tmp_path: Path
) -> None:
    made, split = resolve_partition(asked(assignments, non_participating_clients=0.5), data)
    assert split.record()["non_participating_clients"] == made.n_non_participating == 2
    assert split.name.endswith("_seed1_unseen2") and "2 non-participating clients" in split.title
    made.save(tmp_path / "run")
    for same in (None, 2, 0.5):
        again, taken = resolve_partition(
            asked(assignments, partition_file=tmp_path / "run", non_participating_clients=same), data
        )
    with pytest.raises(
        UserError, match="has 2 non-participating clients, which stay as they are; omit --non_participating_clients 1"
    ):
        resolve_partition(asked(assignments, partition_file=tmp_path / "run", non_participating_clients=1), data)
    assert again.n_non_participating == taken.non_participating_clients == 2 and np.array_equal(
        again.client_of, made.client_of
    )
    plain, _ = resolve_partition(asked(assignments), data)
    assert plain.n_non_participating == 0 and set(map(tuple, plain.clients)) == set(map(tuple, made.clients))


@pytest.mark.parametrize("number", [-1, 4, "two"])
def test_a_saved_number_that_is_none_is_refused(
    data: TaskData, assignments: Path, tmp_path: Path, number: object
) -> None:
    made, _ = resolve_partition(asked(assignments), data)
    replace(made, origin={**made.origin, "unseen_clients": number}).save(tmp_path / "run")
    with pytest.raises(UserError, match=r"partition\.json"):
        read_partition(tmp_path / "run")


def federated(data: TaskData, partition: Partition) -> FederatedData:
    held_out = assign_held_out(partition.clients, partition.groups, within(partition.groups, data.test), 1)
    return FederatedData.of(data, partition, held_out)


def test_methods_are_told_nothing_of_non_participating_images(data: TaskData, assignments: Path) -> None:
    partition, _ = resolve_partition(asked(assignments, non_participating_clients=1), data)
    split = federated(data, partition)
    theirs = np.concatenate([*split.non_participating, *split.non_participating_held_out])
    assert (
        len(split.clients) == len(split.held_out) == 3
        and len(split.non_participating[0])
        and len(split.non_participating_held_out[0])
    )
    assert not np.isin(np.concatenate([split.known.train, split.known.test, *split.clients]), theirs).any()
    assert (split.groups[theirs] == -1).all() and (np.delete(split.groups, theirs) >= 0).all()
    assert set(split.known.test) | set(split.non_participating_held_out[0]) == set(data.test)
    all_in, _ = resolve_partition(asked(assignments), data)
    assert federated(data, all_in).known is data


def noisy(data: TaskData, positions: np.ndarray) -> TaskData:
    """The same data with noise for these images and their targets."""
    other = copy.copy(data)
    vars(other).pop("_decoded", None)

    def with_noise(array: torch.Tensor) -> torch.Tensor:
        changed = array.clone()
        noise = torch.randint(0, 255, changed[positions].shape, generator=torch.Generator().manual_seed(0))
        changed[positions] = noise.to(changed.dtype)
        return changed

    other._images, other._stored = tuple(map(with_noise, data._images)), with_noise(data._stored)
    return other


def whose(partition: Partition, folder: Path) -> Whose:
    partition.save(folder)
    return Whose.from_config({"made_of": "participants", "partition_file": folder}, "made_of")


def test_noise_in_non_participating_images_changes_no_bit_of_central_model_and_clusters(
    data: TaskData, assignments: Path, tmp_path: Path
) -> None:
    partition, _ = resolve_partition(asked(assignments, non_participating_clients=1), data)
    split, chosen = federated(data, partition), whose(partition, tmp_path / "run")
    theirs = np.concatenate([*split.non_participating, *split.non_participating_held_out])
    known = np.setdiff1d(np.arange(len(data)), theirs)
    made = []
    for number, images in enumerate((data, noisy(data, theirs))):
        restricted = chosen.in_data(images)
        torch.manual_seed(0)
        model = TaskModel(ModelConfig(data.task.name, "tiny", 16))
        folder, task = tmp_path / str(number), data.task.name
        files = central_files(folder, task, False)
        settings = TrainSettings(n_epochs=1, batch_size=16, init_lr=0.05, val_fraction=0.2, rand_seed=7)
        CentralTraining(model, restricted, settings, Accelerator(cpu=True), *files).run(lambda _: None)
        (tmp_path / f"embeddings{number}").mkdir()
        embeddings = extract_embeddings(model, restricted, tmp_path / f"embeddings{number}" / "e.npy", "model", None)
        reduced, _, _ = reduce_dimension(embeddings, restricted.train)
        found, kmeans = cluster(reduced, restricted, 4, 0.0, 0)
        made.append((model.state_dict(), kmeans.cluster_centers_, found[known], reduced[known]))
    weights, other = made[0][0], made[1][0]
    assert all(torch.equal(tensor, other[name]) for name, tensor in weights.items())
    assert all(np.array_equal(one, two) for one, two in zip(made[0][1:], made[1][1:], strict=True))


def test_clusters_say_whether_they_know_non_participating_images(
    data: TaskData, assignments: Path, tmp_path: Path
) -> None:
    partition, _ = resolve_partition(asked(assignments, non_participating_clients=1), data)
    other, _ = resolve_partition(asked(assignments, non_participating_clients=2), data)
    task, chosen = data.task.name, whose(partition, tmp_path / "run")
    assert include_non_participating(task, assignments, digest(partition))
    assert not include_non_participating(task, tmp_path / "nowhere", digest(partition))
    found = np.zeros(len(data), np.int64), np.zeros((1, 2)), 1, tmp_path / "reduced.npy"
    save_assignments(tmp_path, data, "model", *found, chosen.digest)
    assert not include_non_participating(task, tmp_path, digest(partition)) and include_non_participating(
        task, tmp_path, digest(other)
    )


def test_the_digest_is_of_the_participants_images_alone() -> None:
    """How the non-participating clients' images are assigned among them changes no cluster of the participants."""
    apart = set_aside(of_sizes(*range(1, 9)), 3, seed=5)
    moved = apart.client_of.copy()
    moved[np.flatnonzero(moved == 6)[0]] = 7  # 5, 6 and 7 are non-participating
    other = apart.client_of.copy()
    other[np.flatnonzero(other == 4)[0]] = 3
    assert digest(replace(apart, client_of=moved)) == digest(apart) != digest(replace(apart, client_of=other))


def test_participants_need_a_partition_of_these_images_with_non_participating_clients(
    data: TaskData, assignments: Path, tmp_path: Path
) -> None:
    partition, _ = resolve_partition(asked(assignments, non_participating_clients=1), data)
    assert Whose.from_config({"made_of": "all", "partition_file": None}, "made_of").in_data(data) is data
    for given in (("all", tmp_path), ("participants", None)):
        with pytest.raises(UserError, match="--made_of participants and --partition_file belong together"):
            Whose.from_config({"made_of": given[0], "partition_file": given[1]}, "made_of")
    with pytest.raises(UserError, match="another table of images"):
        whose(replace(partition, origin={**partition.origin, "table_sha256": "x"}), tmp_path / "other").in_data(data)
    with pytest.raises(UserError, match="has no non-participating clients"):
        whose(resolve_partition(asked(assignments), data)[0], tmp_path / "plain")
