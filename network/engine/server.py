"""The server between clients' work, as the hooks of a method see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from network.engine.state import ClientStates

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class ServerContext:
    """What the hooks that every process calls for the server have at hand: `ClientContext` is what a client's have.

    `model` is the architecture, whose weights are anybody's; `server` holds the server's tensors by their names, those
    of the model and what the method adds. `states` are what the clients of this process keep between rounds. `total`
    sums a tensor over the processes; all of them must call it.
    """

    model: nn.Module
    server: Mapping[str, Tensor]
    states: ClientStates
    total: Callable[[Tensor], Tensor]
