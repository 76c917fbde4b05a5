"""Clients are known by their numbers: nodes that come, go, come back, or are not what they should be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from flwr.app import Error, Message, RecordDict
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from deploy import nodes as module
from deploy.messages import read, write
from deploy.nodes import Nodes
from utils.errors import UserError

Answer = Callable[[int, Message], RecordDict | Error | None]


@dataclass
class FakeGrid:
    """Nodes by number and the time that they came up; `answer` says what one answers, None for nothing.

    `fault` is called with what is asked for, and may raise.
    """

    up: dict[int, str]
    answer: Answer
    fault: Callable[[str, set[str]], None] = lambda what, about: None
    sent: list[tuple[int, str]] = field(default_factory=list)
    replies: dict[str, Message] = field(default_factory=dict)

    def get_nodes(self) -> list[Any]:
        self.fault("nodes", set())
        return [SimpleNamespace(node_id=node, last_activated_at=since) for node, since in self.up.items()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        found = []
        self.fault("push", {message.metadata.message_type for message in messages})
        for message in messages:
            node, kind = message.metadata.dst_node_id, message.metadata.message_type
            self.sent.append((node, kind))
            identity = f"message {len(self.sent)}"
            found.append(identity)
            content = self.answer(node, message)
            if content is not None:
                error = content if isinstance(content, Error) else None
                self.replies[identity] = SimpleNamespace(
                    metadata=SimpleNamespace(reply_to_message_id=identity),
                    error=error,
                    content=content,
                    has_error=lambda error=error: error is not None,
                )  # type: ignore[assignment]
        return found

    def pull_messages(self, identities: Iterable[str]) -> list[Message]:
        self.fault("pull", set(identities))
        return [self.replies.pop(each) for each in [*self.replies] if each in set(identities)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    monkeypatch.setattr(module, "_LOOK", 0.0)
    monkeypatch.setattr(module, "Message", sent)  # Flower's own exist in a process of a ServerApp alone


def sent(content: RecordDict, dst_node_id: int, message_type: str, group_id: str) -> SimpleNamespace:
    """What a test needs of a message."""
    return SimpleNamespace(metadata=SimpleNamespace(dst_node_id=dst_node_id, message_type=message_type))


def described(client: int, **more: object) -> dict[str, object]:
    return {"client": client, "counts": [4]} | more


def nodes_of(grid: FakeGrid, n_clients: int = 2, timeout: float = 0.0) -> Nodes:
    def check(said: dict) -> None:
        if said["counts"] != [4]:
            raise UserError("it has other counts")

    return Nodes(grid, n_clients, timeout, lambda: write({"run": "a"}), check)  # type: ignore[arg-type]


def test_what_a_client_answers_is_known_by_its_number_and_not_by_its_node() -> None:
    grid = FakeGrid({70: "now", 30: "now"}, lambda node, message: write(described({70: 0, 30: 1}[node])))
    nodes = nodes_of(grid)
    nodes.gather()
    grid.answer = lambda node, message: write({"node": node})
    answers = nodes.ask("train", {1: write({}), 0: write({})}, "1")
    assert {client: read(content)[0] for client, content in answers.items()} == {0: {"node": 70}, 1: {"node": 30}}


@pytest.mark.parametrize(
    ("of_second", "line"),
    [
        (described(0), "node 6 is refused: it says that it is client 0, which node 5 is already"),
        (described(2), "node 6 is refused: it says that it is client 2 of 2"),
        (described(True), "node 6 is refused: it says that it is client True of 2"),
        (described(1, counts=[5]), "node 6 is refused: it has other counts"),
        (Error(2, "<class 'utils.errors.UserError'>:<'another version'>"), "node 6 is refused: another version"),
        (RecordDict(), "node 6 is refused: it cannot be read"),
        (described(1, more="x" * (1 << 20)), "node 6 is refused: it has 10"),
    ],
)
def test_a_node_that_is_not_a_client_of_the_federation_is_refused_by_name(
    of_second: object, line: str, capsys: pytest.CaptureFixture
) -> None:
    second = write(of_second) if isinstance(of_second, dict) else of_second
    nodes = nodes_of(FakeGrid({5: "now", 6: "now"}, lambda node, message: write(described(0)) if node == 5 else second))
    with pytest.raises(UserError, match="client 1 of 2 has not joined in 0 s; start its node"):
        nodes.gather()
    assert line in capsys.readouterr().err and nodes.described == {0: described(0)}


def test_a_client_whose_node_has_been_restarted_is_asked_again() -> None:
    def answer(node: int, message: Message) -> RecordDict | None:
        if message.metadata.message_type == "query":
            return write(described(0))
        if grid.up[5] == "at first":
            grid.up[5] = "again"  # it goes down with the message
            return None
        return write({"done": True})

    grid = FakeGrid({5: "at first"}, answer)
    nodes = nodes_of(grid, 1, timeout=600.0)
    nodes.gather()
    [answered] = nodes.ask("train", {0: write({})}, "1").values()
    assert read(answered)[0] == {"done": True}
    assert [kind for _, kind in grid.sent] == ["query", "train", "query", "train"]


def test_a_lost_message_is_sent_again_and_a_refusal_is_not() -> None:
    answers = {"query": [write(described(0))], "train": [Error(8, "crashed"), Error(2, "<class 'X'>:<'no room'>")]}
    grid = FakeGrid({5: "now"}, lambda node, message: answers[message.metadata.message_type].pop(0))
    nodes = nodes_of(grid, 1)
    nodes.gather()
    assert nodes.ask("train", {0: write({})}, "1") == {0: "no room"}


def test_a_client_that_stays_away_has_no_answer() -> None:
    grid = FakeGrid({5: "now", 6: "now"}, lambda node, message: write(described(node - 5)))
    nodes = nodes_of(grid)
    nodes.gather()
    del grid.up[6]
    assert nodes.ask("train", {0: write({}), 1: write({})}, "1").keys() == {0}


def test_a_client_that_comes_back_with_other_images_is_refused(capsys: pytest.CaptureFixture) -> None:
    images = iter("ab")
    grid = FakeGrid({5: "now"}, lambda node, message: write(described(0, images=next(images))))
    nodes = nodes_of(grid, 1)
    nodes.gather()
    grid.up[5] = "again"
    assert nodes.ask("train", {0: write({})}, "1") == {}
    assert "but has other images than that had before" in capsys.readouterr().err


def test_a_node_that_comes_up_while_its_predecessor_counts_as_connected_takes_its_place(
    capsys: pytest.CaptureFixture,
) -> None:
    """Flower takes a killed node as connected for another minute."""
    looks = iter(range(10))

    def go_down(what: str, about: set[str]) -> None:
        if what == "nodes" and 6 in grid.up and next(looks, None) == 5:
            del grid.up[5]

    def answer(node: int, message: Message) -> RecordDict | None:
        if message.metadata.message_type == "query":
            return write(described(0))
        grid.up[6] = "now"
        return write({"node": node}) if node == 6 else None  # the first is killed with the message

    grid = FakeGrid({5: "now"}, answer, go_down)
    nodes = nodes_of(grid, 1, timeout=5.0)
    nodes.gather()
    [answered] = nodes.ask("train", {0: write({})}, "1").values()
    assert read(answered)[0] == {"node": 6}
    assert grid.sent == [(5, "query"), (5, "train"), (6, "query"), (6, "query"), (6, "train")]
    assert capsys.readouterr().err.count("node 6 is refused: it says that it is client 0, which node 5 is already") == 1


FAILED = httpx.HTTPStatusError("500", request=httpx.Request("POST", "https://a"), response=httpx.Response(500))


def test_a_message_that_is_lost_without_a_word_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that has failed to fetch a message goes on as if nothing had been."""
    answers = {"query": iter([None, write(described(0))]), "train": iter([None, write({"done": True})])}

    def answer(node: int, message: Message) -> RecordDict | None:
        kind = message.metadata.message_type
        return RecordDict() if kind == "query.sign" else next(answers[kind])

    grid = FakeGrid({5: "now"}, answer)
    monkeypatch.setattr(module, "_PING_AFTER", 0.0)
    nodes = nodes_of(grid, 1, timeout=10.0)
    nodes.gather()
    [answered] = nodes.ask("train", {0: write({})}, "1").values()
    assert read(answered)[0] == {"done": True}
    assert [kind for _, kind in grid.sent if kind != "query.sign"] == ["query", "query", "train", "train"]


