"""Gossip averaging against mixing by hand, and its graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx
import numpy as np
import pytest

from models.networks.parts import TRAINABLE
from network.algorithms.gossip import Gossip
from network.engine.simulation import Simulation
from network.settings import SimulationSettings
from network.topologies import TOPOLOGIES, metropolis_weights, spectral_gap
from tests.network import quadratic as q
from tests.network.spread import Normed
from utils.errors import UserError
from utils.streams import derived_seed

FOUR = [np.array([0, 1]), np.array([2, 3]), np.array([4, 5]), np.array([6, 7])]  # of equal size
HELD_OUT = [np.array([8]), np.array([9]), np.array([10]), np.zeros(0, np.int64)]


def gossip(folder: Path, **arguments: object) -> Simulation:
    return q.trained(q.method("gossip", **arguments), folder, clients=FOUR, held_out=HELD_OUT)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_weights_are_doubly_stochastic_and_follow_the_edges(name: str) -> None:
    graph = TOPOLOGIES[name](12, 4, 0)
    assert sorted(graph.nodes) == list(range(12)) and networkx.is_connected(graph)
    for clients in (list(range(12)), [0, 3, 4, 7, 11]):  # all, or those that are awake
        weights = metropolis_weights(graph, clients, 12)
        square = weights[:, clients]
        assert np.allclose(weights.sum(axis=1), 1.0) and np.allclose(square.sum(axis=0), 1.0)
        assert (weights >= 0).all() and np.allclose(square, square.T) and weights.sum() == pytest.approx(square.sum())
        edges = {(clients[i], j) for i, j in zip(*np.nonzero(weights), strict=True) if clients[i] != j}
        assert edges == {(i, j) for i, j in [*graph.edges, *((b, a) for a, b in graph.edges)] if {i, j} <= set(clients)}


def test_graphs_are_what_they_are_called() -> None:
    degrees = {name: sorted(dict(TOPOLOGIES[name](12, 5, 0).degree()).values()) for name in TOPOLOGIES}
    assert degrees == {"ring": [2] * 12, "torus": [4] * 12, "random_regular": [5] * 12, "complete": [11] * 12,
                       "star": [1] * 11 + [11]}  # fmt: skip
    drawn = [set(TOPOLOGIES["random_regular"](12, 4, seed).edges) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("degree", [38, 48, 49])
def test_dense_graphs_are_drawn_at_once(degree: int) -> None:
    """Pairing at random hardly ever ends where nearly all are neighbours."""
    drawn = [TOPOLOGIES["random_regular"](50, degree, seed) for seed in (0, 0, 1)]
    assert all({n for _, n in graph.degree()} == {degree} and len(graph) == 50 for graph in drawn)
    edges = [set(map(frozenset, graph.edges)) for graph in drawn]
    assert edges[0] == edges[1] and (edges[1] != edges[2]) == (degree < 49)


@pytest.mark.parametrize(("n", "edges"), [(5, 10), (6, 12), (12, 24)])
def test_four_neighbours_are_those_that_networkx_pairs(n: int, edges: int) -> None:
    graph = TOPOLOGIES["random_regular"](n, 4, 7)
    drawn = networkx.random_regular_graph(4, n, seed=derived_seed("topology", 7, 0))
    assert set(map(frozenset, graph.edges)) == set(map(frozenset, drawn.edges)) and graph.number_of_edges() == edges


def test_spectral_gap_of_a_ring_is_its_closed_form() -> None:
    weights = metropolis_weights(TOPOLOGIES["ring"](10, 0, 0), list(range(10)), 10)
    assert spectral_gap(weights) == pytest.approx(1 - (1 + 2 * np.cos(2 * np.pi / 10)) / 3)
    complete = metropolis_weights(TOPOLOGIES["complete"](5, 0, 0), list(range(5)), 5)
    assert np.allclose(complete, 0.2) and spectral_gap(complete) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"topology": "torus"}, "--topology torus: 10 clients are no rows and columns of 3 or more"),
        ({"topology": "random_regular", "degree": 10}, "no graph connects 10 clients with --degree 10 neighbours each"),
        ({"topology": "random_regular", "degree": 1}, "no graph connects 10 clients with --degree 1 neighbours each"),
    ],
)
def test_graphs_that_cannot_be_are_refused(arguments: dict[str, object], line: str) -> None:
    with pytest.raises(UserError, match=line):
        bound(**arguments).check_clients(10)


def bound(**arguments: object) -> Gossip:
    """The method with these arguments, bound to the tests' usual settings."""
    made = q.method("gossip", **arguments)
    made.bind(q.SETTINGS, SimulationSettings(1))
    return made


