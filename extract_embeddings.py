"""Stage 3: embed all images with a task's central model, cluster the embeddings, and draw them."""

import os
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from accelerate import Accelerator

from datasets.selection import SELECTION_FILE
from datasets.task_data import TaskData
from models import embeddings as emb
from models.precision import set_precision
from models.report import draw_clusters, report_held_out
from models.task_model import load_model
from models.training import best_file, checkpoint_file, model_from_checkpoint
from network.dealing import digest
from utils.args import POSITIVE_INT, Parser, add_compute, add_data, add_model, number
from utils.errors import run_script
from utils.files import locked, write_array, write_json
from utils.partition_plots import cluster_numbers
from utils.runs import Run
from utils.versions import digests, provenance


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    add_model(parser)
    parser.add_argument("--n_clusters", type=POSITIVE_INT, default=10, help="K of K-means")
    parser.add_argument("--compare_n_clusters", type=number(int, least=2), nargs="+", metavar="K",
                        help="help with the choice of K: measure and draw these numbers of clusters, too")  # fmt: skip
    parser.add_argument("--cluster_threshold", type=number(float, least=0, most=1), default=0.0,
                        help="leave out clusters with a smaller share of the images")  # fmt: skip
    parser.add_flag("--observe_performance", False, "measure and draw the model's predictions, too")
    parser.add_flag("--from_checkpoint", False, "take the last checkpoint instead of the best model")
    parser.add_argument("--load_model_dir", type=Path, default=Path("trained_models"), help="of the central model")
    parser.add_argument("--assignment_files_path", type=Path, default=Path("assignments"), help="where clusters go")
    parser.add_flag("--keep_embeddings", False, "keep the full embeddings of all images, not only their projection")
    parser.add_flag("--resume_training", False, "go on with the embeddings of an interrupted run with these arguments")
    add_data(parser)
    add_compute(parser)
    return parser.parse_args()


def main() -> None:
    """Write assignments_<task>.npy and centers_<task>.npy, and the figures of the clusters."""
    args = parse_args()
    accelerator = Accelerator(cpu=not args.use_accelerator)
    file_of = checkpoint_file if args.from_checkpoint else best_file
    path = file_of(args.load_model_dir, args.task, args.use_cbam)
    if args.from_checkpoint:
        model = model_from_checkpoint(path, args.task)
    else:
        model = load_model(path, args.task, "train_centralized_task_model.py")
    model = model.to(accelerator.device).to(memory_format=torch.channels_last)
    set_precision(model, args.precision, accelerator.device)
    vars(args).update(asdict(model.config))  # so that args.json says what was embedded with
    data = TaskData.open(args, model.task, model.config.image_size, accelerator)
    emb.check_n_clusters(args.n_clusters, data)
    made_with = provenance(args.result_path, data.version, [path])
    run = Run.take_up(
        args, "extract_embeddings", args.task, f"K{args.n_clusters}_seed{args.rand_seed}", origin=made_with
    )

    full = run.path / "embeddings.npy"
    embeddings = emb.extract_embeddings(model, data, full)
    reduced, pca, kept = emb.reduce_dimension(embeddings, data.train)
    assignments, kmeans = emb.cluster(reduced, data, args.n_clusters, args.cluster_threshold, args.rand_seed)
    write_array(run.path / "reduced.npy", reduced)
    folder = args.assignment_files_path
    origin = {
        "data_path": str(args.data_path),
        SELECTION_FILE: data.selection.fingerprint,
        "n_clusters": args.n_clusters,
        "test_mode": args.test_mode,
        "assignments_sha256": digest(assignments),
        # Relative, so that it holds when the folders are moved together.
        "reduced": os.path.relpath(run.path / "reduced.npy", folder),
    }
    with locked(folder / f".assignments_{args.task}.lock"):  # of two runs at once, the files of one stay together
        write_array(folder / f"centers_{args.task}.npy", emb.centres(kmeans, pca))
        write_array(folder / f"assignments_{args.task}.npy", assignments)
        write_json(folder / f"assignments_{args.task}.json", origin)

    print(f"{args.task}: {embeddings.shape[1]} numbers an image, {reduced.shape[1]} components keep {kept:.1%}")
    print("images a cluster: " + " ".join(map(str, np.bincount(assignments[data.train][assignments[data.train] >= 0]))))
    if args.compare_n_clusters:
        rows = emb.compare_n_clusters(reduced[data.train], sorted(set(args.compare_n_clusters)), args.rand_seed)
        table = pd.DataFrame(rows)
        table.to_csv(run.path / "n_clusters.csv", index=False)
        print(table.to_string(index=False, float_format="%.3f"))
        cluster_numbers(rows, f"Clusters of {args.task} embeddings", run.figures / "n_clusters.png")
    draw_clusters(data, reduced, assignments, args.rand_seed, run.figures)
    if args.observe_performance:
        report_held_out(model, data, accelerator, run.figures)
    if not args.keep_embeddings:
        full.unlink()
        full.with_suffix(".filled.json").unlink()
    summary = {"dimension": embeddings.shape[1], "components": reduced.shape[1], "variance_kept": kept}
    files = [folder / f"{name}_{args.task}.npy" for name in ("assignments", "centers")]
    run.write_summary(summary, digests([*files, run.path / "reduced.npy"], args.result_path))
    print(f"assignments and centres in {args.assignment_files_path}, figures in {run.figures}")


if __name__ == "__main__":
    run_script(main)
