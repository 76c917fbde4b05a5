"""Experiments: what their files come to, and that every command of the papers' experiments is taken by its script."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

import run_sweep
from make_report import PageSettings
from make_tables import TablesSettings
from reports.stages.figures import FigureSettings
from sweeps import outputs
from sweeps.expand import declared_arguments, parsed_jobs
from sweeps.experiment import KEYS, Experiment, Given, experiment_of, merged, read_experiment
from sweeps.grid import Job
from sweeps.sources import folder_source, source_of
from sweeps.sweep import asked
from tests.conftest import ROOT
from utils.errors import UserError

FILES = sorted(path for path in ROOT.glob("experiments/*/*.toml") if "\ntitle" in f"\n{path.read_text()}")
OUTPUTS = {"make_tables.py": TablesSettings, "make_figures.py": FigureSettings, "make_report.py": PageSettings}
READS = {"method": {"fedavg": (), "feddifrc": ("guidance_path", "contrast")}}


def asked_here() -> tuple[dict, Given]:
    """What this process's command line asks of a sweep."""
    return asked(*run_sweep.parse_args())


def made(path: Path, text: str, scale: str | None = None, **given: object) -> Experiment:
    path.write_text(text)
    return experiment_of(read_experiment(path, scale), Given(**given), READS)  # type: ignore[arg-type]


def said(command: tuple[str, ...]) -> dict[str, str]:
    return {name[2:]: value for name, value in pairwise(command) if name.startswith("--")}


SMALL = """
title = "A small one"
data = "photos"
result_path = "out/{data}"
tasks = ["normal"]
types = ["class_based"]
alphas = [0.1]
seeds = [0, 1]
"""


def test_a_sweep_is_found_by_the_key_and_the_argument_of_earlier_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {
        "the file": 'sweep = "lr_test"',
        "a scale": '[scales.builtin]\nsweep = "lr_test"',
        "a table of vary": '[[vary.of]]\nsweep = "lr_test"',
    }
    for place, text in places.items():
        folders = {
            name: [grid.runs_path for grid in made(tmp_path / "x.toml", SMALL + text.replace("sweep", name)).grids]
            for name in ("sweep", "type")
        }
        assert folders["type"] == folders["sweep"] == [Path("out/photos/lr_test")], place
    # An argument of a stage keeps its name: this one is of test_fed.py.
    assert read_experiment(made_file(tmp_path, 'fed = { type = "iid" }'), None)["fed"] == {"type": "iid"}
    for name in ("--sweep", "--type"):
        monkeypatch.setattr(sys, "argv", ["run_sweep.py", "--data", str(tmp_path), name, "sgd_test"])
        assert asked_here()[1].more["sweep"] == "sgd_test"


def made_file(folder: Path, text: str) -> Path:
    (folder / "y.toml").write_text(SMALL + text)
    return folder / "y.toml"


def test_lists_are_axes_and_tables_of_vary_vary_together(tmp_path: Path) -> None:
    text = (
        SMALL
        + """
folder = "{model}_{image_size}"
fed = { momentum = [0, 0.9] }
init = { image_size = [32, 64] }
[[vary.model]]
name = "big"
init = { encoder = "resnet10" }
fed = { weight_decay = 9 }
[[vary.model]]
name = "small"
init = { encoder = "tiny" }
alphas = [1, 2]
"""
    )
    experiment = made(tmp_path / "x.toml", text)
    runs = [said(job.commands[-1]) for job in experiment.jobs() if job.commands[-1][0] == "test_fed.py"]
    found = Counter((run["result_path"], run["alpha"], run["momentum"], run.get("weight_decay")) for run in runs)
    big = {(f"out/photos/big_{size}", "0.1", m, "9"): 2 for size in (32, 64) for m in ("0", "0.9")}
    small = {
        (f"out/photos/small_{size}", alpha, m, None): 2
        for size in (32, 64)
        for alpha in ("1", "2")
        for m in ("0", "0.9")
    }
    assert found == big | small
    inits = {word for job in experiment.jobs() for word in job.commands[0] if word.startswith("--encoder=")}
    assert inits == {"--encoder=resnet10", "--encoder=tiny"}


