"""Both halves of a deployed round in one process: the server asks participants that have their own folders alone."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from flwr.app import RecordDict
from safetensors.torch import load_file
from torch import Tensor

from datasets.table import read_table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from deploy.messages import read, write
from deploy.participant import RUNS, STAGE, Participant, join, participant
from deploy.server import RemoteClients, _check_values, plan_of
from deploy.settings import DeployedStage, check_no_clusters
from models.networks.task_model import TaskModel
from network.engine.simulation import Simulation
from network.engine.state import VersionLog
from network.provenance import code_version
from tests.deploy.conftest import TASK, WORDS, Shares
from utils.errors import UserError
from utils.runs import Run, load_checkpoint, previous

Tamper = Callable[[str, int, dict, dict[str, Tensor]], tuple[dict, dict[str, Tensor]] | None]


class Here:
    """Clients whose nodes are this process; `tamper` may change what one answers, or keep it back by None."""

    timeout = 1.0

    def __init__(self, shares: Shares, name: str, tamper: Tamper) -> None:
        self.folders = [shares.folder / f"client_{client}" for client in range(3)]
        self.n_clients, self.name, self.tamper = 3, name, tamper
        self.described: dict[int, dict] = {}
        self.of_client: dict[int, Participant] = {}  # as each machine, and not this process, remembers
        self.asked: list[tuple[str, int]] = []
        self.personal: bool | None = None  # of whose models values are wanted

    def greet(self, greeting: RecordDict) -> None:
        for client, folder in enumerate(self.folders):
            self.described[client] = join(folder, False, *read(greeting))
            self.of_client[client] = participant(folder, self.name, False)

    def ask(self, kind: str, contents: Mapping[int, RecordDict], group: str) -> dict[int, RecordDict | str]:
        answers: dict[int, RecordDict | str] = {}
        for client, content in reversed(contents.items()):  # the order in which they answer is of no consequence
            self.asked.append((kind, client))
            self.personal = read(content)[0].get("personal")
            work: Callable = {"train": Participant.train, "evaluate": Participant.evaluate}[kind]
            mine = self.of_client.get(client) or participant(self.folders[client], self.name, False)
            said, tensors = work(mine, *read(content))
            changed = self.tamper(kind, client, said, dict(tensors))
            if changed is not None:
                answers[client] = write(*changed)
        return answers


def untouched(kind: str, client: int, said: dict, tensors: dict[str, Tensor]) -> tuple[dict, dict[str, Tensor]]:
    return said, tensors


def deployed(words: str) -> DeployedStage:
    return DeployedStage.from_args(None, shlex.split(f"{WORDS} {words}"))


def deployment(
    shares: Shares, path: Path, accelerator: Accelerator, more: str = "", tamper: Tamper = untouched, name: str = ""
) -> Simulation:
    stage, model, name = deployed(more), shares.model(), name or uuid4().hex
    federation = stage.federation
    check_no_clusters(federation)
    config = {**stage.config, **model.config.record()}
    nodes = Here(shares, name, tamper)
    greeting = write(plan_of(config, model.config.record(), code_version(STAGE, config), name), model.state_dict())
    nodes.greet(greeting)
    server = server_data(shares, model)
    clients = RemoteClients(server, federation, nodes, name, stage.running.on_missing)
    return Simulation(model, clients.data, federation, accelerator, Run(path), clients)


def remote(run: Simulation) -> RemoteClients:
    return run.trainer._clients


def server_data(shares: Shares, model: TaskModel) -> TaskData:
    return TaskData(read_table(shares.folder / "server"), model.task, 32, torch.device("cpu"), needs=("test",))


def simulation(
    shares: Shares, path: Path, accelerator: Accelerator, more: str = "", kind: type[Simulation] = Simulation
) -> Simulation:
    return kind(shares.model(), shares.federated, deployed(more).federation, accelerator, Run(path))


def same(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def versions(run: Path, said: int) -> dict[int, int]:
    """The clients' versions in a checkpoint that says this of them."""
    return VersionLog(run / "checkpoint" / "clients.versions").read(said)


def rows_of(run: Simulation) -> list[dict[str, float]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in run.rows]


@pytest.fixture(scope="module")
def simulated(
    shares: Shares, accelerator: Accelerator, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Simulation]:
    """The federation of some words, simulated to its end once for all tests."""

    @cache
    def run(more: str) -> Simulation:
        made = simulation(shares, tmp_path_factory.mktemp("simulated"), accelerator, more)
        made.train()
        return made

    return run


