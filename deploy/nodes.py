"""The clients of a run, known by their numbers, wherever their nodes are.

Flower knows nodes by numbers of its own, and loses messages: those of a node that is restarted, and without a word
those that a node fails to fetch or to answer. Here a node says which client it is, and what was lost is asked again. A
node answers one message after the other, so an answer to what it was asked later shows that an earlier one is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from deploy.flower import LOST, ObjectPushError
from deploy.messages import read
from utils import interrupt, progress
from utils.errors import UserError

_PAUSE = 0.5  # seconds between two looks for answers
_LOOK = 2.0  # and between two looks for nodes
_PING_AFTER = 60.0  # and until a node that has not answered is first pinged; it answers when it is done
_MOST_OF_ITSELF = 1 << 20  # bytes of what a node says of itself, of which its images' classes are the most
# Of a SuperLink that is overburdened; a run that is over is none.
_SUPERLINK_ERRORS = (httpx.HTTPStatusError, ObjectPushError)
_QUERY, PING = "query", "sign"


@dataclass
class _Request:
    """What waits for an answer: by a client, or (-1) a node that has yet to say which client it is."""

    client: int
    node: int
    since: str  # when that node came up, by which a restarted one is told apart
    at: float = field(default_factory=lambda: time.monotonic())
    ping_after: float = field(default_factory=lambda: _PING_AFTER)
    overtaken: bool = False  # the node has answered what it was asked later


@dataclass
class Nodes:
    """Asks clients, and waits for their answers.

    Args:
        grid: Flower's.
        n_clients: how many there are; numbers are from 0.
        timeout: seconds to wait for a client without a node.
        handshake: makes the content that a new node is asked with for which client it is.
        check: raises UserError where what a node says of itself does not fit the run.
    """

    grid: Grid
    n_clients: int
    timeout: float
    handshake: Callable[[], RecordDict]
    check: Callable[[Mapping[str, Any]], None]
    described: dict[int, dict[str, Any]] = field(default_factory=dict)
    _node_of: dict[int, int] = field(default_factory=dict)
    _up: dict[int, str] = field(default_factory=dict)
    _handshakes: dict[int, str] = field(default_factory=dict)
    _second: dict[int, int] = field(default_factory=dict)  # the client that a node would be and another is
    _requests: dict[str, _Request] = field(default_factory=dict)
    _pings: dict[str, str] = field(default_factory=dict)  # by ping, the request that it is about
    _looked: float = field(default=-_LOOK)
    _error: Exception | None = None  # the last one of this turn

    def gather(self) -> None:
        """Wait for all clients to say what they are; UserError where one does not come."""
        missing = self._wait(lambda: [c for c in range(self.n_clients) if c not in self.described])
        if missing:
            names = ", ".join(map(str, missing))
            raise UserError(f"client {names} of {self.n_clients} has not joined in {self.timeout:g} s; start its node")

    def ask(self, kind: str, contents: Mapping[int, RecordDict], group: str) -> dict[int, RecordDict | str]:
        """What each client answers: its content, or in words why there is none; clients that stay away are left out."""
        answers: dict[int, RecordDict | str] = {}

        def open_questions() -> list[int]:
            """Ask where that is possible; returns the clients that have not answered."""
            waited_for = {request.client for request in self._requests.values()}
            unasked = {
                client: self._node_of.get(client, -1) for client in contents.keys() - answers.keys() - waited_for
            }
            self._push(
                kind,
                [(contents[client], node, client) for client, node in sorted(unasked.items()) if node in self._up],
                group,
            )
            return [client for client in contents if client not in answers]

        self._wait(open_questions, answers)
        for message, request in list(self._requests.items()):  # what comes later is of no use
            if request.client >= 0:
                del self._requests[message]
        return answers

    def _wait(
        self, open_questions: Callable[[], list[int]], answers: dict[int, RecordDict | str] | None = None
    ) -> list[int]:
        """Look for nodes and answers until no question is open; returns the clients whose timeout is over."""
        away_since: dict[int, float] = {}
        well = time.monotonic()
        while True:
            interrupt.check()
            self._error = None
            self._look_for_nodes()
            self._ping_silent_nodes()
            for client, content in self._answers():
                if answers is not None:
                    answers[client] = content
            waiting, now = open_questions(), time.monotonic()
            here = {client for client, node in self._node_of.items() if node in self._up}
            away_since = {c: away_since.get(c, now) for c in waiting if c not in here}
            lost = [client for client, since in away_since.items() if now - since > self.timeout]
            if set(waiting) <= set(lost):
                return lost
            if self._error is None:
                well = now
            elif now - well > self.timeout:
                raise UserError(f"the SuperLink has failed for {self.timeout:g} s: {self._error}")
            time.sleep(_PAUSE)

    def _look_for_nodes(self) -> None:
        """Note which nodes are up, forget what was asked of those that are not, and shake hands with new ones."""
        if (now := time.monotonic()) - self._looked < _LOOK:
            return
        self._looked = now
        try:
            self._up = {node.node_id: node.last_activated_at for node in self.grid.get_nodes()}
        except _SUPERLINK_ERRORS as error:
            self._error = error
        for message, request in list(self._requests.items()):
            if self._up.get(request.node) != request.since:
                self._lose(message)
        for node, client in list(self._second.items()):
            if self._node_of.get(client) not in self._up:  # its place is free, as where a killed node is gone at last
                del self._second[node]
                self._handshakes.pop(node, None)
        new = [node for node, since in self._up.items() if self._handshakes.get(node) != since]
        self._node_of = {client: node for client, node in self._node_of.items() if node not in new}
        for node in self._push(_QUERY, [(self.handshake(), node, -1) for node in new], ""):
            self._handshakes[node] = self._up[node]

    def _push(self, kind: str, questions: Sequence[tuple[RecordDict, int, int]], group: str) -> list[int]:
        """Ask these questions: content, node and client of each; returns the nodes that are now asked.

        All at once, so that no node has done with one while Flower is still told of another that has the same tensors.
        """
        if not questions:
            return []
        messages = [
            Message(content, dst_node_id=node, message_type=kind, group_id=group) for content, node, _ in questions
        ]
        try:
            identities = [*self.grid.push_messages(messages)]
        except _SUPERLINK_ERRORS as error:
            self._error, identities = error, []
        taken = [(identity, *question) for identity, question in zip(identities, questions, strict=False) if identity]
        for identity, _, node, client in taken:
            self._requests[identity] = _Request(client, node, self._up[node])
        return [node for _, _, node, _ in taken]

    def _ping_silent_nodes(self) -> None:
        """Ask nodes that have been silent for long for a sign, ever less often."""
        now = time.monotonic()
        due = {message: request for message, request in self._requests.items() if now - request.at > request.ping_after}
        for message, request in due.items():
            request.ping_after *= 2
            ping = Message(RecordDict(), dst_node_id=request.node, message_type=f"{_QUERY}.{PING}", group_id="")
            try:
                self._pings |= dict.fromkeys(filter(None, self.grid.push_messages([ping])), message)
            except _SUPERLINK_ERRORS as error:
                self._error = error

    def _answers(self) -> list[tuple[int, RecordDict | str]]:
        """The answers that have come from clients; nodes that say which client they are become theirs."""
        answers: list[tuple[int, RecordDict | str]] = []
        overtaken = [message for message, request in self._requests.items() if request.overtaken]
        self._pings = {ping: message for ping, message in self._pings.items() if message in self._requests}
        for reply in self._pull({*self._requests, *self._pings}):
            identity = reply.metadata.reply_to_message_id
            lost = reply.has_error() and reply.error.code in LOST
            pinged = self._requests.get(self._pings.pop(identity, ""))
            if pinged is not None and not lost:
                pinged.overtaken = True
            if (request := self._requests.get(identity)) is None:
                continue
            if lost:
                self._lose(identity)
                continue
            del self._requests[identity]
            if request.client < 0:
                self._take_in(request.node, reply)
            else:
                answers.append((request.client, _reason(reply) if reply.has_error() else reply.content))
        for message in overtaken:
            self._lose(message)
        return answers

    def _pull(self, messages: set[str]) -> list[Message]:
        """The replies to these messages that have come; what Flower cannot say of one is lost."""
        try:
            return [*self.grid.pull_messages(messages)] if messages else []
        except _SUPERLINK_ERRORS as error:
            self._error = error
            if len(messages) > 1:
                return [reply for message in messages for reply in self._pull({message})]
            for message in messages:
                self._lose(message)
                self._pings.pop(message, None)
            return []

    def _lose(self, message: str) -> None:
        """Forget a question, so that it is asked again."""
        request = self._requests.pop(message, None)
        if request is not None and request.client < 0:
            self._handshakes.pop(request.node, None)

    def _take_in(self, node: int, reply: Message) -> None:
        """Make a node that of the client that it says it is, or say why not."""
        self._second.pop(node, None)
        try:
            if reply.has_error():
                raise UserError(_reason(reply))
            description, _ = read(reply.content, _MOST_OF_ITSELF)
            client = description.get("client")
            if type(client) is not int or not 0 <= client < self.n_clients:
                raise UserError(f"it says that it is client {client} of {self.n_clients}")
            other = self._node_of.get(client)
            if other is not None and other in self._up:
                self._second[node] = client
                raise UserError(f"it says that it is client {client}, which node {other} is already")
            self.check(description)
            if client in self.described and self.described[client] != description:
                raise UserError(f"it says that it is client {client}, but has other images than that had before")
        except UserError as error:
            progress.say(f"node {node} is refused: {error}")
            return
        self.described[client] = description
        self._node_of[client] = node


def _reason(reply: Message) -> str:
    """Why a client has no answer, without the class of its exception."""
    _, has_class, text = (reply.error.reason or "").partition(":<'")
    return text.removesuffix("'>") if has_class else reply.error.reason or f"error {reply.error.code}"
