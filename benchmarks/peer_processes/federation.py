"""The federation that every system runs alike: models, data, batches, optimiser, and how it is told to run rounds.

This file imports nothing of the project, and every system is a process of its own that is started in another folder:
the project's `datasets/` must not hide a package of that name from a peer, and a peer's workers must find this file.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

N_CLASSES = 16


def dense() -> nn.Module:
    """4,876 parameters; images (B, 1, 8, 8)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 60), nn.SiLU(), nn.Linear(60, N_CLASSES))


def conv() -> nn.Module:
    """126,480 parameters, with group norm; images (B, 3, 32, 32)."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, 2, padding=1), nn.GroupNorm(after // 8, after), nn.SiLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, N_CLASSES))


def large_conv() -> nn.Module:
    """1,666,448 parameters, the sizes of McMahan et al. 2017 (arXiv 1602.05629); images (B, 1, 28, 28)."""
    layers: list[nn.Module] = []
    for before, after in ((1, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 5, padding=2), nn.SiLU(), nn.AvgPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.SiLU(), nn.Linear(512, N_CLASSES))


# All layers are smooth: at the kinks of ReLU, rounding alone takes two runs several per cent apart within a round.
MODELS = {"dense": (dense, (1, 8, 8)), "conv": (conv, (3, 32, 32)), "large_conv": (large_conv, (1, 28, 28))}


@dataclass(frozen=True)
class Federation:
    """Clients of equal size that all take part in each round, with equal weights.

    In a round a client goes once over its images, in batches of `batch_size` in their order, by SGD without momentum.
    `cores` processes compute at once, with a thread each. `at_once` is how many clients ours trains side by side, None
    for the number that it measures to be the fastest. A round's seconds are the clock's or, with `processor_time`,
    those that the processor spent on all threads of the process, in which other programs do not count. `device` is
    where models and images lie, "cpu" or "cuda".
    """

    model: str
    n_clients: int
    n_steps: int
    batch_size: int
    lr: float
    cores: int = 1
    at_once: int | None = None
    processor_time: bool = False
    device: str = "cpu"
    seed: int = 0

    @classmethod
    def of_text(cls, text: str) -> Federation:
        """What `text` has written down; the process computes with one thread from then on."""
        torch.set_num_threads(1)
        return cls(**json.loads(text))

    def text(self) -> str:
        """The inverse of `of_text`."""
        return json.dumps(asdict(self))

    @property
    def now(self) -> float:
        """Seconds since some moment, when the device has done its work."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.process_time() if self.processor_time else time.perf_counter()

    @property
    def images_a_client(self) -> int:
        """Images of one client."""
        return self.n_steps * self.batch_size

    def initial_model(self) -> nn.Module:
        """The same weights in every process."""
        torch.manual_seed(self.seed)
        return MODELS[self.model][0]().to(self.device)

    @cached_property
    def data(self) -> tuple[Tensor, Tensor]:
        """All images (clients * images, C, H, W) float32, client after client, and labels (N,) that can be learned."""
        rng = np.random.default_rng(self.seed)
        shape = (self.n_clients * self.images_a_client, *MODELS[self.model][1])
        images = rng.standard_normal(shape, dtype=np.float32)
        teacher = rng.standard_normal((int(np.prod(shape[1:])), N_CLASSES), dtype=np.float32)
        labels = (images.reshape(len(images), -1) @ teacher).argmax(axis=1)
        return torch.from_numpy(images).to(self.device), torch.from_numpy(labels).to(self.device)

    def of_client(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's images and labels."""
        own = slice(client * self.images_a_client, (client + 1) * self.images_a_client)
        return self.data[0][own], self.data[1][own]

    def batches(self, client: int) -> list[tuple[Tensor, Tensor]]:
        """A client's batches, in their order."""
        images, labels = self.of_client(client)
        return list(zip(images.split(self.batch_size), labels.split(self.batch_size), strict=True))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The local optimiser, afresh in each round of a client."""
        return torch.optim.SGD(model.parameters(), lr=self.lr, fused=True)

    def train(self, model: nn.Module, batches: Sequence[tuple[Tensor, Tensor]]) -> None:
        """The bare steps of a client's round."""
        optimizer = self.optimizer(model)
        for images, labels in batches:
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()

    @torch.no_grad()
    def loss(self, model: nn.Module) -> float:
        """Mean cross-entropy over all clients' images."""
        chunks = zip(*(tensor.split(256) for tensor in self.data), strict=True)
        return sum(float(F.cross_entropy(model(x), y, reduction="sum")) for x, y in chunks) / len(self.data[0])


class RoundControl:
    """Runs rounds when the benchmark asks for them, and tells it how long each took.

    The benchmark writes a number of rounds, a line, and gets their seconds; at 0 it gets the weights, as a file. Of a
    system with several processes in a `torch.distributed` group, the first one talks to the benchmark.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._spread = dist.is_initialized() and dist.get_world_size() > 1
        self._talk = None
        if not (self._spread and dist.get_rank()):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(sys.argv[2])
            self._talk = connection.makefile("rw", buffering=1)
        self._left, self._seconds, self._start = 0, [0.0], 0.0

    def go(self) -> bool:
        """Wait until there is a round to run; False if there are no more."""
        if self._talk and not self._left:
            self._left, self._seconds = int(self._talk.readline()), []
        more = torch.tensor(self._left)
        if self._spread:
            dist.broadcast(more, 0)
        self._start = self._federation.now
        return bool(more)

    def done(self, seconds: float | None = None) -> None:
        """The round is over; it took so long, by default since `go`."""
        self._seconds.append(self._federation.now - self._start if seconds is None else seconds)
        self._left -= 1
        if self._talk and not self._left:
            print(json.dumps(self._seconds), file=self._talk)

    def finish(self, weights: dict[str, np.ndarray]) -> None:
        """Hand over the server's model."""
        if self._talk:
            np.savez(Path(sys.argv[3]), **weights)
            print("saved", file=self._talk)


def arrays_of(model: nn.Module) -> dict[str, np.ndarray]:
    """A model's weights by name."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in model.state_dict().items()}
