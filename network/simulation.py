"""The rounds of a federation, simulated in one process or several."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor
from tqdm import tqdm

from datasets.task_data import TaskData
from models.evaluation import evaluate, mean_values
from models.task_model import TaskModel
from network.algorithms.fedavg import FedAvg
from network.client import Local, LocalSettings, longest_first, train_client
from network.state import ClientStates
from utils.errors import UserError
from utils.metrics import summarise
from utils.runs import Run


class Simulation:
    """Clients train in turn on one working copy of the model, and the server takes the mean of what they send.

    Each process trains the clients that are its own and keeps a running sum of their uploads; one all-reduce a round
    adds the sums up. They are kept in double precision, so that the mean does not depend on the order of clients.
    Every random choice comes from a generator seeded by (seed, round, client).

    Args:
        model: the initial model; it becomes the working copy.
        data: the task's images.
        clients: each client's images, as positions in `data`.
        groups: (N,) the group of every image, which methods may look at.
        algorithm: the federated method.
        settings: how clients train.
        accelerator: the processes and their device.
        run: where metrics and checkpoints go (the main process writes).
        seed: of all randomness.
    """

    def __init__(
        self, model: TaskModel, data: TaskData, clients: Sequence[np.ndarray], groups: np.ndarray, algorithm: FedAvg,
        settings: LocalSettings, accelerator: Accelerator, run: Run, seed: int,
    ) -> None:  # fmt: skip
        self.model = model.to(accelerator.device, memory_format=torch.channels_last)
        self.data, self.clients, self.algorithm, self.settings = data, clients, algorithm, settings
        self.groups = torch.from_numpy(groups).to(accelerator.device)
        self.accelerator, self.run, self.seed = accelerator, run, seed
        self._working = self.model.state_dict()
        self.server = {name: tensor.clone() for name, tensor in self._working.items()}
        owners = longest_first([len(images) for images in clients], accelerator.num_processes)
        self.own = set(owners[accelerator.process_index])
        self.states = ClientStates()
        self.rows: list[dict[str, Any]] = []
        self._sum_type = torch.float32 if accelerator.device.type == "mps" else torch.float64

    def train(self) -> list[dict[str, Any]]:
        """All rounds that are still to do; returns the metrics, a row a round, the first before any training."""
        if not self.rows:
            self._finish_round(0, {"local_loss": float("nan"), "seconds": 0.0})
        bar = tqdm(
            range(len(self.rows) - 1, self.settings.n_rounds), unit="round",
            desc=f"{type(self.algorithm).__name__} {self.data.task.name}",
            disable=not self.accelerator.is_main_process,
        )  # fmt: skip
        for round in bar:
            start = time.perf_counter()
            local_loss = self._train_round(round)
            self._finish_round(round + 1, {"local_loss": local_loss, "seconds": time.perf_counter() - start})
            row = self.rows[-1]
            bar.set_postfix(clients=f"{row['train_loss_mean']:.4f}", held_out=f"{row['test_loss']:.4f}")
        self._load_server()
        return self.rows

    def resume(self) -> None:
        """Continue from the run's checkpoint."""
        tensors, state = self.run.load_checkpoint()
        device = self.accelerator.device
        self.server = {name: tensors[f"server.{name}"].to(device) for name in self.server}
        kept = {name[len("client.") :]: t for name, t in tensors.items() if name.startswith("client.")}
        self.states.restore(kept, self.own, self.accelerator)
        self.rows = state["rows"]

    def _train_round(self, round: int) -> float:
        """Train the clients of a round and update the server's model; returns their weighted mean loss."""
        chosen = self.algorithm.select(len(self.clients), np.random.default_rng((self.seed, round)))
        sums: dict[str, Tensor] = {}
        totals = torch.zeros(2, dtype=self._sum_type, device=self.accelerator.device)  # weights, weighted losses
        for client in chosen:
            if client not in self.own:
                continue
            upload, weight, loss = self._train_client(client, round)
            for name, tensor in upload.items():
                if name not in sums:
                    sums[name] = torch.zeros(tensor.shape, dtype=self._sum_type, device=tensor.device)
                sums[name].add_(tensor, alpha=weight)
            totals += torch.stack([torch.full_like(loss, weight), loss * weight])
        sums, totals = self._reduce(sums, totals)
        mean = {name: tensor / totals[0] for name, tensor in sums.items()}
        self.server = self.algorithm.server_step(self.server, mean)
        return float(totals[1] / totals[0])

    def _train_client(self, client: int, round: int) -> tuple[dict[str, Tensor], float, Tensor]:
        """One client's round: what it uploads, its weight, and its mean loss over the steps."""
        self._load_server()
        if client not in self.states:
            self.states[client] = self.algorithm.client_state(self.model)
        local = Local(
            client, self.clients[client], round, self.model, self.server, self.states[client], self.settings
        )  # fmt: skip
        rng = np.random.default_rng((self.seed, round, client))
        loss = train_client(local, self.data, self.algorithm, self.groups, rng)
        return self.algorithm.upload(local), self.algorithm.weight(local), loss

    def _load_server(self) -> None:
        """Copy the server's tensors into the working copy."""
        torch._foreach_copy_(list(self._working.values()), [self.server[name] for name in self._working])

    def _reduce(self, sums: dict[str, Tensor], totals: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Add up all processes' sums, as one flat vector."""
        if self.accelerator.num_processes == 1:
            return sums, totals
        # A process without a client this round learns the layout from the others.
        layout = next(filter(None, gather_object([{name: tensor.shape for name, tensor in sums.items()}])))
        parts = [sums[name].flatten() if sums else totals.new_zeros(shape.numel()) for name, shape in layout.items()]
        flat = self.accelerator.reduce(torch.cat([totals, *parts]), "sum")
        pieces = flat[2:].split([shape.numel() for shape in layout.values()])
        return {n: piece.view(s) for (n, s), piece in zip(layout.items(), pieces, strict=True)}, flat[:2]

    def _finish_round(self, round: int, row: dict[str, Any]) -> None:
        """Evaluate the server's model, and write metrics and checkpoint."""
        self._load_server()
        dealt = np.concatenate(self.clients)
        bounds = np.cumsum([0, *(len(images) for images in self.clients)])
        train = evaluate(self.model, self.data, dealt, self.accelerator)
        of_client = summarise(self.data.task, train, [np.arange(a, b) for a, b in pairwise(bounds)])
        test = mean_values(self.data, evaluate(self.model, self.data, self.data.test, self.accelerator))
        # A client with nothing to count has no loss; a model that diverged has none on any client.
        if not (np.isfinite(of_client["loss"]).any() and np.isfinite(test["loss"])):
            raise UserError(f"the loss is not finite after round {round}; lower --init_lr")
        for name, values in of_client.items():
            row[f"train_{name}_mean"], row[f"train_{name}_std"] = np.nanmean(values), np.nanstd(values)
            row[f"test_{name}"] = test[name]
        row["train_loss_worst"] = np.nanmax(of_client["loss"])
        self.rows.append({"round": round, **{name: float(value) for name, value in row.items()}})
        kept = self.states.gathered(self.accelerator)
        if self.accelerator.is_main_process:
            tensors = {f"server.{name}": tensor for name, tensor in self.server.items()}
            self.run.save_checkpoint(tensors | {f"client.{n}": t for n, t in kept.items()}, {"rows": self.rows})
            self.run.write_metrics(self.rows)


def shared_run(accelerator: Accelerator, make: Any) -> Run:
    """The run that the main process makes, known to all processes."""
    paths = [make().path if accelerator.is_main_process else None]
    if accelerator.num_processes > 1:
        broadcast_object_list(paths)
    return Run(paths[0])
