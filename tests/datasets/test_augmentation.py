"""Images and targets in their frames against torchvision's flip, crop and resize, and what is drawn for whom."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor
from torchvision.transforms.v2 import functional as tv
from torchvision.tv_tensors import BoundingBoxes

from datasets.augmentation import AUGMENTS, augmented
from datasets.table import Table
from datasets.task_data import Batch, TaskData
from datasets.tasks import TASKS, Task, get_task
from models.central.settings import TrainSettings
from models.central.training import CentralTraining
from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel
from network.algorithms.fedavg import FedAvg
from network.config import FederationConfig
from network.engine.client import ClientContext
from network.engine.federated_data import FederatedData
from network.engine.simulation import Simulation
from network.settings import SimulationSettings
from tests.network import quadratic as q
from utils.runs import Run

S, N = 32, 12


def drawn(kind: str, n: int = N, seed: int = 0) -> np.ndarray:
    return AUGMENTS[kind](n, S, np.random.default_rng(seed))


def batch_of(task: str) -> Batch:
    generator = torch.Generator().manual_seed(0)
    images, valid = torch.rand(N, 3, S, S, generator=generator), torch.rand(N, 1, S, S, generator=generator) > 0.3
    if task == "segmentation":
        return Batch(images, torch.randint(200, (N, S, S), generator=generator), valid[:, 0])
    return Batch(images, torch.rand(N, 3, S, S, generator=generator) * 2 - 1, valid)


def cut(values: Tensor, frame: np.ndarray) -> Tensor:
    """torchvision's: crop, which pads with zeros, then mirror."""
    left, top, width, height, mirrored = map(int, frame)
    cropped = tv.crop(values if values.ndim == 3 else values[None], top, left, height, width)
    return (tv.horizontal_flip(cropped) if mirrored else cropped).view_as(values)


@pytest.mark.parametrize("kind", ["flip", "crop_flip"])
@pytest.mark.parametrize("name", ["normal", "segmentation"])
def test_flips_and_crops_are_torchvisions(kind: str, name: str) -> None:
    task, batch, frames = replace(TASKS[name], mirror=None), batch_of(name), drawn(kind)
    moved = augmented(batch, torch.from_numpy(frames), task)
    assert 0 < frames[:, 4].sum() < N and (moved.target.dtype, moved.valid.dtype) == (batch.target.dtype, torch.bool)
    for i, frame in enumerate(frames):
        torch.testing.assert_close(moved.images[i], cut(batch.images[i], frame), atol=1e-5, rtol=1e-5)
        assert torch.equal(moved.target[i], cut(batch.target[i], frame))
        assert torch.equal(moved.valid[i], cut(batch.valid[i], frame))  # nothing outside counts
    assert moved.images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("kind", ["flip", "crop_flip", "resized_crop"])
def test_flow_leads_to_the_same_places_in_the_frame(kind: str) -> None:
    """Pixels of two photographs whose colours are their own places: each finds its own again at the flow's end."""
    y, x = torch.meshgrid(torch.arange(S) + 0.5, torch.arange(S) + 0.5, indexing="ij")
    shift = torch.tensor([3.0, -2.0])
    places = torch.stack([x, y, torch.zeros(S, S)]) / S
    moved_on = places - torch.tensor([*shift, 0.0])[:, None, None] / S
    batch = Batch(
        torch.cat([places, moved_on]).repeat(N, 1, 1, 1),
        shift[:, None, None].expand(N, 2, S, S).clone(),
        torch.ones(N, 1, S, S, dtype=torch.bool),
    )
    frames = drawn(kind)
    moved = augmented(batch, torch.from_numpy(frames), TASKS["motion"])
    for image, flow, valid, frame in zip(moved.images, moved.target, moved.valid[:, 0], frames, strict=True):
        sign = -1 if frame[4] else 1
        expected = torch.tensor([sign * 3.0 * S / frame[2], -2.0 * S / frame[3]], dtype=torch.float32)
        torch.testing.assert_close(flow[:, valid], expected[:, None].expand(2, int(valid.sum())), rtol=1e-5, atol=1e-5)
        end = torch.stack([x, y]) - 0.5 + flow
        assert not valid[((end < -0.5) | (end > S - 0.5)).any(0)].any() and valid.any()
        for row, column in valid.nonzero()[::37]:
            at = (end[:, row, column].round() + 0.5).long().flip(0)
            seen, again = image[:2, row, column] * S, image[3:5, at[0], at[1]] * S
            if valid[at[0], at[1]]:
                torch.testing.assert_close(seen, again, atol=0.75, rtol=0)