def test_rounds_on_a_ring_are_those_by_hand(tmp_path: Path) -> None:
    run = gossip(tmp_path, topology="ring")
    models = [q.START.astype(float) for _ in range(4)]
    for _ in range(2):
        trained = [q.descend(model, images) for model, images in zip(models, FOUR, strict=True)]
        models = [(trained[i] + trained[i - 1] + trained[(i + 1) % 4]) / 3 for i in range(4)]
    assert all(q.close(q.model_of(run, client), models[client]) for client in range(4))
    mean = np.mean(models, axis=0)
    expected = np.sqrt(np.mean([((model - mean) ** 2).sum() for model in models]))
    assert run.rows[-1]["consensus_distance"] == pytest.approx(expected, rel=1e-5)
    assert run.rows[-1]["neighbours"] == 2.0 and run.rows[-1]["bytes_up"] == 2 * 10 * 4
    assert not run.has_global and any("spectral gap is 0.667" in line for line in run.algorithm.notes(run.rows))


def test_what_clients_keep_of_batch_norm_is_not_counted_as_sent(tmp_path: Path) -> None:
    """Ten weights go to each of two neighbours; with `averaged`, 20 numbers of the norm and a count of batches, too."""
    sent = {}
    for kind in ("averaged", "local"):
        run = q.simulation(
            q.method("gossip"),
            tmp_path / kind,
            model=Normed(),
            clients=FOUR,
            held_out=HELD_OUT,
            batch_norm=kind,
        )
        row = run._train_round(0)
        sent[kind] = row["bytes_up"], row["bytes_down"]
    assert sent == {"averaged": (2 * (30 * 4 + 8),) * 2, "local": (2 * 10 * 4,) * 2}


def test_the_consensus_is_measured_where_models_are_evaluated(tmp_path: Path) -> None:
    """Every second round and the last one, over parameters alone."""
    run = q.simulation(
        q.method("gossip"),
        tmp_path,
        replace(q.SETTINGS, n_rounds=3),
        Normed(),
        clients=FOUR,
        held_out=HELD_OUT,
        evaluate_every=2,
        clients_per_round=2,
    )
    run.train()
    assert [round for round, row in enumerate(run.rows) if "consensus_distance" in row] == [0, 2, 3]
    assert run.rows[0]["consensus_distance"] == 0.0
    names = [name for name, _ in run.model.named_parameters()]
    vectors = [
        np.concatenate([run.trainer.start(run.states.load(client), run.server)[name].numpy() for name in names])
        for client in range(4)
    ]
    apart = ((vectors - np.mean(vectors, axis=0, dtype=float)) ** 2).sum(axis=1)
    assert run.rows[-1]["consensus_distance"] == pytest.approx(np.sqrt(apart.mean()), rel=1e-5)


def test_the_complete_graph_is_fedavg_with_clients_of_equal_size(tmp_path: Path) -> None:
    complete = gossip(tmp_path / "complete", topology="complete")
    fedavg = q.trained(q.method("fedavg"), tmp_path / "fedavg", clients=FOUR, held_out=HELD_OUT)
    assert all(q.close(q.model_of(complete, client), q.server_of(fedavg), 1e-6) for client in range(4))
    assert complete.rows[-1]["consensus_distance"] == pytest.approx(0.0, abs=1e-6)
    assert complete.rows[-1]["personal_train_loss_mean"] == pytest.approx(fedavg.rows[-1]["train_loss_mean"], rel=1e-5)


def test_sleeping_clients_keep_their_models_and_the_mean_stays(tmp_path: Path) -> None:
    run = q.simulation(
        q.method("gossip", topology="ring"), tmp_path, clients=FOUR, held_out=HELD_OUT, clients_per_round=2
    )
    awake = sorted(run.cohort(0))
    run._train_round(0)
    for client in set(range(4)).difference(awake):
        assert q.close(q.model_of(run, client), q.START)
    trained = {client: q.descend(q.START, FOUR[client]) for client in awake}
    together = awake in ([0, 1], [1, 2], [2, 3], [0, 3])
    mean = np.mean(list(trained.values()), axis=0)
    for client in awake:
        assert q.close(q.model_of(run, client), mean if together else trained[client])


def test_models_that_do_not_fit_into_the_memory_are_mixed_in_parts(tmp_path: Path) -> None:
    runs = [
        q.trained(q.method("gossip"), tmp_path / str(memory), clients=FOUR, held_out=HELD_OUT, memory=memory)
        for memory in (1 << 30, 1)
    ]
    assert all((q.model_of(runs[0], client) == q.model_of(runs[1], client)).all() for client in range(4))


def test_seed_and_part_come_from_the_run() -> None:
    method = q.method("gossip", topology="random_regular")
    method.bind(replace(q.SETTINGS, train="decoder"), SimulationSettings(3, batch_norm="local"))
    assert set(method._graph_of(8).edges) == set(TOPOLOGIES["random_regular"](8, 4, 3).edges)
    assert method._trained == TRAINABLE["decoder"] and method._own_norm
