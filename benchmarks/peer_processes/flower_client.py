"""A client of the federation for Flower, as its actors import it; model and data are made once an actor."""

from __future__ import annotations

import os
from functools import cache

import torch
from federation import Federation
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp
from torch import nn

SPECIFICATION = "FEDERATION"  # the environment variable that tells actors what to run

app = ClientApp()


@cache
def federation() -> tuple[Federation, nn.Module, list[list]]:
    """What to run, the actor's model, and all clients' batches."""
    made = Federation.of_text(os.environ[SPECIFICATION])
    return made, made.initial_model(), [made.batches(client) for client in range(made.n_clients)]


@app.train()
def train(message: Message, context: Context) -> Message:
    """A client's round, by messages."""
    made, model, batches = federation()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    made.train(model, batches[int(context.node_config["partition-id"])])
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": made.images_a_client}),
    }
    return Message(content=RecordDict(content), reply_to=message)


class ArrayClient(NumPyClient):
    """A client's round, by lists of arrays: what the engine before took."""

    def __init__(self, client: int) -> None:
        self.client = client

    def fit(self, parameters: list, config: dict) -> tuple[list, int, dict]:
        """Train, and return weights, how much they count, and no metrics."""
        made, model, batches = federation()
        with torch.no_grad():
            for tensor, array in zip(model.state_dict().values(), parameters, strict=True):
                tensor.copy_(torch.from_numpy(array))
        made.train(model, batches[self.client])
        return [tensor.numpy() for tensor in model.state_dict().values()], made.images_a_client, {}


def client_fn(context: Context) -> Client:
    """The client that an actor plays."""
    return ArrayClient(int(context.node_config["partition-id"])).to_client()
