"""`make_partition.py` on data that has nothing to do with this project's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import s2cell
import torch
from PIL import Image
from sklearn.metrics import adjusted_rand_score

import make_partition
from datasets.table import TABLE_FILE, read_table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from network.partition.assigning import assign, read_partition
from network.partition.assignments import save_assignments
from network.partition.saved_partition import client_column, clients
from utils.errors import UserError

CIFAR = Path(__file__).parents[2] / "shared" / "data" / "cifar10_subset" / "train.npz"


@pytest.fixture
def arrays(tmp_path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings of five blobs and labels in words, in the working folder."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 5, 300)
    np.save(tmp_path / "embeddings.npy", (20 * rng.normal(size=(5, 80))[ids] + rng.normal(size=(300, 80))).astype("f2"))
    words = np.array(["cat", "dog", "emu"])[rng.integers(0, 3, 300)]
    np.save(tmp_path / "labels.npy", words)
    return ids, words


def test_embeddings_in_partition_out(arrays: tuple, run_script: Callable, tmp_path: Path) -> None:
    command = (
        "make_partition.py --embeddings embeddings.npy --labels labels.npy --n_clusters 5 --n_clients 6 --alpha 0.1 "
        "--partition equal_size --output_path out --rand_seed 3"
    )
    text = run_script(command).stdout
    assert "6 clients with 50 images each, 300 in all, of 5 clusters" in text
    partition = read_partition(tmp_path / "out")
    assert adjusted_rand_score(arrays[0], partition.groups) == 1
    assert (partition.client_of == assign("equal_size", partition.groups, 6, 0.1, 3).client_of).all()
    assert partition.origin["embeddings"] == "embeddings.npy" and len(partition.origin["embeddings_sha256"]) == 64
    table = pd.read_csv(tmp_path / "out/partition.csv")
    assert (table["class"] == np.unique(arrays[1], return_inverse=True)[1]).all()
    values = json.loads((tmp_path / "out/heterogeneity.json").read_text())
    assert 1 < values["emd"] < 2 and values["frechet"] > 0.5 and values["target_variance_share"] < 0.2
    for figure in ("clusters", "labels"):
        Image.open(tmp_path / f"out/figures/{figure}.png").verify()
    first = (tmp_path / "out/partition.npy").read_bytes()
    run_script(command)
    assert (tmp_path / "out/partition.npy").read_bytes() == first


def test_labels_alone_are_assigned(run_script: Callable, tmp_path: Path) -> None:
    np.save(tmp_path / "users.npy", np.array([70, 70, -1, 3, 3, 3, 12]))
    run_script("make_partition.py --labels users.npy --partition natural --n_clients 3 --output_path out")
    assert sorted(map(sorted, clients(tmp_path / "out"))) == [[0, 1], [3, 4, 5], [6]]
    assert "frechet" not in json.loads((tmp_path / "out/heterogeneity.json").read_text())


def test_embeddings_and_labels_are_assigned_within_natural_groups(
    arrays: tuple, run_script: Callable, run_anywhere: Callable, tmp_path: Path
) -> None:
    blobs, words = arrays
    cities = np.repeat(["ulm", "bern", "", "linz"], [150, 100, 46, 4])
    np.save(tmp_path / "city.npy", cities)
    command = "make_partition.py {} --within city.npy --n_clients 8 --partition equal_size --output_path {}"
    text = run_script(command.format("--embeddings embeddings.npy --labels labels.npy --n_clusters 5", "a")).stdout
    assert "within city: 3 groups with 1 to 4 clients each" in text and "46 images of no city: not assigned" in text
    assert "fewer than 5 clusters in 1 group, 4 at least: too few images" in text
    partition = read_partition(tmp_path / "a")
    assert [sorted(set(cities[images])) for images in partition.clients] == [["bern"]] * 3 + [["linz"]] + [["ulm"]] * 4
    for city in ("ulm", "bern"):
        assert adjusted_rand_score(blobs[cities == city], partition.groups[cities == city]) == 1
    assert len(partition.origin["within_sha256"]) == 64
    Image.open(tmp_path / "a/figures/clusters.png").verify()
    text = run_script(command.format("--labels labels.npy", "b")).stdout
    assert "of 3 labels" in text and "by label" in text  # described by the labels, assigned by city and label
    partition = read_partition(tmp_path / "b")
    for pair in range(partition.groups.max() + 1):
        assert len({(cities[i], words[i]) for i in np.flatnonzero(partition.groups == pair)}) == 1
    np.save(tmp_path / "short.npy", np.zeros(9, int))
    for wrong, line in (
        ("--users city.npy", "--within is not for --users"),
        ("--labels short.npy", "9 labels but 300 values of --within"),
    ):
        done = run_anywhere(tmp_path, command.format(wrong, "c"))
        assert done.returncode == 2 and line in done.stderr


def test_users_and_places_become_clients(run_script: Callable, tmp_path: Path) -> None:
    users = np.array(["ann", "bob", "ann", "cyd", "bob", "ann"])
    places = np.array([[46.5, 6.6], [46.5, 6.6], [46.5, 6.6], [-33.9, 151.2], [-33.9, 151.2], [np.nan, np.nan]], "f4")
    np.save(tmp_path / "users.npy", users)
    np.save(tmp_path / "labels.npy", np.array([0, 1, 0, 1, 1, 0]))
    np.save(tmp_path / "places.npy", places)
    text = run_script("make_partition.py --users users.npy --labels labels.npy --output_path users").stdout
    assert [list(c) for c in clients(tmp_path / "users")] == [[0, 2, 5], [1, 4], [3]]
    assert json.loads((tmp_path / "users/partition.json").read_text())["client_names"] == ["ann", "bob", "cyd"]
    np.save(tmp_path / "numbers.npy", np.array(["10", "9", "10", "2", "9", "11"]))  # another tool's clients, as text
    run_script("make_partition.py --users numbers.npy --output_path numbers")
    assert [list(c) for c in clients(tmp_path / "numbers")] == [[3], [1, 4], [0, 2], [5]]
    assert json.loads((tmp_path / "numbers/partition.json").read_text())["client_names"] == ["2", "9", "10", "11"]
    # By class, (3, 0), (0, 2), (0, 1) images: each is at a distance of 1 from the population's halves.
    assert "of 2 labels" in text
    values = json.loads((tmp_path / "users/heterogeneity.json").read_text())
    assert values["emd"] == pytest.approx(1)
    assert values["assigned_emd"] == pytest.approx(2 * (1 - 1 / 4 - 1 / 9 - 1 / 36))
    assert "by label " in text and "by user " in text
    done = run_script("make_partition.py --lat_lng places.npy --max_cell 3 --min_cell 2 --output_path cells")
    assert "2 cells; 0 images are in cells of too few and 1 have no place" in done.stdout
    assert [list(c) for c in clients(tmp_path / "cells")] == [[0, 1, 2], [3, 4]]
    origin = json.loads((tmp_path / "cells/partition.json").read_text())
    assert origin["cells"] == [s2cell.lat_lon_to_token(*map(float, places[i]), 0) for i in (0, 3)]
    assert origin["partition"] == "natural" and origin["max_cell"] == 3


def test_of_a_tasks_clusters_the_training_images_are_assigned(
    own_copy: Path, run_here: Callable, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    table = read_table(own_copy)
    data = TaskData(table, table.bind(get_task("normal")), 16, torch.device("cpu"))
    clusters = np.arange(len(table)) % 3
    save_assignments(tmp_path / "assignments", data, "model", clusters, np.zeros((3, 2)), 3, tmp_path / "reduced.npy")
    command = "make_partition.py --labels assignments/assignments_normal.npy --n_clients 3 --partition equal_size"
    run_here(f"{command} --output_path out")
    partition = read_partition(tmp_path / "out")
    assert 0 < len(table.train) < len(table) and len(client_column(tmp_path / "out")) == len(table.train)
    assert partition.groups.tolist() == clusters[table.train].tolist()
    assert (partition.client_of == assign("equal_size", clusters[table.train], 3, 0.1, 42).client_of).all()
    own_copy.joinpath(TABLE_FILE).rename(own_copy / "gone.csv")
    with pytest.raises(SystemExit):
        run_here(command)
    assert "is not there; so the test split is unknown; give labels of training images" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", "nothing to assign; give --embeddings, --labels"),
        ("--users labels.npy --lat_lng embeddings.npy", "--users and --lat_lng cannot both be assigned"),
        ("--lat_lng embeddings.npy", r"needs latitude and longitude per image"),
        ("--lat_lng far.npy", "image 1: latitude 100 is beyond 90 degrees"),
        ("--users short.npy --labels labels.npy", "3 users but 300 labels"),
        ("--labels nothing.npy", "nothing.npy"),
        ("--embeddings nothing.npy", "nothing.npy"),
        ("--users nothing.npy", "nothing.npy"),
        ("--lat_lng nothing.npy", "nothing.npy"),
        ("--labels embeddings.npy", "one whole number or text per image"),
        ("--embeddings labels.npy", "a row of numbers per image"),
        ("--embeddings embeddings.npy --labels short.npy", "300 embeddings but 3 labels"),
        ("--embeddings embeddings.npy --n_clusters 301", "--n_clusters"),
        ("--labels labels.npy --n_clients 301", "--n_clients"),
        ("--labels objects.npy", "objects.npy"),
    ],
)
def test_mistakes_are_named(
    arrays: tuple, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: str, text: str
) -> None:
    np.save(tmp_path / "short.npy", np.arange(3))
    np.save(tmp_path / "far.npy", np.array([[10.0, 100.0], [100.0, 10.0]]))
    np.save(tmp_path / "objects.npy", np.array([{}, 1], dtype=object))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["make_partition.py", *arguments.split()])
    with pytest.raises(UserError, match=text):
        make_partition.main()


def test_a_mistake_is_one_line_on_the_console(run_anywhere: Callable, tmp_path: Path) -> None:
    done = run_anywhere(tmp_path, "make_partition.py --labels nothing.npy")
    assert done.returncode == 2
    [line] = done.stderr.strip().splitlines()
    assert line.startswith("error: ") and "nothing.npy" in line


@pytest.mark.skipif(not CIFAR.is_file(), reason="the images of cifar10_subset are not here")
def test_photographs_are_assigned_by_what_they_look_like(run_script: Callable, tmp_path: Path) -> None:
    with np.load(CIFAR) as images:
        np.save(tmp_path / "x.npy", images["x"])
        np.save(tmp_path / "y.npy", images["y"])
    run_script("make_partition.py --embeddings x.npy --labels y.npy --n_clients 100 --partition dirichlet_hsu")
    values = json.loads((tmp_path / "partition/heterogeneity.json").read_text())
    assert values["assigned_images"] == 5000 and values["largest_client"] == 50
    # Skewed in looks, and hardly in classes: chance alone gives 99 / 4999 = 0.02.
    assert values["emd"] > 1.6 and values["target_variance_share"] < 0.15
