"""Non-participating clients: gaps and adaptation against closed forms; nothing is made from their images before."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models.networks.config import ModelConfig
from models.networks.task_model import Outputs, TaskModel
from network.algorithms import ALGORITHMS
from network.engine import adaptation as adaptation_module
from network.engine.adaptation import Adaptation, parted, train
from network.engine.simulation import Simulation
from network.settings import AdaptSettings, resolve_adaptation
from tests.models.teacher.guiding import save_guidance
from tests.network import quadratic as q
from tests.network.spread import ADAPTING, federation
from utils import interrupt
from utils.errors import UserError

# Two participants and a non-participating client, on the eleven images of the quadratic problems.
PARTICIPANTS, HELD_OUT = [np.arange(3), np.arange(3, 6)], [np.array([8]), np.array([9])]
NON_PARTICIPATING, NON_PARTICIPATING_HELD_OUT = [np.array([6, 7])], [np.array([10])]
WHO = {
    "clients": PARTICIPANTS,
    "held_out": HELD_OUT,
    "non_participating": NON_PARTICIPATING,
    "non_participating_held_out": NON_PARTICIPATING_HELD_OUT,
}


def least_squares(images: np.ndarray) -> np.ndarray:
    """The optimum [w, h] of the mean loss over images: five regressions with an intercept."""
    designs = [np.stack([q.A[images, d], np.ones(len(images))], 1).astype(float) for d in range(q.DIM)]
    pairs = [np.linalg.lstsq(design, q.B[images, d], rcond=None)[0] for d, design in enumerate(designs)]
    return np.stack(pairs, axis=1)


def starting_at(x: np.ndarray) -> q.Quadratic:
    """The model [w, h]."""
    model = q.Quadratic()
    model.load_state_dict({"weight": torch.from_numpy(x[0]), "decoder.head.shift": torch.from_numpy(x[1])})
    return model


@pytest.mark.parametrize("tested", [[0, 1], [1], []])
@pytest.mark.parametrize("apart", [False, True])
def test_both_gaps_at_the_closed_form_optimum(tmp_path: Path, tested: list[int], apart: bool) -> None:
    held_out = [images if i in tested else images[:0] for i, images in enumerate(HELD_OUT)]
    who = WHO | {"held_out": held_out, "evaluate_apart": apart}
    x = least_squares(np.concatenate(PARTICIPANTS))
    # One step a round on all of a client's images is gradient descent on the mean over all of them: it stays there.
    settings = replace(q.SETTINGS, sgd_per_epoch=1)
    row = q.trained(q.method("fedavg"), tmp_path, settings, model=starting_at(x), **who).rows[-1]
    # A participant without held-out images counts in neither mean of a gap.
    train_loss, new = (
        np.mean([q.loss(x, parts[i]) for i in tested]) if tested else np.nan for parts in (PARTICIPANTS, HELD_OUT)
    )
    non_participating = q.loss(x, NON_PARTICIPATING_HELD_OUT[0])
    assert row["unseen_test_loss_mean"] == pytest.approx(non_participating, rel=1e-5)
    assert row["unseen_train_loss_mean"] == pytest.approx(q.loss(x, NON_PARTICIPATING[0]), rel=1e-5)
    assert row["train_loss_mean"] == pytest.approx(np.mean([q.loss(x, own) for own in PARTICIPANTS]), rel=1e-5)
    assert row["out_of_sample_gap"] == pytest.approx(new - train_loss, rel=1e-4, nan_ok=True)
    assert row["participation_gap"] == pytest.approx(non_participating - new, rel=1e-4, nan_ok=True)


@pytest.mark.parametrize("tested", [[0, 1], [0]])
def test_gaps_of_personal_models_are_between_clients_optima_and_the_initial_model(
    tmp_path: Path, tested: list[int]
) -> None:
    # So many steps because three images hardly tell body from head.
    longer = replace(q.SETTINGS, sgd_per_epoch=300, n_rounds=5, init_lr=1.5)
    who = WHO | {"held_out": [images if i in tested else images[:0] for i, images in enumerate(HELD_OUT)]}
    row = q.trained(q.method("local"), tmp_path, longer, **who, evaluate_every=5).rows[-1]
    own = [least_squares(images) for images in PARTICIPANTS]
    train_loss, new = (np.mean([q.loss(own[i], parts[i]) for i in tested]) for parts in (PARTICIPANTS, HELD_OUT))
    assert row["personal_out_of_sample_gap"] == pytest.approx(new - train_loss, rel=1e-3)
    newcomer = q.loss(q.START, NON_PARTICIPATING_HELD_OUT[0])  # nobody has trained for it
    assert row["personal_participation_gap"] == pytest.approx(newcomer - new, rel=1e-3)


def test_a_newcomer_with_participants_images_opens_no_gap(tmp_path: Path) -> None:
    same = {"held_out": HELD_OUT[:1] * 2, "non_participating_held_out": HELD_OUT[:1]}
    assert q.trained(q.method("fedavg"), tmp_path, **(WHO | same)).rows[-1]["participation_gap"] == 0


def test_adaptation_of_the_head_ends_at_its_closed_form(tmp_path: Path) -> None:
    federation = q.trained(q.method("fedavg"), tmp_path, replace(q.SETTINGS, init_lr=1.0), **WHO)
    server = {name: tensor.clone() for name, tensor in federation.server.items()}
    before, after = Adaptation(federation, AdaptSettings((60,), None, "head")).run()
    w, h = q.server_of(federation)
    residual = q.B[NON_PARTICIPATING[0]] - q.A[NON_PARTICIPATING[0]] * w
    optimum = np.stack([w, residual.mean(axis=0)])
    assert (before["steps"], after["steps"]) == (0, 60)
    for row, x in ((before, np.stack([w, h])), (after, optimum)):
        assert row["unseen_adapted_on_loss_mean"] == pytest.approx(q.loss(x, NON_PARTICIPATING[0]), rel=1e-4)
        assert row["unseen_test_loss_mean"] == pytest.approx(q.loss(x, NON_PARTICIPATING_HELD_OUT[0]), rel=1e-4)
        gap = row["unseen_test_loss_mean"] - federation.rows[-1]["local_test_loss_mean"]
        assert row["participation_gap"] == gap and np.isnan(row["unseen_rest_loss_mean"])
    # The federation's own model is what it was.
    assert all(torch.equal(server[name], tensor) for name, tensor in federation.model.state_dict().items())


def test_each_number_of_steps_is_plain_descent_from_the_newcomers_model(tmp_path: Path) -> None:
    federation = q.trained(q.method("fedprox", mu=1.0), tmp_path, **WHO)
    rows = Adaptation(federation, AdaptSettings((1, 4), None, "all")).run()
    for row in rows:
        x = q.descend(q.server_of(federation), NON_PARTICIPATING[0], row["steps"])
        assert row["unseen_test_loss_mean"] == pytest.approx(q.loss(x, NON_PARTICIPATING_HELD_OUT[0]), rel=1e-4)
    alone = q.trained(q.method("fedprox", mu=1.0), tmp_path / "alone", **WHO)
    few = Adaptation(alone, AdaptSettings((4,), None, "all")).run()
    assert json.dumps(few) == json.dumps([rows[0], rows[2]])  # nan equals itself as text


def test_a_schedule_goes_over_the_steps_of_the_adaptation(tmp_path: Path) -> None:
    federation = q.trained(q.method("fedavg"), tmp_path, replace(q.SETTINGS, lr_schedule="cosine"), **WHO)
    _, row = Adaptation(federation, AdaptSettings((4,), None, "all")).run()
    x = q.server_of(federation)
    for step in range(4):
        x = x - q.LR * 0.5 * (1 + np.cos(np.pi * step / 4)) * q.gradient(x, NON_PARTICIPATING[0])
    assert row["unseen_test_loss_mean"] == pytest.approx(q.loss(x, NON_PARTICIPATING_HELD_OUT[0]), rel=1e-4)


class Linear(q.Quadratic):
    """With an encoder that can have adapters: the identity, of images with three more zeros."""

    config = SimpleNamespace(task="normal", encoder="identity", image_size=q.DIM)

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.ZeroPad1d((0, 3)), nn.Linear(q.DIM + 3, q.DIM + 3))
        nn.init.eye_(self.encoder[1].weight)
        nn.init.zeros_(self.encoder[1].bias)

    def forward(self, images: Tensor) -> Outputs:
        return super().forward(self.encoder(images)[:, : q.DIM])


def test_adapters_start_anew_for_each_number_of_steps_and_in_a_resumed_run(tmp_path: Path) -> None:
    def adapted(name: str, *steps: int) -> list[dict[str, float]]:
        federation = q.trained(q.method("fedavg"), tmp_path / name, model=Linear(), **WHO)
        return Adaptation(federation, AdaptSettings(steps, None, "lora")).run()

    rows = adapted("whole", 1, 4)
    assert rows[1]["unseen_test_loss_mean"] != rows[2]["unseen_test_loss_mean"]
    assert json.dumps(adapted("alone", 4)) == json.dumps([rows[0], rows[2]])  # nan equals itself as text
    adapted("stopped", 1)
    assert json.dumps(adapted("stopped", 1, 4)) == json.dumps(rows)


@pytest.mark.parametrize(
    ("name", "body", "head"),
    [("fedrep", True, False), ("fedper", True, False), ("local", False, False), ("ditto", True, True)],
)
def test_what_a_newcomer_gets(tmp_path: Path, name: str, body: bool, head: bool) -> None:
    federation = q.trained(q.method(name), tmp_path, **WHO)
    handed = federation.received_model()
    w, h = handed["weight"].numpy(), handed["decoder.head.shift"].numpy()
    assert np.array_equal(w, q.START[0]) != body and np.array_equal(h, q.START[1]) != head
    assert np.array_equal(w, federation.server["weight"].numpy())


def test_a_newcomer_of_fedamp_gets_the_mean_of_all_models(tmp_path: Path) -> None:
    federation = q.trained(q.method("fedamp"), tmp_path, **WHO)
    handed = federation.received_model()
    mean = np.mean([q.model_of(federation, client) for client in range(2)], axis=0)
    assert q.close(np.stack([handed["weight"].numpy(), handed["decoder.head.shift"].numpy()]), mean)


def noisy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise in the images and targets of the non-participating client, held out or not."""
    rows = np.concatenate([*NON_PARTICIPATING, *NON_PARTICIPATING_HELD_OUT])
    for name in "AB":
        changed = getattr(q, name).copy()
        changed[rows] = 100 * np.random.default_rng(0).normal(size=(len(rows), q.DIM))
        monkeypatch.setattr(q, name, changed)


