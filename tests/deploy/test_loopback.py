"""A SuperLink and three SuperNodes, each a process of its own on the loopback interface, with TLS and keys.

All of Flower's processes have a home folder of this test's own, by which they are found again. Nothing here waits for a
time: what is waited for is a condition, and a process that has ended or a run that has failed ends the test at once.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx
import pandas as pd
import pytest
import torch
from accelerate import Accelerator
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.cli.app import app as flwr_app
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, RegisterNodeFleetRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from safetensors.torch import load_file
from torch import Tensor
from typer.testing import CliRunner

from deploy.keys import make_keys, write_connection
from deploy.participant import RUNS
from network.engine.simulation import Simulation
from tests.conftest import ROOT, start_in
from tests.deploy.conftest import TASK, WORDS, Shares
from tests.deploy.test_server import simulation, versions
from utils.errors import UserError
from utils.files import json_in
from utils.runs import load_checkpoint, previous

LIMIT = 600.0  # seconds to wait for any condition: a machine may be busy
METHOD = "scaffold"  # all that can be deployed, and two runs at once: `test_server.py`, in one process
ROUNDS = 2


class Federation:
    """The processes, which `end` ends."""

    def __init__(self, folder: Path, shares: Shares) -> None:
        self.folder, self.shares = folder, shares
        self.started: list[subprocess.Popen | BaseProcess] = []
        self.needed: dict[str, subprocess.Popen | BaseProcess] = {}  # those that must not end
        self.keys, self.home = folder / "keys", folder / "keys" / "flower"
        self.environment = os.environ | {
            "FLWR_HOME": str(self.home), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }  # fmt: skip
        make_keys(self.keys, ["127.0.0.1"], 4, days=1)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        write_connection(self.keys, self.address)

    def start(self, name: str, command: Sequence[str]) -> subprocess.Popen:
        """Start a program of its own process group, whose output goes to `<name>.log`."""
        with (self.folder / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        self.started.append(process)
        return process

    def flwr(self, *words: str) -> None:
        """Run Flower's `flwr`, in this process, where it is loaded once."""
        with pytest.MonkeyPatch.context() as patched:
            for name, value in self.environment.items():
                patched.setenv(name, value)
            done = CliRunner().invoke(flwr_app, [*words])
        assert done.exit_code == 0, (words, done.output, done.exception, self.ends())

    def start_superlink(self) -> None:
        """Start the SuperLink and tell it the clients' keys."""
        host, port = self.address.split(":")
        certified = [
            f"--ssl-{kind}file={self.keys / file}"
            for kind, file in (("cert", "server.crt"), ("key", "server.key"), ("ca-cert", "ca.crt"))
        ]
        command = [str(Path(sys.executable).with_name("flower-superlink")), *certified, "--enable-supernode-auth"]
        command += ["--host", host, "--port", port, "--disable-runtime-dependency-installation"]
        self.needed["superlink"] = self.start("superlink", command)
        until(lambda: "Uvicorn running" in self.log("superlink"), "the SuperLink runs", self)
        for client in range(3):
            self.flwr("supernode", "register", str(self.keys / f"client_{client}.pub"))

    def start_client(self, number: int, folder: Path) -> None:
        """Start a client's machine, with the key of this number."""
        name, command = f"client_{number}", ["deploy_client.py", "--superlink", self.address, "--folder", str(folder)]
        command += ["--root_certificates", str(self.keys / "ca.crt"), "--use_accelerator", "False"]
        command += ["--private_key", str(self.keys / f"{name}.key")]
        self.needed[name] = start_in(self.folder, " ".join(command), os.setsid, self.environment, f"{name}.log")
        self.started.append(self.needed[name])

    def run(self, more: str = "") -> None:
        """Ask the SuperLink for a run."""
        words = f"{WORDS} --n_rounds {ROUNDS} --method {METHOD} --data_path {self.shares.folder / 'server'} "
        words += f"--init_model_dir {self.shares.init} --result_path {self.folder} {more}"
        self.flwr("run", str(ROOT / "deploy" / "app"), "--run-config", f'arguments="{words}"')

    def calls(self, key: Path | None) -> FleetHttpClient:
        """A client of the interface for SuperNodes, that signs with this key or does not sign."""
        signed = [NodeAuthHttpInterceptor(*pair_of(key))] if key else []
        interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperNode"), *signed]
        return FleetHttpClient.from_server_address(self.address, False, str(self.keys / "ca.crt"), interceptors)

    def fault(self) -> str:
        """What has gone wrong so far, in words."""
        ended = [f"{name} has ended" for name, process in self.needed.items() if has_ended(process)]
        failed = ["a run has failed"] if "ServerApp raised an exception" in self.log("superlink") else []
        return ", ".join(ended + failed)

    def ends(self) -> str:
        """The logs' ends."""
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in self.folder.glob("*.log"))

    def log(self, name: str) -> str:
        """What a program has said so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    @property
    def path(self) -> Path:
        """The run's folder, where it is or will be."""
        found = [*(self.folder / "deployed" / METHOD / TASK).glob("*/*")]
        return max(found, default=self.folder / "none", key=lambda path: path.stat().st_mtime_ns)

    def server_processes(self, run: Path | None = None) -> list[int]:
        """The ids of the processes that run a ServerApp of this federation, or that of one run, whose lock it holds."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                ours = f"FLWR_HOME={self.home}".encode() in (process / "environ").read_bytes().split(b"\0")
                if not ours or b"flwr-serverapp" not in (process / "cmdline").read_bytes():
                    continue
                opened = [each.readlink() for each in (process / "fd").iterdir()] if run else []
            except OSError:  # it has ended
                continue
            if run is None or run / ".lock" in opened:
                found.append(int(process.name))
        return found

    def kill(self, process: subprocess.Popen | BaseProcess) -> None:
        """Kill a process group; whoever was started by it elsewhere ends by itself."""
        assert process.pid
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()  # a fork may not have a group yet
        process.wait() if isinstance(process, subprocess.Popen) else process.join()

    def end(self) -> None:
        """Kill all that was started."""
        for process in self.started:
            self.kill(process)
        for process_id in self.server_processes():
            os.kill(process_id, signal.SIGKILL)


def has_ended(process: subprocess.Popen | BaseProcess) -> bool:
    """Whether a process has ended by itself, or was killed."""
    return (process.poll() if isinstance(process, subprocess.Popen) else process.exitcode) is not None


def until(holds: Callable[[], object], what: str, federation: Federation) -> None:
    """Wait for a condition; on failure the logs' ends are shown."""
    end = time.monotonic() + LIMIT
    while not holds():
        fault = federation.fault() or (f"not in {LIMIT:g} s" if time.monotonic() > end else "")
        if fault:
            pytest.fail(f"{fault}: {what}\n{federation.ends()}")
        time.sleep(0.5)


