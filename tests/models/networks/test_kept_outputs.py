"""Rows of an encoder's outputs, and a model behind them, against the encoder itself."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from datasets.table import Table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from models.networks.costs import forward_flops
from models.networks.frozen import EncoderOutputs
from models.networks.kept_outputs import Layout, full_model, kept_flops, load_full_model
from models.networks.task_model import load_model, save_model
from network.engine.stacking import stack
from tests.models.networks.test_decoders import SMALL, model_of

N = 3


def outputs(layout: Layout, seed: int) -> tuple[Tensor, list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    maps = [torch.rand(4, c, h, w, generator=generator) for h, w, c in layout.maps]
    return torch.rand(4, layout.encoded, generator=generator), maps


def is_same(found: tuple[Tensor, list[Tensor]], expected: tuple[Tensor, list[Tensor]]) -> bool:
    pairs = zip([found[0], *found[1]], [expected[0], *expected[1]], strict=True)
    return all(one.shape == other.shape and torch.equal(one, other) for one, other in pairs)


@pytest.fixture(scope="module")
def data(table: Table) -> TaskData:
    return TaskData(table, get_task("normal"), 32, torch.device("cpu"))


SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 4))


@given(st.integers(1, 5), st.lists(SHAPES, max_size=3).map(tuple))
def test_rows_give_back_what_went_in_alone_side_by_side_and_under_vmap(features: int, maps: tuple) -> None:
    layout = Layout(features, maps)
    of_models = [outputs(layout, seed) for seed in range(N)]
    rows = [layout.pack(*each) for each in of_models]
    assert all(is_same(layout.unpack(row), each) for row, each in zip(rows, of_models, strict=True))
    vectors, channels = [each[0] for each in of_models], list(zip(*(each[1] for each in of_models), strict=True))
    side_by_side = torch.cat(vectors, dim=1), [torch.cat(of_map, dim=1) for of_map in channels]
    assert is_same(layout.unpack(torch.cat(rows, dim=1)), side_by_side)
    stacked = torch.stack(vectors), [torch.stack(of_map) for of_map in channels]
    assert is_same(torch.func.vmap(layout.unpack)(torch.stack(rows)), stacked)


def test_maps_that_are_not_taken_leave_their_size() -> None:
    features, maps = torch.rand(2, 5), [torch.rand(2, 3, 8, 6), torch.rand(2, 4, 2, 2)]
    layout = Layout.of(features, maps, [False, True])
    assert layout.sizes == [5, 0, 16]
    found = layout.unpack(layout.pack(features, maps))
    assert is_same(found, (features, [torch.zeros(2, 0, 8, 6), maps[1]]))
    assert found[1][1].is_contiguous(memory_format=torch.channels_last) or found[1][1].stride(1) == 1


# Which of the encoder's maps some decoders look at.
TAKEN = {
    ("tiny", "taskonomy"): [True, True, True, False],
    ("tiny", "linear"): [False] * 4,
    ("tiny", "deeplabv3plus"): [False, True, False, True],
    ("tiny", "fcos"): [False, True, True, True],
}


@pytest.mark.parametrize("encoder, decoder", SMALL)
def test_a_model_behind_its_encoders_outputs_is_the_model(
    data: TaskData, tmp_path: Path, encoder: str, decoder: str
) -> None:
    model = model_of(encoder, decoder).to(memory_format=torch.channels_last)
    kept = EncoderOutputs(model, data, half=False)
    rows = data.on_inputs(torch.from_numpy(kept.kept_in(tmp_path / "encoded" / "images")))
    at = torch.arange(len(data)).flip(0)
    with torch.no_grad():
        expected, found = model.eval()(data.batch(at).images), kept.model.eval()(rows.batch(at).images)
    for name in ("encoded", "embedding", "output"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-5, atol=1e-5)
    if (encoder, decoder) in TAKEN:
        assert [bool(channels) for *_, channels in kept.model.encoder.layout.maps] == TAKEN[encoder, decoder]


def test_the_engine_sees_no_encoder_and_what_is_saved_has_it(data: TaskData, tmp_path: Path) -> None:
    model = model_of("tiny", "taskonomy")
    view = EncoderOutputs(model, data, half=False).model
    names = view.state_dict().keys()
    assert names and all(name.startswith("decoder.") for name in names)
    assert full_model(model) is model and kept_flops(model) == 0
    assert full_model(view).state_dict().keys() == model.state_dict().keys()
    assert forward_flops(view, data.on_inputs(torch.rand(1, sum(view.encoder.layout.sizes)))) + kept_flops(
        view
    ) == forward_flops(model, data)
    with torch.no_grad():
        next(view.decoder.parameters()).add_(1.0)  # shared with the model
    save_model(view, tmp_path / "saved.safetensors")
    loaded = load_model(tmp_path / "saved.safetensors", "normal", "nobody").state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in model.state_dict().items())
    copied = copy.deepcopy(view)
    assert copied.encoder is view.encoder and copied.decoder is not view.decoder
    assert stack(view, 2).state_dict().keys() == names


def test_weights_of_another_encoder_are_not_loaded(data: TaskData) -> None:
    model = model_of("tiny", "taskonomy")
    view = EncoderOutputs(model, data, half=False).model
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    name = "decoder.fc.weight"
    weights[name] += 1.0
    assert load_full_model(view, weights) and torch.equal(model.state_dict()[name], weights[name])
    encoders = next(name for name in weights if name.startswith("encoder."))
    assert not load_full_model(view, weights | {encoders: weights[encoders] + 1.0, name: weights[name] + 1.0})
    assert torch.equal(model.state_dict()[name], weights[name])
    assert load_full_model(model, weights | {encoders: weights[encoders] + 1.0})  # whose outputs nobody keeps
