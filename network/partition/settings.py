"""The settings of a partition, which are arguments of `test_fed.py` and `make_partition.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from models.embedding.features import features_name
from network.partition.groups import EMBEDDING, RANDOM, column_name, partition_label, partition_type
from network.partition.rules import PARTITIONERS, WITHOUT_ALPHA, rule_of
from utils.args import POSITIVE, POSITIVE_INT, Parser, number, number_or_auto, share_or_number
from utils.arguments import add_arguments_of, arguments_of, with_defaults
from utils.settings import Settings, arguments_in, check_read, recorded, setting, settings_of
from utils.stage import StageSettings, add_shared
from utils.words import counted

# Beyond these bounds, results no longer depend on alpha, but numbers computed from it overflow or underflow.
_POSITIVE, _NOT_NEGATIVE = number(float, least=1e-100, most=1e100), number(float, least=0, most=1e100)
_USUAL = "paper"  # the rule that titles and names of folders do not mention
_IID: dict[str, Any] = {"unread": {"type": (RANDOM,)}}
_LONGEST = 40  # characters of a value in the name of a folder


def alpha(text: str) -> float:
    """An argparse type: a number from 1e-100 to 1e100, or 0."""
    return _NOT_NEGATIVE(text) and _POSITIVE(text)


@dataclass(frozen=True)
class AssignSettings(Settings):
    """By which rule groups are assigned, to how many clients; `options` are the values of the rule's own arguments."""

    heading: ClassVar[str] = "partition"

    rand_seed: int = StageSettings.rand_seed
    partition: str = setting(_USUAL, "rule by which groups are assigned to clients", choices=PARTITIONERS, **_IID)
    alpha: float = setting(
        0.1,
        "Dirichlet concentration, 0 with dirichlet_hsu only; "
        f"{', '.join(rule for rule in PARTITIONERS if rule in WITHOUT_ALPHA)} do not use it",
        alpha,
        **_IID,
    )
    n_clients: int | None = setting(
        25, "number of clients; auto: one for each group of --partition natural", number_or_auto
    )
    min_client_ds_len: int | None = setting(
        None,
        "smallest number of images per client; default: the rule's published number, or less where there are too "
        "few images",
        POSITIVE_INT,
    )
    n_images: int | None = setting(
        None,
        "images of all clients together, drawn from those that the rule assigns, so that runs are compared on "
        "equally many; default: all of these",
        POSITIVE_INT,
        recorded=False,
    )
    allow_unassigned: float = StageSettings.allow_unassigned
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The settings of these arguments."""
        rule = PARTITIONERS[config["partition"]]
        return cls(**settings_of(cls, config), options=recorded(arguments_of(rule, config), rule.arguments))

    def record(self) -> dict[str, Any]:
        """The same settings as arguments by name, without the seed and what is allowed."""
        names = ("partition", "alpha", "n_clients", "min_client_ds_len")
        return {name: getattr(self, name) for name in names} | self.thinning | dict(self.options)

    @property
    def thinning(self) -> dict[str, int]:
        """`n_images` by its name, where it is given: runs without it are what they were before there was one."""
        return {} if self.n_images is None else {"n_images": self.n_images}

    def words(self, unsaid: str = "") -> list[str]:
        """What the partition depends on, for titles: the rule, but for this one, and alpha and options that it uses.

        >>> AssignSettings(0, "dirichlet_hsu", alpha=0.5).words(), AssignSettings(0, "natural").words()
        (['dirichlet_hsu', 'α = 0.5'], ['natural'])
        """
        rule = [self.partition] if self.partition != unsaid else []
        return [*rule, *(f"{name} = {value}" for name, value in self._numbers("α").items())]

    def name(self, unsaid: str = "") -> str:
        """The same as a part of the name of a folder, with the seed.

        >>> AssignSettings(3, "shards", options={"shards_per_client": 4}).name()
        'shards_shards_per_client4_seed3'
        """
        rule = [self.partition] if self.partition != unsaid else []
        numbers = [f"{name}{_short(value)}" for name, value in self._numbers("alpha").items()]
        return "_".join([*rule, *numbers, f"seed{self.rand_seed}"])

    def _numbers(self, name: str) -> dict[str, str]:
        """Alpha, under this name, where the rule uses it, the number of images, and unusual arguments of the rule."""
        rule = PARTITIONERS[self.partition]
        of_alpha = {name: f"{self.alpha:g}"} if rule.uses_alpha else {}
        changed = {option: value for option, value in self.options.items() if value != rule.arguments[option].default}
        changed |= self.thinning
        return of_alpha | {
            option: "-".join(map(str, v)) if isinstance(v, list) else f"{v}" for option, v in changed.items()
        }


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST else hashlib.sha256(value.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class PartitionSettings(Settings):
    """What `test_fed.py` assigns, and how: the `--type`, of which clusters, and by which rule.

    With a column of natural groups, it is assigned `within` each of these. `assignment_files_path` is where the
    clusters are; a `partition_file` takes the place of all other settings, but for `non_participating_clients` where it
    has none: the share, or number, of the clients that never train.
    """

    heading: ClassVar[str] = "clusters"

    type: str = setting(
        EMBEDDING,
        "what is assigned: embedding_based, class_based, object_based (objects in boxes), <column>_based for natural "
        "groups, or iid",
        partition_type,
        heading="partition",
    )
    assign: AssignSettings = field(default_factory=AssignSettings)
    n_clusters: int = setting(10, "number of clusters to be read", POSITIVE_INT, **_IID)
    assignment_files_path: Path = StageSettings.assignment_files_path
    features: str | None = setting(
        None, "features that the clusters must be of; default: any", features_name, only={"type": (EMBEDDING,)}
    )
    partition_file: Path | None = None
    within: str | None = setting(
        None,
        "assign within each natural group of this column (city …): its own clusters, --n_clusters in each, to clients "
        "of its own, in proportion to its images",
        column_name,
        metavar="COLUMN",
        recorded=False,
        heading="partition",
    )
    non_participating_clients: float | None = setting(
        None,
        "of all clients, how many never train, but are evaluated: a share, as 0.25, or a number; default: none",
        share_or_number,
        heading="non-participating clients",
    )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The settings of these arguments."""
        return cls(**settings_of(cls, config), assign=AssignSettings.from_config(config))

    @property
    def assigned_by(self) -> AssignSettings:
        """The settings of the assignment: an IID partition has a rule of its own, whatever `--partition` says."""
        rule = rule_of(self.type, self.assign.partition)
        return self.assign if rule == self.assign.partition else replace(self.assign, partition=rule, options={})

    def record(self) -> dict[str, Any]:
        """The same settings as arguments by name, without the seed and files."""
        within = {"within": self.within} if self.within else {}
        record = {"type": self.type, "n_clusters": self.n_clusters, "features": self.features} | within
        return record | {"non_participating_clients": self.non_participating_clients} | self.assign.record()

    def instead_of(self, requested: PartitionSettings) -> list[str]:
        """A line where these, which are a saved partition's, are others than those that were asked for."""
        others = requested.record()
        own = {name: value for name, value in self.record().items() if others.get(name) not in (None, value)}
        if requested.partition_file is None or not own:
            return []
        words = ", ".join(f"--{name} {value}" for name, value in own.items())
        return [f"{requested.partition_file} was assigned with {words}: these are taken, whatever the arguments are"]

    @property
    def title(self) -> str:
        """The partition in titles, such as "class-based partition, α = 0.1, seed 42"."""
        label = partition_label(self.type) + (f" within {self.within}" if self.within else "")
        others = int(self.non_participating_clients or 0)
        aside = [counted(others, "non-participating client")] * bool(others)
        return ", ".join([label, *self.assigned_by.words(self._unsaid), *aside, f"seed {self.assign.rand_seed}"])

    @property
    def name(self) -> str:
        """The name of a run's folder, within that of its `--type`."""
        within = f"within_{_short(self.within)}_" if self.within else ""
        # The word of earlier versions, so that their runs are resumed.
        aside = f"_unseen{self.non_participating_clients:g}" if self.non_participating_clients else ""
        return within + self.assigned_by.name(self._unsaid) + aside

    @property
    def former_name(self) -> str:
        """The name that a run's folder once had, by whatever rule it was assigned."""
        return f"alpha{self.assign.alpha:g}_seed{self.assign.rand_seed}"

    @property
    def _unsaid(self) -> str:
        return RANDOM if self.type == RANDOM else _USUAL