KINDS = [{}, {"importance_reweighting": "class", "importance_target": "global_test"}]


@pytest.mark.parametrize(("name", "more"), [*((name, {}) for name in ALGORITHMS), ("fedavg", KINDS[1])])
def test_no_pixel_of_a_non_participating_client_changes_a_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, more: dict
) -> None:
    own = {}
    if name == "feddifrc":
        own = {"guidance_path": save_guidance(tmp_path / "guidance", "quadratic", 11, 4, q.DIM)}
    clean = q.trained(q.method(name, **own), tmp_path / "clean", **WHO, **more)
    noisy(monkeypatch)
    other = q.trained(q.method(name, **own), tmp_path / "noisy", **WHO, **more)
    assert all(torch.equal(tensor, other.server[key]) for key, tensor in clean.server.items())
    for client in range(2):
        own, theirs = clean.states.load(client), other.states.load(client)
        assert own.keys() == theirs.keys() and all(torch.equal(own[key], theirs[key]) for key in own)
    for before, after in zip(clean.rows, other.rows, strict=True):
        of_them = ("unseen_", "test_", "seconds", "participation_gap", "personal_participation_gap")
        known = [key for key in before if not key.startswith(of_them)]
        assert [before[key] for key in known] == pytest.approx([after[key] for key in known], rel=0, abs=0, nan_ok=True)
        assert before["unseen_train_loss_mean"] != after["unseen_train_loss_mean"]


