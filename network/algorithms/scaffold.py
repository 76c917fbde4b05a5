"""SCAFFOLD."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from network.algorithms.fedavg import FedAvg
from network.engine.client import ClientContext, Phase
from network.engine.state import add_prefix, strip_prefix, zeros
from network.settings import LocalSettings, SimulationSettings
from utils.args import POSITIVE
from utils.errors import UserError
from utils.settings import setting

if TYPE_CHECKING:
    from torch import Tensor, nn


class Scaffold(FedAvg):
    """Control variates against client drift: Karimireddy et al. 2020 (arXiv 1910.06378), algorithm 1.

    | symbol | argument |
    |---|---|
    | eta_g | `--server_lr` (1, as in the paper's experiments) |
    | option I or II for c_i | `--scaffold_option` (2: no extra pass over the data; 1 with `--use_adam True`) |
    | K, eta_l | the local work and `--init_lr` |

    Clients follow g_i(y) - c_i + c. Option I sets c_i to the gradient over all images of the client at the server's
    model, option II to c_i - c + (x - y_i) / (K eta_l): the mean gradient of the round. K eta_l is measured as the
    effective steps of the local optimiser: the same for plain SGD, and also right under momentum and changing
    learning rates. Adam's steps are not proportional to its gradients, so Adam allows option I only (UserError for II).

    In the paper, all clients have the same weight. Here they are weighted by their numbers of images, both in x and in
    c = sum_i n_i/n c_i, so that the method aims at the same optimum as FedAvg; with clients of equal size, both are as
    in the paper. A client that is left out of a round because its loss is not finite keeps its c_i and does not change
    c.
    """

    title = "SCAFFOLD"
    server_lr: float = setting(1.0, "server's learning rate", POSITIVE)
    scaffold_option: int = setting(None, "option I or II for c_i; default: 2, or 1 with Adam", int, choices=(1, 2))
    only_mean: ClassVar[str] = "changes of control variates are summed over clients"

    def bind(self, local_settings: LocalSettings, settings: SimulationSettings) -> None:
        """Choose the option where none was given."""
        adam = local_settings.use_adam
        if adam and self.scaffold_option == 2:
            raise UserError("--scaffold_option 2 needs steps proportional to gradients; with --use_adam True give 1")
        self.scaffold_option = self.scaffold_option or (1 if adam else 2)

    def is_summed(self, name: str) -> bool:
        """Changes of c_i are summed: together they are the change of c."""
        return name.startswith("control.")

    def server_state(self, model: nn.Module) -> dict[str, Tensor]:
        """c, initially 0."""
        return add_prefix("control", zeros(model))

    def local_update(self, local: ClientContext) -> Iterator[Phase]:
        """Train with the correction c - c_i, then compute the next c_i and its change."""
        import torch

        names, c = local.shared_parameters(), strip_prefix("control", local.server)
        own = strip_prefix("control", local.state) or {name: torch.zeros_like(c[name]) for name in names}
        correction = local.scratch["correction"] = {name: c[name] - own[name] for name in names}
        if self.scaffold_option == 1:
            gradient = local.gradient()
            local.load(local.start)  # the pass has moved batch norm's statistics
        yield Phase(local.client_round.n_steps)
        if self.scaffold_option == 2:
            moved = {name: (local.start[name] - local.tensors[name]) / local.effective_steps_of(name) for name in names}
            gradient = {name: moved[name] - correction[name] for name in names}
        local.scratch["change"] = {name: gradient[name] - own[name] for name in names}
        local.state |= add_prefix("control", {name: gradient[name] for name in names})

    def correct(self, gradients: list[Tensor], local: ClientContext) -> None:
        """Add c - c_i."""
        import torch

        correction = local.scratch["correction"]
        shared = [g for name, g in zip(local.parameters, gradients, strict=True) if name in correction]
        torch._foreach_add_(shared, list(correction.values()))

    def upload(self, local: ClientContext) -> dict[str, Tensor]:
        """The model, and the client's part of the change of c."""
        changes = {
            name: local.client_round.client_fraction * change for name, change in local.scratch["change"].items()
        }
        return super().upload(local) | add_prefix("control", changes)

    def received(self, server: Mapping[str, Tensor], shared: Collection[str]) -> Collection[str]:
        """Clients get c as well."""
        return [*shared, *(f"control.{name}" for name in shared if f"control.{name}" in server)]

    def server_step(self, server: Mapping[str, Tensor], mean: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """x + eta_g (mean - x), and c + the change of c; buffers are averaged."""
        controls = add_prefix("control", strip_prefix("control", mean))
        moved = dict(mean)
        for name, value in mean.items():
            if name in controls:
                moved[name] = server[name] + value
            elif f"control.{name}" in server:
                moved[name] = server[name] + self.server_lr * (value - server[name])
        return super().server_step(server, moved)
