"""Stage 2b: train a task's model on all training images."""

from argparse import Namespace
from collections.abc import Sequence

from utils.args import Parser
from utils.errors import UserError, run_script
from utils.stage import add_model, add_shared, add_stage


def parse_args(words: Sequence[str] | None = None) -> Namespace:
    """The command line, or these words in its place."""
    from datasets.tasks import TASKS
    from models.central.settings import TrainSettings
    from models.networks.parts import TRAINS
    from network.partition.non_participating import add_whose
    from utils.arguments import add_arguments_of, with_defaults
    from utils.settings import add_settings, check_read

    parser = Parser(__doc__)
    add_model(parser, TASKS)
    add_shared(parser, "checkpoint_path")
    add_settings(parser, TrainSettings, "training")
    add_arguments_of(parser, "adapters", TRAINS, "train")
    add_whose(parser, "training", "train_clients", "the model learns from")
    add_stage(parser, "continue from the checkpoint", "epoch")
    config = with_defaults(vars(parser.parse_args(words)), TRAINS, "train")
    check_read(config, TrainSettings)
    return Namespace(**config)


def main() -> None:
    """Train, and measure the best model on the held-out images beside the constant baseline."""
    args = parse_args()
    from datasets.task_data import TaskData
    from models.central.evaluation import evaluate, mean_values, measure_trivial
    from models.central.settings import TrainSettings
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

    accelerator = accelerator_of(vars(args))
    if accelerator.num_processes > 1:
        raise UserError("central training runs in one process; start it without accelerate launch")
    whose = Whose.from_config(vars(args), "train_clients")
    model, start = starting_model(vars(args), accelerator.device)
    config = vars(args) | model.config.record()
    config["data_path"] = data_path = data_path_or_default(args.data_path, args.result_path)
    data = TaskData.open(data_path, model.task, model.config.image_size, accelerator, args.test_mode)
    data = whose.in_data(data)
    settings = TrainSettings.from_config(vars(args))
    model, inputs = on_kept_outputs(model, data, settings, accelerator)
    set_threads(model, inputs, args.batch_size)
    last, *_ = files = central_files(args.checkpoint_path, args.task, args.use_cbam)
    training = CentralTraining(model, inputs, settings, accelerator, *files, args.checkpoint_every)
    trivial, _ = measure_trivial(data, {"global test": data.test, "validation": training.val}, accelerator)
    made_with = provenance(config, data.version, [start, *whose.reads])
    with locked(last.with_suffix(".lock"), f"another training writes to {last}; see --checkpoint_path"):
        if args.resume_training:
            training.resume()
        run = Run.take_up(config, "train_centralized", args.task, f"seed{args.rand_seed}", origin=made_with)
        run.track(accelerator, len(training.history) + 1)
        training.run(on_epoch=run.write_metrics)

    best, best_path = central_model(args.checkpoint_path, args.task, args.use_cbam)
    set_precision(best.to(accelerator.device), args.precision, accelerator.device)
    values = mean_values(data, evaluate(best, data, data.test, accelerator))
    zero = report_held_out(best, data, values, trivial, run.figures)
    title = f"{model.task.label}: central training, seed {args.rand_seed}"
    loss_curve(training.history, trivial["loss"], title, model.task.loss_label, run.figures / "loss.png")
    summary = {"test": values, "trivial": trivial, "best_model": best_path, "costs": training.costs()}
    summary |= {"zero": zero} if zero else {}
    run.write_summary(summary, digests(files, args.result_path))
    accelerator.end_training()
    print(wrapped(f"best model in {best_path}, figures in {run.figures}"))


if __name__ == "__main__":
    run_script(main, smaller="--batch_size")
