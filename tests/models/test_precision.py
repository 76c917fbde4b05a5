"""bfloat16: where it is used, and what it changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from models import precision
from models.precision import has_bf16, set_precision
from models.task_model import ModelConfig, TaskModel
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
    [((), "auto", False), (("avx512_bf16",), "auto", False), (("amx_tile", "avx512_bf16"), "auto", True),
     (("avx512_bf16",), "bf16", True), (("amx_tile",), "fp32", False)],
)  # fmt: skip
def test_auto_takes_bf16_where_it_pays(
    monkeypatch: pytest.MonkeyPatch, model: TaskModel, features: tuple[str, ...], asked: str, used: bool
) -> None:
    with_features(monkeypatch, *features)
    set_precision(model, asked, CPU)
    assert model.bf16 is used


def test_bf16_without_the_arithmetic_is_refused(monkeypatch: pytest.MonkeyPatch, model: TaskModel) -> None:
    with_features(monkeypatch)
    with pytest.raises(UserError, match="use --precision fp32"):
        set_precision(model, "bf16", CPU)


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
