"""A client's machine: a SuperNode, and beside it this process, which answers what the SuperNode receives.

Flower by itself starts a Python process for every message, and runs in it the code that came with the run. Here the
code is that of this checkout, whatever the server sends, and images and packages are loaded once.
"""

from __future__ import annotations

import ctypes
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import httpx
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import context_from_proto
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError, inflate_object_from_contents
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

from deploy.client_app import app
from utils import progress
from utils.errors import explained

_PAUSE = 0.2  # seconds between two looks for a message
_AGAIN = 5.0  # seconds after which a SuperNode that has ended is started again
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux
# Flower's `flower-supernode`, which by itself never ends where it gives up its server: a thread of it goes on.
_SUPERNODE = """
import os, traceback
from flwr.supernode.cli import flower_supernode
try:
    flower_supernode()
except Exception:
    traceback.print_exc()
os._exit(1)
"""


def run_client(superlink: str, folder: Path, use_accelerator: bool, certificate: Path | None, key: Path | None) -> None:
    """Take part in the runs of a SuperLink until this process is ended.

    Args:
        superlink: its address, `host:port`.
        folder: the client's images, see `deploy/shares.py`.
        use_accelerator: compute on a GPU that is there.
        certificate: of the authority that has signed the SuperLink's; None talks to it without encryption.
        key: the private key by which the SuperLink knows this client; None without authentication.
    """
    said = json.dumps(str(folder.resolve()))  # a string of TOML, too
    config = f"folder={said} use_accelerator={json.dumps(use_accelerator)}"
    options = ["--superlink", superlink, "--isolation", "process", "--node-config", config]
    options += ["--insecure"] if certificate is None else ["--root-certificates", str(certificate)]
    options += ["--auth-supernode-private-key", str(key)] if key else []
    while True:
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        node = _start(["-P", "-c", _SUPERNODE, *options, "--host", "127.0.0.1", "--port", str(port)])
        try:
            _answer(node, f"127.0.0.1:{port}", app)
        finally:
            node.terminate()
            with suppress(subprocess.TimeoutExpired):
                node.wait(10)
        progress.say(f"the SuperNode has ended with exit code {node.returncode}; it starts again in {_AGAIN:g} s")
        time.sleep(_AGAIN)


def _start(command: Sequence[str]) -> subprocess.Popen:
    """Start a program of Python that ends with this process, even where this one is killed (on Linux)."""

    def end_with_parent() -> None:
        """Called in the child."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGTERM)

    return subprocess.Popen([sys.executable, *command], preexec_fn=end_with_parent)


def _answer(node: subprocess.Popen, address: str, client_app: ClientApp) -> None:
    """Answer the SuperNode's messages one after the other until it ends, or does not go on with one.

    A message that could not be taken or whose answer was not handed in is one that a SuperNode waits for without end. A
    new one is asked again.
    """
    with closing(_runtime(address)) as runtime:
        reached, token = False, ""
        while node.poll() is None:
            try:
                token = token or _next(runtime)
                reached = True
                if token:
                    token = _take(address, token, client_app, runtime)
                    continue
            except Exception as error:
                if reached or not isinstance(error, httpx.HTTPError):  # else it has not started yet
                    progress.say(f"the SuperNode fails: {type(error).__name__}: {error}")
                    return
            time.sleep(_PAUSE)


def _next(runtime: RuntimeHttpClient) -> str:
    """The token of the next message, empty where there is none."""
    return runtime.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])).token


def _take(address: str, token: str, client_app: ClientApp, waiting: RuntimeHttpClient) -> str:
    """Answer one message; returns the token of another that has come before this one was whole, or nothing."""
    with closing(_runtime(address, token)) as runtime:

        def beat() -> bool:
            """Tell the SuperNode that its message is being worked on; Flower's own would end this process at a no."""
            with suppress(Exception):  # at one, the thread would end
                runtime.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            return True

        alive = HeartbeatSender(beat)
        alive.start()
        try:
            context = context_from_proto(runtime.PullTaskInput(PullTaskInputRequest()).context)
            message, other = _pull(runtime, context, waiting)
            if message is None:
                push_task_output(runtime, context, SubStatus.FAILED, "it was dropped")
                return other
            reply = _reply(client_app, message, context)
            push_message(runtime, reply, context)
            failed = (reply.error.reason or "failed") if reply.has_error() else ""
            push_task_output(runtime, context, SubStatus.FAILED if failed else SubStatus.COMPLETED, failed)
            return ""
        finally:
            alive.stop()


def _pull(runtime: RuntimeHttpClient, context: Context, waiting: RuntimeHttpClient) -> tuple[Message | None, str]:
    """The message; or the token of the next one, where the SuperNode goes on to it without having got all of this.

    So it is with a message of a run that ends in the meantime. Flower's own client waits for its parts for hours.
    """
    [tree] = runtime.PullMessages(PullAppMessagesRequest()).message_object_trees
    node = Node(node_id=context.node_id)
    pull = make_pull_object_fn_protobuf(runtime.PullObject, node, context.run_id)
    missing = [each.object_id for each in iterate_object_tree(tree)]
    contents: dict[str, bytes] = {}
    while missing:
        try:
            contents[missing[-1]] = pull(missing[-1])
            missing.pop()
        except ObjectUnavailableError:
            if other := _next(waiting):
                return None, other
            time.sleep(_PAUSE)
    make_confirm_message_received_fn_protobuf(runtime.ConfirmMessageReceived, node, context.run_id)(tree.object_id)
    message = inflate_object_from_contents(tree.object_id, contents)
    assert isinstance(message, Message)
    message.metadata.__dict__["_message_id"] = tree.object_id  # as Flower's own client does
    return message, ""


def _reply(client_app: ClientApp, message: Message, context: Context) -> Message:
    """What the client answers; what goes wrong is told to the server in a line, and here."""
    try:
        return client_app(message, context)
    except Exception as error:
        line = explained(error, "--batch_size") or f"{type(error).__name__}: {error}"
        progress.say(f"{message.metadata.message_type} message: {line}")
        if folder := context.node_config.get("folder"):
            line = line.replace(str(folder), "FOLDER")  # where it lies is nobody's concern
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, line), reply_to=message)


def _runtime(address: str, token: str | None = None) -> RuntimeHttpClient:
    """The SuperNode's interface for processes that run its apps, which listens on this machine alone."""
    interceptors: list[ProtobufClientInterceptor] = [RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")]
    if token is not None:
        interceptors.append(RuntimeTokenHttpInterceptor(token))
    return RuntimeHttpClient.from_server_address(address, True, None, interceptors)
