"""Stage 2a: make a task's initial model, the common start of the central and the federated trainings."""

from argparse import Namespace
from pathlib import Path

import torch

from datasets.tasks import DEPTH_TARGETS, get_task
from models.encoders import ENCODERS
from models.layers import NORMS
from models.task_model import ModelConfig, TaskModel, init_file, save_model
from utils.args import POSITIVE_INT, Parser, add_model, number
from utils.errors import run_script


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    add_model(parser)
    parser.add_argument("--encoder", choices=ENCODERS, default="tiny", help="the paper's is clip_vit_b32")
    parser.add_argument("--image_size", type=POSITIVE_INT, help="default: 64 for tiny, 224 for the others")
    parser.add_flag("--pretrained", None, "start from the encoder's published weights; default: if it has any")
    parser.add_argument("--norm", choices=NORMS, default="batch", help="normalisation of the convolutions")
    parser.add_argument("--depth_target", choices=DEPTH_TARGETS, default="scaled", help="what depth models predict")
    parser.add_flag("--published_quirks", False, "decode, mask and normalise as the published code (see README)")
    parser.add_argument("--init_model_dir", type=Path, default=Path("initial_models"), help="where the model goes")
    parser.add_argument("--rand_seed", type=number(int, least=0), default=42, help="seed of the weights")
    return parser.parse_args()


def main() -> None:
    """Build the model and save it with its settings."""
    args = parse_args()
    task = get_task(args.task)
    entry = ENCODERS[args.encoder]
    pretrained = bool(entry.weight_norms) if args.pretrained is None else args.pretrained
    config = ModelConfig(
        task.name, args.encoder, args.image_size or entry.image_size, args.norm, args.use_cbam, args.depth_target,
        args.published_quirks,
    )  # fmt: skip
    torch.manual_seed(args.rand_seed)
    model = TaskModel(config, pretrained)
    path = init_file(args.init_model_dir, task.name, args.use_cbam)
    save_model(model, path)
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    start = "pretrained" if pretrained else "random"
    print(f"{task.name}: {args.encoder} ({start}) at {config.image_size} px, {millions:.2f} M parameters, in {path}")


if __name__ == "__main__":
    run_script(main)