CASES = [
    "--method fedavg",
    "--method fedadam",
    "--method fedprox --mu 0.1",
    "--method scaffold",
    "--method fednova",
    "--method moon",
    "--method fedper --train decoder",
    "--method fedrep",
    "--method ditto",
    "--method fedproto",
    "--method fedrcl",
    "--method local",
    "--method feddisco",
    "--batch_norm local --augment flip",
    "--importance_reweighting class --importance_target global_test",
    "--virtual_client_size 8 --sgd_per_epoch auto",
    "--method ditto --evaluate_clients 2",
    "--method scaffold --clients_per_round 2 --local_epochs 1 --sgd_per_epoch auto --lr_schedule none",
]
ASKED_TWICE = {"--method scaffold", "--method fedrep", "--method moon", "--method ditto"}


@pytest.fixture
def asked_twice(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A client is asked everything twice, and answers the same: whether an answer is lost is not always known."""
    asked: list[str] = []
    for kind in ("train", "evaluate"):
        once = getattr(Participant, kind)

        def twice(self: Participant, said: dict, tensors: dict, kind: str = kind, once: Callable = once) -> tuple:
            first, second = once(self, said, tensors), once(self, said, tensors)
            assert first[0] == second[0]
            torch.testing.assert_close(first[1], second[1], rtol=0, atol=0, equal_nan=True)
            asked.append(kind)
            return second

        monkeypatch.setattr(Participant, kind, twice)
    return asked


@pytest.mark.parametrize("more", CASES)
def test_it_is_the_simulation_to_the_bit(
    more: str,
    shares: Shares,
    tmp_path: Path,
    accelerator: Accelerator,
    simulated: Callable[[str], Simulation],
    request: pytest.FixtureRequest,
) -> None:
    asked = request.getfixturevalue("asked_twice") if more in ASKED_TWICE else []
    deployed, run = deployment(shares, tmp_path, accelerator, more), simulated(more)
    deployed.train()
    assert {*asked} == ({"train", "evaluate"} if more in ASKED_TWICE else set())
    np.testing.assert_equal(rows_of(deployed), rows_of(run))
    for at in (run.run.checkpoint, previous(run.run.checkpoint)):
        (expected, said), (found, told) = (
            load_checkpoint(p / "checkpoint" / at.name) for p in (run.run.path, tmp_path)
        )
        assert same(found, expected)
        of_clients, of_simulated = (
            versions(path, each["clients"]) for path, each in ((tmp_path, told), (run.run.path, said))
        )
        assert of_clients.keys() == of_simulated.keys()
        for client, version in of_clients.items():
            kept = shares.folder / f"client_{client}" / RUNS / remote(deployed).name / f"{version}.safetensors"
            of_simulation = run.run.path / "checkpoint" / "clients" / f"{client}-{of_simulated[client]}"
            assert same(load_file(kept), load_file(of_simulation.with_suffix(".safetensors")))


def test_two_runs_at_once_on_the_same_machines_do_not_meet(
    shares: Shares, tmp_path: Path, accelerator: Accelerator, simulated: Callable[[str], Simulation]
) -> None:
    """One runs from its beginning to its end while another's first client is at work in the second round."""
    words = {"outer": "--method scaffold", "inner": "--method fedavg"}

    def tamper(kind: str, client: int, said: dict, tensors: dict[str, Tensor]) -> tuple[dict, dict[str, Tensor]]:
        if (kind, len(runs["outer"].rows), len(runs)) == ("train", 2, 1):
            runs["inner"] = deployment(shares, tmp_path / "inner", accelerator, words["inner"])
            runs["inner"].train()
        return said, tensors

    runs = {"outer": deployment(shares, tmp_path / "outer", accelerator, words["outer"], tamper)}
    remote(runs["outer"]).nodes.of_client.clear()  # a machine forgets what it holds of a run when it joins another
    runs["outer"].train()
    assert runs.keys() == words.keys()
    for name, run in runs.items():
        alone = simulated(words[name])
        np.testing.assert_equal(rows_of(run), rows_of(alone))
        assert same(run.server, alone.server)


BAD = {
    "name": (lambda up: up | {"more": torch.zeros(1)}, "it has 'more'"),
    "names": (lambda up: {name: t for name, t in up.items() if name != "local_loss"}, "it lacks 'local_loss'"),
    "shape": (lambda up: up | {"local_loss": torch.zeros(2)}, "'local_loss' is torch.float32 (2,) and not"),
    "dtype": (lambda up: up | {"local_loss": torch.zeros((), dtype=torch.float64)}, "'local_loss' is torch.float64 ()"),
    "nan": (lambda up: {n: t * torch.nan if t.is_floating_point() else t for n, t in up.items()}, "not finite"),
    "size": (lambda up: up | {"more": torch.zeros(10 * sum(t.numel() for t in up.values()))}, "bytes, and at most"),
    "version": ({"version": 7}, "it is of version 7 and not of round 2"),
    "step": ({"bad_step": 2}, "it does not say whether its losses are finite"),  # it takes the steps 0 and 1
    "long step": ({"bad_step": 2**70}, "it does not say whether its losses are finite"),
}


def test_an_upload_that_is_not_what_it_should_be_is_refused_by_name_and_changes_nothing(
    shares: Shares,
    tmp_path: Path,
    accelerator: Accelerator,
    simulated: Callable[[str], Simulation],
    capsys: pytest.CaptureFixture,
) -> None:
    through = simulated("--method fedavg")
    capsys.readouterr()
    changes: list[Any] = []

    def tamper(kind: str, client: int, said: dict, tensors: dict[str, Tensor]) -> tuple[dict, dict[str, Tensor]]:
        if kind == "train" and client == 1 and len(run.rows) == 2:
            change = changes[-1]
            return (said, change(tensors)) if callable(change) else (said | change, tensors)
        return said, tensors

    run = deployment(shares, tmp_path / "stopped", accelerator, tamper=tamper)
    for change, line in BAD.values():
        if changes:
            run.resume()
        changes.append(change)
        with pytest.raises(UserError, match="client 1 in round 2") as error:
            run.train()
        assert line in str(error.value) and "refused" in str(error.value)
        _, about = load_checkpoint(run.run.checkpoint)
        assert len(about["rows"]) == 2 and set(versions(run.run.path, about["clients"]).values()) == {1}
    # Resumed with a client that is as it should be, it ends as if nothing had been.
    resumed = deployment(shares, tmp_path / "stopped", accelerator, name=remote(run).name)
    resumed.resume()
    resumed.train()
    assert same(resumed.server, through.server)
    np.testing.assert_equal(rows_of(resumed), rows_of(through))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("on_nan", ["stop", "skip_client"])
def test_an_upload_of_a_loss_that_is_not_finite_is_checked_as_well(
    on_nan: str, shares: Shares, tmp_path: Path, accelerator: Accelerator
) -> None:
    def tamper(kind: str, client: int, said: dict, tensors: dict[str, Tensor]) -> tuple[dict, dict[str, Tensor]]:
        return (said | {"bad_step": 0}, {}) if (kind, client) == ("train", 1) else (said, tensors)

    run = deployment(shares, tmp_path / "run", accelerator, f"--on_nan {on_nan}", tamper)
    with pytest.raises(UserError, match="client 1 in round 1: its upload is refused: it lacks "):
        run.train()


@pytest.mark.parametrize(("method", "whose"), [("fedavg", ""), ("ditto", "personal_")])
def test_a_client_that_lies_about_its_values_is_refused_by_name(
    method: str, whose: str, shares: Shares, tmp_path: Path, accelerator: Accelerator
) -> None:
    def tamper(kind: str, client: int, said: dict, tensors: dict[str, Tensor]) -> tuple[dict, dict[str, Tensor]]:
        if kind == "evaluate" and client == 1 and remote(run).nodes.personal == bool(whose):
            tensors["values"][0, 1] = torch.nan
        return said, tensors

    run = deployment(shares, tmp_path / "run", accelerator, f"--method {method}", tamper=tamper)
    with pytest.raises(UserError, match=f"client 1 in round 0: its values are refused: {whose}local_test_loss is nan"):
        run.train()


LIES = {  # where, what is sent in its place, and what the line says
    "no loss": ((0, 0), np.nan, "train_loss is nan"),
    "no held-out loss": ((0, 1), np.nan, "local_test_loss is nan"),
    "no error": ((1, 0), np.nan, "train_mae is nan"),
    "infinite": ((0, 0), np.inf, "train_loss is inf"),
    "held out infinite": ((0, 1), np.inf, "local_test_loss is inf"),
    "infinite where nothing counts": ((2, 1), np.inf, "local_test_rmse is inf"),
    "negative": ((0, 1), -1e30, "local_test_loss is -1e\\+30"),
    "negative error": ((1, 0), -0.1, "train_mae is -0.1"),
    "score": ((4, 1), 1e30, "local_test_delta1 is 1e\\+30"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_values_that_no_model_has_are_refused(lie: str) -> None:
    place, value, line = LIES[lie]
    task = get_task(TASK)  # whose values are loss, mae, rmse, abs_rel and delta1
    values, measured = np.full((5, 2), 0.5), np.ones((5, 2), bool)
    values[2, 1], measured[2, 1] = np.nan, False
    _check_values(task, values, measured, "")
    values[place] = value
    with pytest.raises(UserError, match=f"its values are refused: {line}, which it cannot be"):
        _check_values(task, values, measured, "")


def test_a_mean_is_over_the_clients_whose_values_are_taken_and_says_over_how_many(
    shares: Shares, tmp_path: Path, accelerator: Accelerator, capsys: pytest.CaptureFixture
) -> None:
    sent: dict[int, Tensor] = {}

    def tamper(kind: str, client: int, said: dict, tensors: dict[str, Tensor]) -> tuple[dict, dict[str, Tensor]]:
        if kind == "evaluate" and len(run.rows) == 2:
            sent[client] = tensors["values"].clone()
            if client == 1:
                tensors["values"][0, 1] = torch.nan
        return said, tensors

    run = deployment(shares, tmp_path / "run", accelerator, "--on_missing skip_client", tamper)
    rows = run.train()
    counts = [(row["train_clients"], row["local_test_clients"]) for row in rows]
    assert counts == [(3, 2), (3, 2), (2, 1)]  # one has nothing held out, and in round 2 one is refused
    assert rows[2]["train_loss_mean"] == pytest.approx(float(sent[0][0, 0] + sent[2][0, 0]) / 2)
    assert rows[2]["local_test_loss_mean"] == float(sent[0][0, 1])
    assert "client 1 in round 2: its values are refused: local_test_loss is nan" in capsys.readouterr().err


def test_a_model_that_has_diverged_is_no_clients_fault(
    shares: Shares, tmp_path: Path, accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = deployment(shares, tmp_path / "run", accelerator)
    step = run.algorithm.server_step

    def broken(server: dict[str, Tensor], mean: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: t * torch.nan if t.is_floating_point() else t for name, t in step(server, mean).items()}

    monkeypatch.setattr(run.algorithm, "server_step", broken)
    with pytest.raises(UserError, match="the loss is not finite after round 1; lower --init_lr"):
        run.train()


def test_a_client_that_is_away_or_refused_is_left_out_where_that_is_asked_for(
    shares: Shares, tmp_path: Path, accelerator: Accelerator, capsys: pytest.CaptureFixture
) -> None:
    def tamper(kind: str, client: int, said: dict, tensors: dict[str, Tensor]) -> tuple[dict, dict[str, Tensor]] | None:
        if kind == "evaluate" or len(run.rows) != 2:
            return said, tensors
        return {0: None, 1: (said, {"x": torch.zeros(1)}), 2: (said, tensors)}[client]

    more = "--method scaffold --on_missing skip_client --n_rounds 3"
    run = deployment(shares, tmp_path / "run", accelerator, more, tamper)
    run.train()
    assert run.states.finished == {0: 3, 1: 3, 2: 3} and len(run.rows) == 4
    first = load_checkpoint(previous(run.run.checkpoint))[1]["clients"]
    assert versions(run.run.path, first) == {0: 1, 1: 1, 2: 2}  # the second round was the third client's alone
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["client 0 in round 2", "client 1 in round 2"]


def test_a_loss_that_is_not_finite_is_assigned_with_as_in_a_simulation(
    shares: Shares, tmp_path: Path, accelerator: Accelerator
) -> None:
    for make in (simulation, deployment):
        run = make(shares, tmp_path / make.__name__, accelerator, "--init_lr 1e38")
        with pytest.raises(UserError, match=r"the loss is not finite in round 1: client 0 in step 2, client 1 in"):
            run.train()


def test_uploads_lie_on_the_servers_device_when_they_are_put_together(
    shares: Shares, tmp_path: Path, accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages are read on the CPU; the sum of uploads lies on the server's GPU, for which PyTorch's meta stands."""
    run = deployment(shares, tmp_path / "run", accelerator)
    run.resolve_vectorisation()
    monkeypatch.setattr(run, "accelerator", SimpleNamespace(device=torch.device("meta"), num_processes=1))
    cohort = run.cohort(0)
    uploads = [upload for _, upload, _ in run.trainer.train(cohort, run.server, 0)]
    assert len(uploads) == 3 and {each.device.type for upload in uploads for each in upload.values()} == {"meta"}


def test_a_client_is_sent_the_class_counts_of_the_other_clients_and_not_its_own(
    shares: Shares, tmp_path: Path, accelerator: Accelerator
) -> None:
    sent: dict[int, list[list[int]]] = {}

    def hear(kind: str, contents: Mapping[int, RecordDict], group: str) -> dict[int, RecordDict | str]:
        sent.update({client: read(content)[0]["others"] for client, content in contents.items()})
        return {}

    for more, knows in (("--importance_reweighting class", True), ("", False)):
        run = deployment(shares, tmp_path / str(knows), accelerator, more)
        run.resolve_vectorisation()
        remote(run).nodes.ask = hear  # type: ignore[method-assign]
        remote(run).ask("train", {client: {} for client in range(3)}, 0)
        for client in range(3):
            others = np.concatenate([shares.partition.clients[other] for other in {0, 1, 2} - {client}])
            labels = shares.data.table.labels[others]
            counts = np.bincount(labels, minlength=len(shares.data.table.class_names) + 1)
            assert sent[client][0] == (counts.tolist() if knows else [0])


def test_nothing_of_single_images_is_asked_for(shares: Shares, tmp_path: Path, accelerator: Accelerator) -> None:
    sent: dict[str, set[str]] = {"train": set(), "evaluate": set()}

    def look(kind: str, client: int, said: dict, tensors: dict[str, Tensor]) -> tuple[dict, dict[str, Tensor]]:
        sent[kind] |= {*said, *tensors}
        return said, tensors

    run = deployment(shares, tmp_path / "run", accelerator, tamper=look)
    run.train()
    assert sent["evaluate"] == {"values"} and sent["train"] == {"version", "bad_step", "local_loss", *run.server}
    assert [each["counts"] for each in remote(run).nodes.described.values()] == [[n] for n in shares.partition.sizes]


@pytest.mark.parametrize("domain", ["rgb", "depth_euclidean"])
def test_a_client_whose_pixels_were_altered_comes_back_with_other_images(
    domain: str, shares: Shares, tmp_path: Path
) -> None:
    """One value of one image is another, and all that is noted of the images is as it was."""
    folder, model, name = tmp_path / "client", shares.model(), uuid4().hex
    shutil.copytree(shares.folder / "client_0", folder, ignore=shutil.ignore_patterns(RUNS))
    config = deployed("").config
    plan = plan_of(config, model.config.record(), code_version(STAGE, config), name), model.state_dict()
    first, again = (join(folder, False, *plan) for _ in range(2))
    packed = folder / "packed" / "32" / f"{domain}.npy"
    array, status = np.load(packed), packed.stat()
    array[-1, 0, -1, -1] += 1
    np.save(packed, array)
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
    altered = join(folder, False, *plan)
    assert first == again and altered["images"] != first["images"]
    assert altered | {"images": ""} == first | {"images": ""}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--method fedamp", "--method fedamp cannot be deployed: its server mixes"),
        ("--method centralized", "--method centralized cannot be deployed: it trains"),
        ("--method feddifrc", "--method feddifrc cannot be deployed"),
        ("--method gossip --topology ring", "--method gossip cannot be deployed"),
        ("--aggregation median", "--aggregation median cannot be deployed: uploads are aggregated"),
        ("--attack sign_flip", "--attack sign_flip cannot be deployed"),
        ("--adapt_steps 5,20", "cannot be deployed: there are no non-participating clients"),
        ("--clip_norm 1", "--clip_norm 1.0 cannot be deployed: no account"),
        ("--noise_multiplier 0.5", "--noise_multiplier 0.5 cannot be deployed: no account"),
        ("--client_sampling poisson", "--client_sampling poisson cannot be deployed"),
        ("--vectorised_clients 2", "a client's machine trains one client"),
        ("--test_mode", "would take other images on each machine"),
        ("--n_rouns 3", "did you mean --n_rounds?"),
    ],
)
def test_what_cannot_be_deployed_is_refused_in_a_line(words: str, line: str) -> None:
    with pytest.raises(UserError, match=line.replace("?", r"\?")):
        deployed(words)


@pytest.mark.parametrize("words", ["--method fedproto --label_source cluster", "--importance_reweighting cluster"])
def test_clusters_are_refused(words: str) -> None:
    with pytest.raises(UserError, match="which no machine has"):
        check_no_clusters(deployed(words).federation)
