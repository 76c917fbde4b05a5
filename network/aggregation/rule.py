"""What the ways to make one model of a round's uploads have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from network.aggregation.weighted_sum import Surroundings, Uploads
from utils.settings import Configured

if TYPE_CHECKING:
    from torch import Tensor

    from network.aggregation.kept_uploads import KeptUploads


class Aggregation(Configured, ABC):
    """A way to make one model of a round's uploads.

    Fields that are settings are arguments. `title` is its name in figures, where that is not the class's name.
    `version` is raised by one, from 1, where its numbers change.
    """

    version: ClassVar[int] = 1
    title: ClassVar[str] = ""

    @classmethod
    def label(cls) -> str:
        """Its name in figures."""
        return cls.title or cls.__name__

    def check_clients(self, n_clients: int) -> None:
        """Raise UserError if the arguments do not fit rounds of this many clients."""

    @abstractmethod
    def uploads(self, within: Surroundings) -> Uploads:
        """What takes the uploads of a round and puts them together."""


class Robust(Aggregation):
    """A rule that looks at single uploads, as changes of what clients started from: (n, P) for n clients.

    Every client counts the same. In the mean, a client's weight is the number of images that it says it has, and an
    attacker may say any number; so robust rules do not ask for it. A client that was drawn twice counts once.
    """

    remembers: ClassVar[bool] = False  # whether the last row is the round before's aggregate, without buffers

    def uploads(self, within: Surroundings) -> KeptUploads:
        """Keeps the uploads until all are there."""
        from network.aggregation.kept_uploads import KeptUploads

        return KeptUploads(self, within)

    @abstractmethod
    def aggregate(self, uploads: KeptUploads) -> Tensor:
        """The change (P,) in double precision that is made of all clients' changes."""

    def metrics(self, uploads: KeptUploads) -> dict[str, str]:
        """Columns of the round's metrics."""
        return {}


class CoordinateWise(Robust):
    """A rule that makes each number of the change of the same number of all clients."""

    def aggregate(self, uploads: KeptUploads) -> Tensor:
        """`of` of each block."""
        import torch

        return torch.cat([self.of(block) for block in uploads.blocks()])

    @abstractmethod
    def of(self, block: Tensor) -> Tensor:
        """The numbers (B,) made of (n, B)."""


class ByDistance(Robust):
    """A rule that weights whole changes by the distances between them.

    All that it needs to know of n changes of any length are their inner products (n, n), from which distances between
    any weighted sums of the changes follow. Buffers count in no distance and are weighted like the rest.
    """

    def aggregate(self, uploads: KeptUploads) -> Tensor:
        """The sum of the changes, weighted by `coefficients`."""
        import torch

        products = sum((block @ block.T for block in uploads.blocks(compared=True)), torch.zeros(()))
        self._coefficients = self.coefficients(products)
        return torch.cat([self._coefficients @ block for block in uploads.blocks()])

    @abstractmethod
    def coefficients(self, products: Tensor) -> Tensor:
        """The weight (n,) of each change, from their inner products (n, n); double precision both."""


class Chooses(ByDistance):
    """A rule that keeps some clients' changes and leaves out the others; the round's metrics say whose it keeps."""

    def metrics(self, uploads: KeptUploads) -> dict[str, str]:
        """The numbers of the chosen clients, with spaces between them, as `chosen`."""
        chosen: Sequence[int] = self._coefficients.nonzero().flatten().tolist()
        return {CHOSEN: " ".join(str(uploads.clients[i]) for i in chosen)}


CHOSEN = "chosen"


def squared_distances(products: Tensor) -> Tensor:
    """|x_i - x_j|^2 (n, n) from inner products (n, n)."""
    lengths = products.diagonal()
    return (lengths[:, None] + lengths - 2.0 * products).clamp(min=0.0)


def distances_to(products: Tensor, coefficients: Tensor) -> Tensor:
    """|x_i - z| (n,) for z = sum_j c_j x_j, from the inner products of the x (n, n) and c (n,)."""
    inner = products @ coefficients
    return (products.diagonal() - 2.0 * inner + coefficients @ inner).clamp(min=0.0).sqrt()
