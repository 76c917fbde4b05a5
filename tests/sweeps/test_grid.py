"""Which jobs a grid comes to, and what each needs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from models.networks.task_model import init_file
from sweeps.grid import SCALES, SWEEP_TYPES, Grid, Job, read_axes
from utils.errors import UserError

SPLITS = ("iid", "class_based", "embedding_based")


def grid(result_path: Path = Path("results"), **changes: object) -> Grid:
    values = {
        "scale": "builtin", "data_path": Path("data"), "result_path": result_path, "tasks": ["normal", "class_scene"],
        "methods": ["fedavg", "fedamp"], "types": SPLITS, "alphas": ["0.1", "10"], "seeds": [0, 1, 2],
        "n_clusters": [16],
    }  # fmt: skip
    return Grid(**values | changes)  # type: ignore[arg-type]


def said(job: Job) -> dict[str, str]:
    """The arguments of a job's last command; of those given twice the last, as argparse has it."""
    return {name[2:]: value for name, value in pairwise(job.commands[-1]) if name.startswith("--")}


def test_numbers_of_jobs() -> None:
    # Per task and seed: a training, clusters; per method a random split, and two splits at two alphas each.
    assert len(grid().central()) == 2 * 3 * (1 + 1)
    assert len(grid().federated()) == 2 * 3 * 2 * (1 + 2 * 2)
    assert len(grid(n_clusters=[8, 16]).central()) == 2 * 3 * (1 + 2)
    assert len(grid(axes={"momentum": ["0", "0.9"], "lam": ["1", "2", "3"]}).federated()) == 2 * 3 * 2 * 5 * 6


def test_arguments_of_some_methods_vary_these_alone() -> None:
    of_methods = {"fedavg": {"clients_per_round"}, "fedamp": {"clients_per_round", "lam"}, "moon": {"mu"}}
    reads = {"method": of_methods}
    jobs = grid(axes={"momentum": ["0", "0.9"], "lam": ["1", "2", "3"]}, reads=reads).federated()
    assert len(jobs) == 2 * 3 * 5 * (2 + 2 * 3) == len({job.name for job in jobs})
    assert {said(job).get("lam") for job in jobs if said(job)["method"] == "fedavg"} == {None}
    # What none of the sweep's methods reads is left for the script to refuse.
    assert {said(job).get("mu") for job in grid(axes={"mu": ["1"]}, reads=reads).federated()} == {"1"}


def test_arguments_of_some_partition_rules_vary_these_alone() -> None:
    reads = {"partition": {"paper": (), "shards": ("shards_per_client",)}}
    axes = {"shards_per_client": ["2", "4"], "partition": ["paper", "shards"]}
    jobs = grid(axes=axes, reads=reads, methods=["fedavg"], tasks=["normal"], seeds=[0], types=["iid"]).federated()
    found = [(said(job)["partition"], said(job).get("shards_per_client")) for job in jobs]
    assert found == [("paper", None), ("shards", "2"), ("shards", "4")]


def test_arguments_of_some_aggregations_and_attacks_vary_these_alone() -> None:
    reads = {"aggregation": {"mean": (), "krum": ("assumed_attackers",)}, "attack": {"ipm": ("attackers",)}}
    axes = {
        "aggregation": ["mean", "krum"],
        "assumed_attackers": ["1", "2"],
        "attack": ["none", "ipm"],
        "attackers": ["3"],
    }
    jobs = grid(axes=axes, reads=reads, methods=["fedavg"], tasks=["normal"], seeds=[0], types=["iid"]).federated()
    found = [tuple(said(job).get(name) for name in axes) for job in jobs]
    assert found == [
        ("mean", None, "none", None),
        ("mean", None, "ipm", "3"),
        *(("krum", assumed, *attack) for assumed in "12" for attack in (("none", None), ("ipm", "3"))),
    ]


@pytest.mark.parametrize("changes", [{}, {"n_clusters": [8, 16], "axes": {"init_lr": ["0.1", "1"]}}])
def test_each_job_has_its_own_name_and_needs_what_is_there(changes: dict) -> None:
    central, federated = grid(**changes).central(), grid(**changes).federated()
    names = [job.name for job in (*central, *federated)]
    assert len(set(names)) == len(names)
    by_name = {job.name: job for job in (*central, *federated)}
    for job in federated:
        (clusters,) = (by_name[name] for name in job.needs)
        own, of_clusters = said(job), said(clusters)
        for same in ("task", "rand_seed", "n_clusters", "assignment_files_path"):
            assert own[same] == of_clusters[same]
        (training,) = (by_name[name] for name in clusters.needs)
        assert said(training)["checkpoint_path"] == of_clusters["load_model_dir"] == own["trained_model_dir"]
        assert [command[0] for command in training.commands] == [
            "model_initialization.py",
            "train_centralized_task_model.py",
        ]
        assert names.index(training.name) < names.index(clusters.name) < names.index(job.name)


