"""An experiment's configurations, as Python gets them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from sweeps.expand import expand, parsed, parsed_jobs
from sweeps.grid import Job
from tests.conftest import ROOT
from utils.errors import UserError

SMALL = """
title = "Two rates"
data = "photos"
result_path = "out"
tasks = ["normal"]
methods = ["fedavg", "fedprox"]
types = ["class_based"]
alphas = [0.1]
seeds = [3]
fed = { init_lr = [0.1, 1], mu = 0.5 }

[scales.paper]
scale = "paper"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.toml"
    path.write_text(SMALL)
    return path


def test_an_experiment_is_a_list_of_configurations(file: Path) -> None:
    jobs = expand(file)
    train, clusters, *runs = jobs
    assert [job.script for job in (train, clusters)] == ["train_centralized_task_model.py", "extract_embeddings.py"]
    assert train.configs[0]["init_model_dir"] == Path("out/seed3/initial_models")
    assert clusters.config["n_clusters"] == 16 and clusters.needs == (train.name,)
    # A method has its own arguments alone; values are what the script would parse.
    found = [(run.config["method"], run.config["init_lr"], run.config.get("mu")) for run in runs]
    assert found == [("fedavg", 0.1, None), ("fedavg", 1.0, None), ("fedprox", 0.1, 0.5), ("fedprox", 1.0, 0.5)]
    for job in jobs:
        assert [parsed(command) for command in job.commands] == [*job.configs]
        assert job.needs == () or {*job.needs} < {each.name for each in jobs}
    assert not (file.parent / "out").exists()


def test_python_changes_an_experiment_as_the_command_line_does(file: Path) -> None:
    folder = file.parent / "rooms"  # a folder is taken before the rooms of that name
    folder.mkdir()
    changes = {"methods": ["fedprox"], "seeds": [0, 1], "fed": {"init_lr": 2}}
    runs = [job.config for job in expand(file, "paper", str(folder), True, **changes) if "method" in job.config]
    found = [(run["method"], run["rand_seed"], run["init_lr"]) for run in runs]
    assert found == [("fedprox", 0, 2.0), ("fedprox", 1, 2.0)]
    usual = parsed(("test_fed.py", "--task", "normal", f"@{ROOT}/scripts/args/paper/fed.txt"))
    for run in runs:
        assert run["data_path"] == folder and run["test_mode"] and run["n_rounds"] == usual["n_rounds"]


def test_the_example_in_the_docs_lists_the_jobs_of_the_file_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs/sweeps.md").read_text(encoding="utf-8")
    [code], [toml, *_] = (re.findall(rf"```{of}\n(.*?)```", text, re.DOTALL) for of in ("python", "toml"))
    (tmp_path / "my_table.toml").write_text(toml)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    shown = [line.split()[1:] for line in capsys.readouterr().out.splitlines()]
    # A model, and four methods at two rates, two alphas, and with clients of any size and virtual clients.
    assert Counter(map(tuple, shown)) == {
        ("model_initialization.py", "None"): 1,
        ("test_fed.py", "0.01"): 16,
        ("test_fed.py", "0.05"): 16,
    }


@pytest.mark.parametrize(
    "given, line",
    [({"scale": "huge"}, "--scale huge"), ({"fed": {"init_lrr": 1}}, "--init_lrr, did you mean --init_lr?")],
)
def test_what_is_wrong_is_one_line(file: Path, given: dict, line: str) -> None:
    with pytest.raises(UserError, match=line):
        expand(file, **given)


def test_jobs_need_what_stays_where_another_says_the_same() -> None:
    init = ("model_initialization.py", "--task", "normal")
    first, again = Job("first", (init,)), Job("again", ((*init, "--norm", "batch"),))  # which is the default
    fed = ("test_fed.py", "--task", "normal", "--type", "iid")
    runs = [Job(f"run{n}", ((*fed, "--n_rounds", n),), (job.name,)) for n, job in (("1", first), ("2", again))]
    found = parsed_jobs([first, again, *runs])
    assert [(job.name, job.needs) for job in found] == [("first", ()), ("run1", ("first",)), ("run2", ("first",))]