@dataclass(frozen=True)
class ArrayFiles(Settings):
    """What `make_partition.py` assigns, and what it reports or assigns within: `.npy` files with a row per image."""

    heading: ClassVar[str] = "data"

    embeddings: Path | None = setting(
        None, ".npy of numbers, a row per image: their K-means clusters are assigned", Path
    )
    labels: Path | None = setting(
        None,
        ".npy of each image's class, user, building …, numbers or text (negative: left out): they are assigned "
        "or, with --embeddings, --users or --lat_lng, only reported",
        Path,
    )
    users: Path | None = setting(None, ".npy of each image's user, numbers or text: each user becomes a client", Path)
    lat_lng: Path | None = setting(
        None,
        ".npy of each image's latitude and longitude in degrees, NaN for unknown: each cell of the earth's "
        "surface becomes a client",
        Path,
    )
    within: Path | None = setting(
        None,
        ".npy of each image's natural group (city …), numbers or text (negative or empty: left out): embeddings "
        "are clustered, and clusters or labels assigned, within each, to clients of its own",
        Path,
        metavar="FILE",
    )


@dataclass(frozen=True)
class GroupSettings(Settings):
    """How groups are made of embeddings and of places."""

    heading: ClassVar[str] = "partition"

    n_clusters: int = setting(16, "number of clusters, the K of K-means", POSITIVE_INT)
    max_cell: int = setting(1000, "most images in a cell of --lat_lng; others are divided", POSITIVE_INT)
    min_cell: float | None = setting(
        None, "fewest images in a cell of --lat_lng; default: a hundredth of --max_cell", POSITIVE
    )
    rand_seed: int = StageSettings.rand_seed


