"""The detector's network against torchvision's head, anchors and extra levels, and several clients side by side."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.fcos import FCOSHead
from torchvision.models.detection.image_list import ImageList
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

from datasets.classes import ClassSet
from datasets.pyramid import EXTRA, pyramid_points
from losses import LOSSES
from models.central.metrics import METRICS
from models.detection.fcos import FCOSDecoder, _Coarser
from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel
from network.engine.workspace import OneCopy, workspace
from utils.errors import UserError

CLASSES = ClassSet(tuple("abcde"))


def detector(size: int = 64, norm: str = "group") -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(ModelConfig("detection", image_size=size, norm=norm, classes=CLASSES))


@pytest.mark.parametrize("size", [256, 512])
def test_points_are_the_centres_of_torchvisions_anchors(size: int) -> None:
    generator = AnchorGenerator(((8,), (16,), (32,), (64,), (128,)), ((1.0,),) * 5)
    maps = [torch.zeros(1, 1, size // stride, size // stride) for stride in (8, 16, 32, 64, 128)]
    [anchors] = generator(ImageList(torch.zeros(1, 3, size, size), [(size, size)]), maps)
    expected = torch.cat([(anchors[:, :2] + anchors[:, 2:]) / 2, anchors[:, 2:3] - anchors[:, :1]], dim=1)
    torch.testing.assert_close(pyramid_points(size), expected, rtol=0, atol=0)


def test_every_level_has_its_points_whatever_the_size() -> None:
    for size in (16, 32, 48, 64, 80, 128):
        output = detector(size)(torch.rand(1, 3, size, size)).output
        assert output.shape == (1, len(pyramid_points(size)), len(CLASSES.names) + EXTRA)
        torch.testing.assert_close(output[0, :, -3:], pyramid_points(size), rtol=0, atol=0)


def test_output_is_that_of_torchvisions_head() -> None:
    torch.manual_seed(0)
    decoder = FCOSDecoder((8, 16, 24), 5, 64, channels=32, n_convs=4)
    theirs = FCOSHead(32, 1, 5)
    # Groups of eight channels and torchvision's 32 groups have the same parameters; only the groups differ.
    theirs.classification_head.load_state_dict(decoder.head.classes.state_dict())
    theirs.regression_head.load_state_dict(decoder.head.boxes.state_dict())
    for norm in (each for each in theirs.modules() if isinstance(each, nn.GroupNorm)):
        norm.num_groups = 4
    maps = [torch.randn(2, channels, 32 >> i, 32 >> i) for i, channels in enumerate((8, 16, 24))]
    embedding, output = decoder(torch.zeros(2, 1), maps)
    levels = list(decoder.pyramid({"0": maps[1], "1": maps[2]}).values())
    assert [level.shape[-1] for level in levels] == [16, 8, 4, 2, 1]
    expected = theirs(levels)
    torch.testing.assert_close(output[..., :5], expected["cls_logits"])
    torch.testing.assert_close(output[..., 5:9], expected["bbox_regression"])
    torch.testing.assert_close(output[..., 9:10], expected["bbox_ctrness"])
    assert decoder.embedding_shape == embedding.shape[1:] == (64, 8, 8)
    scores = torch.sqrt(expected["cls_logits"].sigmoid().max(-1)[0] * expected["bbox_ctrness"].sigmoid()[..., 0])
    by_hand, scores_of = torch.zeros(2, 64, 8, 8), scores.split([256, 64, 16, 4, 1], dim=1)
    for level, of_level in zip(levels, scores_of, strict=True):
        n = level.shape[-1]
        towers = [head.conv(level) for head in (theirs.classification_head, theirs.regression_head)]
        found = torch.cat(towers, dim=1) * of_level.reshape(2, 1, n, n)
        if n == 16:
            by_hand += found.reshape(2, 64, 8, 2, 8, 2).mean((3, 5))
        elif n in (1, 8):
            by_hand += found
        else:
            by_hand += nn.Upsample((8, 8), mode="bilinear")(found)
    torch.testing.assert_close(embedding, by_hand)


def test_two_coarser_levels_are_torchvisions() -> None:
    ours, theirs = _Coarser(8, 2), LastLevelP6P7(8, 8)
    theirs.p6.load_state_dict(ours.convs[0].state_dict())
    theirs.p7.load_state_dict(ours.convs[1].state_dict())
    level = torch.randn(1, 8, 12, 12)
    found, _ = ours([level], [level], ["0"])
    expected, _ = theirs([level], [level], ["0"])
    assert [each.shape for each in found] == [each.shape for each in expected]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def boxes_of(n: int) -> tuple[Tensor, Tensor]:
    """Targets of n images with none, one, two … boxes."""
    target, valid = torch.full((n, 3, 5), -1.0), torch.zeros(n, 3, dtype=torch.bool)
    for i in range(n):
        for k in range(i % 4):
            target[i, k] = torch.tensor([4.0 + 9 * k, 6.0 + k, 20.0 + 9 * k, 30.0 + 4 * k, (i + k) % 5])
            valid[i, k] = True
    return target, valid


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_clients_side_by_side_have_the_gradients_of_each_alone(norm: str) -> None:
    model, images, (target, valid) = detector(norm=norm), torch.rand(8, 3, 64, 64), boxes_of(8)
    together, alone = workspace(model, 2, (3, 64, 64)), OneCopy(detector(norm=norm))
    together.prepare(list(together.leaves))
    LOSSES["fcos"](together(images).output, target, valid).sum().backward()
    for client, part in enumerate(torch.arange(8).chunk(2)):
        alone.prepare(list(alone.leaves))
        LOSSES["fcos"](alone(images[part]).output, target[part], valid[part]).sum().backward()
        for name, leaf in alone.leaves.items():
            if leaf.grad is not None:
                gradient = together.parts(together.leaves[name].grad)[client]
                scale = leaf.grad.abs().max()
                assert (gradient - leaf.grad).abs().max() <= 1e-3 * scale + 1e-6, name


def test_a_few_steps_find_the_objects_of_two_images() -> None:
    model, images, (target, valid) = detector(32), torch.full((2, 3, 32, 32), 0.1), boxes_of(2)
    target[1, 0] = torch.tensor([6.0, 4.0, 22.0, 20.0, 3.0])
    images[1, 0, 4:20, 6:22] = 1.0
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(60):
        loss = LOSSES["fcos"](model(images).output, target, valid).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        rows = METRICS["average_precision"].statistics(model.eval()(images).output, target, valid)
    [[at_half, _]] = METRICS["average_precision"].of_groups(rows, [torch.arange(2)]).tolist()
    assert at_half == 1.0


def test_encoder_without_maps_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="maps"):
        FCOSDecoder((), 5, 64)
    with pytest.raises(UserError, match="maps"):
        FCOSDecoder((16,), 5, 64)
