"""The streams of random numbers: one for each purpose, seed, and numbers such as round and client."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

import numpy as np

Purpose = Literal[
    "initial_model", "validation", "epoch",  # central training
    "lora",  # adapters, of clients too
    "kmeans", "pca", "stability", "silhouette", "tsne",  # embeddings
    "partition", "assigned", "held_out", "unseen", "adapt",  # who has which images, and who takes no part
    "clients", "batches", "topology", "privacy",  # rounds
    "attackers", "attack",  # who attacks, and their noise
    "evaluated",  # the clients whose values count
    "dropout", "augment",  # what is random within a network
    "noise", "negatives", "random_network", "lift", "shuffle",  # guidance
]  # fmt: skip


def generator(purpose: Purpose, seed: int, *numbers: int | str) -> np.random.Generator:
    """A generator with a stream of its own for this purpose, seed and numbers, whatever their count and size.

    NumPy's own seeding with several numbers does not give that: it fills up with zeros, so that (seed, round) and
    (seed, round, 0) are one stream, and cuts numbers from 2^32 on into several. Here it is given SHA-256 of them all.
    """
    key = json.dumps([purpose, seed, *numbers], default=int)  # NumPy's whole numbers are written as Python's
    digest = hashlib.sha256(key.encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, "<u4"))


def derived_seed(purpose: Purpose, seed: int, *numbers: int | str) -> int:
    """A seed from 0 to 2^32 - 1, for libraries that make their own generators: the first draw of the stream."""
    return int(generator(purpose, seed, *numbers).integers(2**32))
