"""The ClientApp: a message from the server in, a client's answer out.

The node that it runs on says with `--node-config 'folder="…"'` where the client's images are, and with
`use_accelerator=false` to keep to the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from deploy.messages import read, write
from deploy.nodes import PING
from deploy.participant import Participant, join, participant

app = ClientApp()


def _of(context: Context) -> tuple[Path, bool]:
    """The client's folder, and whether to compute on a GPU that is there."""
    return Path(str(context.node_config["folder"])), bool(context.node_config.get("use_accelerator", True))


@app.query()
def query(message: Message, context: Context) -> Message:
    """Join a run."""
    folder, use_accelerator = _of(context)
    return Message(write(join(folder, use_accelerator, *read(message.content))), reply_to=message)


@app.query(PING)
def ping(message: Message, context: Context) -> Message:
    """Say that whatever was asked before is done."""
    return Message(RecordDict(), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Take part in a round."""
    return _take_part(Participant.train, message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate a model on the client's images."""
    return _take_part(Participant.evaluate, message, context)


def _take_part(work: Callable[..., Any], message: Message, context: Context) -> Message:
    folder, use_accelerator = _of(context)
    request, tensors = read(message.content)
    answer = work(participant(folder, request["run"], use_accelerator), request, tensors)
    return Message(write(*answer), reply_to=message)
