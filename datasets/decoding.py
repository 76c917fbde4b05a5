"""How stored values become targets: the decoders, units and mirror images of the tasks in `datasets/tasks.py`.

A decoder takes values as they are stored, (B, C, H, W), and which pixels hold a surface, (B, 1, H, W) bool, and returns
the target and which of its pixels count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from utils.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

DEPTH_METRE = 512.0  # Taskonomy stores depth in 1/512 m
FLAT = 127  # the stored curvature of a plane


def decode_class(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Classes (B,) as int64 ids; every image counts."""
    return stored.long(), valid


def decode_segments(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Classes (B, H, W) int64 from stored (B, 1, H, W); 0 where no class is known, which does not count."""
    return stored.where(valid, 0)[:, 0].long(), valid[:, 0]


def decode_instances(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Targets (B, 5, H, W) of `datasets/instances.py` from stored (B, 2, H, W); background where nothing is known."""
    from datasets.instances import with_centres

    return with_centres(stored * valid), valid


def remake_instances(target: Tensor) -> Tensor:
    """Targets (B, 5, H, W) whose centres are those of objects that have been moved."""
    from datasets.instances import with_centres

    return with_centres(target)


def decode_boxes(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Boxes (B, M, 5) float32 as they are stored, in pixels and with classes; `valid` (B, M) marks those that exist."""
    return stored, valid


def decode_unit_scale(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """8-bit values as [0, 1], (B, C, H, W) float32; 0 where there is no surface."""
    return stored.float() / 255.0 * valid, valid


def decode_signed_scale(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Curvatures around 127 as [-1, 1], (B, 2, H, W); flat pixels do not count, as in the paper's loss."""
    values = stored.float()
    curved = (values != FLAT).any(dim=1, keepdim=True)
    return (values - FLAT) / 128.0 * valid, valid & curved


def decode_normals(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Unit normals (B, 3, H, W): n = 2v/255 - 1, made unit length again after rounding and resizing."""
    return _unit_length(stored.float() * (2.0 / 255.0) - 1.0) * valid, valid


def _unit_length(normals: Tensor) -> Tensor:
    # On a CPU `normalize` takes fifty times as long, more than a third of a training step of the tiny model.
    length = normals.square().sum(dim=1, keepdim=True).clamp(min=1e-12)
    return normals * length.rsqrt()


def mirror_normals(normals: Tensor) -> Tensor:
    """The x of normals (B, 3, H, W) changes its sign."""
    return normals * normals.new_tensor([-1.0, 1.0, 1.0]).view(1, 3, 1, 1)


def refuse_mirror(normals: Tensor) -> Tensor:
    """UserError: normals in the axes of the world have no mirror image, as nobody knows where the camera looked."""
    raise UserError(
        "normals in the axes of the world (--axes world of stage 1) cannot be mirrored with their images; "
        "give --augment none"
    )


def _largest(values: Tensor) -> Tensor:
    """The largest value of each image, (B, 1, 1, 1), at least 1."""
    return values.amax(dim=(1, 2, 3), keepdim=True).clamp(min=1.0)


def decode_image_scale(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Values divided by the largest valid one of their image: (B, 1, H, W) in [0, 1]."""
    values = stored.float() * valid
    return values / _largest(values), valid


def decode_metres(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Depth in metres, (B, 1, H, W) float32; 0 where there is no surface."""
    return stored.float() / DEPTH_METRE * valid, valid


def decode_log_metres(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Natural logarithm of the depth in metres, (B, 1, H, W); 0 where there is no surface."""
    return (stored.float().clamp(min=1.0) / DEPTH_METRE).log() * valid, valid


def scaled_in_metres(values: Tensor, stored: Tensor, valid: Tensor) -> Tensor:
    """Depth in units of its image's farthest surface, in metres."""
    return values * _largest(stored.float() * valid) / DEPTH_METRE


def log_in_metres(values: Tensor, stored: Tensor, valid: Tensor) -> Tensor:
    """Logarithms of metres, in metres."""
    return values.exp()


# Maps of one's own, which are packed in their unit, with minus infinity where nothing is known.


def decode_map(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """The values in their unit, (B, C, H, W); 0 where nothing is known."""
    return stored.where(valid, 0.0), valid


def decode_flow(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Flow in pixels, (B, 2, H, W); 0 where nothing is known. What leaves the picture does not count."""
    flow, valid = decode_map(stored, valid)
    return flow, valid & _stays_inside(flow)


def _stays_inside(flow: Tensor) -> Tensor:
    """Which pixels (B, 1, H, W) of a flow (B, 2, H, W) are in the picture afterwards."""
    import torch

    height, width = flow.shape[-2:]
    x = torch.arange(width, device=flow.device) + flow[:, :1]
    y = torch.arange(height, device=flow.device)[:, None] + flow[:, 1:]
    return (x > -0.5) & (x < width - 0.5) & (y > -0.5) & (y < height - 0.5)


def mirror_flow(flow: Tensor) -> Tensor:
    """The x of a flow (B, 2, H, W) changes its sign."""
    return flow * flow.new_tensor([-1.0, 1.0]).view(1, 2, 1, 1)


def rescale_flow(flow: Tensor, valid: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
    """A flow (B, 2, H, W) cut out and enlarged by factors (B, 2): what leaves the part cut out counts no longer."""
    flow = flow * factors[..., None, None]
    return flow, valid & _stays_inside(flow)


def decode_map_scale(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Values divided by the largest known one of their image: (B, 1, H, W), at most 1."""
    return stored.where(valid, 0.0) / _largest_known(stored, valid), valid


def decode_log_map(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Natural logarithm of distances in metres, of a millimetre at least, (B, 1, H, W); 0 where nothing is known."""
    return stored.clamp(min=1e-3).log().where(valid, 0.0), valid


def decode_map_of_normals(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Unit normals (B, 3, H, W), made unit length again after rounding and resizing; 0 where nothing is known."""
    return _unit_length(stored.where(valid, 0.0)), valid


def scaled_in_units(values: Tensor, stored: Tensor, valid: Tensor) -> Tensor:
    """Values in units of their image's largest known one, in the map's own unit."""
    return values * _largest_known(stored, valid)


def _largest_known(stored: Tensor, valid: Tensor) -> Tensor:
    """The largest known value of each image, (B, 1, 1, 1), 1 where none is positive."""
    largest = stored.where(valid, 0.0).amax(dim=(1, 2, 3), keepdim=True)
    return largest.where(largest > 0, 1.0)


# What the published code does instead. It masks nothing, and reads 8-bit domains as plain pictures.


def published_depth(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Depth with its largest code (65535, or the farthest surface where all is valid) put 1 % behind the rest.

    Then divided by that, (B, 1, H, W) in [0, 1]; every pixel counts.
    """
    values = stored.float()
    nearer = values != _largest(values)
    rest = 1.01 * _largest(values.where(nearer, 0.0))
    return (values / rest).where(nearer, 1.0), valid.new_ones(valid.shape)


def published_in_metres(values: Tensor, stored: Tensor, valid: Tensor) -> Tensor:
    """`published_depth` in metres."""
    depth = stored.float()
    return values * 1.01 * _largest(depth.where(depth != _largest(depth), 0.0)) / DEPTH_METRE


def published_picture(stored: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """8-bit values as [0, 1], (B, C, H, W) float32; every pixel counts."""
    return stored.float() / 255.0, valid.new_ones(valid.shape)


def mirror_picture_of_normals(pictures: Tensor) -> Tensor:
    """The x of normals that are pictures (B, 3, H, W) in [0, 1] changes its sign."""
    return (mirror_normals(2.0 * pictures - 1.0) + 1.0) / 2.0
