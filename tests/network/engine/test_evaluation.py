"""Values by split and by client, against means written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from datasets.table import Table
from datasets.task_data import TaskData
from models.central.evaluation import evaluate, evaluate_trivial, mean_values
from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel
from network.engine.evaluation import Evaluation, columns, out_of_sample_gap, over_clients, participation_gaps
from network.engine.evaluation import values_of as own_values
from network.engine.federated_data import FederatedData

ACCELERATOR = Accelerator(cpu=True)


@pytest.fixture(scope="module")
def model() -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(ModelConfig("normal", "tiny", 32, "group"))


@pytest.fixture(scope="module")
def data(table: Table, model: TaskModel) -> TaskData:
    return TaskData(table, model.task, 32, torch.device("cpu"))


@pytest.fixture
def evaluation(data: TaskData) -> Evaluation:
    # The third client has nothing held out, and one held-out image is nobody's.
    clients = [data.train[:5], data.train[5:30], data.train[30:32]]
    held_out = [data.test[[0, 3]], data.test[[1, 2, 5]], data.test[:0]]
    return Evaluation(FederatedData(data, clients, held_out, data.table.labels), ACCELERATOR)


def values_of(model: TaskModel, data: TaskData, images: np.ndarray) -> dict[str, float]:
    return mean_values(data, evaluate(model, data, images, None))


def test_one_pass_over_the_held_out_images_serves_all_of_them(
    model: TaskModel, data: TaskData, evaluation: Evaluation
) -> None:
    row = evaluation.of_server(model, range(3))
    for split, parts in (("train", evaluation.clients), ("local_test", evaluation.held_out[:2])):
        alone = [values_of(model, data, images) for images in parts]
        for name in alone[0]:
            of_clients = [values[name] for values in alone]
            assert row[f"{split}_{name}_mean"] == pytest.approx(np.mean(of_clients), rel=1e-5)
            assert row[f"{split}_{name}_std"] == pytest.approx(np.std(of_clients), rel=1e-3, abs=1e-5)
        assert row[f"{split}_loss_worst"] == pytest.approx(max(values["loss"] for values in alone), rel=1e-5)
    for name, value in values_of(model, data, data.test).items():
        assert row[f"test_{name}"] == pytest.approx(value, rel=1e-5)


def test_apart_a_client_has_the_values_that_it_finds_on_its_own_images_alone(
    model: TaskModel, data: TaskData, evaluation: Evaluation
) -> None:
    together, evaluation.apart = evaluation.of_server(model, range(3)), True
    row = evaluation.of_server(model, range(3))
    assert row == pytest.approx(together, rel=1e-4, abs=1e-5) and list(row) == list(together)
    # To the bit: such a client has no other images, and sends these values.
    alone = np.stack(
        [own_values(model, data, *parts) for parts in zip(evaluation.clients, evaluation.held_out, strict=True)]
    )
    assert columns(data.task, alone, ("train", "local_test")).items() <= row.items()


def test_each_client_is_measured_with_the_model_that_is_loaded_for_it(
    model: TaskModel, data: TaskData, evaluation: Evaluation
) -> None:
    weight = model.state_dict()["decoder.head.0.weight"]
    original = weight.clone()

    def load(client: int) -> None:
        weight.copy_(original * (client + 1))

    row = evaluation.of_clients(model, load, [2, 0, 1])
    own, held_out = [], []
    for client in range(3):
        load(client)
        own.append(values_of(model, data, evaluation.clients[client])["loss"])
        if client < 2:
            held_out.append(values_of(model, data, evaluation.held_out[client])["loss"])
    load(0)
    assert row["personal_train_loss_mean"] == pytest.approx(np.mean(own), rel=1e-5)
    assert row["personal_local_test_loss_mean"] == pytest.approx(np.mean(held_out), rel=1e-5)
    assert row["personal_local_test_loss_worst"] == pytest.approx(max(held_out), rel=1e-5)


def test_clients_that_are_left_out_count_in_no_way_of_evaluating(
    model: TaskModel, data: TaskData, evaluation: Evaluation
) -> None:
    clients, held_out = [*evaluation.clients], [*evaluation.held_out]
    without = Evaluation(FederatedData(data, clients, held_out, data.table.labels), ACCELERATOR, left_out={1})
    others = FederatedData(data, clients[::2], held_out[::2], data.table.labels)
    rest = Evaluation(others, ACCELERATOR)
    for apart in (False, True):
        without.apart = rest.apart = apart
        expected = rest.of_server(model, range(2))
        assert without.of_server(model, range(3)) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    loaded: list[int] = []
    expected = rest.of_clients(model, lambda client: None, range(2))
    assert without.of_clients(model, loaded.append, range(3)) == pytest.approx(expected) and loaded == [0, 2]
    for split, values in rest.of_trivial().items():
        assert without.of_trivial()[split] == pytest.approx(values)


def test_the_trivial_predictor_is_averaged_over_clients_as_models_are(data: TaskData, evaluation: Evaluation) -> None:
    found = evaluation.of_trivial()
    for split, parts in (("train", evaluation.clients), ("local_test", evaluation.held_out[:2])):
        alone = evaluate_trivial(data, *parts, accelerator=ACCELERATOR)
        assert found[split] == pytest.approx({name: np.mean([v[name] for v in alone]) for name in alone[0]})
    assert found["test"] == evaluate_trivial(data, data.test, accelerator=ACCELERATOR)[0]


def test_nobody_has_held_out_images(model: TaskModel, data: TaskData) -> None:
    federated = FederatedData(data, [data.train[:4]], [data.test[:0]], data.table.labels)
    evaluation = Evaluation(federated, ACCELERATOR)
    row = evaluation.of_server(model, [0])
    assert np.isnan(row["local_test_loss_mean"]) and np.isfinite(row["test_loss"])
    assert np.isnan(evaluation.of_trivial()["local_test"]["loss"])


def test_clients_without_a_value_have_no_part_in_a_mean() -> None:
    values = {"loss": np.array([1.0, np.nan, 4.0]), "miou": np.array([np.nan] * 3), "map": np.array([0.5, 0.2, np.nan])}
    row = over_clients("train", values, errors={"loss"})
    assert (row["train_loss_mean"], row["train_loss_std"], row["train_loss_worst"]) == (2.5, 1.5, 4.0)
    assert np.isnan(row["train_miou_mean"]) and np.isnan(row["train_miou_worst"])
    assert row["train_map_worst"] == 0.2  # of what is no error, the least is the worst


def test_some_clients_stand_for_all_and_are_the_same_in_every_round(model: TaskModel, data: TaskData) -> None:
    clients, held_out = np.array_split(data.train, 12), np.array_split(data.test, 12)
    federated = FederatedData(data, clients, held_out, data.table.labels)
    some = Evaluation(federated, ACCELERATOR, n_clients=4, seed=3)
    chosen = some.evaluated.tolist()
    assert chosen == sorted(set(chosen)) == Evaluation(federated, ACCELERATOR, 4, 3).evaluated.tolist()
    assert chosen != Evaluation(federated, ACCELERATOR, 4, 4).evaluated.tolist() and len(chosen) == 4
    row = some.of_server(model, range(3))
    own = [values_of(model, data, clients[client])["loss"] for client in chosen]
    assert row["train_loss_mean"] == pytest.approx(np.mean(own), rel=1e-5)
    assert row["local_test_loss_worst"] == pytest.approx(
        max(values_of(model, data, held_out[client])["loss"] for client in chosen), rel=1e-5
    )
    assert row["test_loss"] == pytest.approx(values_of(model, data, data.test)["loss"], rel=1e-5)  # of all images
    loaded: list[int] = []
    personal = some.of_clients(model, loaded.append, range(12))
    assert loaded == chosen and personal["personal_train_loss_mean"] == pytest.approx(np.mean(own), rel=1e-5)
    trivial = evaluate_trivial(data, *(clients[client] for client in chosen), accelerator=ACCELERATOR)
    assert some.of_trivial()["train"]["loss"] == pytest.approx(np.mean([value["loss"] for value in trivial]))
    assert some.notes() == ["values on clients' images are those of 4 of 12 clients, drawn by the seed"]


def test_no_more_clients_are_evaluated_than_there_are(data: TaskData, evaluation: Evaluation) -> None:
    federated = FederatedData(data, evaluation.clients, evaluation.held_out, data.table.labels)
    for n in (None, 3, 9):
        all_of_them = Evaluation(federated, ACCELERATOR, n)
        assert all_of_them.evaluated.tolist() == [0, 1, 2] and not all_of_them.notes()


def test_newcomers_are_measured_one_by_one_and_the_trivial_predictor_does_not_know_them(
    model: TaskModel, data: TaskData
) -> None:
    non_participating, theirs = [data.train[40:43], data.train[43:50]], [data.test[6:8], data.test[8:9]]
    federated = FederatedData(data, [data.train[:5]], [data.test[:3]], data.table.labels, non_participating, theirs)
    evaluation = Evaluation(federated, ACCELERATOR)
    row = evaluation.of_non_participating(model)
    for split, parts in (("unseen_train", non_participating), ("unseen_test", theirs)):
        alone = [values_of(model, data, images)["loss"] for images in parts]
        assert row[f"{split}_loss_mean"] == pytest.approx(np.mean(alone), rel=1e-5)
        assert row[f"{split}_loss_worst"] == pytest.approx(max(alone), rel=1e-5)
    known = data.without(np.concatenate([*non_participating, *theirs]))
    found = evaluation.of_trivial()
    parts = {
        "train": data.train[:5],
        "local_test": data.test[:3],
        "unseen_train": non_participating,
        "unseen_test": theirs,
    }
    for split, images in parts.items():
        alone = evaluate_trivial(known, *(images if isinstance(images, list) else [images]), accelerator=ACCELERATOR)
        assert found[split]["loss"] == pytest.approx(np.mean([values["loss"] for values in alone]))
    assert found["train"] != evaluate_trivial(data, data.train[:5], accelerator=ACCELERATOR)[0]


def test_by_client_are_the_values_of_each_alone_non_participating_clients_last(
    model: TaskModel, data: TaskData
) -> None:
    clients, held_out = [data.train[:5], data.train[5:9]], [data.test[:3], data.test[:0]]
    non_participating, theirs = [data.train[40:43]], [data.test[6:8]]
    federated = FederatedData(data, clients, held_out, data.table.labels, non_participating, theirs)
    evaluation = Evaluation(federated, ACCELERATOR)
    assert not evaluation.done
    row = evaluation.of_server(model, range(2)) | evaluation.of_non_participating(model)
    found = evaluation.by_client()
    assert [found[name].tolist() for name in ("client", "images", "held_out_images")] == [
        [0, 1, 2],
        [5, 4, 3],
        [3, 0, 2],
    ]
    alone = {
        "train": [*clients, None],
        "local_test": [held_out[0], None, None],
        "unseen_train": [None, None, *non_participating],
        "unseen_test": [None, None, *theirs],
    }
    for split, parts in alone.items():
        for name in ("loss", "angle_mean"):
            values = [np.nan if images is None else values_of(model, data, images)[name] for images in parts]
            assert found[f"{split}_{name}"] == pytest.approx(values, rel=1e-4, nan_ok=True)
            assert np.nanmean(found[f"{split}_{name}"]) == pytest.approx(row[f"{split}_{name}_mean"])
    evaluation.of_clients(model, lambda client: None, range(2))
    assert evaluation.by_client()["personal_train_loss"] == pytest.approx(found["train_loss"], rel=1e-4, nan_ok=True)


def test_of_some_clients_by_client_has_these(model: TaskModel, data: TaskData) -> None:
    clients, held_out = np.array_split(data.train, 12), np.array_split(data.test, 12)
    some = Evaluation(FederatedData(data, clients, held_out, data.table.labels), ACCELERATOR, n_clients=4, seed=3)
    some.of_server(model, range(12))
    found = some.by_client()
    assert found["client"].tolist() == some.evaluated.tolist()
    assert found["images"].tolist() == [len(clients[client]) for client in some.evaluated]
    own = [values_of(model, data, clients[client])["loss"] for client in some.evaluated]
    assert found["train_loss"] == pytest.approx(own, rel=1e-5)


def test_the_out_of_sample_gap_is_between_means_over_the_same_clients() -> None:
    own, new = np.array([1.0, 2.0, 9.0, np.nan]), np.array([1.5, 3.0, np.nan, 7.0])
    assert out_of_sample_gap(own, new) == 2.25 - 1.5
    assert np.isnan(out_of_sample_gap(own[2:], new[2:]))


def test_participation_gaps_are_differences_of_means_and_personal_models_have_their_own() -> None:
    row = {"local_test_loss_mean": 1.5}
    assert participation_gaps(row, 3.0) == {"participation_gap": 1.5}
    row |= {"personal_local_test_loss_mean": 1.25}
    assert participation_gaps(row, 3.0) == {"participation_gap": 1.5, "personal_participation_gap": 1.75}
