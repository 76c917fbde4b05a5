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
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import httpx
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from deploy import flower
from deploy.client_app import app
from utils import progress
from utils.errors import explained

_PAUSE = 0.2  # seconds between two looks for a message
_AGAIN = 5.0  # seconds after which a SuperNode that has ended is started again
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux


def run_client(superlink: str, folder: Path, use_accelerator: bool, certificate: Path | None, key: Path | None) -> None:
    """Take part in the runs of a SuperLink until this process is ended.

    Args:
        superlink: its address, `host:port`.
        folder: the client's images, see `deploy/shares.py`.
        use_accelerator: compute on a GPU that is there.
        certificate: of the authority that has signed the SuperLink's; None talks to it without encryption.
        key: the private key by which the SuperLink knows this client; None without authentication.
    """
    path = json.dumps(str(folder.resolve()))  # a string of TOML, too
    config = f"folder={path} use_accelerator={json.dumps(use_accelerator)}"
    options = ["--superlink", superlink, "--isolation", "process", "--node-config", config]
    options += ["--insecure"] if certificate is None else ["--root-certificates", str(certificate)]
    options += ["--auth-supernode-private-key", str(key)] if key else []
    while True:
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        node = _start(["-P", "-c", flower.SUPERNODE, *options, "--host", "127.0.0.1", "--port", str(port)])
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
    with closing(flower.runtime(address)) as waiting:
        reached, token = False, ""
        while node.poll() is None:
            try:
                token = token or flower.next_token(waiting)
                reached = True
                if token:
                    token = _take(address, token, client_app, lambda: flower.next_token(waiting))
                    continue
            except Exception as error:
                if reached or not isinstance(error, httpx.HTTPError):  # else it has not started yet
                    progress.say(f"the SuperNode fails: {type(error).__name__}: {error}")
                    return
            time.sleep(_PAUSE)


def _take(address: str, token: str, client_app: ClientApp, other: Callable[[], str]) -> str:
    """Answer one message; returns the token of another that has come before this one was whole, or nothing."""
    with closing(flower.runtime(address, token)) as interface, flower.alive(interface):
        task = flower.Task(interface)
        message, later = task.pull(_PAUSE, other)
        if message is None:
            task.end("it was dropped")
        else:
            task.answer(_reply(client_app, message, task.context))
        return later


def _reply(client_app: ClientApp, message: Message, context: Context) -> Message:
    """What the client answers; what goes wrong is told to the server in a line, and here."""
    try:
        return client_app(message, context)
    except Exception as error:
        line = explained(error, "--batch_size") or f"{type(error).__name__}: {error}"
        progress.say(f"{message.metadata.message_type} message: {line}")
        if folder := context.node_config.get("folder"):
            line = line.replace(str(folder), "FOLDER")  # where it lies is nobody's concern
        return flower.failure(line, message)
