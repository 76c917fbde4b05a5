"""Whether clients train side by side as each does alone, in one network of each of timm's families.

    python -m benchmarks.families                          (hours on two cores)
    python -m benchmarks.families resnet resnest levit     (these modules of timm alone)

A family is a module of timm; its network is the smallest of eight with short names, without those that timm has for
its tests. `network/engine/workspace.py` decides, as in training, whether two clients go side by side, by stacked
copies or by vmap, or one by one. Then both take steps side by side, and each alone, in double precision, from other
weights each; dropout is off. A line says by how much the weights differ, of the way that they have gone. Where that
is more than rounding, or anything is raised but a line for the user, the exit code is 1, and the last lines name the
networks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import timm
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from datasets.classes import ClassSet
from models.networks.config import ModelConfig
from models.networks.encoders import TIMM, quiet
from models.networks.task_model import TaskModel
from network.engine.stacking import StackedBatchNorm
from network.engine.workspace import OneCopy, Workspace, Workspaces
from utils.args import POSITIVE, Parser
from utils.errors import UserError, run_script

ROUNDING = 1e-3
_SIZES = (64, 224, 240, 256)
_TRIED, _COPIES, _IMAGES, _STEPS = 8, 2, 4, 2
_OF_TESTS = "test_"


@dataclass(frozen=True)
class Outcome:
    """How a network's copies went, in words; `fails` where they did not end as each alone."""

    network: str
    words: str
    fails: bool = False


def smallest(family: str) -> tuple[str, float]:
    """The family's network that is tried, and its millions of parameters."""
    names = [name for name in timm.list_models(module=family) if not name.startswith(_OF_TESTS)]
    return min(((name, _millions(name)) for name in sorted(names, key=len)[:_TRIED]), key=lambda sized: sized[1])


def _millions(name: str) -> float:
    with torch.device("meta"), quiet():
        return sum(parameter.numel() for parameter in timm.create_model(name, num_classes=0).parameters()) / 1e6


def tried(network: str) -> Outcome:
    """The outcome of a network of timm, at the first size that it takes."""
    refusal = ""
    for size in _SIZES:
        torch.manual_seed(0)
        try:
            config = ModelConfig("class_scene", TIMM + network, size, classes=ClassSet(("a", "b")), decoder="linear")
            model = TaskModel(config).double()
            with torch.no_grad():
                model.eval()(torch.zeros(1, 3, size, size, dtype=torch.float64))
        except Exception as error:  # whatever a network raises that is built for other sizes
            refusal = refusal or " ".join(str(error).split())[:80]
            continue
        return of_copies(f"{network} at {size} px", model, size)
    return Outcome(network, f"takes none of these sizes ({refusal})")


def of_copies(name: str, model: torch.nn.Module, size: int) -> Outcome:
    """The outcome of a model's copies on images of this size."""
    try:
        make = Workspaces(model, (3, size, size))
        if not make.side_by_side:
            return Outcome(name, "one by one")
        copies = make(_COPIES)
    except UserError as error:
        return Outcome(name, str(error))
    except Exception as error:  # whatever it is, the other families are tried
        return Outcome(name, f"{type(error).__name__}: {' '.join(str(error).split())[:80]}", True)
    worst = difference(model, copies, size)
    return Outcome(name, f"{type(copies).__name__}, differing by {worst:.1e}", not worst <= ROUNDING)


def difference(model: torch.nn.Module, copies: Workspace, size: int) -> float:
    """The largest change of a weight by steps side by side that those alone do not have, over the largest change."""
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(_STEPS, copies.n, _IMAGES, 3, size, size, generator=generator, dtype=torch.float64)
    weights = {name for name, _ in model.named_parameters()}
    starts = [
        {
            name: tensor * (1 + 0.2 * torch.randn(tensor.shape, generator=generator, dtype=torch.float64))
            + 0.05 * torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            if name in weights
            else tensor.clone()
            for name, tensor in model.state_dict().items()
        }
        for _ in range(copies.n)
    ]
    together = moved(copies, starts, images)
    worst = largest = 0.0
    for i, start in enumerate(starts):
        (alone,) = moved(OneCopy(model), [start], images[:, i : i + 1])
        for name in weights:
            worst = max(worst, float((together[i][name] - alone[name]).abs().max()))
            largest = max(largest, float((alone[name] - start[name]).abs().max()))
    return worst / largest


def moved(copies: Workspace, starts: Sequence[dict[str, Tensor]], images: Tensor) -> list[dict[str, Tensor]]:
    """Each copy's tensors after steps of SGD on its images (steps, n, B, …), from these."""
    for tensors, start in zip(copies.tensors, starts, strict=True):
        for name, tensor in tensors.items():
            tensor.copy_(start[name])
    copies.prepare(copies.leaves.keys())
    for batch in images:
        copies._module.train()  # what modules keep in eval mode is of other weights
        for module in copies._module.modules():
            module.training = isinstance(module, _BatchNorm | StackedBatchNorm)
        outputs = copies.compute(batch.flatten(0, 1))
        loss = sum(output.unflatten(0, (copies.n, -1)).square().flatten(1).mean(1).sum() for output in outputs)
        gradients = torch.autograd.grad(loss, list(copies.leaves.values()), materialize_grads=True)
        with torch.no_grad():
            for leaf, gradient in zip(copies.leaves.values(), gradients, strict=True):
                leaf.sub_(gradient, alpha=1e-3)
    return [{name: tensor.detach().clone() for name, tensor in tensors.items()} for tensors in copies.tensors]


def main() -> None:
    """Print a line a family; exit code 1 where clients side by side do not end where each does alone."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("families", nargs="*", help="timm's modules; default: all that have networks")
    parser.add_argument("--most", type=POSITIVE, default=40.0, help="leave out families of more million parameters")
    args = parser.parse_args()
    families = [family for family in timm.list_modules() if timm.list_models(module=family)]
    if unknown := set(args.families) - set(families):
        raise UserError(f"timm {timm.__version__} has no family {min(unknown)}; give some of {', '.join(families)}")
    failed = []
    for family in args.families or families:
        network, millions = smallest(family)
        outcome = tried(network) if millions <= args.most else Outcome(network, f"left out, of {millions:.0f} million")
        print(f"{family}: {outcome.network}: {outcome.words}", flush=True)
        failed += [f"{family}: {outcome.network}"] * outcome.fails
    print(f"{len(failed)} of {len(args.families or families)} families fail" + "".join(f"\n{line}" for line in failed))
    sys.exit(bool(failed))


if __name__ == "__main__":
    run_script(main)
