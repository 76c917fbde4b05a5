"""A client's process beside its SuperNode: messages that are dropped, and SuperNodes that do not go on.

The SuperNode is Flower's own state of one, with the functions behind its interface, without a network.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from flwr.app import Context, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.clientapp import ClientApp
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.servicer.runtime import runtime_handlers as core
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.servicer.runtime import runtime_handlers as handlers

import deploy_client
from deploy import flower, worker
from deploy.messages import read, write
from deploy.participant import participant

HERE = {
    "PullTaskInput": handlers.pull_task_input, "PullMessages": handlers.pull_messages,
    "PullObject": handlers.pull_object, "ConfirmMessageReceived": handlers.confirm_message_received,
    "PushMessages": handlers.push_messages, "PushObject": handlers.push_object,
    "PushTaskOutput": handlers.push_task_output, "SendTaskHeartbeat": core.send_task_heartbeat,
}  # fmt: skip


class SuperNode:
    """It says that it has ended when it has as many answers as are wanted, or after ten seconds."""

    def __init__(self, wanted: int) -> None:
        self.state = NodeStateFactory(ObjectStoreFactory()).state()
        self.state.set_node_id(5)
        self.wanted, self.end = wanted, time.monotonic() + 10
        self.failing: dict[str, Exception] = {}

    def receive(self, run: int, content: RecordDict, whole: bool = True) -> None:
        """Note a message of a run, as a SuperNode does before it fetches its parts, and have these if it is whole."""
        about = Run.create_empty(run)
        about.fab_hash = self.state.store_fab(Fab("", b"", {}))
        self.state.store_run(about)
        self.state.set_run_series_context(0, Context(run, 5, {}, RecordDict(), {}))
        message = make_message(Metadata(run, "", 1, 5, "", "", time.time(), 3600.0, "query"), content)
        message.metadata.__dict__["_message_id"] = message.object_id
        assert self.state.create_task(task_type=TaskType.CLIENT_APP, run_id=run, fab_hash=about.fab_hash)
        self.state.object_store.preregister(run, get_object_tree(message))
        self.state.store_message(make_message(message.metadata, RecordDict()))
        for name, each in get_all_nested_objects(message).items() if whole else ():
            self.state.object_store.put(name, each.deflate())

    def answers(self) -> list[Message]:
        """The replies of which a SuperNode would be told."""
        return [each.message for each in self.state.msg_store.values() if each.message.metadata.reply_to_message_id]

    def poll(self) -> int | None:
        """As of a process."""
        return 0 if len(self.answers()) >= self.wanted or time.monotonic() > self.end else None

    def runtime(self, address: str, token: str | None = None) -> Any:
        """What stands for Flower's client of the interface."""

        def call(name: str) -> Callable[[Any], Any]:
            def called(request: Any) -> Any:
                if name in self.failing:
                    raise self.failing[name]
                if name == "AcquireTask":
                    return handlers.acquire_task(request, self.state)
                return HERE[name](request, self.state, self.state.get_task_by_token(token))

            return called

        return SimpleNamespace(close=lambda: None, **{name: call(name) for name in ("AcquireTask", *HERE)})


@pytest.fixture
def echo() -> ClientApp:
    """A client that says what it was told."""
    app = ClientApp()
    app.query()(lambda message, context: Message(write(*read(message.content)), reply_to=message))
    return app


def answer(node: SuperNode, app: ClientApp, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The runs of which the client has answered messages when its SuperNode has ended, or is to be started again."""
    monkeypatch.setattr(flower, "runtime", node.runtime)
    monkeypatch.setattr(worker, "_PAUSE", 0.01)
    worker._answer(node, "nowhere", app)  # type: ignore[arg-type]
    assert time.monotonic() < node.end
    return [each.metadata.run_id for each in node.answers()]


def test_messages_are_answered_one_after_the_other(echo: ClientApp, monkeypatch: pytest.MonkeyPatch) -> None:
    node = SuperNode(2)
    for run in (7, 8):
        node.receive(run, write({"run": run}))
    assert answer(node, echo, monkeypatch) == [7, 8]


def test_a_message_that_the_supernode_has_dropped_does_not_hold_up_the_next(
    echo: ClientApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends while one of its messages is fetched leaves behind a task, whose message is never whole."""
    node = SuperNode(1)
    node.receive(7, write({"run": 7}), whole=False)
    node.receive(8, write({"run": 8}))
    assert answer(node, echo, monkeypatch) == [8]
    assert not node.state.task_token_store  # or the first would be answered as crashed, in place of one that is not


@pytest.mark.parametrize("name", ["PullTaskInput", "PullMessages", "PullObject", "PushMessages", "PushObject"])
@pytest.mark.parametrize("error", [httpx.ReadTimeout("timed out"), ValueError("Invalid protobuf response payload")])
def test_a_message_that_is_lost_between_the_two_has_the_supernode_started_again(
    name: str, error: Exception, echo: ClientApp, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """It would wait for the answer without end; its successor is asked again."""
    node = SuperNode(2)
    node.receive(7, write({"run": 7}))
    node.failing[name] = error
    answer(node, echo, monkeypatch)
    assert f"the SuperNode fails: {type(error).__name__}: {error}" in capsys.readouterr().err


@pytest.mark.parametrize("last", ["return", "raise ValueError('a fault')"])
def test_a_supernode_that_gives_up_its_server_ends(last: str, tmp_path: Path) -> None:
    """The thread of its interface does not keep it."""
    package = tmp_path / "flwr" / "supernode"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    lines = ["import threading", "def flower_supernode():", "  threading.Thread(target=threading.Event().wait).start()"]
    (package / "cli.py").write_text("\n".join([*lines, f"  {last}"]))
    command, said = [sys.executable, "-P", "-c", flower.SUPERNODE], {"PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, env=said, timeout=60, capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and ("a fault" in ended.stderr) == (last != "return")


def test_the_server_is_not_told_where_the_clients_folder_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Its line names the file within the folder; the client's own console has the whole path."""
    app, node = ClientApp(), SuperNode(1)

    @app.query()
    def fail(message: Message, context: Context) -> Message:
        participant(tmp_path, "a" * 32, False)
        raise AssertionError

    node.receive(7, write({}))
    node.state.set_run_series_context(0, Context(7, 5, {"folder": str(tmp_path)}, RecordDict(), {}))
    answer(node, app, monkeypatch)
    [reply] = node.answers()
    reason = reply.error.reason or ""
    assert str(tmp_path) not in reason and f"runs/{'a' * 32}: this client has not joined that run" in reason
    assert str(tmp_path) in capsys.readouterr().err


def test_nothing_is_sent_to_flowers_makers_unless_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SuperNode has the environment of the process that starts it."""
    (tmp_path / "share.json").write_text('{"client": 0, "n_clients": 1, "partition": "a"}')
    monkeypatch.setattr(sys, "argv", ["deploy_client.py", "--superlink", "a:8000", "--folder", str(tmp_path)])
    seen: list[str | None] = []
    monkeypatch.setattr(worker, "run_client", lambda *args: seen.append(os.environ.get("FLWR_TELEMETRY_ENABLED")))
    for before in (None, "1"):
        monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")  # so that it is as it was in the end
        if before is None:
            monkeypatch.delenv("FLWR_TELEMETRY_ENABLED")
        deploy_client.main()
    assert seen == ["0", "1"]
