"""The tables of central models and clusters, from made-up run directories with known losses."""

from __future__ import annotations

from pathlib import Path

from reports.central import read_central, read_clusters
from reports.finished import Results
from tests.reports.finish import finish


def write_central(results: Path, task: str, seed: int, test: dict, trivial: dict, **others: object) -> None:
    summary = {"test": test, "trivial": trivial}
    finish(results, {"task": task, "rand_seed": seed, **others}, summary, stage="train_centralized")


def test_central_models_beside_the_trivial_predictor(tmp_path: Path) -> None:
    # The first is replaced by the last.
    losses = [("normal", 0, 9.0, 9.0), ("normal", 1, 3.0, 5.0), ("reshading", 0, 0.5, 0.5), ("normal", 0, 2.0, 4.0)]
    for task, seed, model, trivial in losses:
        values = {"loss": model, "mae": 1, "share": seed / 2}, {"loss": trivial, "share": 0.25}
        write_central(tmp_path, task, seed, *values)
    normal, reshading = read_central(Results(tmp_path)).sort_values("task").to_dict("records")
    assert (normal["seeds"], normal["metric"]) == (2, "share")
    # 2 and 3 against 4 and 5: lower by 50 and 40 %. Half of the shares' difference is 0.25, times sqrt(2) is 0.354.
    assert (normal["model loss"], normal["constant baseline's loss"]) == ("2.5000 ± 0.7071", "4.5000 ± 0.7071")
    assert normal["lower by, %"] == "45.0 ± 7.1"
    assert (normal["model"], normal["constant baseline"]) == ("0.250 ± 0.354", "0.250 ± 0.000")
    assert (reshading["seeds"], reshading["model loss"], reshading["model"]) == (1, "0.5000", "0.000")


def test_central_models_of_different_settings_stand_apart(tmp_path: Path) -> None:
    for number, (seed, size) in enumerate([(0, 32), (1, 32), (0, 64)]):
        values = {"loss": 1.0 + number, "mae": 1}
        write_central(tmp_path, "normal", seed, values, values, image_size=size, checkpoint_path=f"seed{seed}")
    table = read_central(Results(tmp_path))
    table = table.sort_values("image_size")
    assert table[["image_size", "seeds"]].values.tolist() == [["32", 2], ["64", 1]]
    assert table["model loss"].tolist() == ["1.5000 ± 0.7071", "3.0000"]  # 1 and 2; 3


def test_clusters_stand_beside_the_ceiling(tmp_path: Path) -> None:
    shares = [("model", 0, 0.2, 0.4), ("model", 1, 0.4, 0.4), ("target", 0, 0.4, 0.4)]
    for features, seed, clusters, ceiling in shares:
        explained = {"target_explained": {"clusters": clusters, "ceiling": ceiling}}
        args = {"task": "normal", "features": features, "rand_seed": seed}
        finish(tmp_path, args, explained, stage="extract_embeddings")
    model, target = read_clusters(Results(tmp_path)).to_dict("records")
    assert (model["features"], model["seeds"], target["seeds"]) == ("model", 2, 1)
    # 0.2 and 0.4, half and all of the ceiling.
    assert (model["clusters"], model["of the ceiling, %"]) == ("0.30 ± 0.14", "75 ± 35")
    assert target["of the ceiling, %"] == "100"
