"""Stage 2a: make a task's initial model, from which the central and the federated trainings start."""

from argparse import Namespace
from collections.abc import Sequence

from utils.args import Parser
from utils.errors import run_script
from utils.stage import add_model, add_shared


def parse_args(words: Sequence[str] | None = None) -> Namespace:
    """The command line, or these words in its place."""
    from datasets.tasks import TASKS
    from models.networks.conventions import add_scaling
    from models.networks.settings import ModelSettings
    from utils.settings import add_settings

    parser = Parser(__doc__)
    add_model(parser, TASKS)
    add_settings(parser, ModelSettings, "model")
    add_scaling(parser.group("model"), "image", "the encoder")
    add_shared(parser, "data_path", "result_path", "rand_seed")
    return parser.parse_args(words)


def main() -> None:
    """Build the model and save it with its settings."""
    args = parse_args()
    from datasets.table import classes_for
    from models.networks.conventions import Scaling
    from models.networks.settings import ModelSettings
    from models.networks.task_model import init_file, make_initial_model

    settings, scaling = ModelSettings.from_config(vars(args)), Scaling.of(vars(args), "image")
    classes = classes_for(args.task, args.data_path, args.result_path)
    config = settings.of_task(args.task, args.use_cbam, classes, scaling)
    path = init_file(args.init_model_dir, args.task, args.use_cbam)
    print(make_initial_model(path, config, args.rand_seed, settings.pretrained, settings.encoder_weights))


if __name__ == "__main__":
    run_script(main)