def pair_of(key: Path) -> tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]:
    """The private and the public key of a client."""
    private = load_ssh_private_key(key.read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    return private, private.public_key()


def weights(run: Path) -> dict[int, dict[str, Tensor]]:
    """The server's tensors in a run's checkpoints, by the number of rounds."""
    found = {}
    for path in (previous(run / "checkpoint" / "last.safetensors"), run / "checkpoint" / "last.safetensors"):
        try:
            tensors, state = load_checkpoint(path)
        except UserError:  # none yet, or it is being replaced
            continue
        found[len(state["rows"]) - 1] = tensors
    return found


class Recorded(Simulation):
    """A simulation that keeps the server's tensors of every round."""

    def _finish_round(self, round: int, row: dict) -> None:
        super()._finish_round(round, row)
        vars(self).setdefault("seen", {})[round] = {f"server.{name}": t.clone() for name, t in self.server.items()}


@pytest.fixture(scope="module")
def federation(shares: Shares, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """The SuperLink and the three clients; what they hold is their own."""
    if not Path("/proc/self/environ").is_file():
        pytest.skip("needs /proc, by which a ServerApp's process is found")
    made = Federation(tmp_path_factory.mktemp("loopback"), shares)
    try:
        made.start_superlink()
        for client in range(3):
            shutil.copytree(
                shares.folder / f"client_{client}", made.folder / f"share_{client}", ignore=shutil.ignore_patterns(RUNS)
            )
            made.start_client(client, made.folder / f"share_{client}")
        yield made
    finally:
        made.end()


def test_a_node_without_a_key_that_is_registered_is_refused(federation: Federation) -> None:
    """Whether it signs with a key that nobody has registered, registers one by itself, or does not sign at all."""
    stranger = federation.keys / "client_3.key"
    public = public_key_to_bytes(pair_of(stranger)[1])
    known = public_key_to_bytes(pair_of(federation.keys / "client_0.key")[1])
    with federation.calls(stranger) as signing, federation.calls(None) as silent:
        asked = {
            "activate": lambda: signing.ActivateNode(ActivateNodeRequest(public_key=public, heartbeat_interval=30)),
            "register": lambda: signing.RegisterNode(RegisterNodeFleetRequest(public_key=public)),
            "pull": lambda: signing.PullMessages(PullMessagesRequest(node=Node(node_id=1))),
            "as another": lambda: signing.ActivateNode(ActivateNodeRequest(public_key=known, heartbeat_interval=30)),
            "unsigned": lambda: silent.ActivateNode(ActivateNodeRequest(public_key=known, heartbeat_interval=30)),
            "unsigned pull": lambda: silent.PullMessages(PullMessagesRequest(node=Node(node_id=1))),
        }
        for what, ask in asked.items():
            with pytest.raises(httpx.HTTPStatusError) as refused:
                ask()
            assert 400 <= refused.value.response.status_code < 500, what
    activated = re.findall(r"Activated node_id=(\d+)", federation.log("superlink"))
    assert len({*activated}) == len(activated) <= 3


def test_the_same_numbers_on_machines_of_their_own(federation: Federation, tmp_path: Path) -> None:
    """A client and a server are killed, and go on: the same weights, states and metrics."""
    seen: dict[int, dict[str, Tensor]] = {}

    def rounds() -> int:
        seen.update(weights(federation.path))
        return max(seen, default=-1)

    federation.run()
    until(lambda: rounds() >= 1, "the first round", federation)
    federation.kill(federation.needed.pop("client_1"))  # its SuperNode ends with it
    [server] = federation.server_processes(federation.path)
    os.kill(server, signal.SIGKILL)
    rounds()
    federation.start_client(1, federation.folder / "share_1")
    federation.flwr("stop", re.findall(r"Created run (\d+)", federation.log("superlink"))[0])
    federation.run("--resume_training True")
    words = f"--method {METHOD} --n_rounds {ROUNDS}"
    run = simulation(federation.shares, tmp_path, Accelerator(cpu=True), words, Recorded)
    run.train()  # while they go on
    is_over = federation.path / "summary.json"
    until(lambda: rounds() >= ROUNDS and is_over.is_file(), "the run is over", federation)

    path = federation.path
    assert {ROUNDS - 1, ROUNDS} <= seen.keys()
    for round, tensors in seen.items():
        expected = vars(run)["seen"][round]
        assert tensors.keys() == expected.keys()
        assert all(torch.equal(tensors[name], expected[name]) for name in expected), round
    found, expected = (pd.read_csv(p / "metrics.csv").drop(columns="seconds") for p in (path, run.run.path))
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    name = json_in(path / "deployment.json")["run"]
    of_clients, of_run = (
        versions(p, load_checkpoint(p / "checkpoint" / "last.safetensors")[1]["clients"]) for p in (path, run.run.path)
    )
    assert of_clients.keys() == of_run.keys() == {0, 1, 2}
    for client, version in of_clients.items():
        of_client = load_file(federation.folder / f"share_{client}" / RUNS / name / f"{version}.safetensors")
        of_simulation = load_file(run.run.path / "checkpoint" / "clients" / f"{client}-{of_run[client]}.safetensors")
        assert of_client.keys() == of_simulation.keys()
        assert all(torch.equal(of_client[name], of_simulation[name]) for name in of_client)
