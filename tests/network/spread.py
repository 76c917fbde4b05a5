"""Federations of four clients on quadratics, run to the end by one process or several.

`spread.py FOLDER train|resume NAME…`
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from models.networks.task_model import Outputs
from network.aggregation import AGGREGATIONS
from network.attacks import ATTACKS
from network.engine.adaptation import train
from network.engine.simulation import Simulation
from network.sampling import ClientSampling
from network.settings import AdaptSettings, PrivacySettings
from tests.models.teacher.guiding import save_guidance
from tests.network.quadratic import DIM, SETTINGS, Quadratic, method, simulation, spoilt

FOUR = [np.array([0]), np.array([1, 2, 3]), np.array([4, 5]), np.array([6, 7])]
FOUR_HELD_OUT = [np.array([8]), np.array([9]), np.array([10]), np.zeros(0, np.int64)]
N_ROUNDS = 3
FEDERATIONS: dict[str, dict[str, object]] = {
    "fedavg": {"client_sampling": "size"}, "fedprox": {}, "scaffold": {}, "fedrep": {}, "fedamp": {}, "ditto": {},
    "fedavgm": {}, "fedadam": {}, "fedyogi": {"virtual_client_size": 4}, "fedadagrad": {},
    "fednova": {"mu": 0.1}, "moon": {}, "fedper": {}, "local": {}, "centralized": {},
    "feddifrc": {"contrast_temperature": 0.5}, "feddisco": {}, "fedrcl": {"temperature": 0.5}, "fedproto": {},
    "gossip": {"topology": "star"},
}  # fmt: skip


class Normed(Quadratic):
    """With batch norm over the embedding; one client has one image only."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(DIM)

    def forward(self, images: Tensor) -> Outputs:
        features = self.norm(images * self.weight)
        return Outputs(features, features[:, :, None, None], features + self.decoder.head.shift)


def federation(name: str, folder: Path, **more: object) -> Simulation:
    """A federation of this method: `<method>`, or `<method>_bn`, each client with its own batch norm, `<method>_nan`,
    in which one of the clients is left out of the second round, `<method>_private`, with noise and a norm that adapts,
    or `<method>_unseen`, where two never train; `+` adds an aggregation or an attack."""
    plain = name.removesuffix("_bn").removesuffix("_nan").removesuffix("_private").removesuffix("_unseen")
    algorithm, *added = plain.split("+")
    model = Normed()
    settings = replace(
        SETTINGS,
        n_rounds=N_ROUNDS,
        momentum=0.5,
        lr_schedule="plateau",
        lr_decay_rate=0.5,
        sgd_per_epoch=7,
        no_improvement_tolerance=1,
        batch_size=2,
        init_lr=0.05,
    )
    arguments = dict(FEDERATIONS[algorithm])
    sampled = {name: arguments.pop(name) for name in ClientSampling.arguments if name in arguments}
    sampled["clients_per_round"] = 2 if name.endswith("_unseen") else 3
    if algorithm == "feddifrc":
        arguments["guidance_path"] = save_guidance(folder / "guidance" / str(os.getpid()), "quadratic", 11, 4, DIM)
    if name.endswith("_private"):
        sampled["client_sampling"] = "poisson"
        more["privacy"] = PrivacySettings(clip_norm=0.2, noise_multiplier=0.5, clip_quantile=0.5)
    made = spoilt(algorithm, 1, [1], **arguments) if name.endswith("_nan") else method(algorithm, **arguments)
    for kind, known in (("aggregation", AGGREGATIONS), ("attack", ATTACKS)):
        for each in filter(known.__contains__, added):
            more[kind] = known[each].from_config({"attackers": 2.0, "assumed_attackers": 0.0})
    how = sampled | {"batch_norm": "local" if name.endswith("_bn") else "averaged", "on_nan": "skip_client"} | more
    who = {"clients": FOUR, "held_out": FOUR_HELD_OUT}
    if name.endswith("_unseen"):
        who = {"clients": FOUR[:2], "held_out": FOUR_HELD_OUT[:2]}
        who |= {"non_participating": FOUR[2:], "non_participating_held_out": FOUR_HELD_OUT[2:]}
    return simulation(made, folder / name, settings, model, **who, **how)


NON_PARTICIPATING = ["fedrep_unseen", "fedamp_unseen", "ditto_unseen"]
NAMES = [
    *FEDERATIONS, "fedavg_bn", "ditto_bn", "scaffold_bn", "moon_bn", "gossip_bn", "scaffold_nan", "gossip_nan",
    "fedadam+median", "fednova+trimmed_mean", "fedrep+krum", "fedavg+krum_nan", "ditto+multi_krum_bn",
    "fedavgm+geometric_median", "fedavg+centered_clipping", "fedavg+label_flip", "fedavg+sign_flip+median",
    "fednova+gaussian", "scaffold+alie", "fedavg+ipm+centered_clipping_nan", "gossip+label_flip",
    *NON_PARTICIPATING,
]  # fmt: skip
NAMES += ["fedavg_private", "scaffold_private"] if find_spec("dp_accounting") else []
ADAPTING = AdaptSettings((2, 5), 1, "all")


def main() -> None:
    """Run, or with `resume` continue, federations in their folders."""
    torch.set_num_threads(1)
    _, folder, how, *names = sys.argv
    for name in names:
        run = federation(name, Path(folder))
        if how == "resume":
            run.resume()
        if name in NON_PARTICIPATING:
            train(run, ADAPTING, resume=False)
        run.train()


if __name__ == "__main__":
    main()
