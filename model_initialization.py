"""Stage 2a: make a task's initial model, from which the central and the federated trainings start."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from utils.args import POSITIVE_INT, Parser
from utils.errors import run_script
from utils.stage import add_model, add_shared


def parse_args(words: Sequence[str] | None = None) -> Namespace:
    """The command line, or these words in its place."""
    from datasets.tasks import DEPTH_TARGETS, TASKS
    from models.networks.conventions import add_scaling
    from models.networks.decoders import DECODERS
    from models.networks.encoders import ENCODERS, TIMM, encoder_name
    from models.networks.layers import NORMS

    parser = Parser(__doc__)
    add_model(parser, TASKS)
    group = parser.group("model")
    add = group.add_argument
    add(
        "--encoder",
        type=encoder_name,
        default="tiny",
        help=f"image encoder: {', '.join(ENCODERS)}, or {TIMM}<name>; the paper's is clip_vit_b32",
    )
    add("--decoder", choices=DECODERS, help="what makes the output; default: the encoder's own, mostly taskonomy")
    add("--bottleneck", type=POSITIVE_INT, help="linear: width of a layer before the classes; default: no such layer")
    add(
        "--decoder_channels",
        type=POSITIVE_INT,
        nargs="+",
        help="unet: channels at each size, the coarsest first; default: 256 128 64 32 16",
    )
    add("--image_size", type=POSITIVE_INT, help="side of the image in pixels; default: the encoder's, mostly 224")
    group.add_flag("--pretrained", None, "start from the encoder's published weights; default: if it has any")
    add(
        "--encoder_weights",
        type=Path,
        metavar="FILE",
        help="start the encoder from this safetensors file or state dict in place of published weights",
    )
    add_scaling(group, "image", "the encoder")
    add("--norm", choices=NORMS, default="batch", help="normalisation of the convolutions")
    add("--depth_target", choices=DEPTH_TARGETS, default="scaled", help="what depth models predict")
    group.add_flag("--published_quirks", False, "decode, mask and normalise as the published code (see README)")
    add_shared(parser, "data_path", "result_path", "rand_seed")
    return parser.parse_args(words)


def main() -> None:
    """Build the model and save it with its settings."""
    args = parse_args()
    from datasets.table import classes_for
    from models.networks.config import ModelConfig
    from models.networks.conventions import Scaling
    from models.networks.encoders import encoder_entry
    from models.networks.task_model import init_file, make_initial_model

    scaling = Scaling.of(vars(args), "image")
    config = ModelConfig(
        args.task,
        args.encoder,
        args.image_size or encoder_entry(args.encoder).image_size,
        args.norm,
        args.use_cbam,
        args.depth_target,
        args.published_quirks,
        classes_for(args.task, args.data_path, args.result_path),
        args.decoder or "",
        args.bottleneck,
        decoder_channels=args.decoder_channels,
        image_mean=scaling.mean,
        image_std=scaling.std,
    )
    path = init_file(args.init_model_dir, args.task, args.use_cbam)
    print(make_initial_model(path, config, args.rand_seed, args.pretrained, args.encoder_weights))


if __name__ == "__main__":
    run_script(main)
