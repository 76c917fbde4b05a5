"""Folders such as `extract_diffusion_features.py` writes, with vectors of a test's own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from models.teacher.guidance import FEATURES, POSITIVE, RECORD
from models.teacher.teachers import TeacherSettings
from utils.files import write_array, write_json
from utils.versions import file_digest

SETTINGS = TeacherSettings(
    features="diffusion",
    diffusion_model="",
    diffusion_size=32,
    timestep=150,
    layers=(2, 3, 4),
    prompts="class",
    n_negatives=None,
    blank_images=False,
    precision="fp32",
    rand_seed=0,
)


def save_guidance(
    folder: Path,
    fingerprint: str,
    n: int,
    n_texts: int,
    size: int,
    vectors: np.ndarray | None = None,
    positive: np.ndarray | None = None,
) -> Path:
    """Write vectors (n, n_texts + 1, size), random ones unless given, for a table of this fingerprint."""
    rng = np.random.default_rng(7)
    drawn, chosen = rng.normal(size=(n, n_texts + 1, size)), rng.integers(0, max(n_texts, 1), n)
    write_array(folder / FEATURES, (drawn if vectors is None else vectors).astype(np.float16))
    write_array(folder / POSITIVE, chosen if positive is None else positive)
    about = {"settings": asdict(SETTINGS), "sizes": [size], "table": fingerprint, "inputs": "", "few": None}
    about["sha256"] = file_digest(folder / FEATURES)
    write_json(folder / RECORD, about)
    return folder


def guide_here(folder: Path, monkeypatch: pytest.MonkeyPatch, fingerprint: str, n: int) -> None:
    """Go to a folder where methods find vectors by default."""
    save_guidance(folder / "guidance", fingerprint, n, n_texts=4, size=5)
    monkeypatch.chdir(folder)
