"""Whatever is wrong with the command line or the files: one line that says what and how to fix it, and exit code 2.

No case may show a traceback or change a file that was there.
"""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from tests.conftest import MODULES, ROOT, start_in

CPU = "--use_accelerator False"
INIT = "model_initialization.py --task normal --image_size 32"
SELECT = "extract_datapoints_for_experiments.py --client_file_name rooms.csv --data_path data"
TRAIN = f"train_centralized_task_model.py --task normal --test_mode True {CPU}"
EMBED = f"extract_embeddings.py --task normal --n_clusters 4 --test_mode True {CPU}"
FED = f"test_fed.py --task normal --n_clusters 4 --n_clients 3 --test_mode True {CPU}"
PART = "make_partition.py --labels labels.npy --n_clients 3"
CLIENT = "deploy_client.py --superlink a:8000"
RESUME = "--resume_training True"
DONE = Path("results/test_federated/fedavg/normal/embedding_based/alpha0.1_seed42")
CENTRAL = Path("trained_models/centralized_normal_checkpoint.safetensors")
BEST = Path("trained_models/centralized_normal_best.safetensors")
START = Path("initial_models/init_model_normal.safetensors")
CSV, SAID = Path("data/filtered_file_paths.csv"), Path("data/filtered_file_paths.json")
NOTE = Path("results/data_path.json")
ASSIGNED = Path("assignments/assignments_normal.npy")
ABOUT = Path("assignments/assignments_normal.json")
OTHERS = ("edge_texture", "instances", "keypoints3d", "principal_curvature", "segment_semantic")  # tasks of no case
LONG, DEEP = "n" * 300, "n" * 250 + f"/{'n' * 250}" * 20  # than a name, and than a path, may be


