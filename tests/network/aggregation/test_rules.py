"""Robust rules against NumPy, SciPy and closed forms, and what all of them have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from scipy.optimize import minimize
from scipy.stats import trim_mean

from network.aggregation import AGGREGATIONS, MEAN, kept_uploads
from network.aggregation.kept_uploads import KeptUploads
from network.aggregation.weighted_sum import Surroundings
from utils.errors import UserError

N, SHAPE = 9, (4, 5)
ROBUST = [name for name in AGGREGATIONS if name != MEAN]


def rows(n: int = N, seed: int = 0) -> np.ndarray:
    """Changes of n clients, (n, 20), the last two of which are far away."""
    drawn = np.random.default_rng(seed).normal(size=(n, 20)).astype(np.float32)
    drawn[-2:] += 30.0
    return drawn


def kept(
    name: str, folder: Path, memory: int = 1 << 30, buffers: Sequence[str] = (), **arguments: object
) -> KeptUploads:
    within = Surroundings(Accelerator(cpu=True), buffers=buffers, reported=("loss",), folder=folder, memory=memory)
    return AGGREGATIONS[name].from_config(arguments).uploads(within)


def aggregate(
    uploads: KeptUploads,
    changes: np.ndarray,
    order: Sequence[int] | None = None,
    server: dict[str, torch.Tensor] | None = None,
) -> np.ndarray:
    """What becomes of clients that start from this server, by default 0, and change it so."""
    server = server or {"w": torch.zeros(SHAPE)}
    uploads.clear(server)
    for client in order or range(len(changes)):
        w = server["w"] + torch.from_numpy(changes[client]).view(SHAPE)
        uploads.add({"w": w, "loss": torch.tensor(float(client))}, float(1 + client), client)
    weights = 1.0 + np.arange(len(changes))
    mean = uploads.mean(float(weights.sum()))
    assert float(mean["loss"]) == pytest.approx(np.average(np.arange(len(changes)), weights=weights))
    assert mean["w"].shape == SHAPE and mean["w"].dtype == torch.float64
    return (mean["w"] - server["w"]).numpy().ravel()


@pytest.mark.parametrize("n", [1, 2, 8, 9])
def test_median_is_that_of_numpy(tmp_path: Path, n: int) -> None:
    assert np.allclose(
        aggregate(kept("median", tmp_path), rows(n)), np.median(rows(n).astype(float), axis=0), atol=1e-12
    )


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.29, 0.45])
def test_trimmed_mean_is_that_of_scipy(tmp_path: Path, share: float) -> None:
    changes = rows(100)
    found = aggregate(kept("trimmed_mean", tmp_path, trim_share=share), changes)
    exact = {0.29: 29 / 100}.get(share, share) + 1e-12
    assert np.allclose(found, trim_mean(changes.astype(float), exact), atol=1e-12)


def scores(changes: np.ndarray, f: int) -> np.ndarray:
    """Krum's, by its definition."""
    found = []
    for i, change in enumerate(changes.astype(float)):
        distances = sorted(((change - other) ** 2).sum() for j, other in enumerate(changes) if j != i)
        found.append(sum(distances[: len(changes) - f - 2]))
    return np.array(found)


@pytest.mark.parametrize(("assumed", "f"), [(0.2, 2), (3.0, 3), (0.0, 0)])
def test_krum_takes_the_lowest_score_and_says_whose_it_is(tmp_path: Path, assumed: float, f: int) -> None:
    uploads = kept("krum", tmp_path, assumed_attackers=assumed)
    best = int(scores(rows(), f).argmin())
    assert np.allclose(aggregate(uploads, rows()), rows()[best], atol=1e-6)
    assert uploads.metrics == {"chosen": str(best)}


def test_krums_score_by_hand(tmp_path: Path) -> None:
    """Of five clients and one attacker, the two closest count: 1 + 1 for the second, 0.81 + 1 for the third."""
    line = np.zeros((5, 20), np.float32)
    line[:, 0] = 0.0, 1.0, 2.0, 2.9, 10.0  # with the three closest, the second would be best
    uploads = kept("krum", tmp_path, assumed_attackers=1.0)
    assert aggregate(uploads, line)[0] == pytest.approx(2.0) and uploads.metrics == {"chosen": "2"}


