"""The rules by which images are assigned to clients.

A partitioner takes one group id per image: a cluster of embeddings, a scene class or a building, -1 for images that
are not to be assigned. It returns each image's client, int32, -1 for images without a client. Since every image has
one client, none can be assigned twice. All partitioners have the signature of `dirichlet.paper` and take bounded time.
They give every client at least one image, or name the demand that cannot be met. Time and memory grow with the number
of images plus clients times groups.

>>> groups = np.repeat([0, 1, 2, 3], 100)
>>> client_of = equal_size(groups, n_clients=5, alpha=0.1, rng=np.random.default_rng(0))
>>> np.bincount(client_of).tolist()
[80, 80, 80, 80, 80]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from network.partition.dirichlet import dirichlet_hsu, dirichlet_per_class, equal_size, paper, quantity_skew
from network.partition.without_alpha import commonest_object, iid, natural, one_group, shards, split_groups
from utils.args import POSITIVE_INT, boolean, number
from utils.arguments import Argument


@dataclass(frozen=True)
class Rule:
    """A partitioner and its properties.

    Attributes:
        assign: the partitioner.
        arguments: its own command-line arguments, by the names of `assign`'s parameters.
        uses_alpha: whether it depends on alpha.
        client_per_group: whether it allows `--n_clients auto`: as many clients as groups.
        by_choice: whether it is chosen for leaving images out, so that these are never too many.
        version: raised by one where it assigns otherwise than before.
    """

    assign: Callable[..., np.ndarray]
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    uses_alpha: bool = True
    client_per_group: bool = False
    by_choice: bool = False
    version: int = 1

    def __call__(
        self,
        groups: np.ndarray,
        n_clients: int,
        alpha: float,
        rng: np.random.Generator,
        min_size: int | None = None,
        **options: Any,
    ) -> np.ndarray:
        """Each image's client, as from `dirichlet.paper`; `options` are values of `arguments`, by default theirs."""
        defaults = {name: argument.default for name, argument in self.arguments.items()}
        return self.assign(groups, n_clients, alpha, rng, min_size, **defaults | options)


def counts(text: str) -> list[int]:
    """An argparse type: integers separated by commas."""
    return [number(int, least=0)(word) for word in text.split(",")]


PARTITIONERS: dict[str, Rule] = {
    "paper": Rule(paper),
    "equal_size": Rule(equal_size),
    "dirichlet_hsu": Rule(dirichlet_hsu),
    "dirichlet_per_class": Rule(
        dirichlet_per_class,
        {
            "balanced": Argument(
                True,
                "whether a client that has an equal share of all images gets nothing of further groups",
                boolean,
                recorded=False,
            )
        },
    ),
    "shards": Rule(shards, {"shards_per_client": Argument(2, "pieces per client", POSITIVE_INT)}, uses_alpha=False),
    "natural": Rule(natural, uses_alpha=False, client_per_group=True, version=2),
    "quantity_skew": Rule(quantity_skew),
    "iid": Rule(iid, uses_alpha=False),
    "one_group": Rule(one_group, uses_alpha=False, by_choice=True),
    "split_groups": Rule(
        split_groups,
        {
            "clients_per_group": Argument(
                None, "number of clients that share each group, such as 1,3,2,4; default: the same for all", counts
            ),
            "client_share": Argument(1.0, "largest share of its group for a client", number(float, above=0, most=1)),
        },
        uses_alpha=False,
        by_choice=True,
    ),
    "commonest_object": Rule(commonest_object, uses_alpha=False),
}
WITHOUT_ALPHA = frozenset(name for name, rule in PARTITIONERS.items() if not rule.uses_alpha)


def rule_of(split: str, partition: str) -> str:
    """The rule that assigns a `--type` with this `--partition`: an IID partition has its own."""
    return "iid" if split == "iid" else partition


def uses_alpha(split: str, partition: str | None) -> bool:
    """Whether a `--type` that is assigned by this `--partition` depends on alpha; None is that of a run from before it.

    >>> uses_alpha("class_based", "paper"), uses_alpha("iid", "paper"), uses_alpha("object_based", "commonest_object")
    (True, False, False)
    """
    return rule_of(split, partition or "paper") not in WITHOUT_ALPHA
