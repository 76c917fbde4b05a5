"""Compute a frozen teacher's vectors of all images, by default Stable Diffusion's, for --method feddifrc."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from utils.args import POSITIVE_INT, Parser
from utils.errors import run_script
from utils.stage import add_stage

_FEW = 64  # images that --test_mode uses


def parse_args(words: Sequence[str] | None = None) -> Namespace:
    """The command line, or these words in its place."""
    from models.teacher.teachers import add_teacher

    parser = Parser(__doc__)
    add_teacher(parser)
    text = "folder for the features"
    parser.group("output").add_argument("--guidance_path", type=Path, default=Path("guidance"), help=text)
    running = parser.group("running")
    running.add_argument("--batch_size", type=POSITIVE_INT, default=32, help="passes of the denoiser at once")
    add_stage(parser, "continue an interrupted run with these arguments")
    return parser.parse_args(words)


def main() -> None:
    """Find the basis, compute every image's vectors, and draw them."""
    args = parse_args()

    from datasets.table import read_table
    from models.networks.conventions import Scaling
    from models.teacher.basis import Photographs
    from models.teacher.guidance import RECORD, make_guidance
    from models.teacher.teachers import TeacherSettings, build_teacher
    from network.engine.simulation import shared_run
    from network.provenance import provenance
    from reports.stages.teacher import report_guidance
    from utils.processes import processes
    from utils.runs import Run, data_path_or_default
    from utils.versions import digests

    accelerator = processes(args.use_accelerator)
    data_path = data_path_or_default(args.data_path, args.result_path)
    table, settings = read_table(data_path), TeacherSettings.of(vars(args))
    config = vars(args) | {"data_path": data_path}
    weights, scaling = args.encoder_weights, Scaling.of(vars(args), "features")
    teacher = build_teacher(settings, table, accelerator.device, args.batch_size, weights, scaling)
    with accelerator.main_process_first():  # the other processes find the images packed
        few = _FEW if args.test_mode else None
        photographs = Photographs(table, settings.diffusion_size, accelerator.device, settings.blank_images, few)
    name = f"{settings.features.replace(':', '_').replace('/', '_')}_t{settings.timestep}_seed{settings.rand_seed}"
    made_with = provenance(config, table.fingerprint, [weights] if weights else [])
    run = shared_run(accelerator, lambda: Run.take_up(config, "extract_diffusion_features", name, origin=made_with))
    features, basis = make_guidance(args.guidance_path, teacher, settings, photographs, accelerator)
    accelerator.end_training()  # nothing is shared from here on; without it, the others may abort on their way out
    if not accelerator.is_main_process:
        return
    print(
        f"{len(features)} images with {features.shape[1]} vectors of {features.shape[2]} numbers each, "
        f"of the layers {', '.join(teacher.layers)}"
    )
    values = report_guidance(features, basis, teacher, photographs, run.figures)
    run.write_summary(asdict(settings) | values, digests([args.guidance_path / RECORD], args.result_path))
    print(f"features in {args.guidance_path}, figures in {run.figures}")


if __name__ == "__main__":
    run_script(main, smaller="--batch_size")