@pytest.fixture(scope="module")
def work(rendered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder in which every stage has run for normals; not to be changed."""
    folder = tmp_path_factory.mktemp("done")
    shutil.copytree(rendered, folder / "data", ignore=shutil.ignore_patterns(*OTHERS))
    np.save(folder / "labels.npy", np.arange(60) % 5)
    np.save(folder / "embeddings.npy", np.random.default_rng(0).normal(size=(60, 3)))
    for command in (SELECT, INIT, TRAIN, EMBED, FED, f"{PART} --output_path partition"):
        process = start_in(folder, command)
        process.join(300)
        assert process.exitcode == 0, (folder / "output.txt").read_text()[-3000:]
    (folder / "file").write_text("in the way")
    for name, client in (("client_0", 0), ("server", None)):
        said = {"client": client, "n_clients": 3, "partition": "a"}
        (folder / "share" / name).mkdir(parents=True)
        (folder / "share" / name / "share.json").write_text(json.dumps(said))
    (folder / "epochs.args").write_text("--local_epochs 3\n")
    (folder / "broken.args").write_text("--task 'normal\n")
    (folder / "circle.args").write_text("--task normal @circle.args\n")
    return folder


@pytest.fixture(scope="module")
def kept(work: Path) -> Path:
    """A copy of that folder, to put it back from."""
    return Path(shutil.copytree(work, work.with_name("kept")))


@pytest.fixture
def spoiled(work: Path, kept: Path) -> Iterator[Path]:
    """The working folder, to be changed: what is changed is put back at the end."""
    before = listed(work)
    yield work
    after = listed(work)
    for path in sorted(after.keys() - before.keys(), reverse=True):
        Path(path).rmdir() if after[path] is None else Path(path).unlink()
    for path in (Path(path) for path, when in before.items() if when and after.get(path) != when):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(kept / path.relative_to(work), path)


def listed(folder: Path) -> dict[str, tuple[int, ...] | None]:
    """All that lies in a folder, with what tells whether a file has been written since, and None for folders."""
    found: dict[str, tuple[int, ...] | None] = {}
    for place, folders, files in os.walk(folder):
        found |= {f"{place}/{name}": None for name in folders}
        for path in (f"{place}/{name}" for name in files):
            of = os.stat(path)  # noqa: PTH116 - a hundred thousand times
            found[path] = (of.st_ino, of.st_size, of.st_mtime_ns)
    return found


def snapshot(folder: Path) -> dict[str, object]:
    """All files but locks, with their content, or whether they have been written, where they are data."""
    files = {path: when for path, when in listed(folder).items() if when and not path.endswith("lock")}
    data = f"{folder}/data/"
    return {path: when if path.startswith(data) else Path(path).read_bytes() for path, when in files.items()}


def refused(folder: Path, command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> str:
    """The line that a script ends with; fails unless all is as this file promises."""
    before = snapshot(folder)
    script, *arguments = command.split()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    capfd.readouterr()
    with warnings.catch_warnings(record=True) as noise, pytest.raises(SystemExit) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        runpy.run_path(str(ROOT / script), run_name="__main__")
    errors = capfd.readouterr().err
    assert not [each for each in noise if issubclass(each.category, RuntimeWarning)]
    lines = [line for line in errors.replace("\r", "\n").splitlines() if line.strip()]
    assert caught.value.code == 2 and "Traceback" not in errors
    assert len(lines) == 1 and lines[0].startswith("error: "), errors
    assert before.items() <= snapshot(folder).items()
    return lines[0]


# Arguments: the command, and what the line must say

ARGUMENTS = [
    ("extract_datapoints_for_experiments.py --data_path data", "--client_file_name"),
    ("extract_datapoints_for_experiments.py --client_file_name rooms.csv", "--data_path"),
    (f"{SELECT} --taskonomy_clients_to_include 0", "--taskonomy_clients_to_include: 0 must be at least 1"),
    (f"{SELECT} --taskonomy_clients_to_include x", "'x' is not a whole number"),
    (f"{SELECT} --test_fraction 0", "--test_fraction: 0 must be above 0"),
    (f"{SELECT} --test_fraction 0.95", "at most 0.9"),
    (f"{SELECT} --test_fraction nan", "--test_fraction: nan must be"),
    (f"{SELECT} --rand_seed -1", "--rand_seed: -1 must be at least 0"),
    (f"{SELECT} --tasks sculpture", "--tasks: invalid choice: 'sculpture'"),
    (f"{SELECT} --source rooms", "--source: invalid choice: 'rooms'"),
    (f"{SELECT} --fit fill", "--fit: invalid choice: 'fill'"),
    (f"{SELECT} --max_median_depth 0", "--max_median_depth: 0 must be above 0"),
    (f"{SELECT} --test_fraction 0.01", "0 test images, because the images of one point stay together, and there"),
    (f"{SELECT} --colour red", "unrecognized arguments: --colour red (--help lists the arguments)"),
    (f"{SELECT} --data_path nowhere", "nowhere: no such folder; see --data_path"),
    (f"{SELECT} --data_path file", "file: no such folder; see --data_path"),
    (f"{SELECT} --client_file_name no.csv", "no.csv: cannot read the building list"),
    (f"{SELECT} --client_file_name preview_grid.png", "preview_grid.png: cannot read the building list"),
    (f"{SELECT} --scene_class_file_name rooms.csv", "class names where Places has 365"),
    (f"{SELECT} --scene_class_file_name no.txt", "see --scene_class_file_name"),
    (f"{SELECT} --result_path file", "file"),
    ("model_initialization.py", "--task"),
    ("model_initialization.py --task sculpture", "--task: invalid choice: 'sculpture' (choose from 'depth_euclidean'"),
    (f"{INIT} --encoder vgg", "--encoder: 'vgg' is not one of tiny"),
    (f"{INIT} --image_size 0", "--image_size: 0 must be at least 1"),
    (f"{INIT} --image_size 50", "--image_size must be a multiple of 16, not 50"),
    (f"{INIT} --image_size x", "--image_size: 'x' is not a whole number"),
    (f"{INIT} --norm layer", "--norm: invalid choice: 'layer'"),
    (f"{INIT} --depth_target feet", "--depth_target: invalid choice: 'feet'"),
    (f"{INIT} --use_cbam maybe", "--use_cbam: 'maybe' is neither True nor False"),
    (f"{INIT} --pretrained True", "pretrained weights of --encoder tiny do not exist; give --pretrained False"),
    (f"{INIT} --published_quirks True --depth_target log", "--published_quirks True does not support --depth_target"),
    (f"{INIT} --rand_seed 1.5", "--rand_seed: '1.5' is not a whole number"),
    (f"{INIT} --init_model_dir file", "file/init_model_normal.safetensors: cannot be written"),
    (f"{TRAIN} --lora_rank 4", "--lora_rank is not an argument of --train all but of lora; omit it"),
    (f"{TRAIN} --n_epochs 0", "--n_epochs: 0 must be at least 1"),
    (f"{TRAIN} --n_epochs {10**30}", "must be at least 1 and at most 9.22337e+18"),
    (f"{TRAIN} --batch_size 0", "--batch_size: 0 must be at least 1"),
    (f"{TRAIN} --batch_size 2.5", "--batch_size: '2.5' is not a whole number"),
    (f"{TRAIN} --init_lr 0", "--init_lr: 0 must be above 0"),
    (f"{TRAIN} --init_lr nan", "--init_lr: nan must be above 0"),
    (f"{TRAIN} --init_lr inf", "--init_lr: inf must be above 0"),
    (f"{TRAIN} --lr_decay_rate 1.5", "--lr_decay_rate: 1.5 must be above 0 and at most 1"),
    (f"{TRAIN} --no_improvement_tolerance 0", "--no_improvement_tolerance: 0 must be at least 1"),
    (f"{TRAIN} --val_fraction 0.95", "--val_fraction: 0.95 must be above 0 and at most 0.9"),
    (f"{TRAIN} --checkpoint_every 0", "--checkpoint_every: 0 must be at least 1"),
    (f"{TRAIN} --resume_training perhaps", "--resume_training: 'perhaps' is neither True nor False"),
    (f"{TRAIN} --task norms", "--task: invalid choice: 'norms' (choose from 'depth_euclidean', 'normal'"),
    (f"{TRAIN} --use_cbam True --init_model_dir file", "init_model_normal_cbam.safetensors: cannot be written"),
    (f"{TRAIN} --track comet", "--track: invalid choice: 'comet' (choose from 'tensorboard', 'wandb')"),
    (f"{TRAIN} --data_path nowhere", "nowhere: no such folder; see --data_path"),
    (f"{TRAIN} --result_path file", "no data selected yet"),
    (f"{TRAIN} --data_path data --result_path file", "file/train_centralized/normal/seed42: cannot make the run"),
    (f"{TRAIN} --checkpoint_path file", "file/centralized_normal_checkpoint.lock: cannot be written"),
    (f"{TRAIN} --init_lr 1e38", "the loss is not finite in epoch 1, step"),
    (f"{EMBED} --n_clusters 0", "--n_clusters: 0 must be at least 1"),
    (f"{EMBED} --n_clusters 1000", "--n_clusters 1000 is more than the"),
    (f"{EMBED} --compare_n_clusters 1", "--compare_n_clusters: 1 must be at least 2"),
    (f"{EMBED} --cluster_threshold -0.1", "--cluster_threshold: -0.1 must be at least 0"),
    (f"{EMBED} --cluster_threshold 1.5", "and at most 1"),
    (f"{EMBED} --cluster_threshold 1", "every cluster is below --cluster_threshold 1; the largest has"),
    (f"{EMBED} --load_model_dir nowhere", "best.safetensors is missing; run train_centralized_task_model.py --task no"),
    (f"{EMBED} --load_model_dir nowhere --from_checkpoint True", "checkpoint.safetensors is missing; run train_centra"),
    (f"{EMBED} --assignment_files_path file", "cannot be written"),
    (f"{FED} --alpha 0", "--alpha must be a positive number; 0 is for --partition dirichlet_hsu only"),
    (f"{FED} --alpha -1", "--alpha: -1 must be at least 0"),
    (f"{FED} --alpha nan", "--alpha: nan must be at least"),
    (f"{FED} --alpha inf", "--alpha: inf must be at least"),
    (f"{FED} --alpha 1e308", "--alpha: 1e308 must be at least 0 and at most 1e+100"),
    (f"{FED} --alpha 1e-101", "--alpha: 1e-101 must be at least 1e-100"),
    (f"{FED} --n_clients auto", "--n_clients auto is for --partition natural, not paper; give a number"),
    (f"{FED} --alpha x", "--alpha: 'x' is not a number"),
    (f"{FED} --n_clients 0", "--n_clients: 0 must be at least 1"),
    (f"{FED} --n_clients 5000", "--n_clients"),
    (f"{FED} --n_clients 5000 --type iid", "--n_clients"),
    (f"{FED} --n_rounds 0", "--n_rounds: 0 must be at least 1"),
    (f"{FED} --sgd_per_epoch 0", "--sgd_per_epoch: 0 must be at least 1"),
    (f"{FED} --epoch_per_round 0", "--epoch_per_round: 0 must be at least 1"),
    (f"{FED} --local_epochs 0", "--local_epochs: 0 must be at least 1"),
    (f"{FED} --local_epochs 2 --sgd_per_epoch 50", "--local_epochs takes the place of --sgd_per_epoch; omit one"),
    (f"{FED} --sgd_per_epoch 5 @epochs.args", "omit one, or give --sgd_per_epoch auto after an argument file"),
    (f"{FED} --local_epochs 2 --epoch_per_round 1", "--local_epochs takes the place of --epoch_per_round"),
    (f"{FED} --momentum 1", "--momentum: 1 must be at least 0 and at most 0.999"),
    (f"{FED} --weight_decay -1", "--weight_decay: -1 must be at least 0"),
    (f"{FED} --lr_schedule quadratic", "--lr_schedule: invalid choice: 'quadratic'"),
    (f"{FED} --use_adam True --momentum 0.9", "--momentum 0.9 changes nothing with --use_adam True"),
    (f"{FED} --lr_schedule cosine --lr_decay_rate 0.9", "it is read only with --lr_schedule plateau or step; omit one"),
    (f"{FED} --lr_schedule step --no_improvement_tolerance 3", "it is read only with --lr_schedule plateau"),
    (f"{FED} --type iid --features model", "--features model changes nothing with --type iid"),
    (f"{TRAIN} --lr_schedule one_cycle --lr_decay_rate 0.9", "--lr_decay_rate 0.9 changes nothing with --lr_schedule"),
    (f"{FED} --lr_decay_rate 0", "--lr_decay_rate: 0 must be above 0"),
    (f"{FED} --method fedwrong", "--method: invalid choice: 'fedwrong'"),
    (f"{FED} --type colour", "'colour' is not one of embedding_based, class_based, <column>_based and iid"),
    (f"{FED} --type colour_based", "has no groups for --type colour_based; give one of embedding_based, class_based"),
    (f"{FED} --partition cake", "--partition: invalid choice: 'cake'"),
    (f"{FED} --batch_norm none", "--batch_norm: invalid choice: 'none'"),
    (f"{FED} --on_nan ignore", "--on_nan: invalid choice: 'ignore'"),
    (f"{FED} --evaluate_every 0", "--evaluate_every: 0 must be at least 1"),
    (f"{FED} --checkpoint_every 0", "--checkpoint_every: 0 must be at least 1"),
    (f"{FED} --clients_per_round 0", "--clients_per_round: 0 must be at least 1"),
    (f"{FED} --clients_per_round 4", "--clients_per_round 4 is more than the 3 clients; see --n_clients"),
    (f"{FED} --clients_per_round 4 --client_sampling size", "--clients_per_round 4 is more than the 3 clients"),
    (f"{FED} --client_sampling luck", "--client_sampling: invalid choice: 'luck'"),
    (f"{FED} --client_sampling poisson", "--client_sampling poisson may draw nobody"),
    (f"{FED} --clip_norm 0", "--clip_norm: 0 must be above 0"),
    (f"{FED} --noise_multiplier 1", "--noise_multiplier says nothing without a bound"),
    (f"{FED} --clip_norm inf --noise_multiplier 1", "no noise covers changes of any size; give a finite --clip_norm"),
    (f"{FED} --clip_norm 1 --noise_multiplier 1 --start_warm", "--start_warm: the central model has learnt"),
    (f"{FED} --clip_norm 1 --clip_lr 1", "--clip_lr is of a norm that adapts; give --clip_quantile"),
    (f"{FED} --clip_norm inf --clip_quantile 0.5", "--clip_quantile: an infinite norm stays infinite; give a finite"),
    (f"{FED} --clip_norm 1 --clip_quantile 0.5 --clip_count_noise 2", "no count gets noise without --noise_multiplier"),
    (f"{FED} --clip_norm 1 --delta 1", "--delta: 1 must be above 0 and below 1"),
    (f"{FED} --clip_norm 1 --n_clients 1", "--delta: its default, N^-1.1, is 1 for one client; give one below 1"),
    (f"{FED} --clip_norm 1 --max_epsilon 8", "--max_epsilon: without noise epsilon is infinite"),
    (f"{FED} --clip_norm 1 --method fedamp", "no bound of uploads protects clients here: FedAMP"),
    (f"{FED} --clip_norm 1 --client_sampling size", "no account covers --client_sampling size"),
    (f"{FED} --mu 1", "--mu is not an argument of --method fedavg but of fedprox, fednova, moon; omit it"),
    (f"{FED} --method fedprox --mu 1 --lam 2", "--lam is not an argument of --method fedprox but of fedamp, ditto"),
    (f"{FED} --method fedprox --mu -1", "--mu: -1 must be at least 0"),
    (f"{FED} --method fedadam --server_lr 0", "--server_lr: 0 must be above 0"),
    (f"{FED} --method fedadam --beta1 1", "--beta1: 1 must be"),
    (f"{FED} --method fedadam --tau 0", "--tau: 0 must be above 0"),
    (f"{FED} --method fedamp --sigma 0", "--sigma: 0 must be above 0"),
    (f"{FED} --method moon --temperature 0", "--temperature: 0 must be above 0"),
    (f"{FED} --method scaffold --scaffold_option 3", "--scaffold_option: invalid choice: 3"),
    (f"{FED} --method scaffold --scaffold_option 2 --use_adam True", "--scaffold_option 2 needs steps proportional"),
    (f"{FED} --method fedrep --head_steps -1", "--head_steps: -1 must be at least 0"),
    (f"{FED} --method fedper --personal_part tail", "--personal_part: invalid choice: 'tail'"),
    (f"{FED} --min_client_ds_len 0", "--min_client_ds_len: 0 must be at least 1"),
    (f"{FED} --min_client_ds_len 1000", "--min_client_ds_len"),
    (f"{FED} --shards_per_client 0", "--shards_per_client: 0 must be at least 1"),
    (f"{FED} --shards_per_client 2", "--shards_per_client is not an argument of --partition paper but of shards; omit"),
    (f"{FED} --n_clusters 7", "has 4 clusters, not 7; give --n_clusters 4, or run extract_embeddings.py"),
    (f"{FED} --partition_file nowhere", "nowhere is missing; run test_fed.py or make_partition.py first"),
    (f"{FED} --partition_file partition", "was made from another table of images; make the partition again"),
    (f"{FED} --type building_based --partition natural", "--n_clients 2"),
    (f"{FED} --task depths", "--task: invalid choice: 'depths' (choose from 'depth_euclidean', 'normal'"),
    (f"{FED} --task reshading", "init_model_reshading.safetensors is missing; run model_initialization.py --task re"),
    (f"{FED} --start_warm True --trained_model_dir nowhere", "is missing; run train_centralized_task_model.py"),
    (f"{FED} --assignment_files_path nowhere", "assignments_normal.json is missing; run extract_embeddings.py --task"),
    (f"{FED} --test_mode False", "was made with --test_mode True from a few images; run extract_embeddings.py"),
    (f"{FED} --rand_seed 7 {RESUME}", "has no checkpoint to resume from; start without --resume_training True"),
    (f"{FED} --batch_size 4 {RESUME}", "was started with --batch_size 16; resume with the same arguments"),
    (f"{FED} --mu 4 --method fedprox {RESUME}", "has no checkpoint to resume from"),
    (f"{FED} --init_lr 1e38 --rand_seed 8", "the loss is not finite in round 1: client 0 in step"),
    (f"{FED} @missing.args", "missing.args: not a readable file of arguments (No such file or directory)"),
    (f"{FED} @broken.args", "broken.args: not a readable file of arguments (No closing quotation)"),
    (f"{FED} @circle.args", "circle.args: this file of arguments names itself"),
    (f"{FED} @data", "data: not a readable file of arguments (Is a directory)"),
    (f"{FED} @data/preview_grid.png", "not a readable file of arguments ('utf-8' codec can't decode"),
    (f"{FED} @{LONG}", "not a readable file of arguments (File name too long)"),
    (f"{SELECT} --data_path {LONG}", "File name too long; give a shorter one"),
    (f"{SELECT} --client_file_name {LONG}", "cannot read the building list"),
    (f"{SELECT} --result_path {LONG}", "File name too long"),
    (f"{INIT} --task {LONG}", "--task: invalid choice: 'nnnnn"),
    (f"{INIT} --init_model_dir {LONG}", "File name too long"),
    (f"{TRAIN} --init_model_dir {DEEP}", "File name too long"),
    (f"{TRAIN} --result_path {LONG}", "File name too long; give a shorter one"),
    (f"{TRAIN} --result_path {DEEP} --data_path data", "File name too long"),
    (f"{TRAIN} --checkpoint_path {LONG}", "File name too long"),
    (f"{EMBED} --load_model_dir {LONG}", "File name too long; give a shorter one"),
    (f"{FED} --data_path {DEEP}", "File name too long; give a shorter one"),
    (f"{FED} --assignment_files_path {LONG}", "File name too long"),
    (f"{FED} --partition_file {LONG}", "File name too long; give a shorter one"),
    (f"make_tables.py --result_path {LONG}", "n" * 200),
    (f"{CLIENT} --folder share/client_0".replace("--superlink a:8000", ""), "--superlink"),
    (CLIENT, "--folder"),
    (f"{CLIENT} --folder nowhere", "nowhere/share.json is missing; run make_partition.py --export_clients first"),
    (f"{CLIENT} --folder share/server", "share/server has the server's images; give a client's"),
    (f"{CLIENT} --folder share/client_0 --superlink a", "--superlink: 'a' is no HOST:PORT"),
    (f"{CLIENT} --folder share/client_0 --superlink a:70000", "--superlink: 'a:70000' is no HOST:PORT"),
    (f"{CLIENT} --folder share/client_0 --root_certificates no.crt", "no.crt: no such file; see --root_certificates"),
    (f"{CLIENT} --folder share/client_0 --root_certificates file --private_key no", "no such file; see --private_key"),
    (f"{CLIENT} --folder share/client_0 --private_key file", "--private_key needs a connection with TLS; give --root"),
    ("make_certificates.py", "--n_clients"),
    ("make_certificates.py --n_clients 0", "--n_clients: 0 must be at least 1"),
    ("make_certificates.py --n_clients 2 --port 70000", "--port: 70000 must be at least 1 and at most 65535"),
    ("make_certificates.py --n_clients 2 --days 99999999", "--days: 99999999 must be at least 1 and at most 36500"),
    (
        "make_certificates.py --n_clients 2 --hosts k\u00f6ln --output_path keys",
        "--hosts: 'k\u00f6ln' is no name of a host",
    ),
    ("make_certificates.py --n_clients 2 --output_path file", "cannot be written"),
    ("make_partition.py --n_clients 3", "nothing to assign; give --embeddings, --labels, --users or --lat_lng"),
    (f"{PART} --labels no.npy", "no.npy: not a readable .npy file"),
    (f"{PART} --labels file", "file: not a readable .npy file"),
    (f"{PART} --labels embeddings.npy", "needs one whole number or text per image"),
    (f"{PART} --embeddings labels.npy", "needs a row of numbers per image"),
    (f"{PART} --embeddings embeddings.npy --n_clusters 61", "--n_clusters 61 is more than the 60 embeddings"),
    (f"{PART} --alpha 0", "0 is for --partition dirichlet_hsu only"),
    (f"{PART} --n_clients 61", "--n_clients"),
    (f"{PART} --partition shards --shards_per_client 50", "--shards_per_client"),
    (
        f"{PART} --client_share 0.5",
        "--client_share is not an argument of --partition paper but of split_groups; omit",
    ),
    (f"{PART} --output_path file", "cannot be written"),
    ("make_tables.py --result_path empty", "no finished run in empty; run train_centralized_task_model.py or test_fed"),
    ("make_tables.py --table_path file", "cannot be written"),
    ("make_figures.py rounds --methods fedwrong", "--methods: invalid choice: 'fedwrong' (choose from 'fedavg', 'fe"),
    ("run_sweep.py --data_path data --tasks depths", "--tasks: invalid choice: 'depths' (choose from 'depth"),
    ("run_sweep.py --data_path data --methods fedwrong", "--methods: invalid choice: 'fedwrong'"),
    ("run_sweep.py --data_path data --types random", "--types: 'random' is not one of embedding_based"),
    ("datasets/download.py --subset huge", "--subset: invalid choice: 'huge'"),
    ("datasets/download.py --tasks sculpture", "--tasks: invalid choice: 'sculpture'"),
    ("datasets/download.py --agree_all True --name me", "--email '' is not an address"),
    ("datasets/download.py --taskonomy_clients_to_include 0", "must be at least 1"),
    ("datasets/rooms/make.py --n_buildings 99", "--n_buildings 99: must lie between 1 and 16"),
    ("datasets/rooms/make.py --image_size 8", "--image_size 8: must lie between 16 and 1024"),
    ("datasets/rooms/make.py --views_per_building 0", "--views_per_building 0: must lie between"),
    ("datasets/rooms/make.py --n_workers 0", "--n_workers 0: must lie between 1"),
    ("datasets/rooms/make.py --seed -1", "--seed -1: must lie between 0"),
    ("datasets/rooms/make.py --data_path results", "holds no complete sample rooms (sample_rooms.json): give anothe"),
    ("datasets/rooms/make.py --data_path data --image_size 64", "holds sample rooms with"),
]


@pytest.mark.parametrize(("command", "text"), ARGUMENTS)
def test_wrong_argument(
    work: Path, command: str, text: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert text in refused(work, command, monkeypatch, capfd)


# What only the data can refuse is refused before anything is written: no run directory, no packed images.
LEFT_NOTHING = [
    (f"{EMBED} --compare_n_clusters 4 1000", "--compare_n_clusters 1000 is more than 80%"),
    (f"{EMBED} --n_clusters 1000", "--n_clusters 1000 is more than the"),
    (f"{FED} --method feddifrc", "guidance/guidance.json is missing; run extract_diffusion_features.py first"),
    (
        f"{FED} --type class_based --assignment_files_path none --importance_reweighting cluster",
        "none/assignments_normal.json is missing; run extract_embeddings.py --task normal first",
    ),
    (
        f"{FED} --type class_based --assignment_files_path none --method fedproto --label_source cluster",
        "none/assignments_normal.json is missing",
    ),
    *(
        (
            f"{FED} --type iid --n_clients 5 --method fedper --train head {act}",
            f"{act} does not suit --method fedper: all that --train head trains stays with the clients; "
            "omit one of them",
        )
        for act in ("--clip_norm 0.5", "--attack alie", "--attack sign_flip", "--aggregation krum")
    ),
]


@pytest.mark.parametrize(("command", "text"), LEFT_NOTHING)
def test_nothing_is_left_behind(
    spoiled: Path, command: str, text: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(spoiled / "data" / "packed")
    before = {*spoiled.rglob("*")}
    assert text in refused(spoiled, f"{command} --data_path data", monkeypatch, capfd)
    assert {*spoiled.rglob("*")} == before


# Files: what is done to them, the command, and what the line must say


def cut(path: Path, end: int = -20) -> Callable[[], None]:
    return lambda: path.write_bytes(path.read_bytes()[:end]) and None


def put(path: Path, content: str | bytes) -> Callable[[], None]:
    return lambda: path.write_bytes(content if isinstance(content, bytes) else content.encode()) and None


def array(path: Path, values: Any, **kwargs: Any) -> Callable[[], None]:
    return lambda: np.save(path, np.asarray(values, **kwargs))


def gone(path: Path) -> Callable[[], None]:
    return path.unlink


def edit(path: Path, **changes: Any) -> Callable[[], None]:
    """Change entries of a JSON object."""
    return lambda: path.write_text(json.dumps(json.loads(path.read_text()) | changes)) and None


def rows(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[], None]:
    """Change the table."""
    return lambda: change(pd.read_csv(CSV)).to_csv(CSV, index=False)


def cell(column: str, value: Any) -> Callable[[], None]:
    """Change an entry of the selection's second row."""
    return rows(lambda t: t.astype(object).where((t.index != 1)[:, None] | (t.columns != column), value))


def images(domain: str, change: Callable[[Path], Any]) -> Callable[[], None]:
    """Change all images of a domain."""
    return lambda: [change(path) for path in Path("data", domain).rglob("*.png")] and None


def both(*breaks: Callable[[], None]) -> Callable[[], None]:
    return lambda: [each() for each in breaks] and None


def weights(path: Path, config: str | None = None, **changes: torch.Tensor) -> Callable[[], None]:
    """Write the weights again without their settings, or with others."""
    return lambda: save_file(load_file(path) | changes, path, metadata=config and {"config": config})


CONFIG = '{"task": "normal", "image_size": 32}'
BOTH = both(cut(CENTRAL), cut(CENTRAL.with_stem(f"{CENTRAL.stem}_previous")))
FED_LAST = DONE / "checkpoint" / "last.safetensors"
OWN = f"{FED} {RESUME}"
REPACK = "--data_path data"
UNREADABLE = "no rgb image can be read, the first because"

FILES = {
    "note garbage": (put(NOTE, "{"), TRAIN, "data_path.json: cannot be read"),
    "note list": (put(NOTE, "[]"), TRAIN, "data_path.json names no data folder; run extract_datapoints"),
    "note number": (put(NOTE, '{"data_path": 3}'), TRAIN, "names no data folder"),
    "note relative": (put(NOTE, '{"data_path": "../../etc"}'), TRAIN, "names no data folder"),
    "note gone": (gone(NOTE), TRAIN, "no data selected yet; run extract_datapoints_for_experiments.py first"),
    "note elsewhere": (put(NOTE, '{"data_path": "/nowhere"}'), TRAIN, "/nowhere: no such folder; see --data_path"),
    "list empty": (put(Path("data/rooms.csv"), ""), SELECT, "the first line must name a column 'id'"),
    "list without id": (put(Path("data/rooms.csv"), "name\nelm\n"), SELECT, "must name a column 'id'"),
    "list without rows": (put(Path("data/rooms.csv"), "id\n"), SELECT, "names no building; see --client_file_name"),
    "list leaves": (put(Path("data/rooms.csv"), "id\n../../x\n"), SELECT, "'../../x' is no building name; mend the li"),
    "list up": (put(Path("data/rooms.csv"), "id\n..\n"), SELECT, "'..' is no building name; mend the list"),
    "list absolute": (put(Path("data/rooms.csv"), "id\n/etc\n"), SELECT, "'/etc' is no building name"),
    "list unknown": (put(Path("data/rooms.csv"), "id\nhanson\n"), SELECT, "building 'hanson' has no scene classes und"),
    "list bytes": (put(Path("data/rooms.csv"), b"id\n\xff\n"), SELECT, "cannot read the building list"),
    "names short": (put(Path("data/places_class_names.txt"), "a\nb\n"), SELECT, "2 class names where Places has 365"),
    "listing columns": (
        put(Path("data/class_scene/taskonomy/aspen/scene_classes.csv"), "a,b\n1,2\n"),
        SELECT,
        "scene_classes.csv: needs the columns filepath and class_idx",
    ),
    "listing class": (
        put(
            Path("data/class_scene/taskonomy/aspen/scene_classes.csv"),
            "filepath,class_idx\npoint_0_view_0_domain_rgb.png,999\n",
        ),
        SELECT,
        "numbers in 0..364",
    ),
    "listing long": (
        put(
            Path("data/class_scene/taskonomy/aspen/scene_classes.csv"),
            f"filepath,class_idx\npoint_{'1' * 300}_view_0_domain_rgb.png,9\n",
        ),
        SELECT,
        "not a Taskonomy file name: point_1111",
    ),
    "domain gone": (lambda: shutil.rmtree("data/reshading"), f"{SELECT} --tasks reshading", "no image has all of rgb,"),
    "selection gone": (gone(CSV), TRAIN, "is missing; run extract_datapoints_for_experiments.py first"),
    "selection empty": (put(CSV, ""), TRAIN, "run extract_datapoints_for_experiments.py again"),
    "selection bytes": (put(CSV, b"\xff\xfe\x00"), TRAIN, "run extract_datapoints_for_experiments.py again"),
    "selection columns": (rows(lambda t: t.drop(columns="class")), TRAIN, "its columns are not rgb, depth_euclidean"),
    "selection class": (cell("class", 99), TRAIN, "class '99' is not one of -1.."),
    "selection text": (cell("class", "x"), TRAIN, "class 'x' is not one of -1.."),
    "selection large": (cell("class", 10**30), TRAIN, "run extract_datapoints_for_experiments.py again"),
    "selection fraction": (cell("class", 0.5), TRAIN, "class '0.5' is not one of -1.."),
    "selection part": (cell("part", "validation"), TRAIN, "part 'validation' is not one of train, val, test"),
    "selection absolute": (cell("rgb", "/etc/a.png"), TRAIN, "'/etc/a.png' is not a path within the data folder"),
    "selection up": (cell("normal", "rgb/../../a.png"), TRAIN, "'rgb/../../a.png' is not a path within the data"),
    "selection nan": (cell("class", float("nan")), TRAIN, "run extract_datapoints_for_experiments.py again"),
    "selection infinite": (cell("class", float("inf")), TRAIN, "run extract_datapoints_for_experiments.py again"),
    "selection twice": (rows(lambda t: pd.concat([t, t[:1]])), TRAIN, "stands there twice; run extract_datapoints"),
    "selection train only": (rows(lambda t: t[t["part"] == "train"]), TRAIN, "0 test images; run extract_datapoin"),
    "selection quoted": (
        lambda: CSV.write_text(CSV.read_text().replace("aspen,", '"aspen,', 1)) and None,
        TRAIN,
        "EOF inside string",
    ),
    "selection old": (gone(SAID), TRAIN, "the selection is of an earlier version; run extract_datapoints_for_experime"),
    "said garbage": (put(SAID, "{"), TRAIN, "not a table's description"),
    "said version": (edit(SAID, version=0), TRAIN, "is of version 0, and this is 1; run again: python "),
    "said domains": (edit(SAID, domains=["normal"]), TRAIN, "a table cannot have the columns normal, class"),
    "rgb text": (images("rgb", lambda path: path.write_text("no image")), f"{TRAIN} {REPACK}", UNREADABLE),
    "rgb cut": (images("rgb", lambda path: path.write_bytes(path.read_bytes()[:80])), f"{TRAIN} {REPACK}", UNREADABLE),
    "rgb empty": (images("rgb", lambda path: path.write_bytes(b"")), f"{TRAIN} {REPACK}", UNREADABLE),
    "normal grey": (
        images("normal", lambda path: Image.open(path).convert("L").save(path)),
        TRAIN,
        "1 channels where normal has 3; download or make the normal files anew",
    ),
    "normal deep": (
        images("normal", lambda path: Image.fromarray(np.zeros((32, 32), np.uint16)).save(path)),
        TRAIN,
        "pixel format I;16 where one of L, RGB, RGBA should be",
    ),
    "normal nothing": (
        lambda: (
            shutil.rmtree("data/packed")
            or images("normal", lambda path: Image.new("RGB", (32, 32), (128, 128, 128)).save(path))()
        ),
        TRAIN,
        "normal: the constant baseline's loss is nan, because nothing counts in the",
    ),
    "initial cut": (cut(START), TRAIN, "not a model of this project"),
    "initial text": (put(START, "weights"), TRAIN, "run model_initialization.py again"),
    "initial bare": (weights(START), FED, "not a model of this project"),
    "initial other": (weights(START, '{"task": "reshading"}'), FED, "holds a model for reshading, not for --task norm"),
    "initial unfit": (
        weights(START, CONFIG, **{"decoder.fc.weight": torch.zeros(2, 2)}),
        FED,
        "the weights do not fit the network; run model_initialization.py again",
    ),
    "initial encoder": (
        weights(START, '{"task": "normal", "encoder": "vgg", "image_size": 32}'),
        FED,
        "unknown encoder 'vgg'",
    ),
    "initial keys": (weights(START, '{"task": "normal", "colour": 1}'), FED, "not a model of this project"),
    "best cut": (cut(BEST), EMBED, "run train_centralized_task_model.py again"),
    "last cut": (cut(CENTRAL), f"{EMBED} --from_checkpoint True", "not a readable checkpoint"),
    "central cut": (BOTH, f"{TRAIN} {RESUME}", "not a readable checkpoint"),
    "central gone": (
        both(gone(CENTRAL), gone(CENTRAL.with_stem(f"{CENTRAL.stem}_previous"))),
        f"{TRAIN} {RESUME}",
        "not a readable checkpoint",
    ),
    "central other": (
        lambda: shutil.copy(FED_LAST, CENTRAL),
        f"{TRAIN} {RESUME}",
        "is not a checkpoint of train_centralized_task_model.py",
    ),
    "central rate": (lambda: None, f"{TRAIN} --init_lr 0.5 {RESUME}", "was made with another --init_lr; resume with t"),
    "central encoder": (
        weights(START, '{"task": "normal", "image_size": 32, "depth_target": "log"}'),
        f"{TRAIN} {RESUME}",
        "was made with another initial model; resume with the same arguments",
    ),
    "assigned length": (both(array(ASSIGNED, [0, 1]), edit(ABOUT, assignments_sha256=None)), FED, "do not belong toge"),
    "assigned few": (array(ASSIGNED, [0, 1]), FED, "do not belong together; run extract_embeddings.py --task normal"),
    "assigned ids": (array(ASSIGNED, [9] * 72), FED, "run extract_embeddings.py --task normal again"),
    "assigned floats": (array(ASSIGNED, [0.5] * 72), FED, "are not assignments; run extract_embeddings.py"),
    "assigned cut": (cut(ASSIGNED), FED, "run extract_embeddings.py --task normal again"),
    "assigned pickle": (array(ASSIGNED, [{}] * 72, dtype=object), FED, "allow_pickle=False"),
    "assigned gone": (gone(ASSIGNED), FED, "assignments_normal.npy: cannot be read"),
    "about gone": (gone(ABOUT), FED, "assignments_normal.json is missing; run extract_embeddings.py"),
    "about list": (put(ABOUT, "[]"), FED, "run extract_embeddings.py --task normal again"),
    "about text": (edit(ABOUT, n_clusters="4"), FED, "run extract_embeddings.py --task normal again"),
    "about other": (edit(ABOUT, **{CSV.name: "abc"}), FED, "was made from another table of images"),
    "fed cut": (both(cut(FED_LAST), cut(FED_LAST.with_stem("last_previous"))), OWN, "not a readable checkpoint"),
    "fed args gone": (gone(DONE / "args.json"), OWN, "has no checkpoint to resume from"),
    "fed args cut": (put(DONE / "args.json", "{"), OWN, "args.json: cannot be read"),
    "fed args list": (put(DONE / "args.json", "[]"), OWN, "args.json is not a run's; start without"),
    "fed partition": (array(DONE / "partition.npy", [0] * 72), OWN, "do not belong together"),
    "partition cut": (cut(DONE / "groups.npy"), f"{FED} --partition_file {DONE}", "readable partition"),
    "partition list": (put(DONE / "partition.json", "[]"), f"{FED} --partition_file {DONE}", "readable partition"),
    "partition nested": (
        put(DONE / "partition.json", "[" * 10**5),
        f"{FED} --partition_file {DONE}",
        "partition.json: cannot be read (brackets are nested too deeply)",
    ),
    "partition alpha": (edit(DONE / "partition.json", alpha="x"), f"{FED} --partition_file {DONE}", "alpha 'x' is not"),
    "partition type": (edit(DONE / "partition.json", type="x"), f"{FED} --partition_file {DONE}", "type 'x' is not"),
    "partition path": (
        edit(DONE / "partition.json", type="../x_based"),
        f"{FED} --partition_file {DONE}",
        "type '../x_based' is not valid; make the partition again",
    ),
    "partition pickle": (
        array(DONE / "partition.npy", [{}] * 72, dtype=object),
        f"{FED} --partition_file {DONE}",
        "allow_pickle=False",
    ),
    "labels pickle": (array(Path("labels.npy"), [{}] * 60, dtype=object), PART, "labels.npy: not a readable .npy file"),
    "labels flat": (array(Path("labels.npy"), np.zeros((60, 2), int)), PART, "one whole number or text per image"),
    "labels few": (array(Path("labels.npy"), [1, 2]), f"{PART} --embeddings embeddings.npy", "60 embeddings but 2 lab"),
    "embeddings nan": (
        array(Path("embeddings.npy"), np.full((60, 3), np.nan)),
        f"{PART} --embeddings embeddings.npy",
        "have values that are not finite; mend the file",
    ),
    "embeddings cut": (cut(Path("embeddings.npy"), 90), f"{PART} --embeddings embeddings.npy", "readable .npy file"),
    "summary cut": (put(DONE / "summary.json", "{"), "make_tables.py", "not a readable run"),
}


@pytest.mark.parametrize("name", FILES)
def test_wrong_file(
    spoiled: Path, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil, command, text = FILES[name]
    monkeypatch.chdir(spoiled)
    spoil()
    assert text in refused(spoiled, command, monkeypatch, capfd)


def test_the_table_is_long_enough() -> None:
    assert len(ARGUMENTS) + len(FILES) >= 200


# What the machine refuses


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Make a file system of so many kilobytes."""
    place = tmp_path / "disk"
    place.mkdir()

    def make(kilobytes: int) -> Path:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip("a file system can be mounted by root alone")
        return place

    yield make
    subprocess.run(["umount", "--lazy", str(place)], capture_output=True, check=False)


@pytest.mark.parametrize(
    ("command", "kilobytes"),
    [
        (f"{INIT} --init_model_dir {{disk}}", 200),
        (f"{TRAIN} --checkpoint_path {{disk}}", 1500),
        (f"{TRAIN} --data_path {{disk}}/data", 5400),
        (f"{EMBED} --result_path {{disk}} --data_path data", 40),
        (f"{EMBED} --assignment_files_path {{disk}}", 4),
        (f"{FED} --rand_seed 3 --result_path {{disk}} --data_path data", 600),
        (f"{FED} --rand_seed 3 --result_path {{disk}} --data_path data --method ditto", 1800),
        (f"{SELECT} --result_path {{disk}}", 8),
        (f"{PART} --output_path {{disk}}", 8),
        ("make_tables.py --table_path {disk} --data_path data", 8),
        ("datasets/rooms/make.py --n_buildings 1 --views_per_building 4 --n_workers 1 --data_path {disk}/rooms", 16),
    ],
)
def test_full_disk(
    work: Path,
    tiny_disk: Callable[[int], Path],
    command: str,
    kilobytes: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    disk = tiny_disk(kilobytes)
    if "{disk}/data" in command:  # with room for the files, and none for the packed arrays
        shutil.copytree(work / "data", disk / "data", ignore=shutil.ignore_patterns("packed", "preview_grid.png"))
        filler = disk / "filler"
        filler.write_bytes(b"0" * max(0, shutil.disk_usage(disk).free - 100_000))
    line = refused(work, command.format(disk=disk), monkeypatch, capfd)
    assert "No space left on device" in line and str(disk) in line


@pytest.mark.parametrize(
    "command",
    [
        f"{INIT} --init_model_dir {{place}}",
        f"{TRAIN} --checkpoint_path {{place}}",
        f"{TRAIN} --result_path {{place}} --data_path data",
        f"{FED} --result_path {{place}} --data_path data",
        f"{EMBED} --assignment_files_path {{place}}",
        f"{SELECT} --result_path {{place}}",
        f"{PART} --output_path {{place}}",
        "make_tables.py --table_path {place} --data_path data",
        "datasets/rooms/make.py --n_buildings 1 --views_per_building 4 --n_workers 1 --data_path {place}/rooms",
    ],
)
def test_no_permission(
    work: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "protected"
    place.mkdir()
    (place / "old").write_text("old")
    command = command.format(place=place)
    if os.geteuid() == 0:  # who may write everywhere, but not on what is mounted for reading
        mounts = (["mount", "--bind", place, place], ["mount", "-o", "remount,bind,ro", place])
        if any(subprocess.run(mount, capture_output=True, check=False).returncode for mount in mounts):
            pytest.skip("nothing can be mounted here")
    else:
        place.chmod(0o500)
    try:
        line = refused(work, command, monkeypatch, capfd)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], capture_output=True, check=False)
        place.chmod(0o700)
    assert str(place) in line and re.search("Read-only file system|Permission denied", line)
    assert [path.name for path in place.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("error", "what"),
    [(torch.OutOfMemoryError("CUDA out of memory"), "the GPU's memory is too small"), (MemoryError(), "the memory is")],
)
@pytest.mark.parametrize("command", [f"{TRAIN} --init_lr 0.01", f"{FED} --rand_seed 4"])
def test_too_little_memory_names_the_argument_to_lower(
    work: Path,
    command: str,
    error: BaseException,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def backward(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    line = refused(work, command, monkeypatch, capfd)
    assert what in line and "lower --batch_size" in line


def test_a_run_that_goes_on_is_not_taken_up(
    work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hold = "import fcntl, sys, time; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); "
    hold += "time.sleep(99)"
    for lock, command, text in (
        (DONE / ".lock", OWN, "is still running; wait for it or stop it"),
        (CENTRAL.with_suffix(".lock"), TRAIN, "another training writes"),
    ):
        holder = subprocess.Popen([sys.executable, "-c", hold, str(work / lock)], stdout=subprocess.PIPE)
        assert holder.stdout is not None and holder.stdout.readline()
        try:
            assert text in refused(work, command, monkeypatch, capfd)
        finally:
            holder.kill()
            holder.wait()


def test_the_download_names_the_packages_that_it_needs(
    work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("omnidata_tools.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "omnidata_tools", None)
    line = refused(work, "datasets/download.py --dry_run", monkeypatch, capfd)
    assert "pip install -r requirements-taskonomy.txt" in line


def test_where_files_cannot_be_locked_it_says_where_it_runs() -> None:
    program = "import sys; sys.modules['fcntl'] = None; import utils.files"  # as on Windows
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "Linux and macOS" in done.stderr


# Nothing that is read is ever run, or leads elsewhere


def test_nothing_is_unpickled() -> None:
    assert len(MODULES) > 60
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                if ast.unparse(node.func) == "np.load":
                    assert given.get("allow_pickle") == "False", f"{path}:{node.lineno}"
                if ast.unparse(node.func) == "torch.load":
                    assert given.get("weights_only") == "True", f"{path}:{node.lineno}"
            if isinstance(node, ast.Attribute):
                assert node.attr != "read_pickle", f"{path}:{node.lineno}"


def test_a_saved_partition_says_nothing_about_where_to_write(spoiled: Path, tmp_path: Path) -> None:
    about = spoiled / DONE / "partition.json"
    away = str(tmp_path / "away")
    strange = {"result_path": away, "data_path": away, "init_model_dir": away, "resume_training": True}
    about.write_text(json.dumps(json.loads(about.read_text()) | strange))
    process = start_in(spoiled, f"{FED} --rand_seed 6 --partition_file {DONE} --data_path data")
    process.join(300)
    assert process.exitcode == 0 and not Path(away).exists()
    assert (spoiled / DONE.with_name("alpha0.1_seed6") / "summary.json").is_file()