def test_scales_and_bases_change_what_stands_below(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(SMALL + "[scales.builtin]\nalphas = [5]\n[scales.paper]\nscale = 'paper'\n")
    path = tmp_path / "x.toml"
    child = 'base = "base.toml"\ntitle = "Child"\nseeds = [7]\n[scales.paper]\nmethods = ["moon"]\n'
    built, paper = (made(path, child, scale) for scale in (None, "paper"))
    [first], [second] = built.grids, paper.grids
    assert (built.title, first.alphas, first.seeds, first.scale) == ("Child", ["5"], [7], "builtin")
    assert (second.alphas, second.methods, second.scale) == (["0.1"], ["moon"], "paper")
    over = made(path, child + "[scales.builtin]\n", "builtin", more={"alphas": ["9"], "fed": {"momentum": ["0.5"]}})
    assert (over.grids[0].alphas, over.grids[0].axes) == (["9"], {"momentum": ["0.5"]})


def test_scales_of_files_of_before_are_read(tmp_path: Path) -> None:
    """The scale's folder was called `settings`, tables of scales began with `scale`, and types were `splits`."""
    today = SMALL + "scale = 'fedcv'\n[scales.paper]\nscale = 'paper'\n[[scales.builtin.vary.a]]\nscale = 'feddifrc'\n"
    before = (
        today.replace("\nscale =", "\nsettings =").replace("[scales.", "[scale.").replace("\ntypes =", "\nsplits =")
    )
    for scale, folders in (("paper", ["paper"]), ("builtin", ["feddifrc"])):
        for text in (today, before):
            grids = made(tmp_path / "x.toml", text, scale).grids
            assert [(grid.scale, grid.types) for grid in grids] == [(folder, ["class_based"]) for folder in folders]
    [grid] = made(tmp_path / "x.toml", SMALL + "settings = 'fedcv'").grids
    assert grid.scale == "fedcv"


def test_the_scale_of_the_command_line_is_one_of_the_files_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = made_file(tmp_path, "[scales.pretrained]\nscale = 'paper'\n")
    monkeypatch.setattr("sys.argv", ["run_sweep.py", "--experiment", str(file), "--scale", "pretrained"])
    assert [grid.scale for grid in experiment_of(*asked_here(), READS).grids] == ["paper"]
    monkeypatch.setattr("sys.argv", ["run_sweep.py", "--data", str(tmp_path), "--scale", "fedcv"])
    assert [grid.scale for grid in experiment_of(*asked_here(), READS).grids] == ["fedcv"]


def test_what_is_for_the_built_in_rooms_changes_nothing_of_other_data(tmp_path: Path) -> None:
    text = SMALL + "[rooms]\nalphas = [7]\n"
    for data, alphas in (("photos", ["0.1"]), ("rooms", ["7"]), ("rooms:1000", ["7"])):
        [grid] = made(tmp_path / "x.toml", text.replace('"photos"', f'"{data}"')).grids
        assert grid.alphas == alphas


def test_the_built_in_rooms_are_made_with_as_many_views_as_their_name_says() -> None:
    [command] = source_of("rooms:1000", test_mode=False).commands
    assert said(command[1:])["views_per_building"] == "1000" and source_of("rooms:1000", False).title.endswith("_1000")
    assert "views_per_building" not in said(source_of("rooms", False).commands[0][1:])


def test_the_command_line_changes_arguments_everywhere(tmp_path: Path) -> None:
    text = SMALL + "[[vary.a]]\nfed = { n_rounds = 3, momentum = 0 }\nalphas = [4]\n"
    experiment = made(tmp_path / "x.toml", text, more={"alphas": ["9"], "fed": {"n_rounds": ["5"]}})
    assert experiment.grids[0].axes == {"n_rounds": ["5"], "momentum": ["0"]} and experiment.grids[0].alphas == ["4"]


def test_the_command_line_has_arguments_of_each_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that an experiment in bfloat16 runs on a processor without it, and nothing of its file is edited for that."""
    path = tmp_path / "x.toml"
    path.write_text(SMALL + 'train = { precision = "bf16", batch_size = 7 }\nfed = { precision = "bf16" }\n')
    command = "--train_arguments precision=fp32 n_epochs=3 --embed_arguments precision=fp32 --precision fp32"
    monkeypatch.setattr("sys.argv", ["run_sweep.py", "--experiment", str(path), *command.split()])
    keys, given = asked_here()
    jobs = experiment_of(keys, given, READS).jobs()
    stages = {command[0]: said(command) for job in jobs for command in job.commands}
    train, fed = stages["train_centralized_task_model.py"], stages["test_fed.py"]
    assert (train["precision"], train["n_epochs"], train["batch_size"]) == ("fp32", "3", "7")
    assert stages["extract_embeddings.py"]["precision"] == fed["precision"] == "fp32"


RATES = """
[[vary.rate]]
tasks = ["normal", "reshading"]
fed = { init_lr = 3 }
[[vary.rate]]
tasks = ["class_scene"]
types = ["iid"]
fed = { init_lr = 1 }
"""


@pytest.mark.parametrize(
    "more, rates",
    [
        ({}, {"normal": "3", "reshading": "3", "class_scene": "1"}),
        ({"tasks": ["class_scene"]}, {"class_scene": "1"}),
        ({"tasks": ["class_scene", "normal"]}, {"normal": "3", "class_scene": "1"}),
        ({"types": ["class_based"]}, {"normal": "3", "reshading": "3"}),
    ],
)
def test_the_command_line_keeps_some_of_the_names_in_tables(tmp_path: Path, more: dict, rates: dict) -> None:
    experiment = made(tmp_path / "x.toml", SMALL + RATES, more=more)
    runs = [said(job.commands[-1]) for job in experiment.jobs() if job.commands[-1][0] == "test_fed.py"]
    assert {run["task"]: run["init_lr"] for run in runs} == rates and set(experiment.tasks) == set(rates)


@pytest.mark.parametrize(
    "more, line",
    [
        (
            {"tasks": ["edge_texture", "normal"]},
            "tasks: no run has edge_texture with what else is given; the tables of vary have normal, reshading, "
            "class_scene",
        ),
        (
            {"tasks": ["class_scene"], "types": ["class_based"]},
            "tasks: no run has class_scene with what else is given; the tables of vary have normal, reshading",
        ),
    ],
)
def test_names_that_no_table_has_are_refused(tmp_path: Path, more: dict, line: str) -> None:
    with pytest.raises(UserError, match=line):
        made(tmp_path / "x.toml", SMALL + RATES, more=more)


def test_a_teacher_is_asked_for_those_that_it_guides(tmp_path: Path) -> None:
    text = SMALL + 'guidance = "{layers}"\nteacher = { layers = [[1], [2, 3]] }\nmethods = ["fedavg", "feddifrc"]\n'
    jobs = {job.name: job for job in made(tmp_path / "x.toml", text).jobs()}
    teachers = {name: job for name, job in jobs.items() if job.commands[0][0] == "extract_diffusion_features.py"}
    folders = {said(job.commands[0])["guidance_path"] for job in teachers.values()}
    assert folders == {"out/photos/guidance/1", "out/photos/guidance/23"}
    assert any(job.commands[0][-3:] == ("--layers", "2", "3") for job in teachers.values())
    for job in jobs.values():
        if job.commands[-1][0] == "test_fed.py":
            arguments = said(job.commands[-1])
            needed = [said(jobs[need].commands[-1])["guidance_path"] for need in job.needs if need in teachers]
            assert needed == ([arguments["guidance_path"]] if arguments["method"] == "feddifrc" else [])


def test_without_a_central_model_runs_need_the_initial_one(tmp_path: Path) -> None:
    experiment = made(tmp_path / "x.toml", SMALL + "central = false\n")
    jobs = {job.name: job for job in experiment.jobs()}
    assert Counter(job.commands[-1][0] for job in jobs.values()) == {"model_initialization.py": 2, "test_fed.py": 2}
    for job in jobs.values():
        for need in job.needs:
            assert said(jobs[need].commands[0])["init_model_dir"] == said(job.commands[0])["init_model_dir"]


def test_a_list_within_a_list_is_one_value_of_several_words(tmp_path: Path) -> None:
    text = """central = false
folder = "{decoder_channels}"
init = { decoder = "unet", decoder_channels = [[96, 48, 32, 16, 8], [64, 32, 16, 8, 4]] }
fed = { train = "lora", lora_targets = [["qkv", "proj"], "fc1"] }
"""
    jobs = parsed_jobs(made(tmp_path / "x.toml", SMALL + text).jobs())
    found = Counter((path.parent.parent.name, *value) for path, value in map(widths_or_targets, jobs))
    assert found == {
        ("964832168", 96, 48, 32, 16, 8): 2,
        ("64321684", 64, 32, 16, 8, 4): 2,
        **{(folder, *targets): 2 for folder in ("964832168", "64321684") for targets in (("qkv", "proj"), ("fc1",))},
    }


def widths_or_targets(job: Job) -> tuple[Path, list]:
    """Of a job, the folder of initial models and the value of several words."""
    arguments = job.config
    name = "lora_targets" if "lora_targets" in arguments else "decoder_channels"
    return arguments["init_model_dir"], arguments[name]


TWO_ENCODERS = '[init]\nencoder = ["tiny", "lenet"]'


@pytest.mark.parametrize("central", ["true", "false"])
def test_two_models_in_one_folder_are_refused(tmp_path: Path, central: str) -> None:
    text = SMALL + f"central = {central}\n"
    alone = parsed_jobs(made(tmp_path / "x.toml", text).jobs())
    with pytest.raises(UserError, match=r"normal would write the same file in .* --encoder tiny and with lenet; .*"):
        parsed_jobs(made(tmp_path / "x.toml", text + TWO_ENCODERS).jobs())
    jobs = parsed_jobs(made(tmp_path / "x.toml", text + 'folder = "{encoder}"\n' + TWO_ENCODERS).jobs())
    assert len(jobs) == len({job.name for job in jobs}) == 2 * len(alone)
    # Of the same encoder in other words there is one model.
    same = made(tmp_path / "x.toml", text + '[[vary.a]]\n[[vary.a]]\ninit = { encoder = "tiny" }')
    assert parsed_jobs(same.jobs()) == alone


@pytest.mark.parametrize("stage", ["train = { n_epochs = 3 }", "embed = { cluster_threshold = 0.5 }"])
def test_what_is_made_of_models_in_two_ways_is_refused_in_one_folder(tmp_path: Path, stage: str) -> None:
    with pytest.raises(UserError, match=r"normal would write the same file in .* tables with a name$"):
        parsed_jobs(made(tmp_path / "x.toml", SMALL + f"[[vary.a]]\n[[vary.a]]\n{stage}").jobs())


def test_what_is_made_of_the_results(tmp_path: Path) -> None:
    text = (
        SMALL
        + """
[make]
tables = { assignment_files_path = "{result_path}/seed{seed}/assignments_K{n_clusters}", at_round = [1, 2] }
figures = [{ figure = "rounds", methods = "{methods}" }]
report = true
"""
    )
    assert [" ".join(command) for command in made(tmp_path / "x.toml", text).outputs.commands()] == [
        "make_tables.py --result_path out/photos --data_path photos "
        "--assignment_files_path out/photos/seed0/assignments_K16 --at_round 1 2",
        "make_figures.py rounds --methods fedavg --result_path out/photos",
        "make_report.py --result_path out/photos",
    ]


@pytest.mark.parametrize("features, folder", [(["image", "model"], ""), (["target", "image"], "_target")])
def test_tables_are_handed_the_sweeps_own_clusters(tmp_path: Path, features: list[str], folder: str) -> None:
    # What another sweep has left in the default folder, of other images, is none of theirs.
    text = SMALL.replace("class_based", "embedding_based").replace("seeds = [0, 1]", "")
    text += f"seeds = [4, 2]\nn_clusters = [8, 16]\nfeatures = {features}\n[make]\ntables = true\n"
    experiment = made(tmp_path / "x.toml", text)
    [command] = experiment.outputs.commands()
    clusters = said(command)["assignment_files_path"]
    assert clusters == f"out/photos/seed4/assignments{folder}_K8"
    made_there = [
        said(job.commands[-1]).get("assignment_files_path")
        for job in experiment.jobs()
        if job.commands[-1][0] == "extract_embeddings.py"
    ]
    assert clusters in made_there


def test_each_folder_has_tables_of_its_own_clusters_and_names_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
result_path = "."
folder = "of/{a}"
[[vary.a]]
name = "one"
[[vary.a]]
name = "two"
seeds = [3]
[make]
tables = true
show = ["tables/splits_{task}.md", "tables/no_such.md"]
"""
    monkeypatch.chdir(tmp_path)
    made_of: dict[str, str] = {}

    def make_tables(command: tuple[str, ...]) -> None:
        arguments = said(command)
        made_of[arguments["result_path"]] = arguments["assignment_files_path"]
        path = Path(arguments["result_path"], "tables/splits_normal.md")
        path.parent.mkdir(parents=True)
        path.touch()

    monkeypatch.setattr(outputs, "run", make_tables)
    made(tmp_path / "x.toml", SMALL.replace('result_path = "out/{data}"\n', "") + text).outputs.run()
    assert made_of == {"of/one": "of/one/seed0/assignments_K16", "of/two": "of/two/seed3/assignments_K16"}
    assert capsys.readouterr().out.split() == ["of/one/tables/splits_normal.md", "of/two/tables/splits_normal.md"]


def test_a_grid_of_the_command_line_ends_with_the_command_that_makes_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, results = tmp_path / "my photos", tmp_path / "out"
    folder.mkdir()
    words = [
        "--data_path",
        str(folder),
        "--result_path",
        str(results),
        "--tasks",
        "normal",
        "--seeds",
        "4",
        "--n_clusters",
        "8",
    ]
    monkeypatch.setattr("sys.argv", ["run_sweep.py", *words])
    grid = experiment_of(*asked_here(), READS)
    monkeypatch.setattr(outputs, "run", lambda command: pytest.fail(f"{command} was not wanted"))
    grid.outputs.run()
    assert capsys.readouterr().out == ""  # as with --until clusters: there are no runs yet
    run = results / "test_federated/fedavg/run"
    run.mkdir(parents=True)
    (run / "summary.json").touch()
    grid.outputs.run()
    line = capsys.readouterr().out.splitlines()[-1]
    python, *command = shlex.split(line.partition(" tables: ")[2])
    args = TablesSettings.from_args(None, command[1:])
    assert (python, command[0], args.result_path, args.data_path) == ("python", "make_tables.py", results, folder)
    assert args.assignment_files_path == results / "seed4/assignments_K8"  # not those of another sweep
    # Files say what is made: nothing is left to do.
    made(tmp_path / "x.toml", SMALL + "[make]\nreport = false\n", more={"result_path": results}).outputs.run()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_tables_of_the_papers_experiments_are_of_one_folder(path: Path, tmp_path: Path) -> None:
    for scale in ("builtin", "paper", "pretrained", "scratch"):
        try:
            keys = read_experiment(path, scale)
        except UserError:  # it has no such scale
            continue
        experiment = experiment_of(keys, Given(folder_source(tmp_path), scale), READS)
        for command in experiment.outputs.commands():
            if clusters := said(command).get("assignment_files_path"):
                assert Path(clusters).is_relative_to(experiment.result_path)


@pytest.mark.parametrize("scale", ["builtin", "paper"])
@pytest.mark.parametrize("name", ["figure_5", "table_11"])
def test_fedcv_compares_a_schedule_with_none(name: str, scale: str, tmp_path: Path) -> None:
    keys = read_experiment(ROOT / f"experiments/fedcv/{name}.toml", scale)
    jobs = experiment_of(keys, Given(folder_source(tmp_path), scale), READS).jobs()
    runs = [said(job.commands[-1]) for job in jobs if job.commands[-1][0] == "test_fed.py"]
    assert {run["lr_schedule"] for run in runs} == {"none", "step"}


@pytest.mark.parametrize(
    "text, line",
    [("[[", "not a readable experiment"), ("seeds = [1]", "has no title"),
     (SMALL + "alpha = 1", "unknown key alpha, did you mean alphas?"),
     (SMALL + "[scales.builtin]\nalpha = 1", "builtin: unknown key alpha, did you mean alphas?"),
     (SMALL + "[[vary.a]]\nseed = 1", "vary.a: unknown key seed, did you mean seeds?"),
     (SMALL + "[vary]\na = 1", "vary.a: must be a list of tables"),
     (SMALL + "[make]\nfigure = 1", "make: unknown key figure, did you mean figures?"),
     (SMALL + "scale = 'papper'", "scale 'papper': not a folder of scripts/args, did you mean paper?"),
     (SMALL + "folder = '{size}'", "folder = '{size}': in braces there may be task"),
     (SMALL + "until = 'now'", "until: 'now' is not one of"), (SMALL + "type = 'x'", "sweep: 'x' is not one of"),
     (SMALL + "base = 'x.toml'", "has itself as its base"), (SMALL + "base = 'y.toml'", "y.toml: not a readable"),
     (SMALL + "[init]\nencoder = []", "init: an empty list says no value"),
     (SMALL + "[fed]\nmomentum = []", "fed: an empty list says no value"),
     (SMALL + "[vary]\na = []", "vary: an empty list says no value"),
     (SMALL + "scale = 3", "scale must be a text"), (SMALL + "features = []", "features must be a value"),
     (SMALL + "[make]\ntables = 3", "tables must be true"), (SMALL + "[make]\nfigures = [1]", "figures must be tables"),
     ("title = 't'", "no data: give --data"),
     (SMALL + "init = 3", "init must be a table")],
)  # fmt: skip
def test_mistakes_are_one_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(UserError) as caught:
        made(tmp_path / "x.toml", text)
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_a_scale_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--scale huge: .* has the scales builtin"):
        made(tmp_path / "x.toml", SMALL + "[scales.builtin]\n", "huge")
    with pytest.raises(UserError, match="has no scales"):
        made(tmp_path / "x.toml", SMALL, "paper")


def test_every_key_is_in_the_docs() -> None:
    page = (ROOT / "docs/sweeps.md").read_text()
    assert not [key for key in KEYS if f"`{key}`" not in page and f"`[{key}]`" not in page]


def test_merging_keeps_what_it_is_given() -> None:
    below, above = {"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": 3}, "d": [2]}
    assert merged(below, above) == {"a": {"b": 3, "c": 2}, "d": [2]} and below["a"]["b"] == 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_scripts_take_every_command_of_the_papers_experiments(path: Path, tmp_path: Path) -> None:
    reads = declared_arguments()
    for scale in (None,) if path.parent.name == "feddifrc" else ("builtin", "paper"):
        keys = read_experiment(path, scale)
        # One seed and one alpha, the last, where zero stands: the others differ in nothing else.
        more = {"seeds": [0], "alphas": keys["alphas"][-1:]}
        experiment = experiment_of(keys, Given(folder_source(tmp_path), scale or "builtin", True, more), reads)
        jobs = parsed_jobs(experiment.jobs())
        names = {job.name for job in jobs}
        assert (len(jobs) > 0) == (experiment.until != "selection")
        assert all(names.issuperset(job.needs) for job in jobs)
        for command in experiment.outputs.commands():
            OUTPUTS[command[0]].from_args(None, command[1:])


