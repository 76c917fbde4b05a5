"""Operations of known networks, against counts made by hand and published ones."""

from __future__ import annotations

import pytest
import torch

from datasets.table import Table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from models.networks.config import ModelConfig
from models.networks.costs import forward_flops, model_costs, peak_memory
from models.networks.task_model import TaskModel
from tests.datasets.tables import classes_of


@pytest.fixture(scope="module")
def data(table: Table) -> TaskData:
    return TaskData(table, table.bind(get_task("class_scene")), 32, torch.device("cpu"))


def model_of(encoder: str) -> TaskModel:
    return TaskModel(ModelConfig("class_scene", encoder, 32, decoder="linear", classes=classes_of("class_scene")))


def test_a_lenet_by_hand(data: TaskData) -> None:
    model = model_of("lenet")
    n_classes = model.task.out_channels
    # 32 x 32 places of 5·5·3 to 64 channels, 16 x 16 of 5·5·64 to 64, and the layers 4096, 384, 192, classes.
    macs = 32**2 * 75 * 64 + 16**2 * 1600 * 64 + 4096 * 384 + 384 * 192 + 192 * n_classes
    expected = {"parameters": 1_754_496 + 193 * n_classes, "parameters_trained": 193 * n_classes, "forward_macs": macs}
    assert model_costs(model, data, "decoder.head") == expected


def test_attention_counts(data: TaskData) -> None:
    # CLIP's tower at 32 pixels: one patch and the class token. Patches 3·32·32·768; in each of 12 blocks, for both
    # tokens, 4·768² of projections and 8·768² of the MLP, and twice 2·2·768 for attention; at last 768·512.
    pytest.importorskip("open_clip")
    model = model_of("clip_vit_b32")
    macs = 3 * 32 * 32 * 768 + 12 * (2 * 12 * 768**2 + 2 * 2 * 2 * 768) + 768 * 512 + 512 * model.task.out_channels
    assert forward_flops(model, data) / 2 == pytest.approx(macs, rel=1e-3)
    assert torch.backends.mha.get_fastpath_enabled()


def test_memory_grows_with_what_is_held() -> None:
    before = peak_memory(torch.device("cpu"))["peak_memory"]
    held = torch.ones(64 << 20)
    after = peak_memory(torch.device("cpu"))
    assert after["device"] == "cpu" and after["peak_memory"] >= before and held.nbytes < after["peak_memory"]
