"""Stage 2b: train a task's model on all training images."""

from __future__ import annotations

from utils.errors import UserError, run_script


def main() -> None:
    """Train, and measure the best model on the held-out images beside the constant baseline."""
    from stages.central import CentralStage

    stage = CentralStage.from_args(__doc__)
    from datasets.task_data import TaskData
    from models.central.evaluation import evaluate, mean_values, measure_trivial
    from models.central.start import starting_model
    from models.central.training import CentralTraining, central_files, central_model
    from models.networks.frozen import on_kept_outputs
    from models.networks.precision import set_precision
    from models.networks.threads import set_threads
    from network.partition.non_participating import Whose
    from network.provenance import provenance
    from reports.console import wrapped
    from reports.figures.charts import loss_curve
    from reports.stages.central import report_held_out
    from utils.files import locked
    from utils.runs import Run, data_path_or_default
    from utils.tracking import accelerator_of
    from utils.versions import digests

    running, settings, name = stage.running, stage.training, (stage.model.task, stage.model.use_cbam)
    accelerator = accelerator_of(running)
    if accelerator.num_processes > 1:
        raise UserError("central training runs in one process; start it without accelerate launch")
    whose = Whose.from_config(stage.config, "train_clients")
    model, start = starting_model(stage.model, stage.adapters, running, accelerator.device)
    data_path = data_path_or_default(running.data_path, running.result_path)
    config = {**stage.config, **model.config.record(), "data_path": data_path}
    data = TaskData.open(data_path, model.task, model.config.image_size, accelerator, running.test_mode)
    data = whose.in_data(data)
    model, inputs = on_kept_outputs(model, data, settings, accelerator)
    set_threads(model, inputs, settings.batch_size)
    last, *_ = files = central_files(running.checkpoint_path, *name)
    training = CentralTraining(model, inputs, settings, accelerator, *files, running.checkpoint_every)
    trivial, _ = measure_trivial(data, {"global test": data.test, "validation": training.val}, accelerator)
    made_with = provenance(config, data.version, [start, *whose.reads])
    with locked(last.with_suffix(".lock"), f"another training writes to {last}; see --checkpoint_path"):
        if running.resume_training:
            training.resume()
        run = Run.take_up(config, "train_centralized", stage.model.task, f"seed{running.rand_seed}", origin=made_with)
        run.track(accelerator, len(training.history) + 1)
        training.run(on_epoch=run.write_metrics)

    best, best_path = central_model(running.checkpoint_path, *name)
    set_precision(best.to(accelerator.device), running.precision, accelerator.device)
    values = mean_values(data, evaluate(best, data, data.test, accelerator))
    zero = report_held_out(best, data, values, trivial, run.figures)
    title = f"{model.task.label}: central training, seed {running.rand_seed}"
    loss_curve(training.history, trivial["loss"], title, model.task.loss_label, run.figures / "loss.png")
    summary = {"test": values, "trivial": trivial, "best_model": best_path, "costs": training.costs()}
    summary |= {"zero": zero} if zero else {}
    run.write_summary(summary, digests(files, running.result_path))
    accelerator.end_training()
    print(wrapped(f"best model in {best_path}, figures in {run.figures}"))


if __name__ == "__main__":
    run_script(main, smaller="--batch_size")
