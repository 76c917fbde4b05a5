"""What a client does in a round: phases, schedules, the probe, full gradients and lone images."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from datasets.selection import Selection
from datasets.task_data import Batch, TaskData
from models.task_model import ModelConfig, TaskModel
from network.algorithms.fedavg import FedAvg
from network.client import Local, LocalSettings, LocalTraining, Schedule, Turn, longest_first
from tests.network import quadratic as q


def local_of(
    settings: LocalSettings = q.SETTINGS, round: int = 0, state: dict[str, Tensor] | None = None,
    model: nn.Module | None = None, images: np.ndarray = q.CLIENTS[1],
) -> Local:  # fmt: skip
    model = model or q.Quadratic()
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    turn = Turn(images, 3, 1.0, 1.0, 1.0)
    return Local(0, turn, round, model, start, start, {} if state is None else state, settings, frozenset(start))


def training_of(local: Local, data: object = None, algorithm: FedAvg | None = None) -> LocalTraining:
    data = data or q.QuadraticData()
    return LocalTraining(local, data, algorithm or FedAvg(Namespace()), torch.zeros(len(data.labels)).long(), (0, 0, 0))


def weights(local: Local) -> np.ndarray:
    return np.stack([tensor.numpy() for tensor in local.tensors.values()])


def test_the_gradient_over_all_images_is_that_of_numpy() -> None:
    for batch_size in (8, 2):  # in one batch or in three, the last of one image
        local = local_of(replace(q.SETTINGS, batch_size=batch_size))
        found = training_of(local).gradient()
        assert q.close(np.stack([found[name].numpy() for name in local.tensors]), q.gradient(q.START, 1))
        assert (weights(local) == q.START).all()


@pytest.mark.parametrize("momentum, schedule, decay", [(0.0, "none", 0.0), (0.9, "cosine", 0.0), (0.6, "none", 0.1)])
def test_reach_is_how_far_a_constant_gradient_of_minus_one_goes(momentum: float, schedule: str, decay: float) -> None:
    settings = replace(q.SETTINGS, momentum=momentum, lr_schedule=schedule, weight_decay=decay)
    local = local_of(settings)
    training_of(local)(6)
    at, velocity = 0.0, 0.0
    for step in range(6):
        rate = q.LR * (1 + np.cos(np.pi * step / 6 / settings.n_rounds)) / 2 if schedule == "cosine" else q.LR
        velocity = momentum * velocity - 1.0 + decay * at
        at -= rate * velocity
    assert local.reach.item() == pytest.approx(at, rel=1e-5)


def test_phases_have_optimisers_and_random_choices_of_their_own() -> None:
    settings = replace(q.SETTINGS, momentum=0.9, batch_size=2)
    alone, after = local_of(settings), local_of(settings)
    training_of(alone)(5)
    training = training_of(after)
    training(4, phase="other")
    after.load(after.start)
    training(5)
    assert (weights(alone) == weights(after)).all()


def test_only_what_is_trained_moves() -> None:
    local = local_of()
    training = training_of(local)
    training(3, phase="head", trained=["decoder.head.shift"])
    assert (weights(local)[0] == q.START[0]).all() and not np.isclose(weights(local)[1], q.START[1]).any()
    training(0)
    training(2, trained=[])
    assert (weights(local)[0] == q.START[0]).all()
    assert all(parameter.requires_grad for parameter in local.model.parameters())


def test_mean_loss_is_over_the_steps_of_all_phases() -> None:
    seen = []

    class Watching(FedAvg):
        def local_loss(self, loss: Tensor, local: Local) -> Tensor:
            seen.append(float(loss.detach().mean()))
            return super().local_loss(loss, local)

    training = training_of(local_of(), algorithm=Watching(Namespace()))
    training(2)
    training(3, phase="more")
    assert float(training.mean_loss) == pytest.approx(np.mean(seen)) and len(seen) == 5


def test_what_hooks_see_belongs_to_the_batch() -> None:
    class Watching(FedAvg):
        def local_loss(self, loss: Tensor, local: Local) -> Tensor:
            assert len(loss) == len(local.inputs) == len(local.embedding) == len(local.labels) == len(local.groups)
            assert torch.equal(local.embedding.flatten(1), local.inputs * local.model.weight)
            return loss.mean()

        def correct(self, gradients: list[Tensor], local: Local) -> None:
            assert [g.shape for g in gradients] == [p.shape for p in local.parameters.values()]

    training_of(local_of(replace(q.SETTINGS, batch_size=2)), algorithm=Watching(Namespace()))(4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("schedule", ["plateau", "cosine"])
@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold", "fedrep", "ditto", "fednova", "moon"])
def test_nothing_in_local_training_waits_for_the_gpu(name: str, schedule: str) -> None:
    class OnDevice(q.QuadraticData):
        device, a, b = torch.device("cuda"), torch.from_numpy(q.A).cuda(), torch.from_numpy(q.B).cuda()
        labels = torch.zeros(11, dtype=torch.int64, device="cuda")

        def batch(self, positions: Tensor) -> Batch:
            return Batch(self.a[positions], self.b[positions], torch.ones_like(self.b[positions], dtype=torch.bool))

    algorithm = q.method(name)
    model = q.Quadratic().cuda()
    local = local_of(replace(q.SETTINGS, lr_schedule=schedule), model=model)
    local.server = local.start | algorithm.server_state(model)
    for _ in range(2):  # the second time with what the client has kept
        training = LocalTraining(local, OnDevice(), algorithm, torch.zeros(11, device="cuda").long(), (0, 0, 0))
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            algorithm.local_update(local, training)
        finally:
            torch.cuda.set_sync_debug_mode("default")


# Learning rates


def test_the_plateau_schedule_follows_the_published_rule() -> None:
    rng = np.random.default_rng(0)
    losses = torch.tensor(np.r_[np.linspace(2, 1, 12), rng.uniform(0.9, 1.4, 28)], dtype=torch.float32)
    settings = replace(q.SETTINGS, lr_schedule="plateau", lr_decay_rate=0.9, no_improvement_tolerance=4, init_lr=0.1)
    state: dict[str, Tensor] = {}
    schedule = Schedule(local_of(settings, state=state), 40, torch.device("cpu"))
    # The rule in plain Python: from the fourth step in a row without a new lowest mean of five, 0.9 a step.
    lr, best, since = 0.1, np.inf, 0
    for step, loss in enumerate(losses):
        schedule.before(step)
        schedule.after(loss)
        if step >= 4:
            mean = losses[step - 4 : step + 1].mean().item()
            best, since = (mean, 0) if mean < best else (best, since + 1)
            lr *= 0.9 if since >= 4 else 1.0
        assert schedule.lr.item() == pytest.approx(lr, rel=1e-5)
    assert lr < 0.05
    # It carries over to the same phase of the next round, and to no other.
    assert Schedule(local_of(settings, state=state), 40, torch.device("cpu")).lr.item() == pytest.approx(lr, rel=1e-5)
    other = local_of(settings, state=state)
    other.phase = "head"
    assert Schedule(other, 40, torch.device("cpu")).lr.item() == pytest.approx(0.1)


def test_cosine_falls_from_the_initial_rate_to_nothing_over_all_rounds() -> None:
    settings = replace(q.SETTINGS, lr_schedule="cosine", n_rounds=4, init_lr=0.05)
    rates = []
    for round in range(4):
        schedule = Schedule(local_of(settings, round), 5, torch.device("cpu"))
        for step in range(5):
            schedule.before(step)
            rates.append(schedule.lr.item())
    # Twenty steps: rate i is 0.05 * (1 + cos(pi i / 20)) / 2.
    assert np.allclose(rates, 0.05 * (1 + np.cos(np.pi * np.arange(20) / 20)) / 2, rtol=1e-6)


def test_settings_come_from_the_arguments_and_test_mode_is_short() -> None:
    given = vars(replace(q.SETTINGS, local_epochs=3, n_rounds=50)) | {"other": 1}
    assert LocalSettings.of(Namespace(**given, test_mode=False)) == replace(q.SETTINGS, local_epochs=3, n_rounds=50)
    short = LocalSettings.of(Namespace(**given, test_mode=True))
    assert (short.steps(1000), short.n_rounds) == (2, 2)


# A batch of one image


@pytest.fixture(scope="module")
def data_of(selection: Selection) -> Callable[[str], TaskData]:
    return lambda task: TaskData(selection, TaskModel(ModelConfig(task, "tiny", 16)).task, 16, torch.device("cpu"))


def test_a_lone_image_is_normalised_by_running_statistics(data_of: Callable[[str], TaskData]) -> None:
    # At 16 pixels the deepest maps have one pixel, where PyTorch refuses to normalise a batch of one image.
    torch.manual_seed(0)
    model, data = TaskModel(ModelConfig("normal", "tiny", 16)), data_of("normal")
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        model.train()(data.batch(torch.from_numpy(data.train[:1])).images)
    local = local_of(model=model, images=data.train[:1])
    before = {name: tensor.clone() for name, tensor in local.tensors.items()}
    training = training_of(local, data)
    training(2)
    assert torch.isfinite(training.mean_loss)
    moved = {name for name, tensor in local.tensors.items() if not torch.equal(tensor, before[name])}
    assert {"encoder.backbone.0.0.weight", "decoder.head.0.weight"} <= moved
    assert moved <= {name for name, _ in model.named_parameters()}  # no running statistic
    # Three images in batches of two are one batch of three.
    counts = [name for name in local.tensors if name.endswith("num_batches_tracked")]
    before = {name: int(local.tensors[name]) for name in counts}
    local = local_of(replace(q.SETTINGS, batch_size=2), model=model, images=data.train[:3])
    training_of(local, data)(4)
    assert all(int(local.tensors[name]) == before[name] + 4 for name in counts)


def test_clients_are_spread_the_longest_first() -> None:
    # 9 | 7 -> 9 | 7+4 -> 9+3 | 11 -> 12 | 11+2: loads 12 and 13
    assert longest_first([4, 9, 2, 7, 3], 2) == [[1, 4], [3, 0, 2]]

