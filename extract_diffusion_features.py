"""Compute a frozen teacher's vectors of all images, by default Stable Diffusion's, for --method feddifrc."""

from __future__ import annotations

from dataclasses import asdict

from utils.errors import run_script

_FEW = 64  # images that --test_mode uses


def main() -> None:
    """Find the basis, compute every image's vectors, and draw them."""
    from stages.teacher import TeacherStage

    stage = TeacherStage.from_args(__doc__)
    from datasets.table import read_table
    from models.teacher.basis import Photographs
    from models.teacher.guidance import RECORD, make_guidance
    from models.teacher.teachers import build_teacher
    from network.engine.simulation import shared_run
    from network.provenance import provenance
    from reports.stages.teacher import report_guidance
    from utils.processes import processes
    from utils.runs import Run, data_path_or_default
    from utils.versions import digests

    running, settings, weights = stage.running, stage.teacher, stage.encoder_weights
    accelerator = processes(running.use_accelerator)
    data_path = data_path_or_default(running.data_path, running.result_path)
    table, config = read_table(data_path), {**stage.config, "data_path": data_path}
    teacher = build_teacher(settings, table, accelerator.device, stage.batch_size, weights, stage.scaling)
    with accelerator.main_process_first():  # the other processes find the images packed
        few = _FEW if running.test_mode else None
        photographs = Photographs(table, settings.diffusion_size, accelerator.device, settings.blank_images, few)
    name = f"{settings.features.replace(':', '_').replace('/', '_')}_t{settings.timestep}_seed{settings.rand_seed}"
    made_with = provenance(config, table.fingerprint, [weights] if weights else [])
    run = shared_run(accelerator, lambda: Run.take_up(config, "extract_diffusion_features", name, origin=made_with))
    features, basis = make_guidance(stage.guidance_path, teacher, settings, photographs, accelerator)
    accelerator.end_training()  # nothing is shared from here on; without it, the others may abort on their way out
    if not accelerator.is_main_process:
        return
    print(
        f"{len(features)} images with {features.shape[1]} vectors of {features.shape[2]} numbers each, "
        f"of the layers {', '.join(teacher.layers)}"
    )
    values = report_guidance(features, basis, teacher, photographs, run.figures)
    run.write_summary(asdict(settings) | values, digests([stage.guidance_path / RECORD], running.result_path))
    print(f"features in {stage.guidance_path}, figures in {run.figures}")


if __name__ == "__main__":
    run_script(main, smaller="--batch_size")
