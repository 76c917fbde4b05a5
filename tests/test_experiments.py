"""The papers' experiments, run: of each folder one run in test mode with what it needs, and all that is made of it.

Imports apart, that is about two seconds a file: images, and the models of a paper, are shared, and nothing is drawn.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datasets.rooms.make import make_sample_rooms
from datasets.table import Table
from models.embedding import features
from models.networks.encoders import ENCODERS, encoder_entry
from sweeps import outputs, work
from sweeps.expand import declared_arguments, parsed_jobs
from sweeps.experiment import Given, experiment_of, read_experiment
from sweeps.grid import Command, Job
from sweeps.sources import ROOMS, Source
from tests.conftest import ROOT
from tests.datasets.tables import select_views
from utils.versions import CodePolicy

OF_DOMAINS = {("feddifrc", "table_4.toml"), ("task_perspective", "own_clients.toml")}  # which rooms have not
FILES = sorted(path for path in ROOT.glob("experiments/*/*.toml") if "\ntitle" in f"\n{path.read_text()}")

RELATIVES = {
    "vit_b16": "timm:test_vit",
    "clip_vit_b32": "timm:test_vit",
    "resnet10": "tiny",
    "resnet50": "resnet18",
    "resnet101": "resnet18",
    "mobilenet_v2": "timm:test_efficientnet",
    "mobilenet_v3_large": "timm:test_efficientnet",
    "efficientnet_b0": "timm:test_efficientnet",
    "timm:pvt_v2_b0": "timm:test_efficientnet",
}


@pytest.fixture(scope="module")
def folder(rendered: Path, table: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder for all experiments: those of a paper share models, as they do where a user runs them."""
    folder = tmp_path_factory.mktemp("experiments")
    shutil.copytree(rendered, folder / "data")  # sweeps choose images anew
    return folder


@pytest.fixture(scope="module")
def pairs(folder: Path) -> Path:
    """A folder of rooms in there with second frames, for what sees two."""
    views = {"n_buildings": 2, "views_per_building": 12, "image_size": 32}
    make_sample_rooms(folder / "pairs", **views, seed=3, n_workers=1, frames=2)
    select_views(folder / "pairs", ["aspen", "birch"], ["motion"], 0.25, 0)
    return Path("pairs")


@pytest.fixture(scope="module")
def photos(folder: Path) -> Source:
    """Noise of two classes in each of four domains."""
    rng, photos = np.random.default_rng(0), folder / "photos"
    for domain, kind, number in product("abcd", "xy", range(20)):
        path = photos / domain / kind / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(path)
    return Source("folder", Path("photos"), "photos")


@pytest.fixture(autouse=True)
def small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large networks are small relatives of theirs, which are quick to make, save and read; see `tests/models`.

    That of features and teachers has weights of its own, too.
    """
    tiny = ENCODERS["tiny"]
    for name in {*ENCODERS, *RELATIVES}:
        build = encoder_entry(RELATIVES.get(name, name)).build
        small = replace(encoder_entry(name), build=build, pyramid=tiny.pyramid)
        monkeypatch.setitem(ENCODERS, name, small)
    monkeypatch.setattr(features, "LITE0_OF_TIMM", "test_efficientnet")
    monkeypatch.setattr(features, "load_lite0", lambda network: None)


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Command], None]:
    """Run a script in this process."""
    monkeypatch.chdir(folder)

    def call(command: Command) -> None:
        monkeypatch.setattr("sys.argv", list(command))
        importlib.import_module(command[0].removesuffix(".py")).main()

    return call


def needed(jobs: Sequence[Job]) -> list[Job]:
    """The last job of each folder, which has most of what sets it apart, and those that these need."""
    by_name = {job.name: job for job in jobs}
    wanted = list({dict(pairwise(job.commands[-1]))["--result_path"]: job.name for job in jobs}.values())
    for name in wanted:
        wanted += [need for need in by_name[name].needs if need not in wanted]
    return [job for job in jobs if job.name in wanted]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_each_runs_in_test_mode(
    path: Path, run: Callable[[Command], None], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = read_experiment(path, None)
    more = {"seeds": [0], "alphas": [0.1], "init": {"image_size": 32}}
    if not any("methods" in table for tables in said.get("vary", {}).values() for table in tables):
        more["methods"] = said.get("methods", ["fedavg"])[-1:]
    if path.parent.name == "feddifrc" and "efficientnet_lite0" not in path.read_text():  # a teacher that a package has
        more["teacher"] = {"diffusion_model": str(request.getfixturevalue("tiny_diffusion")), "diffusion_size": 32}
    source = Source(ROOMS, Path("data"), "sample_rooms")
    if said.get("tasks") == ["motion"]:
        source = Source(ROOMS, request.getfixturevalue("pairs"), "sample_rooms")
    if path.parts[-2:] in OF_DOMAINS:
        source = request.getfixturevalue("photos")
        if not source.has_table:
            run(("extract_datapoints_for_experiments.py", "--source", "folder", "--data_path", "photos"))
    given = Given(source, "builtin", True, more)
    experiment = experiment_of(said, given, declared_arguments())
    if experiment.until == "selection":
        run(experiment.selection())
    jobs = parsed_jobs(needed(experiment.jobs())) if experiment.jobs() else []
    states = work.states(jobs, CodePolicy())
    for job in jobs:
        for command in job.commands if states[job.name] == "new" else ():
            run(command)
    monkeypatch.setattr(outputs, "run", run)
    experiment.outputs.run()
