"""FedPer."""

from __future__ import annotations

from network.algorithms.fedavg import FedAvg
from utils.settings import setting

PERSONAL_PARTS = {"head": "decoder.head.", "decoder": "decoder."}


class FedPer(FedAvg):
    """A personal head on a shared body: Arivazhagan et al. 2019 (arXiv 1912.00818), algorithms 1 and 2.

    | symbol | argument |
    |---|---|
    | W_P, the personalisation layers | `--personal_part`: the decoder's head, or the whole decoder |

    Both parts are trained together; only the body travels and is averaged. A client that has not taken part yet is
    evaluated with the initial personal part, and a non-participating client gets it with the server's body: a fresh
    head to be adapted.
    There is no global model.
    """

    personal_part: str = setting("head", "what stays with the client", choices=tuple(PERSONAL_PARTS))

    def is_shared(self, name: str) -> bool:
        """All but the personal part travels."""
        return not name.startswith(PERSONAL_PARTS[self.personal_part])
