"""All that is taken from Flower's inner modules, which may change with any release; the rest of `deploy/` needs none.

Its public interface (`flwr.app`, `flwr.clientapp`, `flwr.serverapp`) has no way to answer a SuperNode's messages from a
process that goes on and has its own code: an app is loaded anew for each, from the code that came with the run.
`tests/deploy/test_flower.py` has each name that is used here, and how.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from flwr.app import Context, Error, Message
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
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPushError,
    ObjectUnavailableError,
    inflate_object_from_contents,
)
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

__all__ = ["LOST", "SUPERNODE", "ObjectPushError", "Task", "alive", "failure", "next_token", "runtime"]

# Errors that mean that a message was lost, and not that its client refuses it.
LOST = frozenset(
    {
        ErrorCode.MESSAGE_UNAVAILABLE,
        ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
        ErrorCode.NODE_UNAVAILABLE,
        ErrorCode.CLIENT_APP_CRASHED,
    }
)
# A program that is `flower-supernode`, which by itself never ends where it gives up its server: a thread of it goes on.
SUPERNODE = """
import os, traceback
from flwr.supernode.cli import flower_supernode
try:
    flower_supernode()
except Exception:
    traceback.print_exc()
os._exit(1)
"""


def runtime(address: str, token: str | None = None) -> RuntimeHttpClient:
    """The SuperNode's interface for processes that run its apps, which listens on this machine alone.

    With a message's token it is for that message; the caller closes it.
    """
    interceptors: list[ProtobufClientInterceptor] = [RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")]
    if token is not None:
        interceptors.append(RuntimeTokenHttpInterceptor(token))
    return RuntimeHttpClient.from_server_address(address, True, None, interceptors)


def next_token(waiting: RuntimeHttpClient) -> str:
    """The token of the next message, empty where there is none."""
    return waiting.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])).token


def failure(line: str, message: Message) -> Message:
    """The answer of a client that has none, with a line that says why."""
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, line), reply_to=message)


class Task:
    """A message that a SuperNode wants to be answered, by the interface that has its token.

    Its `context` is the app's: the node's number and settings.
    """

    def __init__(self, interface: RuntimeHttpClient) -> None:
        self._interface = interface
        self.context: Context = context_from_proto(interface.PullTaskInput(PullTaskInputRequest()).context)

    def pull(self, pause: float, other: Callable[[], str]) -> tuple[Message | None, str]:
        """The message; or the token of the next one, where the SuperNode goes on to it without having all of this.

        So it is with a message of a run that ends in the meantime. Flower's own client waits for its parts for hours.

        Args:
            pause: seconds between two tries for a part that is not there.
            other: gives the token of the next message, empty where there is none.
        """
        [tree] = self._interface.PullMessages(PullAppMessagesRequest()).message_object_trees
        of_node = Node(node_id=self.context.node_id), self.context.run_id
        pull = make_pull_object_fn_protobuf(self._interface.PullObject, *of_node)
        missing = [each.object_id for each in iterate_object_tree(tree)]
        contents: dict[str, bytes] = {}
        while missing:
            try:
                contents[missing[-1]] = pull(missing[-1])
                missing.pop()
            except ObjectUnavailableError:
                if token := other():
                    return None, token
                time.sleep(pause)
        make_confirm_message_received_fn_protobuf(self._interface.ConfirmMessageReceived, *of_node)(tree.object_id)
        message = inflate_object_from_contents(tree.object_id, contents)
        assert isinstance(message, Message)
        message.metadata.__dict__["_message_id"] = tree.object_id  # as Flower's own client does
        return message, ""

    def answer(self, reply: Message) -> None:
        """Hand in the reply, which may be a `failure`, and end the task."""
        push_message(self._interface, reply, self.context)
        self.end((reply.error.reason or "failed") if reply.has_error() else "")

    def end(self, failed: str = "") -> None:
        """End the task, as failed where there are words for it."""
        status = SubStatus.FAILED if failed else SubStatus.COMPLETED
        push_task_output(self._interface, self.context, status, failed)


@contextmanager
def alive(interface: RuntimeHttpClient) -> Iterator[None]:
    """Let the SuperNode know that its message is being worked on."""

    def beat() -> bool:
        """One sign; Flower's own would end this process where the SuperNode wants none."""
        with suppress(Exception):  # at one, the thread would end
            interface.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    sender = HeartbeatSender(beat)
    sender.start()
    try:
        yield
    finally:
        sender.stop()
