"""Central differential privacy of clients: what each may change is bounded, and the server adds noise to the sum.

McMahan et al. 2018 (arXiv 1710.06963), and adaptive norms by Andrew et al. 2021 (arXiv 1905.03871). In a round:

1. A client's vector is what it sends minus what it was sent, over all tensors that travel, of its model and of its
   method. Where its norm is above `--clip_norm`, C, the upload goes back towards what was sent until the norm is C.
2. Every client counts the same, whatever its number of images: the weight is 1 and the sum is divided by K, the number
   of clients of a round, for Poisson sampling the expected one. So neither weights nor divisor tell of anybody, and a
   client changes the sum by C at most. What is missing from K, because fewer were drawn or a loss was not finite, is
   the server's own model.
3. Noise of standard deviation z C (`--noise_multiplier`) is added to each number of the sum, and so z C / K to each of
   the mean, from a stream of its own by seed and round.

It is a bound on a running sum: no upload is kept. The server does all this, so it is trusted, and so is whoever sees
uploads; that can be nobody where the sum is secure (docs/privacy.md). `network/accounting.py` says what
the noise is worth. In a simulation losses, metrics and the share of clipped clients are printed as they are, without
noise, and no epsilon holds for them.

Secure aggregation (SecAgg, Bonawitz et al. 2017, doi 10.1145/3133956.3133982, and SecAgg+, Bell et al. 2020, doi
10.1145/3372297.3417885) hides each upload from the server, which learns the sum alone. That works for whatever is a
plain weighted sum with weights that clients know: here, all that goes through `WeightedSum`, and so all methods but
those that `unprotected` names for other reasons than their counts. Flower implements both protocols for deployments.
This is a simulation, in which one program sees all images anyway: it has no cryptography, and none of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from network.accounting import Account
from network.aggregation.weighted_sum import sum_type
from network.engine.client import ClientRound
from network.engine.trainer import LOSS
from network.sampling import POISSON, ClientSampling
from network.settings import PrivacySettings
from utils.errors import UserError
from utils.streams import generator

if TYPE_CHECKING:
    from network.algorithms.fedavg import FedAvg
    from network.config import FederationConfig

WITHIN = "privacy.within"  # beside an upload: 1 if it was not clipped, else 0
_COVERED = ("uniform", POISSON)  # sampling that there is an account of
_CLIP_LR = 0.2  # eta_C of Andrew et al., as in their experiments
_COUNT_NOISE = 1 / 20  # of the clients of a round: their sigma_b


class NoPrivacy:
    """What the rounds do with cohorts, uploads and means where nothing is private: nothing."""

    def cohort(self, cohort: dict[int, ClientRound]) -> dict[int, ClientRound]:
        """The clients of a round as they count."""
        return cohort

    def limited(self, upload: Mapping[str, Tensor], server: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What counts of an upload, of a client that was sent the server's tensors."""
        return upload

    def divisor(self, counted: float) -> float:
        """What weighted sums are divided by; `counted` is the weight of the clients that count."""
        return counted

    def released(
        self, mean: Mapping[str, Tensor], server: Mapping[str, Tensor], counted: float, round: int
    ) -> tuple[dict[str, Tensor], dict[str, float]]:
        """What the server uses of the mean (float64), and further columns of the round's metrics."""
        return dict(mean), {}

    def affordable(self, n_rounds: int) -> int:
        """How many of these rounds may be run."""
        return n_rounds

    def spent(self, n_rounds: int) -> dict[str, float]:
        """Columns of the metrics where models are evaluated, after this many rounds."""
        return {}

    def notes(self, n_rounds: int) -> list[str]:
        """Lines for the end of the run's report."""
        return []

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what a checkpoint has kept."""


class CentralPrivacy(NoPrivacy):
    """Bounded changes and noise on their sum, as this module says.

    What travels besides a model's weights:

    - Batch norm's running statistics are clipped and get noise like weights. A variance that the noise makes negative
      or 0 stays what it was. Counts of batches are whole numbers: they are no part of the vector and, where there is
      noise, stay what they were. (`--batch_norm group` has neither.)
    - What is summed rather than averaged, SCAFFOLD's changes of control variates, is each client's N-th part of a mean
      over all N clients. It is in the vector N-fold, so that it is measured like the model's change; its noise has a
      standard deviation of z C / N.
    - What is no tensor of the server's, FedNova's direction and effective local steps, is in the vector as it is.

    Adaptive norm (`--clip_quantile`, gamma): after each round, C is multiplied by exp(-eta (b - gamma)), where b is
    the share of clients whose norm was at most C, with noise of standard deviation sigma_b on their count. Each adds
    1/2 or -1/2 to that count, so that a round with both noises is worth the multiplier z if the sum's is
    (z^-2 - (2 sigma_b)^-2)^(-1/2) (theorem 1 of Andrew et al.).

    Single precision bounds changes up to its rounding, and the noise is of NumPy's generator, which is not one for
    cryptography: this tells what privacy costs, and is no guard of real data.

    Args:
        settings: the norm, the noise and so on; `clip_norm` must be given.
        algorithm: the method.
        sampling: how the clients of a round are drawn.
        n_clients: N.
        seed: of the noise.
    """

    def __init__(
        self, settings: PrivacySettings, algorithm: FedAvg, sampling: ClientSampling, n_clients: int, seed: int
    ) -> None:
        self._is_summed, self._seed, self._n_clients = algorithm.is_summed, seed, n_clients
        self._settings, self._expected = settings, sampling.clients_per_round or n_clients
        assert settings.clip_norm is not None
        self.clip_norm, self._noise = settings.clip_norm, settings.noise_multiplier or 0.0
        if settings.delta is None and n_clients == 1:
            raise UserError("--delta: its default, N^-1.1, is 1 for one client; give one below 1")
        delta = settings.delta or n_clients**-1.1
        self.account = Account(sampling.client_sampling, n_clients, self._expected, self._noise, delta)
        self._count_noise = 0.0
        if settings.clip_quantile is not None and self._noise:
            default = max(_COUNT_NOISE * self._expected, self._noise)
            self._count_noise = settings.clip_count_noise or default
            if self._noise >= 2.0 * self._count_noise:
                raise UserError(
                    f"--clip_count_noise {self._count_noise:g} is worth more than half of --noise_multiplier "
                    f"{self._noise:g} leaves for the sum; give more than {self._noise / 2:g}"
                )
            self._noise = (self._noise**-2 - (2.0 * self._count_noise) ** -2) ** -0.5

    def cohort(self, cohort: dict[int, ClientRound]) -> dict[int, ClientRound]:
        """Every client that counts has the weight 1, and the N-th part of all images."""
        alike = {}
        for client, client_round in cohort.items():
            counts = float(client_round.weight > 0)
            alike[client] = replace(client_round, weight=counts, client_fraction=counts / self._n_clients)
        return alike

    def limited(self, upload: Mapping[str, Tensor], server: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The upload, where its distance from `server` is above the norm as far back as that; and `WITHIN`."""
        numbers = {name: t for name, t in upload.items() if name != LOSS and t.is_floating_point()}
        start = {
            name: torch.zeros_like(tensor) if self._is_summed(name) or name not in server else server[name]
            for name, tensor in numbers.items()
        }
        squares = []
        for name, tensor in numbers.items():
            wide = sum_type(tensor.device)
            times = self._n_clients if self._is_summed(name) else 1
            squares.append((tensor.to(wide) - start[name]).mul_(times).square_().sum())
        norm = torch.stack(squares).sum().sqrt()
        factor = (self.clip_norm / norm).clamp(max=1.0)
        # A kept share of 1 leaves every bit as it is.
        clipped = {name: torch.lerp(start[name], tensor, factor.to(tensor.dtype)) for name, tensor in numbers.items()}
        return {**upload, **clipped, WITHIN: (norm <= self.clip_norm).to(norm.dtype)}

    def divisor(self, counted: float) -> float:
        """K, however many were drawn."""
        return float(self._expected)

    def released(
        self, mean: Mapping[str, Tensor], server: Mapping[str, Tensor], counted: float, round: int
    ) -> tuple[dict[str, Tensor], dict[str, float]]:
        """The mean with the server's own part and with noise; adapts the norm. Metrics: the norm, clients clipped."""
        rng, values = generator("privacy", self._seed, round), dict(mean)
        within = float(values.pop(WITHIN)) * self._expected
        result = {LOSS: values.pop(LOSS) * (self._expected / counted if counted else math.nan)}
        for name, value in values.items():
            result[name] = self._noisy(name, value, server.get(name), 1.0 - counted / self._expected, rng)
        metrics = {"clip_norm": self.clip_norm, "clipped": 1.0 - within / counted if counted else math.nan}
        if (quantile := self._settings.clip_quantile) is not None:
            share = 0.5 + (within - counted / 2.0 + self._count_noise * rng.standard_normal()) / self._expected
            self.clip_norm *= math.exp(-(self._settings.clip_lr or _CLIP_LR) * (share - quantile))
        return result, metrics

    def _noisy(
        self, name: str, value: Tensor, before: Tensor | None, missing: float, rng: np.random.Generator
    ) -> Tensor:
        """A tensor of the mean, or a sum; `missing` is the part of the divisor that nobody has."""
        summed = self._is_summed(name)
        if before is not None and not summed and missing:
            value = value + missing * before
        if not self._noise:
            return value
        if before is not None and not before.is_floating_point():
            return before.to(value.dtype)
        deviation = self._noise * self.clip_norm / (self._n_clients if summed else self._expected)
        drawn = torch.from_numpy(np.asarray(rng.standard_normal(value.shape)))
        noisy = value + deviation * drawn.to(value.device, value.dtype)
        if before is not None and name.endswith("running_var"):
            noisy = noisy.where(noisy > 0, before.to(noisy.dtype))
        return noisy

    def affordable(self, n_rounds: int) -> int:
        """As many as `--max_epsilon` allows."""
        most = self._settings.max_epsilon
        return n_rounds if most is None else self.account.affordable(most, n_rounds)

    def spent(self, n_rounds: int) -> dict[str, float]:
        """Epsilon."""
        return {"epsilon": self.account.epsilon(n_rounds), "delta": self.account.delta}

    def notes(self, n_rounds: int) -> list[str]:
        """Epsilon, and what it holds for."""
        return [self.account.sentence(n_rounds)]

    def state(self) -> dict[str, Any]:
        """The norm, which may have adapted."""
        return {"clip_norm": self.clip_norm}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with that norm."""
        self.clip_norm = state["clip_norm"]


NO_PRIVACY = NoPrivacy()


def privacy_of(config: FederationConfig, n_clients: int) -> NoPrivacy:
    """What makes a federation of N clients private; UserError where its settings cannot, for what it does."""
    algorithm, sampling = config.algorithm, config.sampling
    if config.privacy.clip_norm is None:
        if sampling.client_sampling == POISSON:
            raise UserError(
                "--client_sampling poisson may draw nobody, which only the sums of differential privacy allow for; "
                "give --clip_norm (inf: without a bound), or another --client_sampling"
            )
        return NO_PRIVACY
    if reason := algorithm.unprotected() or config.reweighting.unprotected():
        raise UserError(f"--clip_norm: no bound of uploads protects clients here: {reason}")
    if sampling.client_sampling not in _COVERED:
        raise UserError(
            f"--clip_norm: no account covers --client_sampling {sampling.client_sampling}, by which clients are drawn "
            f"as often as they have images; give {' or '.join(_COVERED)}"
        )
    made = CentralPrivacy(config.privacy, algorithm, sampling, n_clients, config.settings.rand_seed)
    made.spent(1)  # raises where the package is missing
    return made
