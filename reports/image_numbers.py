"""Whether the runs of partitions that are compared with IID have as many images as the IID runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from network.partition.groups import RANDOM
from reports.finished import Results

_FORMERLY = "images_dealt"  # the name that runs of before have for the number of assigned images
_ALIKE = 0.98  # of the IID runs' images: assigning in equal numbers leaves a remainder


def fewer_images(results: Results) -> Iterator[str]:
    """A sentence for each task and rule whose federated runs have fewer images than the task's IID runs.

    What their partition costs over IID is then partly what fewer images cost. Runs that recorded no number of images,
    or none under IID, do not count.
    """
    iid: dict[str, list[int]] = defaultdict(list)
    others: dict[tuple[str, str], list[int]] = defaultdict(list)
    for run in results["test_federated"]:
        uneven = run.summary["heterogeneity"]
        if number := int(uneven.get("assigned_images") or uneven.get(_FORMERLY) or 0):
            task = run.args["task"]
            of_iid = run.args["type"] == RANDOM
            (iid[task] if of_iid else others[task, run.args.get("partition", "paper")]).append(number)
    for (task, rule), numbers in others.items():
        if iid[task] and min(numbers) < _ALIKE * max(iid[task]):
            fewest = min(numbers)
            between = f"{fewest:,} to {max(numbers):,}" if fewest < max(numbers) else f"{fewest:,}"
            yield (
                f"{task}: clients have {between} images in all by --partition {rule}, and {max(iid[task]):,} under "
                f"IID, so that a partition's cost is partly that of fewer images; with --n_images {fewest} all "
                "runs have equally many"
            )
