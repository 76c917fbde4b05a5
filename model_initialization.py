"""Stage 2a: make a task's initial model, from which the central and the federated trainings start."""

from __future__ import annotations

from utils.errors import run_script


def main() -> None:
    """Build the model and save it with its settings."""
    from stages.initial import InitialStage

    stage = InitialStage.from_args(__doc__)
    from datasets.table import classes_for
    from models.networks.task_model import init_file, make_initial_model

    running, task, settings = stage.running, stage.model.task, stage.settings
    classes = classes_for(task, running.data_path, running.result_path)
    config = settings.of_task(task, stage.model.use_cbam, classes, stage.scaling)
    path = init_file(running.init_model_dir, task, stage.model.use_cbam)
    print(make_initial_model(path, config, running.rand_seed, settings.pretrained, settings.encoder_weights))


if __name__ == "__main__":
    run_script(main)
