"""bfloat16: where it is used, and what it changes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from models.networks import precision
from models.networks.config import ModelConfig
from models.networks.precision import has_bf16, set_precision
from models.networks.task_model import TaskModel
from tests.datasets.tables import classes_of
from utils.errors import UserError

CPU = torch.device("cpu")


@pytest.fixture
def model() -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(ModelConfig("normal", "tiny", 16))


def with_features(monkeypatch: pytest.MonkeyPatch, *features: str) -> None:
    monkeypatch.setattr(precision, "_cpu_has", lambda feature: feature in features)


def test_the_processor_is_asked_for_its_features() -> None:
    listing = Path("/proc/cpuinfo")
    if not listing.is_file() or "flags" not in (flags := listing.read_text()):
        pytest.skip("no list of the processor's features to compare with")
    assert has_bf16(CPU) == ("avx512_bf16" in flags or "amx_tile" in flags)


@pytest.mark.parametrize(
    "features, asked, used",
    [((), "auto", False), (("amx_tile", "avx512_bf16"), "auto", False), (("avx512_bf16",), "bf16", True),
     (("amx_tile",), "bf16", True), (("amx_tile",), "fp32", False)],
)  # fmt: skip
def test_a_cpu_takes_bf16_when_asked_to_and_not_by_itself(
    monkeypatch: pytest.MonkeyPatch, model: TaskModel, features: tuple[str, ...], asked: str, used: bool
) -> None:
    with_features(monkeypatch, *features)
    set_precision(model, asked, CPU)
    assert model.bf16 is used


@pytest.mark.parametrize("has", [True, False])
def test_a_gpu_takes_bf16_by_itself_if_it_has_it(monkeypatch: pytest.MonkeyPatch, model: TaskModel, has: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has)
    set_precision(model, "auto", torch.device("cuda"))
    assert model.bf16 is has


def test_bf16_without_the_arithmetic_is_refused(monkeypatch: pytest.MonkeyPatch, model: TaskModel) -> None:
    with_features(monkeypatch)
    with pytest.raises(UserError, match="use --precision fp32"):
        set_precision(model, "bf16", CPU)


@pytest.mark.parametrize(
    ("task", "encoder", "size", "wrong"),
    [("detection", "tiny", 32, True), ("detection", "tiny", 64, False), ("normal", "resnet18", 16, True),
     ("normal", "resnet18", 32, False), ("normal", "tiny", 16, False), ("normal", "clip_vit_b32", 32, False)],
)  # fmt: skip
def test_bf16_on_a_cpu_is_refused_where_its_gradients_are_wrong(
    monkeypatch: pytest.MonkeyPatch, task: str, encoder: str, size: int, wrong: bool
) -> None:
    with_features(monkeypatch, "avx512_bf16")
    model = TaskModel(ModelConfig(task, encoder, size, classes=classes_of(task)))
    with pytest.raises(UserError, match="larger --image_size") if wrong else nullcontext():
        set_precision(model, "bf16", CPU)
    assert model.bf16 is not wrong


@pytest.mark.skipif(not has_bf16(CPU), reason="the processor has no bfloat16 arithmetic")
@pytest.mark.parametrize(("task", "size"), [("detection", 64), ("normal", 32)])
def test_gradients_in_bf16_are_rounded_where_it_is_not_refused(task: str, size: int) -> None:
    torch.manual_seed(0)
    model = TaskModel(ModelConfig(task, "tiny", size, norm="group", classes=classes_of(task)))
    images = torch.rand(2, 3, size, size)

    def gradients() -> torch.Tensor:
        model.zero_grad()
        used = [torch.full((100_000 + n,), torch.nan) for n in range(20)]  # memory that is given back
        del used
        model(images).output[:, :, :-3].square().sum().backward()
        return torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])

    exact = gradients()
    set_precision(model, "bf16", CPU)
    for _ in range(5):
        assert (gradients() - exact).norm() < 0.1 * exact.norm()


def test_outputs_in_bf16_are_rounded_float32(model: TaskModel) -> None:
    images = torch.rand(2, 3, 16, 16)
    model.eval()
    exact = model(images)
    model.bf16 = True
    for rough, value in zip(model(images), exact, strict=True):
        assert rough.dtype == torch.float32
        # bfloat16 has 8 bits of precision: relative errors of some 2^-8 a layer.
        assert 0 < (rough - value).abs().max() < 0.1 * value.abs().max()
    model(images).output.sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())
