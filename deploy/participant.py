"""The client's half of a round: one client of the simulation's trainer, on a machine that has its images alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from datasets.table import read_table
from datasets.task_data import TaskData
from deploy.population import class_counts, knows_labels, with_counted
from deploy.shares import read_share
from models.networks.config import ModelConfig
from models.networks.lora import adapt
from models.networks.parts import TRAINS
from models.networks.precision import set_precision
from models.networks.task_model import Outputs, TaskModel
from network.config import FederationConfig
from network.engine.client import ClientRound, copy_into
from network.engine.evaluation import values_of
from network.engine.federated_data import FederatedData
from network.engine.trainer import Trainer, travelling
from network.partition.client_images import ClientImages
from network.provenance import code_version
from utils.errors import UserError
from utils.files import json_in, save_tensors, write_atomically, write_json
from utils.processes import processes

STAGE = "test_fed.py"  # whose declared versions server and clients must have in common
RUNS = "runs"  # within a client's folder: what it keeps of each run


class OwnState:
    """What a client keeps between rounds, as the trainer asks for it: one safetensors file for each of its versions.

    The server says which version a round begins from and which ones its checkpoints name, so that it can be killed and
    resumed, and a round be repeated, with the same result. A version is the number of the round that it was made in,
    counted from 1.
    """

    memory = 0

    def __init__(self, folder: Path, client: int, n_clients: int, device: torch.device) -> None:
        self.of_process, self.n_clients = [client], n_clients
        self._folder, self._device = folder, device
        self.version: int | None = None
        self.next = 1

    def begin(self, version: int | None, kept_versions: Collection[int]) -> None:
        """Go back to this version (None: there is no state yet); files of others than this and `kept` are removed."""
        self.version = version
        for path in self._folder.glob("*.safetensors"):
            if path.stem.isdigit() and int(path.stem) not in {version, *kept_versions}:
                path.unlink()

    def __contains__(self, client: int) -> bool:
        return self.version is not None

    def load(self, client: int) -> dict[str, Tensor]:
        """The client's tensors, empty if it has no state."""
        if self.version is None:
            return {}
        path = self._path(self.version)
        try:
            return {name: tensor.to(self._device) for name, tensor in load_file(path).items()}
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path}: the client's state of that round cannot be read ({error})") from error

    def save(self, client: int, state: Mapping[str, Tensor]) -> None:
        """Write the state as the next version."""
        if not state and self.version is None:
            return
        copies = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
        with write_atomically(self._path(self.next)) as temporary:
            save_tensors(copies, temporary)
        self.version = self.next

    def _path(self, version: int) -> Path:
        return self._folder / f"{version}.safetensors"


class _Nothing(nn.Module):
    """A model whose outputs are 0: what is nan of its values is so with any model, because nothing counts."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._model = model

    def forward(self, images: Tensor) -> Outputs:
        """The outputs, of the model's shapes."""
        return Outputs(*map(torch.zeros_like, self._model(images)))


