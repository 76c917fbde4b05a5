"""The federation by Apple's pfl: `SimulatedBackend` with `FederatedAveraging`.

Clients' data sets are made once and hold their tensors already cut into batches; metrics on the clients' data are
taken in the first round only, which is not counted; a client's update weighs 1, so that the mean is a plain one.
"""

from __future__ import annotations

import sys
from functools import partial

import torch
import torch.nn.functional as F
from federation import Federation, RoundControl, arrays_of
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

NEVER = 10**9


class WithLoss(nn.Module):
    """A model with the two functions that pfl asks of one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """What is minimised."""
        return F.cross_entropy(self.model(images), labels)

    def metrics(self, images: Tensor, labels: Tensor) -> dict[str, Weighted]:
        """What is reported."""
        return {"loss": Weighted(float(self.loss(images, labels)) * len(labels), len(labels))}


class ControlledRounds(TrainingProcessCallback):
    """Waits for the benchmark before each round, and tells it the time after."""

    def __init__(self, control: RoundControl) -> None:
        self.control = control

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        """Before the first round."""
        self.control.go()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """After a round; True ends the training."""
        self.control.done()
        return not self.control.go(), Metrics()


def main() -> None:
    """Rounds as the benchmark asks for them."""
    federation = Federation.of_text(sys.argv[1])
    control = RoundControl(federation)
    network = WithLoss(federation.initial_model())
    server = torch.optim.SGD(network.parameters(), lr=1.0)  # a step of 1 along the mean update: FedAvg
    model = PyTorchModel(network, partial(torch.optim.SGD, fused=True), server)
    users = range(federation.n_clients)
    of_user = {str(user): Dataset(federation.of_client(user), user_id=str(user)) for user in users}
    data = FederatedDataset(of_user.__getitem__, MinimizeReuseUserSampler(list(of_user)))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=NEVER,
            evaluation_frequency=NEVER,
            train_cohort_size=federation.n_clients,
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(
            local_batch_size=federation.batch_size, local_num_epochs=1, local_learning_rate=federation.lr
        ),
        NNEvalHyperParams(local_batch_size=None),
        [ControlledRounds(control)],
        send_metrics_to_platform=False,
    )
    control.finish(arrays_of(network.model))


if __name__ == "__main__":
    main()