def test_what_the_command_line_leaves_out_takes_its_arguments_along(tmp_path: Path) -> None:
    """Unless the command line gives them itself: then it is told that nothing reads them."""
    reads = READS | {"attack": {"none": (), "flip": ("attackers",)}}
    reads["method"] = {"fedavg": (), "fedprox": ("mu",), "feddifrc": ("guidance_path", "contrast")}
    (tmp_path / "x.toml").write_text(
        SMALL
        + """
methods = ["fedavg", "fedprox", "feddifrc"]
guidance = "image"
fed = { mu = [0.1, 1], contrast = "classes", attack = ["none", "flip"], attackers = 2 }
"""
    )

    def runs(**more: object) -> list[dict[str, str]]:
        given = Given(more=more)
        jobs = experiment_of(read_experiment(tmp_path / "x.toml", None), given, reads).jobs()
        commands = [job.commands[-1] for job in jobs]
        taught = any(command[0] == "extract_diffusion_features.py" for command in commands)
        assert taught == ("feddifrc" in more.get("methods", ["feddifrc"]))  # type: ignore[operator]
        return [said(command) for command in commands if command[0] == "test_fed.py"]

    seeds = 2
    assert len(runs()) == seeds * 2 * (1 + 2 + 1)
    prox = runs(methods=["fedprox"], fed={"attack": ["none"]})
    assert len(prox) == seeds * 2 and all("attackers" not in run and "contrast" not in run for run in prox)
    assert {run["mu"] for run in prox} == {"0.1", "1"}
    flipped = runs(methods=["fedavg"], fed={"attack": ["flip"]})
    assert len(flipped) == seeds and all(run["attackers"] == "2" and "mu" not in run for run in flipped)
    assert all(run["mu"] == "3" for run in runs(methods=["fedavg"], fed={"mu": 3}))


