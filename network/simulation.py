"""The rounds of a federation, simulated in one process or several."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from tqdm import tqdm

from datasets.task_data import TaskData
from network.algorithms.fedavg import FedAvg
from network.client import Local, LocalSettings, Turn, copy_into, longest_first
from network.evaluation import Evaluation
from network.local_training import LocalTraining
from network.probe import measure
from network.state import MEMORY, ClientStates, part, under
from network.workspace import workspace
from utils.errors import UserError
from utils.files import write_json
from utils.runs import Run

_LOSS = "local_loss"  # travels with the uploads


class Simulation:
    """Clients train in turn, or several at once, on working copies, and the server takes the mean of what they send.

    Each process trains the clients that are its own and keeps a running sum of their uploads; one all-reduce a round
    adds the sums up. They are kept in double precision, so that the mean does not depend on the order of clients.
    Every random choice comes from a generator seeded by (seed, round, client).

    Of a tensor that does not travel, each client keeps its own version. Where there are such tensors, the server has
    no whole model, and each client is evaluated with its own; where the method makes personal models beside the
    server's, both are.

    Args:
        model: the initial model; it becomes the working copy.
        data: the task's images.
        clients: each client's images, as positions in `data`.
        held_out: each client's held-out images, among `data.test`.
        groups: (N,) the group of every image, which methods may look at.
        algorithm: the federated method.
        settings: how clients train.
        accelerator: the processes and their device.
        run: where metrics and checkpoints go (the main process writes; each process, its clients' states).
        seed: of all randomness.
        kept: names of tensors that stay with the clients, whatever the method.
        memory: bytes of clients' states to hold in memory, a process.
        clients_per_batch: how many clients train side by side, at most; None to measure what is fastest.
        compiled: whether to compile the forward pass of local training.
    """

    def __init__(
        self, model: nn.Module, data: TaskData, clients: Sequence[np.ndarray], held_out: Sequence[np.ndarray],
        groups: np.ndarray, algorithm: FedAvg, settings: LocalSettings, accelerator: Accelerator, run: Run, seed: int,
        kept: Collection[str] = (), memory: int = MEMORY, clients_per_batch: int | None = 1, compiled: bool = False,
    ) -> None:  # fmt: skip
        self.model = model.to(accelerator.device).to(memory_format=torch.channels_last)
        self.data, self.clients, self.algorithm, self.settings = data, clients, algorithm, settings
        self.groups = torch.from_numpy(groups).to(accelerator.device)
        self.accelerator, self.run, self.seed = accelerator, run, seed
        self._working = self.model.state_dict()
        self.server = {name: tensor.clone() for name, tensor in self._working.items()}
        self.server |= algorithm.server_state(self.model)
        self._shared = frozenset(name for name in self._working if algorithm.is_shared(name) and name not in kept)
        self.has_global = len(self._shared) == len(self._working)
        self.has_personal = algorithm.personal or not self.has_global
        own = longest_first([len(images) for images in clients], accelerator.num_processes)[accelerator.process_index]
        folder = run.path / "checkpoint" / "clients"
        self.states = ClientStates(folder, own, len(clients), accelerator.device, memory)
        self.evaluation = Evaluation(data, clients, held_out, accelerator)
        self.rows: list[dict[str, Any]] = []
        self._compiled = compiled
        self._pace: dict[str, Any] = {"clients_per_batch": clients_per_batch} if clients_per_batch else {}
        # The clients of a round fall into lots of two sizes at most, unless numbers of steps differ.
        self._workspace = lru_cache(maxsize=2)(lambda n: workspace(self.model, n, data.image_size, compiled))
        self._has_batch_norm = any(isinstance(module, _BatchNorm) for module in model.modules())
        self._sum_type = torch.float32 if accelerator.device.type == "mps" else torch.float64

    def train(self) -> list[dict[str, Any]]:
        """All rounds that are still to do; returns the metrics, a row a round, the first before any training."""
        if not self._pace:
            self._pace = self._measure_pace()
        if not self.rows:
            self._finish_round(0, {_LOSS: float("nan"), "seconds": 0.0})
        bar = tqdm(
            range(len(self.rows) - 1, self.settings.n_rounds), unit="round",
            desc=f"{type(self.algorithm).__name__} {self.data.task.name}",
            disable=not self.accelerator.is_main_process,
        )  # fmt: skip
        for round in bar:
            start = time.perf_counter()
            local_loss = self._train_round(round)
            self._finish_round(round + 1, {_LOSS: local_loss, "seconds": time.perf_counter() - start})
            kind = "personal_" if self.has_personal else ""
            shown = {"clients": f"{kind}train_loss_mean", "held_out": f"{kind}local_test_loss_mean"}
            bar.set_postfix({label: f"{self.rows[-1][column]:.4f}" for label, column in shown.items()})
        copy_into(self._working, self.server)
        return self.rows

    def resume(self) -> None:
        """Continue from the run's checkpoint."""
        tensors, state = self.run.load_checkpoint()
        device = self.accelerator.device
        self.server = {name: tensor.to(device) for name, tensor in part("server", tensors).items()}
        self.states.restore({int(client): version for client, version in state["clients"].items()})
        self.rows = state["rows"]
        if not self._pace:  # measured once more, it might come out differently, and with it the rounding
            self._pace = state["pace"]
            torch.set_num_threads(self._pace["threads"])

    def _train_round(self, round: int) -> float:
        """Train the clients of a round and update the server's model; returns their weighted mean loss."""
        rng = np.random.default_rng((self.seed, round))
        turns = self.algorithm.turns(self.clients, self.settings, rng)
        self.algorithm.start_round(self.model, turns, self.server, self.states, self._total)
        sums: dict[str, Tensor] = {}
        for clients in self._side_by_side(turns):
            for client, upload in self._train_clients(clients, turns, round):
                for name, tensor in upload.items():
                    if name not in sums:
                        sums[name] = torch.zeros(tensor.shape, dtype=self._sum_type, device=tensor.device)
                    sums[name].add_(tensor, alpha=turns[client].weight)
        # Divided at the end: sums of whole numbers of images times single-precision values are nearly always exact.
        whole = sum(turn.weight for turn in turns.values())
        mean = {name: tensor / whole for name, tensor in self._reduce(sums).items()}
        local_loss = float(mean.pop(_LOSS))
        self.server = self.algorithm.server_step(self.server, mean)
        return local_loss

    def _side_by_side(self, turns: Mapping[int, Turn]) -> Iterator[list[int]]:
        """This process's clients of a round, in lots that can train at once."""
        most, alike = self._pace["clients_per_batch"], defaultdict(list)
        for client, turn in turns.items():
            if client in self.states.own:
                # Batch norm must not see images that fill up a smaller batch.
                batch = min(self.settings.batch_size, len(turn.images)) if self._has_batch_norm else 0
                alike[turn.n_steps, batch].append(client)
        for clients in alike.values():
            yield from (lot.tolist() for lot in np.array_split(clients, -(-len(clients) // most)))

    def _train_clients(
        self, clients: Sequence[int], turns: Mapping[int, Turn], round: int
    ) -> Iterator[tuple[int, dict[str, Tensor]]]:  # fmt: skip
        """A round of clients that train at once: what each uploads, and its mean loss over the steps."""
        space, at_work = self._workspace(len(clients)), []
        for client, tensors in zip(clients, space.tensors, strict=True):
            state = self.states.load(client)
            start = self._start(state)
            copy_into(tensors, start)
            if client not in self.states:
                state = self.algorithm.client_state(start)
            at_work.append(
                Local(client, turns[client], round, self.model, tensors, self.server, start, state, self.settings,
                      self._shared)
            )  # fmt: skip
        LocalTraining(space, self.data, self.algorithm, self.groups, self.seed)(at_work)
        own = [name for name in self._working if name not in self._shared]
        for local in at_work:
            local.state |= under("own", local.copy(own))
            self.states.save(local.client, local.state)
            yield local.client, self.algorithm.upload(local) | {_LOSS: torch.stack(local.losses).mean()}

    def _measure_pace(self) -> dict[str, Any]:
        """How many clients to train at once, as the main process finds it, for all processes."""
        turns = self.algorithm.turns(self.clients, self.settings, np.random.default_rng(0))
        most = -(-len(turns) // self.accelerator.num_processes)
        pace = [measure(most, self.model, self.data, self.settings, self.groups, self._compiled)]
        if self.accelerator.num_processes > 1:
            broadcast_object_list(pace)
        if self.accelerator.is_main_process:
            write_json(self.run.path / "pace.json", pace[0])
            times = ", ".join(f"{n}: {ms}" for n, ms in pace[0]["ms_by_clients"].items())
            print(f"clients at once: {pace[0]['clients_per_batch']} (ms a client and step of {times})")
        torch.set_num_threads(pace[0]["threads"])
        return pace[0]

    def _start(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What a client starts a round from: the server's tensors, and its own where they do not travel."""
        return {name: state.get(f"own.{name}", self.server[name]) for name in self._working}

    def _load_personal(self, client: int) -> None:
        """Copy a client's own model into the working copy."""
        state = self.states.load(client)
        copy_into(self._working, self.algorithm.personal_model(self._start(state), state))

    def _total(self, tensor: Tensor) -> Tensor:
        """A tensor added up over all processes, in double precision."""
        tensor = tensor.to(self._sum_type)
        return self.accelerator.reduce(tensor, "sum") if self.accelerator.num_processes > 1 else tensor

    def _reduce(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add up all processes' sums, as one flat vector."""
        if self.accelerator.num_processes == 1:
            return sums
        # A process without a client this round learns the layout from the others.
        layout = next(filter(None, gather_object([{name: tensor.shape for name, tensor in sums.items()}])))
        zeros = self.groups.new_zeros(sum(s.numel() for s in layout.values()), dtype=self._sum_type)
        flat = self._total(torch.cat([sums[name].flatten() for name in layout]) if sums else zeros)
        pieces = flat.split([shape.numel() for shape in layout.values()])
        return {name: piece.view(s) for (name, s), piece in zip(layout.items(), pieces, strict=True)}

    def _finish_round(self, round: int, row: dict[str, Any]) -> None:
        """Evaluate the models, and write metrics and checkpoint."""
        losses = []
        if self.has_global:
            copy_into(self._working, self.server)
            row |= self.evaluation.of_server(self.model)
            losses += [row["train_loss_mean"], row["test_loss"]]
        if self.has_personal:
            row |= self.evaluation.of_clients(self.model, self._load_personal, self.states.own)
            losses += [row["personal_train_loss_mean"]]
        # A client with nothing to count has no loss; a model that diverged has none on any client.
        if not np.isfinite(losses).all():
            raise UserError(f"the loss is not finite after round {round}; lower --init_lr")
        self.rows.append({"round": round, **row})
        self._save()

    def _save(self) -> None:
        """Write the clients' states, then the checkpoint that names them, and only then let go of the old ones."""
        parts = [self.states.checkpoint()]
        if self.accelerator.num_processes > 1:
            parts = gather_object(parts)
        if self.accelerator.is_main_process:
            versions = {client: version for of_process in parts for client, version in of_process.items()}
            state = {"rows": self.rows, "clients": versions, "pace": self._pace}
            self.run.save_checkpoint(under("server", self.server), state)
            self.run.write_metrics(self.rows)
        self.accelerator.wait_for_everyone()
        self.states.forget_old()


def shared_run(accelerator: Accelerator, make: Any) -> Run:
    """The run that the main process makes, known to all processes."""
    paths: list[Any] = [make().path if accelerator.is_main_process else None]
    if accelerator.num_processes > 1:
        broadcast_object_list(paths)
    return Run(paths[0])