def test_names_of_jobs_have_the_values_that_vary() -> None:
    jobs = grid(
        axes={"mu": ["0.01", "1"]}, tasks=["normal"], seeds=[0], alphas=["1"], types=["class_based"]
    ).federated()
    assert [job.name.rpartition("-")[0].rpartition("-")[2] for job in jobs] == ["mu0.01", "mu1"] * (len(jobs) // 2)


def test_two_sweeps_give_one_job_one_name() -> None:
    small, large = grid(tasks=["normal"], seeds=[1]), grid()
    assert {job.name for job in small.federated()} < {job.name for job in large.federated()}


def test_random_split_has_no_alpha() -> None:
    for job in grid().federated():
        assert ("alpha" in said(job)) == (said(job)["type"] != "iid")


def test_later_settings_win() -> None:
    jobs = grid(axes={"init_lr": ["0.5"]}, common=("--test_mode", "True")).federated()
    assert {said(job)["init_lr"] for job in jobs} == {"0.5"}
    optimisers = {said(job)["task"]: said(job)["use_adam"] for job in grid().federated()}
    assert optimisers == {"normal": "True", "class_scene": "False"}
    assert {said(job).get("lam") for job in grid().federated() if said(job)["method"] == "fedamp"} == {"0.1"}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("sweep_type", SWEEP_TYPES[1:])
def test_types_of_sweeps_have_runs_of_their_own_beside_the_same_models(scale: str, sweep_type: str) -> None:
    job = grid(scale=scale, sweep_type=sweep_type, axes={"momentum": ["0"]}).federated()[0]
    assert said(job)["result_path"] == f"results/{sweep_type}"
    assert said(job)["init_model_dir"] == "results/seed0/initial_models"


def test_learning_rates_are_each_tasks_own() -> None:
    found: dict[str, set[str]] = {}
    for job in grid(sweep_type="lr_test").federated():
        found.setdefault(said(job)["task"], set()).add(said(job)["init_lr"])
    assert found == {"normal": {"3e-4", "1e-3", "3e-3", "1e-2"}, "class_scene": {"1e-4", "3e-4", "1e-3", "3e-3"}}


def test_a_scale_without_values_to_vary_is_refused() -> None:
    with pytest.raises(UserError, match=r"--sweep lr_test: scripts/args/fedcv has no lr_test\.txt"):
        grid(scale="fedcv", sweep_type="lr_test")


def test_axes_are_read_as_arguments_are_written() -> None:
    words = ["--init_lr", "0.1", "1", "--use_adam", "--mu", "-1"]
    assert read_axes(words) == {"init_lr": ["0.1", "1"], "use_adam": ["True"], "mu": ["-1"]}
    with pytest.raises(UserError, match="stray"):
        read_axes(["stray", "--mu", "1"])
    with pytest.raises(UserError, match="partition_file"):
        read_axes(["--partition_file", "run"])


@pytest.mark.parametrize("use_cbam", [False, True])
def test_models_of_one_folder_are_made_in_one_way(tmp_path: Path, use_cbam: bool) -> None:
    cbam = (f"--use_cbam={use_cbam}",)
    grid(tmp_path, init=(*cbam, "--image_size=33")).hold_settings()  # of which no model could be made
    grid(tmp_path, init=cbam).hold_settings()
    for seed in (0, 1):
        path = init_file(tmp_path / f"seed{seed}/initial_models", "normal", use_cbam)
        path.parent.mkdir(parents=True)
        path.touch()
    grid(tmp_path, init=cbam, alphas=["7"], tasks=["normal", "reshading"]).hold_settings()
    with pytest.raises(UserError, match=r"settings/normal\.json; give another --result_path"):
        grid(tmp_path, init=(*cbam, "--image_size=64")).hold_settings()


def test_features_vary_the_embedding_based_splits_alone() -> None:
    features = ["model", "target", "timm:a/b"]
    of_one = grid(tasks=["normal"], methods=["fedavg"], seeds=[0], alphas=["1"], features=features)
    clusters = [said(job) for job in of_one.central()[1:]]
    folders = {each["features"]: Path(each["assignment_files_path"]).name for each in clusters}
    assert folders == {
        "model": "assignments_K16",
        "target": "assignments_target_K16",
        "timm:a/b": "assignments_timm_a_b_K16",
    }
    assert [each.get("observe_performance") for each in clusters] == ["True", None, None]
    assigned = [said(job) for job in of_one.federated()]
    found = [(each["type"], each.get("features"), Path(each["assignment_files_path"]).name) for each in assigned]
    assert found == [
        ("iid", None, "assignments_K16"),
        ("class_based", None, "assignments_K16"),
        *(("embedding_based", *each) for each in folders.items()),
    ]
    assert len({job.name for job in of_one.federated()}) == 5


def test_without_central_models_embedding_based_splits_need_the_clusters_of_other_features() -> None:
    changes = {"has_central": False, "tasks": ["normal"], "methods": ["fedavg"], "seeds": [3, 4], "alphas": ["1"]}
    of_public = grid(features=["model", "image"], **changes)
    model, clusters, other = of_public.central()  # clusters once, for both seeds
    assert [command[0] for command in (*model.commands, *clusters.commands)] == [
        "model_initialization.py",
        "extract_embeddings.py",
    ]
    assert clusters.needs == (model.name,) and said(clusters)["features"] == "image"
    assert said(clusters)["init_model_dir"] == said(model)["init_model_dir"] and "rand_seed" not in said(clusters)
    for seed, own in (("3", model), ("4", other)):
        of_seed = [job for job in of_public.federated() if said(job)["rand_seed"] == seed]
        assert {(said(job)["type"], said(job).get("features")): job.needs for job in of_seed} == {
            ("iid", None): (own.name,),
            ("class_based", None): (own.name,),
            ("embedding_based", "model"): (own.name,),
            ("embedding_based", "image"): (clusters.name,),
        }
        assert said(of_seed[-1])["assignment_files_path"] == said(clusters)["assignment_files_path"]
    assert grid(features=["image"], types=["iid"], **changes).central() == [model, other]
