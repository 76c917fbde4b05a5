"""Files of optical flow as data sets have them, written byte by byte."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np


def flow_of(seed: int, height: int, width: int) -> np.ndarray:
    """A flow (2, H, W) float32 that is the same everywhere, in 64ths of a pixel, and unknown in a corner."""
    values = np.random.default_rng(seed).integers(-100, 100, 2) / 64
    flow = np.broadcast_to(values[:, None, None], (2, height, width)).astype(np.float32)
    flow[:, : height // 4, : width // 4] = np.nan
    return flow


def write_flo(path: Path, flow: np.ndarray) -> None:
    """Middlebury's: unknown is 1666666752."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _, height, width = flow.shape
    values = np.where(np.isfinite(flow), flow, 1666666752.0).transpose(1, 2, 0).astype("<f4")
    path.write_bytes(b"PIEH" + struct.pack("<ii", width, height) + values.tobytes())


def write_kitti(path: Path, flow: np.ndarray) -> None:
    """KITTI's PNG of 16 bits, which Pillow cannot write: the header, rows without a filter, the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _, height, width = flow.shape
    known = np.isfinite(flow[:1])
    values = np.concatenate([np.where(known, flow * 64.0 + 2**15, 0), known]).transpose(1, 2, 0).astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in values)

    def chunk(name: bytes, content: bytes) -> bytes:
        """A chunk of a PNG file."""
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