def test_images_are_parted_once_and_few_are_among_many() -> None:
    images = np.arange(10, 30)
    few, rest = parted(images, 4, seed=3, client=7)
    more, _ = parted(images, 9, seed=3, client=7)
    everything, nothing = parted(images, None, seed=3, client=7)
    assert len(few) == 4 and set(few) < set(more) and sorted([*few, *rest]) == list(images)
    assert list(everything) == list(images) and not len(nothing)
    assert list(parted(images, 4, seed=3, client=8)[0]) != list(few)
    assert [len(part) for part in parted(images, 50, seed=3, client=7)] == [20, 0]


@pytest.mark.parametrize("name", ["fedrep_unseen", "fedamp_unseen"])
def test_clients_side_by_side_adapt_as_one_by_one(tmp_path: Path, name: str) -> None:
    rows = []
    for n in (1, 2):
        run = federation(name, tmp_path / str(n), vectorised_clients=n)
        rows.append(train(run, ADAPTING, resume=False))
    for one, other in zip(*rows, strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6, nan_ok=True)


def test_an_interrupted_adaptation_resumes_to_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(federation("fedrep_unseen", tmp_path / "whole"), ADAPTING, resume=False)
    stopped = federation("fedrep_unseen", tmp_path / "stopped")
    stopped.train()
    steps = iter(range(100))

    class Stopping(adaptation_module.LocalOnly):
        def correct(self, gradients: list[Tensor], local: object) -> None:
            if next(steps) == 6:  # of two clients' 2 steps, and then 5
                signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch, pytest.raises(interrupt.Interrupted, match="--resume_training"):
        patch.setattr(adaptation_module, "LocalOnly", Stopping)
        Adaptation(stopped, ADAPTING).run()
    kept = json.loads((tmp_path / "stopped/fedrep_unseen/checkpoint/adaptation.json").read_text())
    assert [row["steps"] for row in kept] == [0, 2]
    resumed = train(federation("fedrep_unseen", tmp_path / "stopped"), ADAPTING, resume=True)
    assert json.dumps(resumed) == json.dumps(whole)  # nan equals itself as text
    files = [tmp_path / name / "fedrep_unseen/adaptation.csv" for name in ("whole", "stopped")]
    assert files[0].read_text() == files[1].read_text()