def test_crops_are_shifted_by_up_to_the_four_pixels_that_are_usual_for_cifar() -> None:
    shifts = AUGMENTS["crop_flip"](2000, 32, np.random.default_rng(0))[:, :2]
    assert set(shifts[:, 0]) == set(shifts[:, 1]) == {*range(-4, 5)}


def test_resized_crops_are_torchvisions_away_from_the_border() -> None:
    batch, frames = batch_of("normal"), drawn("resized_crop")
    # A smooth picture: beyond the frame torchvision knows no pixels, and here there are some.
    y, x = torch.meshgrid(torch.linspace(0, 1, S), torch.linspace(0, 1, S), indexing="ij")
    batch = replace(batch, images=torch.stack([x, x * y, y**2]).repeat(N, 1, 1, 1))
    moved = augmented(batch, torch.from_numpy(frames), replace(TASKS["normal"], mirror=None))
    assert (frames[:, 2:4].prod(1) < 0.9 * S * S).any()
    for i, (left, top, width, height, mirrored) in enumerate(frames.astype(int)):
        expected = tv.resized_crop(batch.images[i], top, left, height, width, [S, S], antialias=False)
        expected = tv.horizontal_flip(expected) if mirrored else expected
        inner = slice(S // width + S // height, S - S // width - S // height)
        torch.testing.assert_close(moved.images[i][:, inner, inner], expected[:, inner, inner], atol=1e-4, rtol=1e-3)
        nearest = tv.resized_crop(batch.target[i], top, left, height, width, [S, S], tv.InterpolationMode.NEAREST_EXACT)
        nearest = tv.horizontal_flip(nearest) if mirrored else nearest
        assert (moved.target[i] == nearest).float().mean() > 0.9  # but where a place lies between two pixels


def test_frames_of_resized_crops_are_spread_as_torchvisions() -> None:
    frames = drawn("resized_crop", 4000)
    left, top, width, height, _ = frames.T
    assert (left >= 0).all() and (top >= 0).all() and (left + width <= S).all() and (top + height <= S).all()
    from torchvision.transforms.v2 import RandomResizedCrop

    torch.manual_seed(0)
    made = RandomResizedCrop(S)
    theirs = [made.make_params([torch.empty(3, S, S)]) for _ in range(2000)]
    for ours, name in ((width, "width"), (height, "height"), (left, "left"), (top, "top")):
        other = np.array([each[name] for each in theirs])
        spread = np.sqrt(ours.var() / len(ours) + other.var() / len(other))
        assert abs(ours.mean() - other.mean()) < 4 * spread, name
        assert ours.std() == pytest.approx(other.std(), rel=0.07), name


@pytest.mark.parametrize("variant", [{}, {"published_quirks": True}])
def test_mirrored_normals_change_the_sign_of_x(variant: dict) -> None:
    task, batch = get_task("normal", **variant), batch_of("normal")
    target = batch.target / batch.target.norm(dim=1, keepdim=True)
    given = (target + 1) / 2 if variant else target
    frames = torch.tensor([[0.0, 0.0, S, S, i % 2] for i in range(N)])
    moved = augmented(replace(batch, target=given), frames, task).target
    moved = 2 * moved - 1 if variant else moved
    torch.testing.assert_close(moved[0::2], target[0::2], atol=1e-6, rtol=0)
    expected = target[1::2].flip(3) * torch.tensor([-1.0, 1.0, 1.0])[:, None, None]
    torch.testing.assert_close(moved[1::2], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["flip", "crop_flip", "resized_crop"])
def test_boxes_are_torchvisions(kind: str) -> None:
    task, frames = TASKS["detection"], drawn(kind)
    assert 0 < frames[:, 4].sum() < N
    generator = torch.Generator().manual_seed(1)
    corners = torch.rand(N, 4, 2, 2, generator=generator) * S
    boxes = torch.cat([corners.amin(2), corners.amax(2), torch.arange(4.0).expand(N, 4)[..., None]], dim=2)
    valid = torch.arange(4).expand(N, 4) < 3
    moved = augmented(Batch(torch.rand(N, 3, S, S), boxes, valid), torch.from_numpy(frames), task)
    assert not moved.valid[:, 3].any() and torch.equal(moved.target[:, 3], boxes[:, 3])
    for i, (left, top, width, height, mirrored) in enumerate(frames.astype(int)):
        theirs = BoundingBoxes(boxes[i, :3, :4], format="XYXY", canvas_size=(S, S))
        theirs = tv.resized_crop(theirs, top, left, height, width, [S, S])
        theirs = tv.clamp_bounding_boxes(tv.horizontal_flip(theirs) if mirrored else theirs)
        torch.testing.assert_close(moved.target[i, :3, :4], theirs.as_subclass(Tensor), atol=1e-3, rtol=1e-4)
        sides = theirs[:, 2:] - theirs[:, :2]
        assert torch.equal(moved.valid[i, :3], (sides >= 1).all(1))
        assert torch.equal(moved.target[i, :3, 4], torch.arange(3.0))


def test_classes_stay() -> None:
    batch = Batch(torch.rand(N, 3, S, S), torch.arange(N), torch.ones(N, dtype=torch.bool))
    moved = augmented(batch, torch.from_numpy(drawn("crop_flip")), TASKS["classification"])
    assert moved.target is batch.target and moved.valid is batch.valid and not torch.equal(moved.images, batch.images)


# In training


@pytest.fixture(scope="module")
def data(table: Table) -> TaskData:
    return TaskData(table, table.bind(get_task("normal")), 16, torch.device("cpu"))


def model_of() -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(ModelConfig("normal", "tiny", 16, norm="group", decoder="taskonomy"))


@pytest.mark.parametrize("kind", ["crop_flip", "resized_crop"])
def test_clients_see_the_same_side_by_side_and_one_by_one(kind: str, data: TaskData, tmp_path: Path) -> None:
    clients = [data.train[:10], data.train[10:13], data.train[13:23]]  # of whom one has smaller batches
    settings = replace(q.SETTINGS, augment=kind, sgd_per_epoch=3, batch_size=4)
    seen: list[dict[tuple, list[Tensor]]] = []

    class Watching(FedAvg):
        def local_loss(self, loss: Tensor, local: ClientContext) -> Tensor:
            seen[-1].setdefault((local.round, local.client), []).append(local.batch.inputs.clone())
            return super().local_loss(loss, local)

    ends = []
    for vectorised_clients in (1, 3):
        seen.append({})
        federated = FederatedData(data, clients, [data.test[:2]] * 3, np.zeros(len(data), np.int64))
        how = SimulationSettings(0, evaluate_every=9, vectorised_clients=vectorised_clients)
        algorithm, folder = Watching(), tmp_path / str(vectorised_clients)
        run = Simulation(
            model_of(), federated, FederationConfig(algorithm, settings, how), Accelerator(cpu=True), Run(folder)
        )
        run.train()
        ends.append(run.server)
    assert seen[0].keys() == seen[1].keys() and len(seen[0]) == 6
    steps = [images for key in seen[0] for images in zip(seen[0][key], seen[1][key], strict=True)]
    assert len(steps) == 18 and all(torch.equal(one, other) for one, other in steps)
    for name, tensor in ends[0].items():
        torch.testing.assert_close(ends[1][name], tensor, rtol=1e-3, atol=1e-5, msg=name)


def test_central_training_draws_by_seed_epoch_and_step(data: TaskData, tmp_path: Path) -> None:
    ends = []
    for seed, kind in ((0, "flip"), (0, "flip"), (1, "flip"), (0, "none")):
        settings = TrainSettings(seed, n_epochs=1, batch_size=8, init_lr=0.05, val_fraction=0.2, augment=kind)
        files = [tmp_path / f"{len(ends)}{name}" for name in ("last", "best", "early")]
        training = CentralTraining(model_of(), data, settings, Accelerator(cpu=True), *files)
        training.run(lambda history: None)
        ends.append(torch.cat([tensor.flatten() for tensor in training.model.state_dict().values()]))
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2]) and not torch.equal(ends[0], ends[3])


def test_every_task_says_what_it_needs() -> None:
    knows_sides = {name for name, task in TASKS.items() if task.mirror is not None}
    assert knows_sides == {"normal", "normals", "motion"} and isinstance(TASKS["normal"], Task)
    assert {name for name, task in TASKS.items() if task.remade is not None} == {"instances"}
    assert {name for name, task in TASKS.items() if task.rescaled is not None} == {"motion"}