def test_of_equal_scores_krum_takes_those_of_the_lower_clients_whoever_comes_first(tmp_path: Path) -> None:
    corners = np.zeros((4, 20), np.float32)  # of a square: all have two neighbours at a distance of 1
    corners[[1, 3], 0], corners[[2, 3], 1] = 1.0, 1.0
    for name, asked, chosen in (("krum", {}, [0]), ("multi_krum", {"n_chosen": 3}, [0, 1, 2])):
        uploads = kept(name, tmp_path, assumed_attackers=0.0, **asked)
        found = aggregate(uploads, corners, order=[2, 0, 3, 1])
        assert np.allclose(found, corners[chosen].mean(axis=0))
        assert uploads.metrics["chosen"] == " ".join(map(str, chosen))


def test_multi_krum_averages_the_lowest_scores(tmp_path: Path) -> None:
    order = scores(rows(), 2).argsort()
    for given, n in ((None, 7), (3, 3)):
        uploads = kept("multi_krum", tmp_path, n_chosen=given)
        assert np.allclose(aggregate(uploads, rows()), rows()[order[:n]].astype(float).mean(axis=0), atol=1e-6)
        assert uploads.metrics["chosen"] == " ".join(map(str, sorted(order[:n])))


def test_krum_refuses_too_few_clients_in_a_line() -> None:
    rule = AGGREGATIONS["krum"](assumed_attackers=4.0)
    rule.check_clients(11)
    with pytest.raises(
        UserError, match="with 4 attackers, Krum needs 11 clients per round, and there are 10; give a sm"
    ):
        rule.check_clients(10)
    with pytest.raises(UserError, match="--n_chosen 6 is more than the 5 clients per round"):
        AGGREGATIONS["multi_krum"](n_chosen=6).check_clients(5)


def test_geometric_median_minimises_the_sum_of_distances(tmp_path: Path) -> None:
    changes = rows().astype(float)

    def sum_of_distances(z: np.ndarray) -> float:
        return float(np.linalg.norm(changes - z, axis=1).sum())

    found = aggregate(kept("geometric_median", tmp_path), rows())
    best = minimize(sum_of_distances, changes.mean(axis=0), method="BFGS", options={"gtol": 1e-9})
    assert sum_of_distances(found) <= best.fun + 1e-6 and np.allclose(found, best.x, atol=1e-3)
    same = np.repeat(rows(1), 4, axis=0)
    assert np.allclose(aggregate(kept("geometric_median", tmp_path), same), same[0], atol=1e-6)


def test_geometric_median_of_points_on_a_line_is_their_median(tmp_path: Path) -> None:
    line = np.outer([0.0, 1.0, 2.0, 30.0, 80.0], np.ones(20)).astype(np.float32)
    assert np.allclose(aggregate(kept("geometric_median", tmp_path), line), 2.0, atol=1e-4)


@pytest.mark.parametrize("radius", [1.0, 1e6])
def test_centered_clipping_is_the_papers_iteration_and_remembers(tmp_path: Path, radius: float) -> None:
    uploads = kept("centered_clipping", tmp_path, clip_radius=radius, clip_steps=4)
    server, v = {"w": torch.zeros(SHAPE)}, np.zeros(20)
    for round in range(3):
        changes = rows(seed=round)
        for _ in range(4):
            apart = changes - v
            factors = np.minimum(1.0, radius / np.linalg.norm(apart, axis=1))
            v = v + (apart * factors[:, None]).mean(axis=0)
        assert np.allclose(aggregate(uploads, changes, server=server), v, atol=1e-4)
        server |= uploads.state
    if radius == 1e6:
        assert np.allclose(v, rows(seed=2).mean(axis=0), atol=1e-5)


def test_centered_clipping_clips_half_of_the_clients_by_default(tmp_path: Path) -> None:
    radius = np.median(np.linalg.norm(rows().astype(float), axis=1))
    ways = [aggregate(kept("centered_clipping", tmp_path, clip_radius=r), rows()) for r in (None, float(radius))]
    assert np.allclose(*ways, atol=1e-6)


