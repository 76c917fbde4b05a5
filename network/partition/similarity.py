"""How similar two tasks' clusterings are: is a partition that is skewed for one task also skewed for the other?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import linprog
from scipy.sparse import eye_array, kron, vstack
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from datasets.table import Table
from network.partition.assignments import are_of, read_assignments


def transport_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Optimal-transport distance between two partitions of the same images, in [0, 1).

    Clusters are points, weighted by their shares of the images. The distance is the least cost of moving one
    clustering's weights to the other's (the Mallows distance of Zhou, Li and Zha, ICML 2005). Moving from cluster A to
    B costs the total variation between the uniform distributions over their images, 1 - |A & B| / max(|A|, |B|). That
    cost is a metric, and so is the distance: 0 for the same partition with any numbering. Unrelated partitions into K
    clusters of equal size have a distance of 1 - 1/K. The linear program is solved exactly, which takes a second for
    100 clusters each. Both arguments are ids (N,).
    """
    table = contingency_matrix(first, second).astype(np.float64)
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    cost = 1 - table / np.maximum.outer(rows, columns)
    n, m = table.shape
    marginals = vstack([kron(eye_array(n), np.ones((1, m))), kron(np.ones((1, n)), eye_array(m))])
    weights = np.concatenate([rows, columns]) / table.sum()
    return max(0.0, float(linprog(cost.ravel(), A_eq=marginals, b_eq=weights, method="highs").fun))


def read_clusterings(folder: Path, table: Table) -> tuple[dict[str, np.ndarray], list[str]]:
    """The clusters (N,) of every task in a folder of assignments, by task, and the classes, if there are any.

    Empty without assignments; UserError if some are broken. With them come the tasks that have clusters of other images
    there, as earlier runs leave them.
    """
    tasks = sorted(path.stem.removeprefix("assignments_") for path in folder.glob("assignments_*.npy"))
    of_others = [task for task in tasks if not are_of(task, table, folder)]
    clusterings = {task: read_assignments(task, table, folder) for task in tasks if task not in of_others}
    classes = {"classes": table.labels} if clusterings and table.class_names else {}
    return clusterings | classes, of_others


def similarity_tables(clusterings: Mapping[str, np.ndarray]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Adjusted mutual information and transport distance of all pairs of clusterings, as square tables.

    The former is 1 for equal partitions and 0 on average for unrelated ones (Vinh, Epps and Bailey, JMLR 2010). Images
    that have no cluster (-1) in one of the two do not count.
    """
    return _table(clusterings, adjusted_mutual_info_score), _table(clusterings, transport_distance)


def _table(clusterings: Mapping[str, np.ndarray], measure: Callable[[np.ndarray, np.ndarray], float]) -> pd.DataFrame:
    names = list(clusterings)
    values = np.zeros((len(names), len(names)))
    for i, first in enumerate(clusterings.values()):
        for j, second in enumerate(list(clusterings.values())[: i + 1]):  # symmetric
            both = (first >= 0) & (second >= 0)
            values[i, j] = values[j, i] = measure(first[both], second[both])
    return pd.DataFrame(values, index=names, columns=names)