class Participant:
    """A client in one run.

    Args:
        folder: the client's data folder, see `deploy/shares.py`.
        plan: what the server says of the run, see `deploy.server.plan_of`.
        start: all tensors of the model that the run starts from.
        device: where to compute.

    Raises:
        UserError: if the code here has other declared versions than the server's, or the images do not fit.
    """

    def __init__(
        self, folder: Path, plan: Mapping[str, Any], start: Mapping[str, Tensor], device: torch.device
    ) -> None:
        config = plan["arguments"]
        mine = code_version(STAGE, config)
        if mine != plan["versions"]:
            raise UserError(f"the code here has the versions {mine}, the server's {plan['versions']}; take the same")
        self.share = read_share(folder)
        if self.share.client is None:
            raise UserError(f"{folder} has the server's images; give a client's")
        model = TaskModel(ModelConfig.of(plan["model"]))
        adapt(model.encoder, model.config, TRAINS[config["train"]].from_config(config), config["rand_seed"])
        model.load_state_dict(start)
        set_precision(model, config["precision"], device)
        self.model: nn.Module = model.to(device).to(memory_format=torch.channels_last)
        self.data = TaskData(read_table(folder), model.task, model.config.image_size, device, needs=("train",))
        federation = FederationConfig.from_config(config)
        self.algorithm, self._reweighting = federation.algorithm, federation.reweighting
        _, shared = travelling(self.model, federation)
        groups = np.full(len(self.data), -1)
        own, held_out = (ClientImages.of([images]) for images in (self.data.train, self.data.test))
        data = FederatedData(self.data, own, held_out, groups)
        self._start = {name: tensor.to(device) for name, tensor in start.items()}
        state = OwnState(folder / RUNS / plan["run"], self.client, self.share.n_clients, device)
        self.states = state
        self.trainer = Trainer(self.model, data, federation, state, shared)  # type: ignore[arg-type]
        self._prepared: Any = None

    @property
    def client(self) -> int:
        """The client's number."""
        assert self.share.client is not None
        return self.share.client

    def described(self) -> dict[str, Any]:
        """What the server is told before the first round; classes are counted for methods that tell them apart."""
        counts = class_counts(self.data, self.data.train).tolist()
        values = values_of(_Nothing(self.model), self.data, self.data.train, self.data.test)
        if not knows_labels(self.algorithm, self._reweighting):
            counts = [sum(counts)]  # of no class that it would have to name
        return {
            "client": self.client,
            "n_clients": self.share.n_clients,
            "partition": self.share.partition,
            "images": self.data.digest,
            "counts": counts,
            "measured": np.isfinite(values).tolist(),
        }

    def train(
        self, request: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Take part in a round; returns the state's new version and the first bad step, in words, and the upload."""
        self._begin(request)
        self.states.next = request["round"] + 1
        chosen = request["images"]
        images = self.data.train if chosen is None else self.data.train[np.array(chosen, np.int64)]
        part = ClientRound(images, request["n_steps"], request["weight"], request["client_fraction"])
        self.trainer.vectorisation = {"vectorised_clients": 1, "threads": request["threads"]}
        [(_, upload, bad)] = self.trainer.train({self.client: part}, self._server(tensors), request["round"])
        return {"version": self.states.version, "bad_step": int(bad)}, dict(upload)

    def evaluate(
        self, request: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The loss and the metrics of the server's model, or of the personal one, on all of the client's images."""
        self._begin(request)
        server = self._server(tensors)
        if request["personal"]:
            state = self.states.load(self.client)
            server = dict(self.algorithm.personal_model(self.trainer.start(state, server), state))
        copy_into(self.model.state_dict(), server)
        return {}, {"values": torch.from_numpy(values_of(self.model, self.data, self.data.train, self.data.test))}

    def _begin(self, request: Mapping[str, Any]) -> None:
        """Go back to the version of the state that the server names, and prepare the method once."""
        torch.set_num_threads(request["threads"])
        self.states.begin(request["version"], request["kept"])
        if self._prepared != request["others"]:
            counts = [np.array(counted, np.int64) for counted in request["others"]]
            population, (others, held_out) = with_counted(self.data, counts)
            population.test = held_out
            clients = ClientImages.of([self.data.train, others])
            self._reweighting.prepare(population, clients)
            self.algorithm.prepare(population, np.full(len(population.labels), -1), clients)
            self._prepared = request["others"]

    def _server(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The server's tensors: what was received, and for what never travels the start."""
        return self._start | {name: tensor.to(self.data.device) for name, tensor in tensors.items()}


def join(folder: Path, use_accelerator: bool, plan: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Note what the server says of a run and the model that it starts from, and describe this client."""
    run_folder = _run_folder(folder, plan["run"])
    with write_atomically(run_folder / "start.safetensors") as temporary:
        save_tensors(dict(tensors), temporary)
    write_json(run_folder / "plan.json", dict(plan))
    participant.cache_clear()
    return participant(folder, plan["run"], use_accelerator).described()


@lru_cache(maxsize=4)
def participant(folder: Path, run: str, use_accelerator: bool) -> Participant:
    """The client in a run that it has joined; UserError where it has not."""
    run_folder = _run_folder(folder, run)
    try:
        plan, start = json_in(run_folder / "plan.json"), load_file(run_folder / "start.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"{run_folder}: this client has not joined that run ({error})") from error
    return Participant(folder, plan, start, processes(use_accelerator).device)


def _run_folder(folder: Path, run: str) -> Path:
    if re.fullmatch(r"[0-9a-f]{32}", str(run)) is None:
        raise UserError(f"{run!r} names no run")
    return folder / RUNS / run
