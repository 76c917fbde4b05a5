"""The federation by BlazeFL: its FedAvg server, and its trainer of one client after the other or of several threads.

Clients' batches are cut once, the local steps are the plain loop's, and a thread keeps one working model for all of
its clients of a round, where BlazeFL's own trainer builds one for each. BlazeFL weights uploads by the clients' sizes,
which are equal. It needs Python 3.14, and threads compute at once where that is free-threaded.
"""

from __future__ import annotations

import copy
import sys
import threading

import torch
from blazefl.contrib import (
    FedAvgBaseClientTrainer,
    FedAvgBaseServerHandler,
    FedAvgThreadPoolClientTrainer,
    FedAvgUplinkPackage,
)
from blazefl.core import deserialize_model, serialize_model
from federation import Federation, RoundControl, arrays_of
from torch import Tensor, nn

Batches = list[tuple[Tensor, Tensor]]


class Setting:
    """What BlazeFL asks for models and data: a model of the calling thread's own, and clients' batches."""

    def __init__(self, federation: Federation) -> None:
        self._initial, self._of_thread = federation.initial_model(), threading.local()
        self._batches = [federation.batches(client) for client in range(federation.n_clients)]

    def select_model(self, model_name: str) -> nn.Module:
        """The thread's model, with any weights: clients load the server's."""
        if not hasattr(self._of_thread, "model"):
            self._of_thread.model = copy.deepcopy(self._initial)
        return self._of_thread.model

    def get_dataloader(self, type_: str, cid: int, batch_size: int, generator: torch.Generator) -> Batches:
        """The client's batches, in their order."""
        return self._batches[cid]


def trained(
    federation: Federation, model: nn.Module, server: Tensor, batches: Batches, cid: int
) -> FedAvgUplinkPackage:
    """A client's round."""
    deserialize_model(model, server)
    federation.train(model, batches)
    return FedAvgUplinkPackage(cid, serialize_model(model), federation.images_a_client)


class OneByOne(FedAvgBaseClientTrainer):
    """Clients one after the other."""

    federation: Federation

    def train(self, model_parameters: Tensor, train_loader: Batches, cid: int) -> FedAvgUplinkPackage:
        """A client's round."""
        return trained(self.federation, self.model, model_parameters, train_loader, cid)


class InThreads(FedAvgThreadPoolClientTrainer):
    """Clients in several threads at once."""

    federation: Federation

    def train(
        self, model: nn.Module, model_parameters: Tensor, train_loader: Batches, cid: int, **_: object
    ) -> FedAvgUplinkPackage:
        """A client's round."""
        return trained(self.federation, model, model_parameters, train_loader, cid)


def main() -> None:
    """Rounds as the benchmark asks for them."""
    federation = Federation.of_text(sys.argv[1])
    control = RoundControl(federation)
    setting, n_clients, seed = Setting(federation), federation.n_clients, federation.seed
    common = {"model_name": "", "dataset": setting, "device": "cpu", "num_clients": n_clients, "seed": seed}
    common["batch_size"] = federation.batch_size
    server = FedAvgBaseServerHandler(setting, global_round=1, sample_ratio=1.0, **common)
    server.model = copy.deepcopy(server.model)  # clients of this thread train on the thread's own
    if federation.cores == 1:
        trainer = OneByOne(setting, epochs=1, lr=federation.lr, **common)
    else:
        trainer = InThreads(setting, epochs=1, lr=federation.lr, num_parallels=federation.cores, **common)
    trainer.federation = federation
    while control.go():
        trainer.local_process(server.downlink_package(), server.sample_clients())
        for package in trainer.uplink_package():
            server.load(package)
        control.done()
    control.finish(arrays_of(server.model))


if __name__ == "__main__":
    main()
