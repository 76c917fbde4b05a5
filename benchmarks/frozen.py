"""Rounds of clients behind a frozen encoder: that runs in every step, and whose outputs are kept.

    python -m benchmarks.frozen          (some minutes on one core)

The federations of `generated.py` with `--train decoder`, with weights and images drawn at random, from the same start
on the same batches. Both ways end each round with the same loss, to 1e-5, and the last one with the same weights.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from benchmarks.agreement import check_values, check_weights
from benchmarks.bare_loop import seconds_of
from benchmarks.generated import Scale, federation_on, model_and_data
from benchmarks.tables import middle, print_table
from models.networks.costs import forward_flops
from models.networks.frozen import EncoderOutputs
from models.networks.kept_outputs import kept_flops
from network.engine.simulation import Simulation
from network.engine.trainer import LOSS
from utils.args import POSITIVE_INT, Parser, number_or_auto
from utils.errors import run_script

_HOW = {"n_clients": 4, "n_steps": 10, "images_a_client": 32, "train": "decoder", "lr": 0.001}
_VIT, _LITE = "timm:vit_tiny_patch16_224", "efficientnet_lite0"
CASES = {
    "vit_tiny, linear": Scale(_VIT, 224, "batch", task="classification", decoder="linear", **_HOW),
    "lite0, linear": Scale(_LITE, 224, "batch", task="classification", decoder="linear", **_HOW),
    "lite0, unet": Scale(_LITE, 96, "batch", decoder="unet", **_HOW),
}
_LOSSES, _WEIGHTS = 1e-5, 1e-3  # relative, and of the way from the start


def numbers(server: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """The server's tensors."""
    return {name: tensor.cpu().numpy().copy() for name, tensor in server.items()}


def timed_round(simulation: Simulation, round: int) -> tuple[float, float]:
    """The seconds of a round, without evaluation, and the clients' mean loss."""
    torch.set_num_threads(simulation.trainer.vectorisation["threads"])
    rows: list[dict[str, float]] = []
    seconds = seconds_of(lambda: rows.append(simulation._train_round(round)), simulation.accelerator.device)
    return seconds, rows[0][LOSS]


def measure(
    name: str, scale: Scale, repeats: int, half: bool, at_once: int | None, accelerator: Accelerator
) -> dict[str, object]:
    """A row of the table."""
    device, n_steps = accelerator.device, scale.n_clients * scale.n_steps
    with tempfile.TemporaryDirectory() as made:
        folder, n_rounds = Path(made), repeats + 1
        model, data = model_and_data(scale, accelerator)
        model.to(device).to(memory_format=torch.channels_last)
        outputs = EncoderOutputs(model, data, half=half)
        encoding = seconds_of(lambda: outputs.kept_in(folder / "encoded" / "images"), device)
        stored = data.on_inputs(torch.from_numpy(outputs.kept_in(folder / "encoded" / "images")))
        of_both: dict[str, Simulation] = {
            way: federation_on(network, images, scale, n_rounds, accelerator, folder / way, at_once)
            for way, network, images in (("kept", outputs.model, stored), ("run", model, data))
        }
        start = numbers(of_both["run"].server)
        for simulation in of_both.values():
            simulation.resolve_vectorisation()
        seconds: dict[str, list[float]] = {way: [] for way in of_both}
        for round in range(n_rounds):
            losses: dict[str, float] = {}
            for way, simulation in of_both.items():
                taken, losses[way] = timed_round(simulation, round)
                seconds[way].append(taken)
            check_values(f"{name}: loss", losses["kept"], losses["run"], 1e-2 if half else _LOSSES)
        ends = [numbers(simulation.server) for simulation in of_both.values()]
        check_weights(name, *ends, start, 1e-1 if half else _WEIGHTS)
        of_encoder, of_decoder = kept_flops(outputs.model), forward_flops(outputs.model, stored)
    speed = {way: n_steps / np.array(times[1:]) for way, times in seconds.items()}  # the first round is not counted
    ratio = speed["kept"] / speed["run"]
    saved = float(np.median(1 / speed["run"] - 1 / speed["kept"]))
    return {
        "network": name,
        "image": f"{scale.image_size} px",
        "encoder, MMAC": f"{of_encoder / 2e6:,.1f}",
        "decoder, MMAC": f"{of_decoder / 2e6:,.3f}",
        "encoder runs, steps/s": middle(speed["run"], 1),
        "outputs kept, steps/s": middle(speed["kept"], 1),
        "kept / runs": middle(ratio, 1),
        # A step is three forward passes of what is trained, and one of what is frozen.
        "MACs allow": f"{(of_encoder + 3 * of_decoder) / (3 * of_decoder):,.1f}",
        "KiB an image": f"{outputs.n_bytes / len(data) / 2**10:,.1f}",
        "pays after": f"{encoding / saved:.0f} steps" if saved > 0 else "never",
    }


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__.split("\n")[0])
    add = parser.add_argument
    add("--networks", nargs="+", choices=CASES, default=list(CASES), help="which")
    add("--vectorised_clients", type=number_or_auto, default=1, help="clients at once; auto: what is fastest")
    add("--repeats", type=POSITIVE_INT, default=5, help="rounds of each way, beside one that is not counted")
    parser.add_flag("--half", False, "keep half precision, with tolerances of 1 %% of a loss and 10 %% of the way")
    parser.add_flag("--use_accelerator", True, "compute on the GPU that accelerate finds; False keeps to the CPU")
    args = parser.parse_args()
    accelerator = Accelerator(cpu=not args.use_accelerator)
    of_all = (args.repeats, args.half, args.vectorised_clients, accelerator)
    rows = [measure(name, CASES[name], *of_all) for name in args.networks]
    print_table(f"median (min to max) of {args.repeats} rounds of each way, in turn", rows)


if __name__ == "__main__":
    run_script(main)