def test_tables_that_name_methods_leave_the_arguments_of_others_out(tmp_path: Path) -> None:
    """Unless they give them themselves: then they are told that nothing reads them."""
    reads = READS | {"method": {"fedavg": (), "fedprox": ("mu",), "feddifrc": ("contrast",)}}
    (tmp_path / "x.toml").write_text(
        SMALL
        + """
methods = ["fedavg", "fedprox", "feddifrc"]
fed = { mu = [0.1, 1], contrast = "classes" }
[[vary.rate]]
methods = ["fedprox"]
fed = { init_lr = 3 }
[[vary.rate]]
methods = ["fedavg"]
fed = { mu = 2 }
"""
    )
    jobs = experiment_of(read_experiment(tmp_path / "x.toml", None), Given(more={"seeds": [0]}), reads).jobs()
    runs = [said(job.commands[-1]) for job in jobs if job.commands[-1][0] == "test_fed.py"]
    [plain] = [run for run in runs if run["method"] == "fedavg"]
    prox = [run for run in runs if run["method"] == "fedprox"]
    assert {run["mu"] for run in prox} == {"0.1", "1"} and len(prox) == 2 and plain["mu"] == "2"
    assert all("contrast" not in run for run in runs)


def test_an_argument_of_the_command_line_is_for_the_tables_whose_methods_read_it(tmp_path: Path) -> None:
    """One that no table's methods read stays everywhere: then it is told that nothing reads it."""
    reads = READS | {"method": {"fedavg": (), "fedprox": ("mu",), "feddifrc": ("contrast",)}}
    tables = '[[vary.of]]\nmethods = ["fedavg"]\n[[vary.of]]\nmethods = ["fedavg", "fedprox"]\n'
    (tmp_path / "x.toml").write_text(SMALL + tables)

    def given_to(**fed: object) -> list[tuple[str, set[str]]]:
        given = Given(more={"seeds": [0], "fed": fed})
        experiment = experiment_of(read_experiment(tmp_path / "x.toml", None), given, reads)
        runs = [said(job.commands[-1]) for job in experiment.jobs() if job.commands[-1][0] == "test_fed.py"]
        return sorted((run["method"], fed.keys() & run.keys()) for run in runs)

    assert given_to(mu=[2, 3]) == [("fedavg", set()), ("fedprox", {"mu"}), ("fedprox", {"mu"})]
    assert given_to(contrast="classes") == [("fedavg", {"contrast"}), ("fedprox", {"contrast"})]