def test_a_client_that_diverges_is_named_or_left_out(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    def adapted(**more: object) -> list[dict[str, float]]:
        federation = q.trained(q.method("fedavg"), tmp_path / str(len(more)), **WHO, **more)
        federation.config = replace(federation.config, local=replace(federation.config.local, init_lr=1e20))
        return Adaptation(federation, AdaptSettings((9,), None, "all")).run()

    with pytest.raises(UserError, match=r"not finite in the adaptation of non-participating clients: client 2 in step"):
        adapted()
    assert np.isnan(adapted(on_nan="skip_client")[-1]["unseen_test_loss_mean"])
    assert "left out" in capsys.readouterr().err


def test_adaptation_needs_non_participating_clients(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give --non_participating_clients"):
        Adaptation(q.simulation(q.method("fedavg"), tmp_path), AdaptSettings((2,)))


def test_adapters_have_the_rank_that_is_given(tmp_path: Path) -> None:
    def adaptation(rank: int | None, model: Linear) -> Adaptation:
        lora = {"adapt_steps": [2], "adapt_images": None, "adapt_train": "lora", "adapt_rank": rank}
        config = resolve_adaptation(lora | {"non_participating_clients": 2, "partition_file": None, "test_mode": False})
        federation = q.simulation(q.method("fedavg"), tmp_path, model=model, **WHO)
        return Adaptation(federation, AdaptSettings.from_config(config))

    size, model = q.DIM + 3, Linear()
    for given, rank in ((2, 2), (3, 3), (None, 8)):
        adapted = adaptation(given, model)._model
        shapes = {name.rpartition(".")[2]: tuple(value.shape) for name, value in adapted.encoder.state_dict().items()}
        assert (shapes["lora_A"], shapes["lora_B"]) == ((rank, size), (size, rank))
    with pytest.raises(UserError, match="--adapt_rank: the model was trained with adapters, which go on; omit it"):
        adaptation(2, adapted)


def test_adapters_are_added_to_a_copy_for_adaptation_alone(tmp_path: Path) -> None:
    def simulation(encoder: str) -> Simulation:
        federation = q.simulation(q.method("fedavg"), tmp_path, **WHO)
        federation.model = TaskModel(ModelConfig("normal", encoder, 32))
        return federation

    federation = simulation("timm:test_vit")
    names = set(federation.model.state_dict())
    adapted = set(Adaptation(federation, AdaptSettings((2,), None, "lora"))._model.state_dict())
    assert set(federation.model.state_dict()) == names < adapted
    assert all(name.endswith(("lora_A", "lora_B", "lora_scale")) for name in adapted - names)
    with pytest.raises(UserError, match="--adapt_train lora: --encoder timm:test_efficientnet has no linear layers"):
        Adaptation(simulation("timm:test_efficientnet"), AdaptSettings((2,), None, "lora"))
