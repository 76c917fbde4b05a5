"""The classifier on the encoder's vector."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class LinearDecoder(nn.Module):
    """A linear layer from the encoder's vector, or from a bottleneck of fewer numbers before it, to the classes.

    The embedding is what the last layer sees. Bottleneck: Hsu et al. 2020 (arXiv 2003.08082), of 64 numbers.

    Args:
        in_features: length of the encoder's vector.
        n_classes: length of the output.
        bottleneck: numbers of the layer between, None for none.
    """

    def __init__(self, in_features: int, n_classes: int, bottleneck: int | None = None) -> None:
        super().__init__()
        self.bottleneck: nn.Module = nn.Linear(in_features, bottleneck) if bottleneck else nn.Identity()
        self.head = nn.Linear(bottleneck or in_features, n_classes)
        self.embedding_shape = (bottleneck or in_features,)

    def forward(self, encoded: Tensor, maps: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
        """Embedding (B, E) and logits (B, n_classes); the maps are not looked at."""
        embedding = self.bottleneck(encoded)
        return embedding, self.head(embedding)
