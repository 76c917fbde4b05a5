"""What is taken from Flower's inner modules is there and is called as it can be, with the releases that are allowed."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from tests.conftest import ROOT

PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}
MODULE = ROOT / "deploy" / "flower.py"
ANY = object()
# Each inner name, with the arguments that it is called with; None where it is not called.
CALLS: dict[str, tuple[tuple, dict[str, Any]] | None] = {
    "flwr.common.constant.ErrorCode": None,
    "flwr.common.constant.SubStatus": None,
    "flwr.common.serde.context_from_proto": ((ANY,), {}),
    "flwr.proto.node_pb2.Node": None,
    "flwr.proto.runtime_pb2.AcquireTaskRequest": None,
    "flwr.proto.runtime_pb2.PullAppMessagesRequest": None,
    "flwr.proto.runtime_pb2.PullTaskInputRequest": None,
    "flwr.proto.runtime_pb2.SendTaskHeartbeatRequest": None,
    "flwr.supercore.constant.TaskType": None,
    "flwr.supercore.heartbeat.HeartbeatSender": ((lambda: True,), {}),
    "flwr.supercore.inflatable.inflatable_object.iterate_object_tree": ((ANY,), {}),
    "flwr.supercore.inflatable.inflatable_protobuf_utils.make_confirm_message_received_fn_protobuf": ((ANY,) * 3, {}),
    "flwr.supercore.inflatable.inflatable_protobuf_utils.make_pull_object_fn_protobuf": ((ANY,) * 3, {}),
    "flwr.supercore.inflatable.inflatable_utils.ObjectPushError": None,
    "flwr.supercore.inflatable.inflatable_utils.ObjectUnavailableError": None,
    "flwr.supercore.inflatable.inflatable_utils.inflate_object_from_contents": ((ANY, ANY), {}),
    "flwr.supercore.interceptors.RuntimeTokenHttpInterceptor": (("token",), {}),
    "flwr.supercore.interceptors.RuntimeVersionHttpInterceptor": ((), {"component_name": "flwr-clientapp"}),
    "flwr.supercore.protobuf.client.ProtobufClientInterceptor": None,
    "flwr.supercore.runtime.RuntimeHttpClient": None,
    "flwr.supernode.runtime.run_clientapp.push_message": ((ANY,) * 3, {}),
    "flwr.supernode.runtime.run_clientapp.push_task_output": ((ANY, ANY, "status", "details"), {}),
    "flwr.supernode.cli.flower_supernode": ((), {}),
}


def imported(path: Path) -> Iterator[str]:
    """The names of Flower that a file imports, also in a program that is a text of it."""
    for node in ast.walk(ast.parse(path.read_text())):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        inner = ast.walk(ast.parse(text)) if "import flower_supernode" in text else ()
        for each in (node, *inner):
            if isinstance(each, ast.ImportFrom) and (each.module or "").partition(".")[0] == "flwr":
                yield from (f"{each.module}.{name.name}" for name in each.names)
            elif isinstance(each, ast.Import):
                yield from (name.name for name in each.names if name.name.partition(".")[0] == "flwr")


def found(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def inner(path: Path) -> set[str]:
    return {name for name in imported(path) if name.rpartition(".")[0] not in PUBLIC}


def test_one_module_alone_takes_inner_names_and_each_is_known_here() -> None:
    files = [*(ROOT / "deploy").rglob("*.py"), ROOT / "deploy_client.py"]
    assert {path.name: inner(path) for path in files if inner(path)} == {MODULE.name: CALLS.keys()}


@pytest.mark.parametrize("name", CALLS)
def test_an_inner_name_is_there_and_takes_what_it_is_given(name: str) -> None:
    call = CALLS[name]
    if call is None:
        assert found(name)
    else:
        inspect.signature(found(name)).bind(*call[0], **call[1])


def test_the_interface_for_apps_has_the_calls_that_are_made() -> None:
    client = found("flwr.supercore.runtime.RuntimeHttpClient")
    inspect.signature(client.from_server_address).bind("127.0.0.1:1", True, None, [])
    called = ("AcquireTask", "PullTaskInput", "PullMessages", "PullObject", "ConfirmMessageReceived")
    for name in (*called, "SendTaskHeartbeat", "close"):
        assert callable(getattr(client, name))
    sender = found("flwr.supercore.heartbeat.HeartbeatSender")
    assert callable(sender.start) and callable(sender.stop)


def test_requests_and_codes_are_what_is_meant() -> None:
    from deploy import flower

    assert sorted(flower.LOST) == [3, 4, 5, 8]  # by which another release would name other errors
    assert found("flwr.common.constant.ErrorCode").CLIENT_APP_RAISED_EXCEPTION not in flower.LOST
    request = found("flwr.proto.runtime_pb2.AcquireTaskRequest")(supported_task_types=["flwr-clientapp"])
    assert [*request.supported_task_types] == [found("flwr.supercore.constant.TaskType").CLIENT_APP]
    assert found("flwr.proto.node_pb2.Node")(node_id=5).node_id == 5


def test_the_docs_name_releases_that_the_requirements_allow() -> None:
    line = next(
        each for each in (ROOT / "requirements-flower.txt").read_text().splitlines() if each.startswith("flwr>")
    )
    allowed = SpecifierSet(line.partition("#")[0].strip().removeprefix("flwr"))
    [named] = re.findall(r"for Flower (\S+) and (\S+?),", (ROOT / "docs" / "deployment.md").read_text())
    assert all(map(allowed.contains, named))
    assert f"flwr=={named[0]}\n" in (ROOT / "constraints.txt").read_text()
