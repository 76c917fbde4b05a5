"""The figures of partitions and clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from utils.figures import palette, save

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array

# More bars than this, or more colours, cannot be told apart.
_MOST_BARS, _MOST_COLOURS = 40, 24
# Columns and rows of a heat map; with more, some would fall between the pixels.
_COLUMNS, _ROWS = 800, 400
# The most clients and groups of a heat map: a hundred thousand clients would not fit into memory.
_CLIENTS, _GROUPS = 5000, 1000
_LONGEST = 20  # characters of a group's name


def distribution(
    counts: csr_array | np.ndarray,
    title: str,
    legend: str,
    path: Path,
    names: Sequence[str] = (),
    within: Sequence[str] = (),
    clients: Sequence[str] = (),
    n_non_participating: int = 0,
) -> Path:
    """Images of each group (columns) that each client (rows) has: stacked bars, or a heat map where there are many.

    `legend` is what a group is called; groups beyond `names` are shown by their numbers. Of more than 5,000 clients an
    evenly spaced choice is shown, and of more than 1,000 groups the largest. Where groups were assigned `within`
    natural groups, which these are the names of for each, they and the clients keep their order in a heat map: it shows
    blocks. Bars have the names of `clients`, if these have some. The last `n_non_participating` clients, which never
    train, are marked.
    """
    n_clients, n_groups = counts.shape
    non_participating = np.arange(n_clients) >= n_clients - n_non_participating
    if n_clients <= _MOST_BARS and n_groups <= _MOST_COLOURS:
        return save(_bars(_dense(counts), title, legend, names, clients, n_non_participating), path)
    if n_groups > _GROUPS:
        largest = np.sort(np.argsort(-np.asarray(counts.sum(axis=0)), kind="stable")[:_GROUPS])
        names = _named(largest, names)
        counts, within = counts[:, largest], [within[group] for group in largest] if within else ()
    if n_clients > _CLIENTS:
        shown = np.linspace(0, n_clients - 1, _CLIENTS).astype(int)
        counts, non_participating = counts[shown], non_participating[shown]
        title = f"{title} ({_CLIENTS:,} of {n_clients:,} clients)"
    return save(_heat_map(_dense(counts), title, legend, non_participating, names, within), path)


def _dense(counts: csr_array | np.ndarray) -> np.ndarray:
    return counts if isinstance(counts, np.ndarray) else counts.toarray()


def _named(groups: Iterable[int], names: Sequence[str]) -> list[str]:
    """The groups' names, shortened, or their numbers."""
    return [names[group].replace("_", " ")[:_LONGEST] if group < len(names) else str(group) for group in groups]


