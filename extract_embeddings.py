"""Stage 3: embed all images with a task's central model, or take other features; cluster and draw them."""

from __future__ import annotations

from functools import partial

from utils.errors import run_script


def main() -> None:
    """Write assignments_<task>.npy and centers_<task>.npy, and the figures of the clusters."""
    from stages.clusters import ClusterStage

    stage = ClusterStage.from_args(__doc__)
    import torch

    from datasets.task_data import TaskData
    from models.embedding import embeddings as emb
    from models.embedding.projection import reduce_dimension
    from models.embedding.start import model_for
    from models.networks.precision import set_precision
    from models.networks.threads import set_threads
    from network.partition.assignments import save_assignments
    from network.partition.non_participating import Whose
    from network.provenance import provenance
    from reports.console import wrapped
    from reports.stages.clusters import report, report_clusters
    from utils.files import write_array
    from utils.filling import remove
    from utils.processes import processes
    from utils.runs import Run, data_path_or_default
    from utils.versions import digests

    running, settings, task = stage.running, stage.clusters, stage.model.task
    who = Whose.from_config(stage.config, "cluster_clients")
    accelerator = processes(running.use_accelerator)
    model, path = model_for(stage.model, settings, running)
    model = model.to(accelerator.device).to(memory_format=torch.channels_last)
    set_precision(model, running.precision, accelerator.device)
    data_path = data_path_or_default(running.data_path, running.result_path)
    config = {**stage.config, **model.config.record(), "data_path": data_path}
    check = partial(emb.check_n_clusters, n_clusters=settings.n_clusters, compared=settings.compare_n_clusters)
    data = TaskData.open(data_path, model.task, model.config.image_size, accelerator, running.test_mode, check)
    data = who.in_data(data)
    check(data)  # again: images may be unreadable, or left out by --test_mode
    set_threads(model, data, emb.BATCH)
    made_with = provenance(config, data.version, filter(None, (path, settings.encoder_weights, *who.reads)))
    parts = ("extract_embeddings", task, f"K{settings.n_clusters}_seed{running.rand_seed}")
    run = Run.take_up(config, *parts, origin=made_with)
    full = run.path / "embeddings.npy"
    embeddings = emb.extract_embeddings(model, data, full, settings.features, settings.encoder_weights, stage.scaling)
    reduced, pca, variance_kept = reduce_dimension(embeddings, data.train)
    assignments, kmeans = emb.cluster(reduced, data, settings.n_clusters, settings.cluster_threshold, running.rand_seed)
    projection, centres = run.path / "reduced.npy", emb.centres(kmeans, pca)
    write_array(projection, reduced)
    results = assignments, centres, settings.n_clusters, projection
    made = save_assignments(running.assignment_files_path, data, settings.features, *results, who.digest)
    title = f"{task}, features {settings.features}"
    report_clusters(title, embeddings, reduced, variance_kept, assignments[data.train])
    explained = report(settings, run, model, data, accelerator, reduced, assignments, running.rand_seed)
    size = {"dimension": embeddings.shape[1], "components": reduced.shape[1], "variance_kept": variance_kept}
    if not settings.keep_embeddings:
        remove(full)
    run.write_summary(size | {"target_explained": explained}, digests([*made, projection], running.result_path))
    print(wrapped(f"assignments and centres in {running.assignment_files_path}, figures in {run.figures}"))


if __name__ == "__main__":
    run_script(main)
