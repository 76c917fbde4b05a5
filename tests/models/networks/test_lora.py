"""Low-rank adapters against merged weights and the chain rule; clients, central training, what travels and is saved."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import timm
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from datasets.table import Table, read_table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from models.central.settings import TrainSettings
from models.central.training import CentralTraining, model_from_checkpoint
from models.networks.frozen import on_kept_outputs
from models.networks.lora import LoraLinear, adapt, merged
from models.networks.parts import Adapters
from models.networks.task_model import ModelConfig, TaskModel, load_model
from models.settings import StepSettings
from network.algorithms import ALGORITHMS
from network.config import FederationConfig
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.engine.workspace import VmappedCopies
from network.linear_probe import probe, probe_run
from network.settings import SimulationSettings
from tests.conftest import start_spread
from tests.network import quadratic as q
from utils.errors import UserError
from utils.runs import Run, load_checkpoint

ACCELERATOR = Accelerator(cpu=True)
SIZE, RANK, ALPHA = 32, 4, 6.0
BLOCKS, WIDTH, HIDDEN = 6, 64, 192  # of timm's test_vit
SHAPES = {"qkv": (3 * WIDTH, WIDTH), "proj": (WIDTH, WIDTH), "fc1": (HIDDEN, WIDTH), "fc2": (WIDTH, HIDDEN)}


@pytest.fixture(scope="module")
def data(table: Table) -> TaskData:
    return TaskData(table, table.bind(get_task("class_scene")), SIZE, torch.device("cpu"))


def asked(**more: object) -> Adapters:
    return Adapters(**{"lora_rank": RANK, "lora_alpha": ALPHA} | more)


def plain_of(data: TaskData, encoder: str = "timm:test_vit") -> TaskModel:
    torch.manual_seed(0)
    config = ModelConfig("class_scene", encoder, SIZE, decoder="linear", classes=data.task.classes)
    return TaskModel(config).eval()


def adapted(
    data: TaskData, encoder: str = "timm:test_vit", moved: bool = False, seed: int = 0, **more: object
) -> TaskModel:
    """The model with adapters; where it is `moved`, B is no longer 0."""
    model = plain_of(data, encoder)
    adapt(model.encoder, model.config, asked(**more), seed)
    for name, parameter in model.named_parameters():
        if moved and name.endswith("lora_B"):
            nn.init.normal_(parameter, std=0.1)
    return model.eval()


def travels(name: str) -> bool:
    return name.startswith("decoder.") or name.endswith(("lora_A", "lora_B"))


# The layers


@pytest.mark.parametrize("encoder", ["timm:test_vit", "timm:test_convnext", "lenet"])
def test_adapters_change_nothing_at_first(encoder: str, data: TaskData) -> None:
    plain, images = plain_of(data, encoder), torch.rand(3, 3, SIZE, SIZE)
    model = adapted(data, encoder)
    assert any(isinstance(module, LoraLinear) for module in model.modules())
    assert all(map(torch.equal, model(images), plain(images)))
    assert plain.state_dict().keys() < model.state_dict().keys()
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in plain.state_dict().items())


@pytest.mark.parametrize("encoder", ["timm:test_vit", "lenet"])
def test_the_output_is_that_of_merged_weights(encoder: str, data: TaskData) -> None:
    model, plain = adapted(data, encoder, moved=True).double(), plain_of(data, encoder).double()
    tensors, images = model.state_dict(), torch.rand(3, 3, SIZE, SIZE, dtype=torch.float64)
    by_hand = {name: tensor.clone() for name, tensor in tensors.items() if "lora_" not in name}
    for name in tensors:
        if name.endswith("lora_A"):
            a, b = tensors[name], tensors[name.replace("lora_A", "lora_B")]
            by_hand[name.replace("lora_A", "weight")] += ALPHA / RANK * b @ a
    before = plain(images).output
    plain.load_state_dict(by_hand)
    torch.testing.assert_close(model(images).output, plain(images).output)
    assert (plain(images).output - before).abs().max() > 1e-3
    torch.testing.assert_close(merged(tensors), by_hand)


def test_gradients_follow_from_that_of_the_merged_weight(data: TaskData) -> None:
    model, plain = adapted(data, moved=True).double(), plain_of(data).double()
    plain.load_state_dict(merged(model.state_dict()))
    images = torch.rand(3, 3, SIZE, SIZE, dtype=torch.float64)
    for each in (model, plain):
        each(images).output.square().sum().backward()
    parameters, full = dict(model.named_parameters()), dict(plain.named_parameters())
    paths = [name.removesuffix("lora_A") for name in parameters if name.endswith("lora_A")]
    assert len(paths) == len(SHAPES) * BLOCKS
    for path in paths:
        a, b, of_w = parameters[f"{path}lora_A"], parameters[f"{path}lora_B"], full[f"{path}weight"].grad
        torch.testing.assert_close(a.grad, ALPHA / RANK * b.T @ of_w)
        torch.testing.assert_close(b.grad, ALPHA / RANK * of_w @ a.T)


def test_a_seed_gives_the_same_adapters(data: TaskData) -> None:
    one, same, other = (adapted(data, seed=seed).state_dict() for seed in (0, 0, 1))
    name = "encoder.backbone.blocks.0.attn.qkv.lora_A"
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one[name], other[name])
    assert one[name].abs().max() <= WIDTH**-0.5  # uniform, as peft's
    assert one[name].std() == pytest.approx((WIDTH * 3) ** -0.5, rel=0.2)


@pytest.mark.parametrize(
    "targets, expected", [(["qkv"], {"qkv"}), (["attn.proj", "fc2"], {"proj", "fc2"}), (None, set(SHAPES))]
)
def test_targets_choose_the_layers(targets: list[str] | None, expected: set[str], data: TaskData) -> None:
    model = adapted(data, lora_targets=targets)
    paths = [name for name, module in model.named_modules() if isinstance(module, LoraLinear)]
    assert {path.rpartition(".")[2] for path in paths} == expected and len(paths) == BLOCKS * len(expected)


@pytest.mark.parametrize(
    "encoder, more, message",
    [
        ("resnet10", {}, "--encoder resnet10 has no linear layers to adapt; give a transformer"),
        ("timm:test_vit", {"lora_targets": ["qkv", "q"]}, "--lora_targets q: .* there are fc1, fc2, proj, qkv"),
        ("timm:test_vit", {"lora_rank": 65}, r"--lora_rank 65 is larger than .*64.*; give at most 64"),
    ],
)
def test_what_cannot_be_adapted_is_said(encoder: str, more: dict, message: str, data: TaskData) -> None:
    model = plain_of(data, encoder)
    before = list(model.state_dict())
    with pytest.raises(UserError, match=message):
        adapt(model.encoder, model.config, asked(**more), 0)
    assert list(model.state_dict()) == before


def test_layers_whose_weight_is_read_past_them_get_no_adapters(data: TaskData) -> None:
    model = plain_of(data)
    small = {"img_size": SIZE, "embed_dim": WIDTH, "depth": 1, "num_heads": 2, "num_classes": 0}
    model.encoder.backbone = timm.create_model("beit_base_patch16_224", **small).eval()  # F.linear(x, qkv.weight, …)
    with pytest.raises(UserError, match=r"--lora_targets qkv: .* there are fc1, fc2, proj"):
        adapt(model.encoder, model.config, asked(lora_targets=["qkv"]), 0)
    adapt(model.encoder, model.config, asked(), 0)
    names = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, LoraLinear)}
    assert names == {"fc1", "fc2", "proj"}


def test_encoders_with_adapters_run_in_every_step(data: TaskData) -> None:
    model = adapted(data)
    assert on_kept_outputs(model, data, StepSettings(train="lora"), ACCELERATOR) == (model, data)
    with pytest.raises(UserError, match="half needs a frozen encoder"):
        on_kept_outputs(model, data, StepSettings(train="lora", encoder_outputs="half"), ACCELERATOR)


# A federation


def federation(
    name: str, data: TaskData, folder: Path, at_once: int = 1, n_rounds: int = 2, sent: list[set[str]] | None = None
) -> Simulation:
    class Watched(ALGORITHMS[name]):
        def upload(self, local: object) -> dict[str, Tensor]:
            upload = super().upload(local)
            if sent is not None:
                sent.append({key.removeprefix("control.") for key in upload})
            return upload

    settings = replace(
        q.SETTINGS, train="lora", n_rounds=n_rounds, sgd_per_epoch=2, batch_size=4, init_lr=0.05, momentum=0.5
    )
    federated = FederatedData(data, np.split(data.train[:16], [6]), [data.test[:3]] * 2, np.arange(len(data)) % 3)
    how = SimulationSettings(0, vectorised_clients=at_once)
    algorithm = Watched()
    return Simulation(adapted(data), federated, FederationConfig(algorithm, settings, how), ACCELERATOR, Run(folder))


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "ditto"])
def test_adapters_and_decoder_are_trained_and_sent_and_nothing_else(
    name: str, at_once: int, data: TaskData, tmp_path: Path
) -> None:
    sent: list[set[str]] = []
    run = federation(name, data, tmp_path, at_once, sent=sent)
    before = {key: tensor.clone() for key, tensor in run.model.state_dict().items()}
    run.train()
    expected = {key for key in before if travels(key)}
    assert len(expected) == 2 * BLOCKS * len(SHAPES) + 2 and len(sent) == 4
    assert all(names == expected for names in sent)
    moved = {key for key in before if not torch.equal(before[key], run.server[key])}
    assert moved == expected
    for client in range(2):
        run._load_personal(client)
        assert {key for key in before if not torch.equal(before[key], run._working[key])} == expected


def test_costs_count_adapters_and_decoder(data: TaskData, tmp_path: Path) -> None:
    run = federation("fedavg", data, tmp_path, n_rounds=1)
    run.train()
    costs, head = run.costs(), (WIDTH + 1) * len(data.task.classes.names)
    n = head + BLOCKS * sum(RANK * sum(shape) for shape in SHAPES.values())
    assert costs["parameters_trained"] == costs["parameters_sent"] == n
    plain = sum(parameter.numel() for parameter in plain_of(data).parameters())
    assert costs["parameters"] == plain + n - head
    assert costs["bytes_up"] == costs["bytes_down"] == 4 * n


@pytest.mark.parametrize("name", ["fedavg", "fedrep"])
def test_side_by_side_and_one_by_one_do_the_same(name: str, data: TaskData, tmp_path: Path) -> None:
    runs = [federation(name, data, tmp_path / str(at_once), at_once) for at_once in (1, 2)]
    for run in runs:
        run.train()
    assert isinstance(runs[1].trainer._workspace(2), VmappedCopies)
    one, two = (pd.DataFrame(run.rows).drop(columns="seconds").to_numpy(float) for run in runs)
    np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-6)
    for key, tensor in runs[0].server.items():
        torch.testing.assert_close(runs[1].server[key], tensor, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("name", ["fedavg", "ditto"])
def test_a_federation_of_adapters_resumes_to_the_same_bits(
    name: str, at_once: int, data: TaskData, tmp_path: Path
) -> None:
    whole = federation(name, data, tmp_path / "whole", at_once)
    whole.n_rounds = 1
    whole.train()
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    whole.n_rounds = 2
    whole.train()
    resumed = federation(name, data, tmp_path / "stopped", at_once)
    resumed.resume()
    resumed.train()
    pairs = [(whole.server, resumed.server), *((whole.states.load(i), resumed.states.load(i)) for i in range(2))]
    for one, other in pairs:
        assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


# Central training


def central(data: TaskData, folder: Path, n_epochs: int = 2, **more: object) -> CentralTraining:
    files = [folder / f"{name}.safetensors" for name in ("last", "best", "early")]
    settings = TrainSettings(0, n_epochs=n_epochs, batch_size=16, init_lr=0.05, val_fraction=0.2, train="lora")
    return CentralTraining(adapted(data, **more), data, settings, ACCELERATOR, *files)


def test_central_training_moves_adapters_and_decoder_and_saves_them_merged(data: TaskData, tmp_path: Path) -> None:
    training = central(data, tmp_path)
    before = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    training.run(lambda history: None)
    after = training.model.eval().state_dict()
    assert {name for name in before if not torch.equal(before[name], after[name])} == set(filter(travels, before))
    images = torch.rand(3, 3, SIZE, SIZE)
    early = load_model(tmp_path / "early.safetensors", "class_scene", "nobody")
    for model in (model_from_checkpoint(tmp_path / "last.safetensors", "class_scene"), early):
        assert model.state_dict().keys() == plain_of(data).state_dict().keys()
        torch.testing.assert_close(model.eval()(images).output, training.model(images).output, rtol=1e-4, atol=1e-5)
        assert not torch.equal(
            model.state_dict()["encoder.backbone.blocks.0.attn.qkv.weight"],
            before["encoder.backbone.blocks.0.attn.qkv.weight"],
        )


def test_central_training_resumes_to_the_same_bits_with_the_same_adapters(data: TaskData, tmp_path: Path) -> None:
    whole = central(data, tmp_path / "whole")
    whole.run(lambda history: None)
    central(data, tmp_path / "stopped", n_epochs=1).run(lambda history: None)
    for more in ({"lora_rank": 2}, {"lora_alpha": 1.0}, {"lora_targets": ["qkv"]}):
        with pytest.raises(UserError, match="made with other --lora_rank, --lora_alpha or --lora_targets"):
            central(data, tmp_path / "stopped", **more).resume()
    resumed = central(data, tmp_path / "stopped")
    resumed.resume()
    resumed.run(lambda history: None)
    expected = whole.model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in resumed.model.state_dict().items())


# The scripts


def test_the_stages_with_adapters_in_one_process_and_two(own_copy: Path, run_here: Callable, tmp_path: Path) -> None:
    run_here(
        f"extract_datapoints_for_experiments.py --client_file_name rooms.csv --data_path {own_copy} "
        "--taskonomy_clients_to_include 2 --scene_class_file_name places_class_names.txt"
    )
    run_here(
        "model_initialization.py --task class_scene --encoder timm:test_vit --decoder linear --pretrained False "
        f"--image_size 32 --data_path {own_copy}"
    )
    lora = "--task class_scene --train lora --lora_rank 2 --lora_targets qkv fc1 --use_accelerator False"
    run_here(f"train_centralized_task_model.py {lora} --n_epochs 1 --data_path {own_copy}")
    command = (
        f"test_fed.py {lora} --start_warm True --type iid --n_clients 2 --n_rounds 2 --sgd_per_epoch 2 "
        f"--plot_distribution False --result_path {{}} --data_path {own_copy}"
    )
    for process in start_spread(tmp_path, command.format("together"), 2):
        process.join()
        assert process.exitcode == 0, (tmp_path / "output.txt").read_text()
    run_here(command.format("alone"))
    alone, together = (
        pd.read_csv(next((tmp_path / name).rglob("metrics.csv"))).drop(columns="seconds")
        for name in ("alone", "together")
    )
    pd.testing.assert_frame_equal(together, alone, rtol=1e-4, atol=1e-5)
    folder = next((tmp_path / "alone").rglob("summary.json")).parent
    said = json.loads((folder / "args.json").read_text())
    assert (said["lora_rank"], said["lora_alpha"], said["lora_targets"]) == (2, 8.0, ["qkv", "fc1"])
    saved = load_model(folder / "model.safetensors", "class_scene", "nobody")
    apart = load_checkpoint(folder / "checkpoint" / "last.safetensors")[0]
    assert "server.encoder.backbone.blocks.0.attn.qkv.lora_B" in apart
    warm = load_model(tmp_path / "trained_models/centralized_class_scene_best.safetensors", "class_scene", "nobody")
    for name, same in (("attn.qkv", False), ("mlp.fc1", False), ("mlp.fc2", True)):
        key = f"encoder.backbone.blocks.0.{name}.weight"
        assert torch.equal(saved.state_dict()[key], warm.state_dict()[key]) == same
    table = read_table(own_copy)
    data = TaskData(table, saved.task, SIZE, torch.device("cpu"))
    seen = [images[table.labels[images] >= 0] for images in (data.train, data.test)]
    assert probe_run(folder, own_copy, 1.0)["accuracy"] == probe(saved, data, *seen, 1.0)