def add_partition(parser: Parser) -> None:
    """Add `--partition` and the arguments that rules use."""
    AssignSettings.add_arguments(parser)
    add_shared(parser, "allow_unassigned")
    add_arguments_of(parser, "partition", PARTITIONERS, "partition")


def add_partition_settings(parser: Parser) -> None:
    """Add the arguments for `PartitionSettings`."""
    PartitionSettings.add_arguments(parser)
    add_partition(parser)
    add_shared(parser, "assignment_files_path", "partition_file")


def resolve_partition_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """`resolve_rule`; UserError as well for an argument of the partition that changes nothing."""
    resolved = resolve_rule(config)
    check_read(resolved, PartitionSettings)
    return recorded(resolved, arguments_in(PartitionSettings))


def resolve_rule(config: Mapping[str, Any]) -> dict[str, Any]:
    """With the rule's own arguments that were not given; UserError for an argument of another rule."""
    rule = PARTITIONERS[config["partition"]]
    resolved = with_defaults(config, PARTITIONERS, "partition")
    return recorded(resolved, arguments_in(AssignSettings), rule.arguments)


def unread_by(split: str) -> set[str]:
    """The arguments that have no part in what a `--type` has assigned, whatever their values.

    >>> sorted(unread_by("iid") - unread_by("class_based"))[:3]
    ['alpha', 'balanced', 'client_share']
    """
    arguments = arguments_in(AssignSettings) | arguments_in(PartitionSettings)
    unread = {name for name, argument in arguments.items() if split in argument.unread.get("type", ())}
    return unread.union(*(of.arguments for rule, of in PARTITIONERS.items() if rule_of(split, rule) != rule))
