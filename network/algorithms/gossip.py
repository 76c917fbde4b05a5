"""Gossip averaging."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from models.networks.parts import TRAINABLE, is_within
from network.aggregation.weighted_sum import sum_type
from network.algorithms.fedavg import FedAvg
from network.algorithms.without_server import WithoutServer
from network.engine.batch_norm import batch_norm_tensors
from network.engine.client import ClientRound
from network.engine.client_models import ClientModels
from network.engine.server import ServerContext
from network.engine.state import add_prefix, strip_prefix
from network.settings import LocalSettings, SimulationSettings
from network.topologies import TOPOLOGIES, metropolis_weights, spectral_gap
from utils.args import POSITIVE_INT
from utils.settings import setting

if TYPE_CHECKING:
    import networkx
    import numpy as np
    from torch import Tensor

    from datasets.task_data import TaskData
    from network.partition.client_images import ClientImages

_MIXED = "mixed"  # the prefix of a client's next model, until all have theirs
_MOST = 2000  # clients of whom the spectral gap is computed


class Gossip(WithoutServer, FedAvg):
    """Averaging among neighbours, without a server: D-PSGD, Lian et al. 2017 (arXiv 1705.09056), algorithm 1.

    | symbol | argument |
    |---|---|
    | G, the graph | `--topology`, see `network/topologies.py`; `--degree` neighbours where it is random |
    | W | Metropolis weights of the graph, doubly stochastic |
    | gamma | `--init_lr` |

    Each client has a model of its own. In a round it trains it as in FedAvg, and then takes the mean over itself and
    its neighbours, x_i <- sum_j W_ij x_j. In the paper, a round has one step, and the gradient at x_i is applied after
    the mean is taken, which it says makes no difference for its analysis; in this order, the complete graph is FedAvg,
    in which all clients count the same. Buffers are mixed like weights. With `--clients_per_round`, the other clients
    sleep: they neither train nor mix, and those that are awake mix along the edges between them.

    Where models are evaluated, the column `consensus_distance` is sqrt(1/n sum_i |x_i - x|^2) over all clients'
    parameters, x being their mean (Kong et al. 2021, arXiv 2102.04828); `neighbours` is the mean number of neighbours
    that mix. There is no global model.
    """

    version: ClassVar[int] = 2
    title = "Gossip averaging"
    topology: str = setting("ring", "who is whose neighbour", choices=tuple(TOPOLOGIES))
    degree: int = setting(4, "neighbours of each client with --topology random_regular", POSITIVE_INT)
    no_uploads: ClassVar[str] = "neighbours mix their models among themselves"

    def bind(self, local_settings: LocalSettings, settings: SimulationSettings) -> None:
        """Take the graph's seed, and what is trained and mixed."""
        self._seed, self._trained = settings.rand_seed, TRAINABLE[local_settings.train]
        self._own_norm = settings.batch_norm == "local"
        self._sent = 0

    def unprotected(self) -> str:
        """There is no server that could add noise."""
        return "neighbours see each other's models"

    def check_clients(self, n_clients: int) -> None:
        """There must be such a graph."""
        self._graph_of(n_clients)

    def prepare(self, data: TaskData, groups: np.ndarray, clients: ClientImages) -> None:
        """Draw the graph."""
        self._graph = self._graph_of(len(clients))

    def start_round(self, cohort: Mapping[int, ClientRound], context: ServerContext) -> dict[str, float]:
        """How many neighbours the clients that are awake have among themselves, on average."""
        neighbours = 2.0 * self._graph.subgraph(cohort).number_of_edges() / len(cohort)
        self._sent = round(neighbours * sum(context.server[name].nbytes for name in self._models(context).names))
        return {"neighbours": neighbours}

    def end_round(self, cohort: Mapping[int, ClientRound], context: ServerContext) -> None:
        """Mix the models of neighbours."""
        import torch

        models, states = self._models(context), context.states
        clients = sorted(cohort)
        device = next(iter(context.server.values())).device
        weights = torch.from_numpy(metropolis_weights(self._graph, clients, states.n_clients))
        models.save_mixed(_MIXED, clients, weights.to(device, sum_type(device)))
        for client in set(clients).intersection(states.of_process):
            state = states.load(client)
            after = strip_prefix(_MIXED, state)
            kept_state = {name: tensor for name, tensor in state.items() if not name.startswith(f"{_MIXED}.")}
            states.save(client, kept_state | add_prefix("own", after))

    def measured(self, context: ServerContext) -> dict[str, float]:
        """How far all clients' models are from their mean."""
        return {"consensus_distance": self._models(context).consensus_distance()}

    def received_model(self, context: ServerContext) -> Mapping[str, Tensor]:
        """The mean of all clients' latest models, which Metropolis weights leave what it is."""
        return dict(context.server) | self._models(context).mean()

    def _models(self, context: ServerContext) -> ClientModels:
        """All clients' models, in what they mix."""
        model = context.model
        own_tensors = batch_norm_tensors(model) if self._own_norm else frozenset()
        mixed = [name for name in model.state_dict() if is_within(self._trained, name) and name not in own_tensors]
        parameters = [name for name, _ in model.named_parameters() if name in mixed]
        others = [name for name in mixed if name not in parameters]
        return ClientModels(context.server, context.states, parameters, others, context.total)

    def traffic(
        self, sent: int, server: Mapping[str, Tensor], shared: Collection[str], trained: Collection[str]
    ) -> tuple[int, int]:
        """All that is mixed to each neighbour, and from each: the mean over the clients of the round."""
        return self._sent, self._sent

    def notes(self, rows: Sequence[Mapping[str, float]]) -> list[str]:
        """How well the graph mixes, and how far apart the models are at the end."""
        n = self._graph.number_of_nodes()
        lines = [f"at the end, the clients' models are {rows[-1]['consensus_distance']:.3g} from their mean"]
        if n <= _MOST:
            gap = spectral_gap(metropolis_weights(self._graph, list(range(n)), n))
            lines.append(f"the graph's spectral gap is {gap:.3f}; 1 mixes at once, 0 never")
        return lines

    def _graph_of(self, n_clients: int) -> networkx.Graph:
        return TOPOLOGIES[self.topology](n_clients, self.degree, self._seed)