def _bars(
    counts: np.ndarray,
    title: str,
    legend: str,
    names: Sequence[str],
    clients: Sequence[str] = (),
    n_non_participating: int = 0,
) -> Figure:
    figure = Figure((min(12.0, max(6.5, 4 + 0.25 * len(counts))), 4.2), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots()
    stack(axes, counts, _named(range(counts.shape[1]), names))
    axes.set(xlabel="client", ylabel="images")
    shown = range(0, len(counts), 1 + len(counts) // 26)
    axes.set_xticks(shown, _named(shown, clients), rotation=40 if clients else 0, ha="right" if clients else "center")
    if n_non_participating:
        _mark_non_participating(axes, len(counts) - n_non_participating, len(counts), axes)
    figure.legend(loc="outside right center", title=legend, fontsize="small", ncols=1 + (counts.shape[1] > 12))
    return figure


def _mark_non_participating(axes: Any, first: int, end: int, behind: Any) -> None:
    """Mark the columns of clients from `first` up to `end`, which never train, by a line, a label and shade `behind`.

    The shade is on axes where it covers nothing that is drawn.
    """
    behind.axvspan(first - 0.5, end - 0.5, facecolor="#dddddd", edgecolor="gray", hatch="//", lw=0, zorder=0)
    axes.axvline(first - 0.5, color="black", lw=1.5, ls="--")
    axes.set_xlabel(f"{axes.get_xlabel()} (the last {end - first}, beyond the line, never train)")


def stack(
    axes: Any, counts: np.ndarray, labels: Sequence[str] | None = None, colours: Sequence[Any] | None = None
) -> None:
    """A stacked bar per client of the images that it has of each group, a colour and label per group, on axes."""
    left, ends = np.arange(len(counts)) - 0.45, np.cumsum(np.insert(counts, 0, 0, axis=1), axis=1)
    for group, colour in enumerate(colours or palette(counts.shape[1])):
        low, high = ends[:, group], ends[:, group + 1]
        corners = np.stack([left, low, left, high, left + 0.9, high, left + 0.9, low], axis=1).reshape(-1, 4, 2)
        label = labels[group] if labels else None
        # A collection for each group: of a rectangle for each bar, making the figure takes longer than drawing it.
        axes.add_collection(PolyCollection([*corners], facecolor=colour, linewidth=0, label=label))
    axes.set(xlim=(-0.6, len(counts) - 0.4), ylim=(0, 1.04 * ends[:, -1].max()))


def _heat_map(
    counts: np.ndarray,
    title: str,
    legend: str,
    non_participating: np.ndarray,
    names: Sequence[str],
    within: Sequence[str] = (),
) -> Figure:
    """Shares of groups within clients, under the clients' sizes.

    Groups stand in order of size, the largest first; clients in order of their largest group, and within it of how
    much they have of it, so that a skewed partition shows as a staircase and an even one as stripes;
    `non_participating` ones, (clients,) bool, come last. With natural groups that they are `within`, both are in the
    order of these, which are named at their first group.
    """
    groups = np.arange(counts.shape[1]) if within else np.argsort(-counts.sum(axis=0), kind="stable")
    groups = groups[counts.sum(axis=0)[groups] > 0]
    sizes = counts.sum(axis=1)
    shares = counts[:, groups] / np.maximum(sizes, 1)[:, None]
    clients = (
        np.arange(len(sizes)) if within else np.lexsort((-shares.max(axis=1), shares.argmax(axis=1), non_participating))
    )
    figure = Figure((9, 5.2), layout="constrained")
    above, below = figure.subplots(2, sharex=True, height_ratios=[1, 4])
    edges, heights = np.arange(len(sizes) + 1) - 0.5, np.append(sizes[clients], sizes[clients[-1]])
    above.fill_between(edges, heights, step="post", color="#3b6ea5", lw=0)
    figure.suptitle(title)
    above.set(ylabel="images", ylim=(0, None))
    # The square root shows small shares, too; without it all but the largest group would be white.
    across = _merged(shares[clients], _COLUMNS) / _merged(np.ones((len(clients), 1)), _COLUMNS)
    extent, norm = (-0.5, len(clients) - 0.5, len(groups) - 0.5, -0.5), PowerNorm(0.5, 0, 1)
    merged = _merged(across.T, _ROWS)
    image = below.imshow(merged, "magma_r", norm, aspect="auto", interpolation="nearest", extent=extent)
    if within:
        below.set(xlabel=f"{len(sizes)} clients", ylabel=legend)
    else:
        below.set(xlabel=f"{len(sizes)} clients, by their largest {legend}", ylabel=f"{legend}, largest first")
    if non_participating.any():
        _mark_non_participating(below, len(sizes) - int(non_participating.sum()), len(sizes), above)
    called, starts = np.unique([within[group] for group in groups], return_index=True) if within else ((), ())
    if 0 < len(called) <= _MOST_COLOURS:
        below.set_yticks(starts, [name[:_LONGEST] for name in called], fontsize="small")
    elif len(groups) <= _MOST_COLOURS:
        below.set_yticks(range(len(groups)), _named(groups, names), fontsize="small")
    figure.colorbar(image, ax=below, label="share of the client's images", ticks=[0, 0.01, 0.1, 0.25, 0.5, 1])
    return figure


def _merged(values: np.ndarray, most: int) -> np.ndarray:
    """The rows of `values`, neighbours added up to `most` rows where there are more."""
    starts = np.linspace(0, len(values), min(len(values), most), endpoint=False).astype(int)
    return np.add.reduceat(values, starts, axis=0)


def similarity(tables: Mapping[str, tuple[pd.DataFrame, str]], title: str, path: Path) -> Path:
    """Square tables of how alike clusterings are, each with its measure and colour map, as annotated matrices.

    Colours go from the lowest to the highest value off the diagonal; that beyond it has the colour of the nearer end.
    """
    n = len(next(iter(tables.values()))[0])
    figure = Figure((len(tables) * (2.6 + 0.55 * n), 2.0 + 0.5 * n), layout="constrained")
    figure.suptitle(title)
    for axes, (measure, (table, colours)) in zip(
        figure.subplots(1, len(tables), squeeze=False)[0], tables.items(), strict=True
    ):
        values = table.to_numpy()
        off = values[~np.eye(n, dtype=bool)]
        low, high = off.min(), max(off.max(), off.min() + 1e-6)
        image = axes.imshow(values, cmap=colours, vmin=low, vmax=high)
        for row, column in np.ndindex(n, n):
            darkness = 1 - np.mean(image.cmap(image.norm(values[row, column]))[:3])
            colour = "white" if darkness > 0.5 else "black"
            axes.text(column, row, f"{values[row, column]:.2f}", ha="center", va="center", color=colour, fontsize=8)
        axes.set_xticks(range(n), table.columns, rotation=40, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(n), table.index)
        beyond = ("neither", "min", "max", "both")[(values.min() < low) + 2 * (values.max() > high)]
        figure.colorbar(image, ax=axes, shrink=0.8, label=measure, extend=beyond)
    return save(figure, path)


def cluster_numbers(rows: Sequence[Mapping[str, float]], title: str, path: Path) -> Path:
    """Inertia, silhouette and stability by the number of clusters; `rows` come from `compare_n_clusters`."""
    figure = Figure((10, 3.4), layout="constrained")
    figure.suptitle(title)
    at = [row["n_clusters"] for row in rows]
    panels = {
        "inertia": "inertia, relative to one cluster",
        "silhouette": "silhouette",
        "stability": "stability (ARI), mean ± std of draws",
    }
    for axes, (name, label) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        values = [row[name] for row in rows]
        errors = [row["stability_std"] for row in rows] if name == "stability" else None
        axes.errorbar(at, values, errors, marker="o", capsize=3, color="#3b6ea5")
        axes.set(xscale="log", xlabel="number of clusters", ylabel=label)
        axes.set_xticks(at, at)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    return save(figure, path)
