"""The ServerApp: a run of `deploy/server.py`, with its arguments in the run's configuration."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from datasets.table import read_table
from datasets.task_data import TaskData
from deploy.messages import write
from deploy.nodes import Nodes
from deploy.participant import STAGE
from deploy.population import class_counts, knows_labels
from deploy.server import RemoteClients, plan_of
from deploy.settings import DeployedStage, check_no_clusters
from deploy.shares import Share, read_share
from models.central.metrics import metric_names
from models.networks.task_model import save_model
from models.networks.threads import set_threads
from network.engine.simulation import Simulation
from network.provenance import code_of, code_version
from network.start import starting_model
from utils import progress
from utils.errors import UserError, explained
from utils.files import read_json, write_json
from utils.runs import Run, data_path_or_default
from utils.tracking import accelerator_of
from utils.versions import digests

app = ServerApp()
_TITLE = "Train a federation whose clients are on machines of their own."
_ABOUT = "deployment.json"
_MOST_IMAGES = 1 << 24  # of a client; the server has a number in memory for each


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, as `arguments` in the run's configuration say.

    In a thread, so that signals stay Flower's: a run that is stopped or killed goes on from its last checkpoint.
    """
    errors: list[Exception] = []

    def work() -> None:
        """Serve, and keep what goes wrong for the main thread."""
        try:
            words = shlex.split(str(context.run_config["arguments"]))
            serve(grid, DeployedStage.from_args(_TITLE, words))
        except Exception as error:
            line = explained(error)
            errors.append(error if line is None else UserError(line))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    if errors:
        if isinstance(errors[0], UserError):
            progress.say(f"error: {errors[0]}")
        raise errors[0]


def serve(grid: Grid, stage: DeployedStage) -> Simulation:
    """Wait for the clients and train; returns the federation, with the metrics of its rounds."""
    running, federation = stage.running, stage.federation
    accelerator = accelerator_of(running)
    model, start = starting_model(stage.model, stage.adapters, federation, running, accelerator.device)
    check_no_clusters(federation)
    data_path = data_path_or_default(running.data_path, running.result_path)
    config = {**stage.config, **model.config.record(), "data_path": data_path}
    share = read_share(data_path)
    if share.client is not None:
        raise UserError(f"{data_path} has the images of client {share.client}; give the server's, with --data_path")
    federation.check(model.task, share.n_clients)
    table = read_table(data_path)
    data = TaskData(table, model.task, model.config.image_size, accelerator.device, needs=("test",))
    set_threads(model, data, federation.local.batch_size)
    origin = code_of(STAGE, config) | {"data_version": data.version, "inputs": digests([start], running.result_path)}
    kind = str(share.origin.get("type", "partition"))
    parts = ("deployed", config["method"], stage.model.task, kind, share.partition[:12])
    run = Run.start(config, *parts, origin=origin)

    name = _name_of(run, running.resume_training)
    plan = plan_of(config, model.config.record(), code_version(STAGE, config), name)
    handshake = write(plan, model.state_dict())
    n_counts = len(class_counts(data, data.test)) if knows_labels(federation.algorithm, federation.reweighting) else 1
    n_values = len(metric_names(data.task))
    check = partial(_check, share=share, n_counts=n_counts, n_values=n_values)
    nodes = Nodes(grid, share.n_clients, running.timeout, lambda: handshake, check)
    nodes.gather()
    _check_images(run, nodes, running.resume_training)
    clients = RemoteClients(data, federation, nodes, name, running.on_missing)
    deployment = Simulation(model, clients.data, federation, accelerator, run, clients)
    if running.resume_training:
        deployment.resume()
    run.track(accelerator, len(deployment.rows))
    deployment.train()
    _finish(deployment)
    accelerator.end_training()
    return deployment


def _name_of(run: Run, resumed: bool) -> str:
    """The name by which clients keep their states of a run: the same when it is resumed."""
    if not resumed:
        write_json(run.path / _ABOUT, {"run": uuid4().hex})
    return str(read_json(run.path / _ABOUT, "the run")["run"])


def _check(description: Mapping[str, Any], share: Share, n_counts: int, n_values: int) -> None:
    """UserError where a client is not of this federation, in which all have so many counts of images, and values."""
    if (description.get("n_clients"), description.get("partition")) != (share.n_clients, share.partition):
        raise UserError("its images are of another partition than the server's")
    counts = description.get("counts")
    if not isinstance(counts, list) or len(counts) != n_counts or not all(type(n) is int and n >= 0 for n in counts):
        raise UserError("it does not say how many images it has")
    if not 0 < sum(counts) <= _MOST_IMAGES:
        raise UserError(f"it says that it has {sum(counts)} images; from 1 to {_MOST_IMAGES} are counted")
    if not isinstance(description.get("images"), str):
        raise UserError("it does not say which images it has")
    measured = description.get("measured")
    if not isinstance(measured, list) or len(measured) != n_values or not all(map(_is_pair, measured)):
        raise UserError("it does not say what it can measure on its images")


def _is_pair(value: Any) -> bool:
    """Whether this says yes or no of training images, and of held-out ones."""
    return isinstance(value, list) and len(value) == 2 and all(type(split) is bool for split in value)


def _check_images(run: Run, nodes: Nodes, resumed: bool) -> None:
    """Note what clients' images are; UserError where a run that is resumed was started with others."""
    images = {str(client): description["images"] for client, description in sorted(nodes.described.items())}
    record = read_json(run.path / _ABOUT, "the run")
    if resumed and (before := record.get("images")) and before != images:
        other = next(client for client in images if before.get(client) != images[client])
        raise UserError(f"client {other} has other images than when {run.path} was started; start a new run")
    write_json(run.path / _ABOUT, record | {"images": images})


def _finish(deployment: Simulation) -> None:
    """Write the model and the summary."""
    run = deployment.run
    if deployment.has_global:
        save_model(deployment.model, run.path / "model.safetensors")  # type: ignore[arg-type]
    last = deployment.rows[-1]
    notes = [*deployment.algorithm.notes(deployment.rows), *deployment.evaluation.notes()]
    run.write_summary({"last": last, "notes": notes, "costs": deployment.costs()})
    print(*notes, f"metrics, checkpoints and model in {Path(run.path)}", sep="\n")
