"""What methods have in common that no server takes part in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from network.engine.client import ClientRound
    from network.engine.server import ServerContext


class WithoutServer:
    """Every client keeps a whole model of its own; what clients do among themselves is in two hooks more.

    The engine, which simulates all clients, calls them in the server's place, in all processes.
    """

    no_uploads: ClassVar[str] = "nothing travels"

    def is_shared(self, name: str) -> bool:
        """Nothing goes through a server."""
        return False

    def end_round(self, cohort: Mapping[int, ClientRound], context: ServerContext) -> None:
        """What happens after clients have trained; `cohort` lacks the clients whose loss was not finite."""

    def measured(self, context: ServerContext) -> dict[str, float]:
        """Further columns of the metrics where models are evaluated, the same in all processes."""
        return {}