@pytest.mark.parametrize("name", ROBUST)
def test_order_and_place_of_uploads_change_no_bit(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the disk, nor blocks of a few columns, by which only sums over columns are rounded otherwise."""
    plain = aggregate(kept(name, tmp_path), rows())
    assert (aggregate(kept(name, tmp_path), rows(), order=[*range(N)][::-1]) == plain).all()
    for memory in (0, 3 * 80):
        assert (aggregate(kept(name, tmp_path / "disk", memory=memory), rows()) == plain).all()
    assert not list((tmp_path / "disk").iterdir())  # the file has no name
    monkeypatch.setattr(kept_uploads, "_BLOCK", 3 * N)
    assert np.allclose(aggregate(kept(name, tmp_path), rows()), plain, rtol=1e-9)


@pytest.mark.parametrize("name", ROBUST)
def test_rules_move_with_what_clients_start_from_and_leave_out_the_far_ones(tmp_path: Path, name: str) -> None:
    at = {"w": torch.from_numpy(np.random.default_rng(3).normal(size=SHAPE).astype(np.float32))}
    found = aggregate(kept(name, tmp_path, trim_share=0.25), rows(), server=at)
    assert np.allclose(found, aggregate(kept(name, tmp_path, trim_share=0.25), rows()), atol=1e-5)
    honest = rows()[:-2].mean(axis=0)
    assert np.linalg.norm(found - honest) < 0.4 * np.linalg.norm(rows().mean(axis=0) - honest)


@pytest.mark.parametrize("name", ROBUST)
def test_rules_that_look_twice_at_uploads_read_the_servers_tensors_once(tmp_path: Path, name: str) -> None:
    class Counted(dict[str, torch.Tensor]):
        reads = 0

        def __getitem__(self, key: str) -> torch.Tensor:
            self.reads += 1
            return super().__getitem__(key)

    server, uploads = Counted(w=torch.ones(SHAPE)), kept(name, tmp_path)
    uploads.clear(server)
    for client, change in enumerate(rows()):
        uploads.add({"w": torch.from_numpy(change).view(SHAPE), "loss": torch.tensor(1.0)}, 1.0, client)
    uploads.mean(float(N))
    assert server.reads == 1


def test_buffers_count_in_no_distance_and_follow_the_weights(tmp_path: Path) -> None:
    uploads = kept("krum", tmp_path, buffers=("norm.running_var", "norm.n"))
    uploads.clear({"w": torch.zeros(5), "norm.running_var": torch.ones(2), "norm.n": torch.tensor(4)})
    for client, value in enumerate((-8.0, -1.0, 0.0, 1.0, 8.0)):
        far = 1e6 if client == 2 else 1.0
        norm = {"norm.running_var": torch.full((2,), far), "norm.n": torch.tensor(7 + client)}
        uploads.add(norm | {"w": torch.full((5,), value), "loss": torch.tensor(0.0)}, 1.0, client)
    mean = uploads.mean(5.0)
    assert uploads.metrics == {"chosen": "2"}
    assert mean["norm.running_var"].tolist() == [1e6, 1e6] and mean["norm.n"] == 9


def test_centered_clipping_keeps_buffers_among_what_clients_have(tmp_path: Path) -> None:
    """A variance that has fallen quickly does not go on falling below 0, however much of v_0 a small radius leaves."""
    uploads = kept("centered_clipping", tmp_path, buffers=("norm.running_var",), clip_radius=0.05)
    server = {"w": torch.zeros(5), "norm.running_var": torch.ones(2)}
    for length in (0.01, 10.0, 10.0):  # at first no change is clipped, then nearly all of each is
        uploads.clear(server)
        for client in range(3):
            w = server["w"] + length * (1.0 + client)
            uploads.add({"w": w, "norm.running_var": torch.full((2,), 0.05), "loss": torch.tensor(0.0)}, 1.0, client)
        mean = uploads.mean(3.0)
        found, before = mean["norm.running_var"], server["norm.running_var"].double()
        assert ((found > 0.04) & (found <= before)).all()
        server |= {name: mean[name].float() for name in ("w", "norm.running_var")} | uploads.state


def test_a_round_in_which_nothing_travels_has_its_loss(tmp_path: Path) -> None:
    uploads = kept("krum", tmp_path)
    uploads.add({"loss": torch.tensor(2.0)}, 3.0, 1)
    assert {name: float(value) for name, value in uploads.mean(3.0).items()} == {"loss": 2.0}