def test_a_client_that_takes_its_time_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives a sign when it is done, and not before; the server then has its answer, too."""
    pulls = iter(range(30))

    def hold_back(what: str, about: set[str]) -> None:
        if what == "pull" and "message 2" in about and next(pulls) == 20:
            grid.replies |= late

    def answer(node: int, message: Message) -> RecordDict | None:
        return write(described(0)) if message.metadata.message_type == "query" else RecordDict()

    grid = FakeGrid({5: "now"}, answer, hold_back)
    nodes = nodes_of(grid, 1)
    nodes.gather()
    late: dict[str, Message] = {}
    monkeypatch.setattr(module, "_PING_AFTER", 0.0)
    push = grid.push_messages

    def keep(messages: Iterable[Message]) -> list[str]:
        found = push(messages)
        late.update({each: grid.replies.pop(each) for each in found})
        return found

    monkeypatch.setattr(grid, "push_messages", keep)
    assert nodes.ask("train", {0: write({})}, "1").keys() == {0}
    assert [kind for _, kind in grid.sent if kind == "train"] == ["train"]


class Clock:
    """Time that passes in pauses alone, a second in each."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 1.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_a_client_without_a_node_is_waited_for_as_long_as_patience_says(clock: Clock) -> None:
    def go_down(what: str, about: set[str]) -> None:
        if clock.now >= 10:
            grid.up.clear()

    def answer(node: int, message: Message) -> RecordDict | None:
        return write(described(0)) if message.metadata.message_type == "query" else None

    grid = FakeGrid({5: "now"}, answer, go_down)
    nodes = nodes_of(grid, 1, timeout=30.0)
    nodes.gather()
    assert nodes.ask("train", {0: write({})}, "1") == {} and clock.now == 41  # the first second after 10 + 30


