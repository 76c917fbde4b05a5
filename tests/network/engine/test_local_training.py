"""What a client does in a round: phases, the reach, full gradients, lone images, and several clients at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.on_gpu.waiting import nothing_waits
from datasets.table import Table
from datasets.task_data import Batch, TaskData
from datasets.tasks import TASKS
from models.networks.config import ModelConfig
from models.networks.task_model import Outputs, TaskModel
from network.algorithms import ALGORITHMS
from network.algorithms.fedavg import FedAvg
from network.engine.client import ClientContext, Phase
from network.engine.local_training import LocalTraining
from network.engine.workspace import OneCopy
from network.settings import SimulationSettings
from tests.network import quadratic as q
from tests.network.quadratic import local_of


def train(local: ClientContext, *phases: Phase, data: object = None, algorithm: type[FedAvg] = FedAvg) -> None:
    """Take a client through these phases."""

    class InPhases(algorithm):
        def local_update(self, local: ClientContext) -> Iterator[Phase]:
            yield from phases

    data = data or q.QuadraticData()
    groups = torch.zeros(len(data.labels)).long()
    LocalTraining(OneCopy(local.model), data, InPhases(), groups, 0)([local])


def weights(local: ClientContext) -> np.ndarray:
    return np.stack([tensor.numpy() for tensor in local.tensors.values()])


def test_the_gradient_over_all_images_is_that_of_numpy() -> None:
    for batch_size in (8, 2):  # in one batch or in three
        local = local_of(replace(q.SETTINGS, batch_size=batch_size))
        train(local)
        found = local.gradient()
        assert q.close(np.stack([found[name].numpy() for name in local.tensors]), q.gradient(q.START, 1))
        assert (weights(local) == q.START).all()


@pytest.mark.parametrize("momentum, schedule, decay", [(0.0, "none", 0.0), (0.9, "cosine", 0.0), (0.6, "none", 0.1)])
def test_reach_is_how_far_a_constant_gradient_of_minus_one_goes(momentum: float, schedule: str, decay: float) -> None:
    settings = replace(q.SETTINGS, momentum=momentum, lr_schedule=schedule, weight_decay=decay)
    local = local_of(settings)
    train(local, Phase(6))
    at, velocity = 0.0, 0.0
    for step in range(6):
        rate = q.LR * (1 + np.cos(np.pi * step / 6 / settings.n_rounds)) / 2 if schedule == "cosine" else q.LR
        velocity = momentum * velocity - 1.0 + decay * at
        at -= rate * velocity
    assert local.effective_steps.item() == pytest.approx(at, rel=1e-5)


def test_phases_have_optimisers_and_random_choices_of_their_own() -> None:
    settings = replace(q.SETTINGS, momentum=0.9, batch_size=2)
    alone, after = local_of(settings), local_of(settings)
    train(alone, Phase(5))
    train(after, Phase(4, "other"))
    after.load(after.start)
    train(after, Phase(5))
    assert (weights(alone) == weights(after)).all()


def test_only_what_is_trained_moves() -> None:
    local = local_of()
    train(local, Phase(3, "head", frozenset({"decoder.head.shift"})), Phase(0), Phase(2, trained=frozenset()))
    assert (weights(local)[0] == q.START[0]).all() and not np.isclose(weights(local)[1], q.START[1]).any()


def test_losses_are_of_the_steps_of_all_phases() -> None:
    seen = []

    class Watching(FedAvg):
        def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
            seen.append(float(loss.detach().mean()))
            return super().local_loss(loss, local)

    local = local_of()
    train(local, Phase(2), Phase(3, "more"), algorithm=Watching)
    assert [float(loss) for loss in local.losses] == pytest.approx(seen) and len(seen) == 5


@pytest.mark.parametrize("batch_size", [1, 2, 8])  # of 8, the clients' batches have 3 and 5 images
def test_losses_of_clients_side_by_side_are_those_of_each_by_itself(batch_size: int, tmp_path: Path) -> None:
    class Own(FedAvg):
        def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
            assert len(loss) == len(local.batch.positions)
            return loss.mean()

        def correct(self, gradients: list[Tensor], local: ClientContext) -> None:
            assert set(local.batch.positions.tolist()) <= set(q.CLIENTS[local.client])

    settings = replace(q.SETTINGS, batch_size=batch_size)
    together, alone = (
        q.trained(method(), tmp_path / method.__name__, settings, vectorised_clients=2) for method in (FedAvg, Own)
    )
    assert (q.server_of(together) == q.server_of(alone)).all()
    assert [row["local_loss"] for row in together.rows[1:]] == [row["local_loss"] for row in alone.rows[1:]]


def test_what_hooks_see_belongs_to_the_batch() -> None:
    class Watching(FedAvg):
        def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
            assert len(loss) == len(local.batch.inputs) == len(local.batch.embedding) == len(local.batch.positions)
            assert torch.equal(local.batch.inputs, torch.from_numpy(q.A)[local.batch.positions])
            assert len(loss) == len(local.batch.labels) == len(local.batch.groups)
            assert torch.equal(local.batch.encoded, local.batch.inputs * local.model.weight)
            assert torch.equal(local.batch.embedding.flatten(1), local.batch.encoded)
            return loss.mean()

        def correct(self, gradients: list[Tensor], local: ClientContext) -> None:
            assert [g.shape for g in gradients] == [p.shape for p in local.parameters.values()]

    train(local_of(replace(q.SETTINGS, batch_size=2)), Phase(4), algorithm=Watching)


class Dropping(q.Quadratic):
    """Half of the features are dropped."""

    def forward(self, images: Tensor) -> Outputs:
        features = torch.nn.functional.dropout(images * self.weight, training=self.training)
        return Outputs(features, features, features + self.decoder.head.shift)


def test_what_is_dropped_follows_from_seed_round_and_client() -> None:
    ends = []
    for before, more in ((1, {}), (2, {}), (1, {"round": 1}), (1, {"client": 1})):
        torch.manual_seed(before)
        local = local_of(model=Dropping(), **more)
        train(local, Phase(3))
        ends.append(weights(local))
    assert (ends[0] == ends[1]).all()
    assert not (ends[0] == ends[2]).all() and not (ends[0] == ends[3]).all()


NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("where", ["cpu", pytest.param("cuda", marks=NO_GPU)])
@pytest.mark.parametrize("schedule", ["plateau", "cosine"])
# Four methods need others' models, or kinds of images, before a client can train.
@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - {"fedamp", "feddifrc", "fedproto", "fedrcl"}))
def test_nothing_in_local_training_waits_for_the_device(name: str, schedule: str, where: str) -> None:
    class OnDevice(q.QuadraticData):
        device, a, b = torch.device(where), torch.from_numpy(q.A).to(where), torch.from_numpy(q.B).to(where)
        labels = torch.zeros(11, dtype=torch.int64, device=where)
        batches = TaskData.batches
        _resident, _decoded = True, None

        def batch(self, positions: Tensor) -> Batch:
            return Batch(self.a[positions], self.b[positions], torch.ones_like(self.b[positions], dtype=torch.bool))

    algorithm, model = q.method(name), q.Quadratic().to(where)
    algorithm.bind(q.SETTINGS, SimulationSettings(0))
    state: dict[str, Tensor] = {}
    for _ in range(2):  # the second time with what the client has kept
        local = local_of(replace(q.SETTINGS, lr_schedule=schedule), model=model, state=state)
        local.server = local.start | algorithm.server_state(model)
        groups = torch.zeros(11, dtype=torch.int64, device=where)
        training = LocalTraining(OneCopy(model), OnDevice(), algorithm, groups, 0)
        with nothing_waits(OnDevice.device):
            training([local])


# A batch of one image


@pytest.fixture(scope="module")
def data_of(table: Table) -> Callable[[str], TaskData]:
    return lambda task: TaskData(table, table.bind(TASKS[task]), 16, torch.device("cpu"))


def test_a_lone_image_is_normalised_by_running_statistics(data_of: Callable[[str], TaskData]) -> None:
    # At 16 pixels the deepest maps have one pixel, where PyTorch refuses to normalise a batch of one image.
    torch.manual_seed(0)
    model, data = TaskModel(ModelConfig("normal", "tiny", 16)), data_of("normal")
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        model.train()(data.batch(torch.from_numpy(data.train[:1])).images)
    local = local_of(model=model, images=data.train[:1])
    before = {name: tensor.clone() for name, tensor in local.tensors.items()}
    train(local, Phase(2), data=data)
    assert torch.isfinite(torch.stack(local.losses)).all()
    moved = {name for name, tensor in local.tensors.items() if not torch.equal(tensor, before[name])}
    assert {"encoder.backbone.0.0.weight", "decoder.head.0.weight"} <= moved
    assert moved <= {name for name, _ in model.named_parameters()}  # no running statistic
    # Three images in batches of two make full batches only.
    counts = [name for name in local.tensors if name.endswith("num_batches_tracked")]
    before = {name: int(local.tensors[name]) for name in counts}
    local = local_of(replace(q.SETTINGS, batch_size=2), model=model, images=data.train[:3])
    train(local, Phase(4), data=data)
    assert all(int(local.tensors[name]) == before[name] + 4 for name in counts)