def test_a_node_that_is_silent_is_asked_for_a_sign_after_a_minute_and_ever_less_often(clock: Clock) -> None:
    asked_at: list[float] = []

    def answer(node: int, message: Message) -> RecordDict | None:
        if message.metadata.message_type == "query.sign":
            asked_at.append(clock.now)
        return write(described(0)) if message.metadata.message_type == "query" else None

    def go_down(what: str, about: set[str]) -> None:
        if clock.now >= 600:
            grid.up.clear()

    grid = FakeGrid({5: "now"}, answer, go_down)
    nodes = nodes_of(grid, 1)
    nodes.gather()
    asked = clock.now
    nodes.ask("train", {0: write({})}, "1")
    assert [at - asked for at in asked_at] == [61, 121, 241, 481]


@pytest.mark.parametrize("error", [FAILED, ObjectPushError("a", 1, "b")])
def test_what_the_superlink_fails_to_take_or_to_say_is_asked_again(error: Exception) -> None:
    failing = {"nodes": 1, "push": 2, "pull": 3}

    def fail(what: str, about: set[str]) -> None:
        failing[what] -= 1
        if failing[what] >= 0:
            raise error

    grid = FakeGrid({5: "now", 6: "now"}, lambda node, message: write(described(node - 5)), fail)
    nodes = nodes_of(grid, timeout=10.0)
    nodes.gather()
    assert nodes.ask("train", {0: write({}), 1: write({})}, "1").keys() == {0, 1}


def test_a_superlink_that_goes_on_failing_ends_the_run_with_a_line() -> None:
    def fail(what: str, about: set[str]) -> None:
        if "train" in about:
            raise FAILED

    grid = FakeGrid({5: "now"}, lambda node, message: write(described(0)), fail)
    nodes = nodes_of(grid, 1)
    nodes.gather()
    with pytest.raises(UserError, match="the SuperLink has failed for 0 s: 500"):
        nodes.ask("train", {0: write({})}, "1")


def test_all_clients_of_a_round_are_asked_at_once() -> None:
    """What they have in common is sent to the SuperLink once, and no node can be done with it before."""
    pushed: list[int] = []
    grid = FakeGrid({5: "now", 6: "now"}, lambda node, message: write(described(node - 5)))
    push = grid.push_messages
    grid.push_messages = lambda messages: pushed.append(len([*messages])) or push(messages)  # type: ignore
    nodes = nodes_of(grid)
    nodes.gather()
    nodes.ask("train", {0: write({}), 1: write({})}, "1")
    assert pushed == [2, 2]
