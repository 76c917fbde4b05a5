"""The jobs of a sweep: the commands that make the runs of a grid, and which jobs need which."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from models.embedding.features import MODEL
from network.partition.groups import EMBEDDING
from utils.args import argument_words
from utils.errors import UserError
from utils.files import as_file_name, read_json, write_json
from utils.versions import ROOT

ARGUMENTS = ROOT / "scripts" / "args"
SCALES = tuple(sorted(str(path.parent.relative_to(ARGUMENTS)) for path in ARGUMENTS.rglob("fed.txt")))
# What `--sweep` names. Besides the comparison, each has a file of values of an argument of the whole federation.
COMPARISON = "comparison"
SWEEP_TYPES = (COMPARISON, "lr_test", "sgd_test", "distributions")

_LONGEST = 40  # characters of an argument and its value in a job's name
_CHOICES = ("partition", "aggregation", "attack")  # arguments of test_fed.py that say which others it reads

Command = tuple[str, ...]
Value = str | tuple[str, ...]  # of an argument: a word, or several


@dataclass(frozen=True)
class Job:
    """Scripts to be run one after another; the run directory of the last one says whether the job is done.

    `configs` are the values that they run with, by the names of their arguments, once `sweeps.expand` has parsed the
    `commands`, which say the same in words: for people, for logs, and for the process that becomes the script.
    """

    name: str
    commands: tuple[Command, ...]
    needs: tuple[str, ...] = ()
    configs: tuple[Mapping[str, Any], ...] = ()

    @property
    def script(self) -> str:
        """The last script."""
        return self.commands[-1][0]

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration of the last script."""
        return self.configs[-1]

    @property
    def families(self) -> tuple[str, ...]:
        """Groups of jobs that take similar times, the most specific first: script, task and method; script; all."""
        script, *arguments = self.commands[-1]
        said = dict(pairwise(arguments))
        return " ".join([script, *(said.get(f"--{name}", "") for name in ("task", "method"))]), script, ""


@dataclass(frozen=True)
class Grid:
    """What a sweep runs: every combination of its values, with the central models that they need.

    `init` and `common` are further arguments for the initial models and for every training; `axes` maps further
    arguments of `test_fed.py` to their values. `reads` has the arguments that each method reads, under "method", and
    those of each partition rule, aggregation and attack; an argument varies only the runs that read it. `features` are
    those whose clusters embedding-based partitions assign. `train` and `embed` are further arguments of these two
    stages. Without `has_central`, runs need an initial model alone, and embedding-based ones the clusters of features
    that are not the central model's, made once for all seeds. With a `guidance`, the folder for a teacher's vectors,
    runs whose method reads `--guidance_path` need these, made with the arguments `teacher`.
    """

    scale: str
    data_path: Path
    result_path: Path
    tasks: Sequence[str]
    methods: Sequence[str]
    types: Sequence[str]
    alphas: Sequence[str]
    seeds: Sequence[int]
    n_clusters: Sequence[int]
    sweep_type: str = COMPARISON
    init: Command = ()
    common: Command = ()
    axes: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    features: Sequence[str] = ("model",)
    reads: Mapping[str, Mapping[str, Collection[str]]] = field(default_factory=dict)
    train: Command = ()
    embed: Command = ()
    has_central: bool = True
    guidance: Path | None = None
    teacher: Command = ()

    def __post_init__(self) -> None:
        """Raise UserError for an unknown scale, or if nothing says what this type of sweep varies."""
        if self.scale not in SCALES:
            near = difflib.get_close_matches(self.scale, SCALES, n=1, cutoff=0) or SCALES
            raise UserError(f"scale {self.scale!r}: not a folder of scripts/args, did you mean {near[0]}?")
        file = ARGUMENTS / self.scale / f"{self.sweep_type}.txt"
        if self.sweep_type != COMPARISON and not self.axes and not file.is_file():
            folder = file.parent.relative_to(ROOT)
            raise UserError(
                f"--sweep {self.sweep_type}: {folder} has no {file.name}; give values to vary, e.g. --init_lr 0.01 0.1"
            )

    @property
    def runs_path(self) -> Path:
        """The folder of the federated runs."""
        return self.result_path if self.sweep_type == COMPARISON else self.result_path / self.sweep_type

    def central(self) -> list[Job]:
        """What federated runs need: a teacher; a model for each task and seed, and its clusters for each K."""
        jobs = [self._guidance()] if any(map(self._is_taught, self.methods)) else []
        for seed, task in product(self.seeds, self.tasks):
            model = self._model(task, seed)
            jobs.append(model)
            if self.has_central or seed == self.seeds[0]:
                jobs += [self._clusters(task, seed, *made) for made in product(self.n_clusters, self._clustered)]
        return jobs

    def federated(self) -> list[Job]:
        """A run for each combination; the random partition does not use alpha, and has one run for all."""
        jobs = []
        for seed, task, k, method in product(self.seeds, self.tasks, self.n_clusters, self.methods):
            model = self._model(task, seed)
            taught = self._is_taught(method)
            guided = ("--guidance_path", str(self.guidance)) if taught else ()
            for axis in self._axes_of(task, method):
                for features, assigned in self._partitions():
                    made = self._clusters(task, seed, k, features) if features in self._clustered else model
                    needs = (made.name, self._guidance().name) if taught else (made.name,)
                    base = self._federation(task, seed, k, features, method) + guided + axis
                    jobs.append(_job("test_fed", base + assigned, needs, axis))
        return jobs

    def hold_settings(self) -> None:
        """Record how central models are made here; UserError if the folder has models that were made otherwise.

        Sweeps that share a result path share its models. If one made them again in another way, the others would go on
        with models that are not theirs. Where no model was made yet, as when making one failed, nothing is held.
        """
        for task in self.tasks:
            path = self.result_path / "settings" / f"{task}.json"
            wanted = {
                "init": [*self._of_scale("init", task), *self.init],
                "train": [*self._of_scale("train", task), *self.train, *self.common],
            }
            names = (f"seed*/initial_models/init_model_{task}{cbam}.safetensors" for cbam in ("", "_cbam"))
            if not path.is_file() or not any(file for name in names for file in self.result_path.glob(name)):
                write_json(path, wanted)
            if read_json(path, "run_sweep.py") != wanted:
                raise UserError(
                    f"the central models in {self.result_path} were made with other arguments, see {path}; "
                    "give another --result_path, or remove that file to make them again"
                )

    def _model(self, task: str, seed: int) -> Job:
        """The job that makes the central model or, where none is needed, the initial one."""
        models = self._models(seed)
        init = (
            "model_initialization.py",
            "--task",
            task,
            *self._folders(seed, self.result_path),
            "--init_model_dir",
            f"{models}/initial_models",
            *self._of_scale("init", task),
            *self.init,
        )
        if not self.has_central:
            return Job(_name("model_initialization", init), (init,))
        train = (
            "train_centralized_task_model.py",
            "--task",
            task,
            *self._folders(seed, self.result_path),
            "--init_model_dir",
            f"{models}/initial_models",
            "--checkpoint_path",
            f"{models}/trained_models",
            *self._of_scale("train", task),
            *self.train,
            *self.common,
        )
        return Job(_name("train_centralized", (*init, *train)), (init, train))

    def _clusters(self, task: str, seed: int, k: int, features: str) -> Job:
        # Of an initial model only the arguments count, which are those of all seeds; so the script's own seed suffices.
        first = seed if self.has_central else self.seeds[0]
        models, folders = self._models(first), self._folders(seed, self.result_path)
        shown = ("--observe_performance", "True") if features == MODEL else ()
        command = (
            "--task",
            task,
            "--n_clusters",
            str(k),
            "--features",
            features,
            *shown,
            *(folders if self.has_central else folders[:4]),
            "--load_model_dir",
            f"{models}/trained_models",
            "--init_model_dir",
            f"{models}/initial_models",
            "--assignment_files_path",
            self._assignments(seed, k, features),
            *self._of_scale("embed", task),
            *self.embed,
        )
        return _job("extract_embeddings", command, (self._model(task, first).name,))

    def _guidance(self) -> Job:
        """The job that asks the teacher; one that was cut off is taken up by the script itself."""
        command = (
            "extract_diffusion_features.py",
            "--data_path",
            str(self.data_path),
            "--result_path",
            str(self.result_path),
            "--guidance_path",
            str(self.guidance),
            "--resume_training",
            "True",
            *self.teacher,
            *self.common,
        )
        return Job(_name("extract_diffusion_features", command), (command,))

    def _is_taught(self, method: str) -> bool:
        return self.guidance is not None and "guidance_path" in self.reads.get("method", {}).get(method, ())

    @property
    def _clustered(self) -> list[str]:
        """The features whose clusters are made."""
        if self.has_central:
            return list(self.features)
        return [features for features in self.features if features != MODEL and EMBEDDING in self.types]

    @property
    def first_clusters(self) -> str:
        """The folder of the clusters that runs of the first seed read, of the model's embeddings if there are any."""
        features = MODEL if MODEL in self.features else self.features[0]
        return self._assignments(self.seeds[0], self.n_clusters[0], features)

    def _assignments(self, seed: int, k: int, features: str) -> str:
        of = "" if features == MODEL else f"_{as_file_name(features)}"
        return f"{self._models(seed) if self.has_central else self.result_path}/assignments{of}_K{k}"

    def _federation(self, task: str, seed: int, k: int, features: str, method: str) -> Command:
        models = self._models(seed)
        return (
            "--task",
            task,
            "--method",
            method,
            "--n_clusters",
            str(k),
            *self._folders(seed, self.runs_path),
            "--init_model_dir",
            f"{models}/initial_models",
            "--trained_model_dir",
            f"{models}/trained_models",
            "--assignment_files_path",
            self._assignments(seed, k, features),
            *self._of_scale("fed", task, method),
            *self.common,
        )

    def _partitions(self) -> Iterator[tuple[str, Command]]:
        """Each combination of features, partition type and alpha: the features, and the arguments of the partition.

        Only embedding-based partitions differ by features.
        """
        for type in self.types:
            for features in self.features if type == EMBEDDING else self.features[:1]:
                made_of = ("--features", features) if type == EMBEDDING else ()
                for alpha in [()] if type == "iid" else [("--alpha", alpha) for alpha in self.alphas]:
                    yield features, ("--type", type, *made_of, *alpha)

    def _axes_of(self, task: str, method: str) -> Iterator[Command]:
        """Every combination of the further arguments' values; those of the command line override a file's.

        An argument that only other methods of the sweep read is left out, and so for its partition rules, aggregations
        and attacks.
        """
        words = () if self.sweep_type == COMPARISON else self._of_scale(self.sweep_type, task)
        axes: dict[str, Sequence[Value]] = {**read_axes(words), **self.axes}
        of_method = self._unread("method", method, self.methods)
        found: dict[Command, None] = {}
        for values in product(*axes.values()):
            given = dict(zip(axes, values, strict=True))
            unread = of_method.union(*(self._unread(name, given.get(name), axes.get(name, ())) for name in _CHOICES))
            said = ((f"--{name}", *_words(value)) for name, value in given.items() if name not in unread)
            found[tuple(word for words in said for word in words)] = None
        yield from found

    def _unread(self, choice: str, chosen: Value | None, others: Sequence[Value]) -> set[str]:
        """The arguments that some of the others read, but the chosen one does not."""
        reads = self.reads.get(choice, {})
        return {name for other in others for name in reads.get(str(other), ())}.difference(reads.get(str(chosen), ()))

    def _models(self, seed: int) -> Path:
        return self.result_path / f"seed{seed}"

    def _folders(self, seed: int, runs: Path) -> Command:
        return ("--data_path", str(self.data_path), "--result_path", str(runs), "--rand_seed", str(seed))

    def _of_scale(self, stage: str, *variants: str) -> Command:
        """The arguments of a stage, then any of a task and of a method in it; later ones override earlier ones."""
        names = [stage, *(f"{stage}_{variant}" for variant in variants)]
        return tuple(word for name in names for word in _words_of(self.scale, name))


def read_axes(words: Sequence[str]) -> dict[str, list[str]]:
    """Arguments `--name value value …` with any number of values, by name; a bare one has the value True.

    Raises UserError for words before the first name, and for `partition_file`, since a sweep assigns its own
    partitions.
    """
    axes: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            axes[word[2:]] = values = []
        elif axes:
            values.append(word)
        else:
            raise UserError(f"{word}: not the value of an argument; see --help")
    if "partition_file" in axes:
        raise UserError("--partition_file: a sweep assigns its own partitions; give it to test_fed.py instead")
    return {name: given or ["True"] for name, given in axes.items()}


@cache
def _words_of(scale: str, name: str) -> Command:
    """The arguments in a file of a scale, read once: thousands of jobs have them. None where there is no such file."""
    file = ARGUMENTS / scale / f"{name}.txt"
    return tuple(argument_words(file)) if file.is_file() else ()


def _words(value: Value) -> Command:
    return (value,) if isinstance(value, str) else value


def _job(stage: str, arguments: Command, needs: tuple[str, ...], axis: Command = ()) -> Job:
    command = (f"{stage}.py", *arguments)
    return Job(_name(stage, command, axis), (command,), needs)


def _name(stage: str, command: Command, axis: Command = ()) -> str:
    """A readable name, with the values of the arguments that vary, made unique by a digest of the command."""
    said = dict(pairwise(command))
    parts = [stage, *(said[f"--{name}"] for name in ("task", "method", "type") if f"--{name}" in said)]
    parts += [f"alpha{said['--alpha']}"] if "--alpha" in said else []
    parts += [f"seed{said['--rand_seed']}"] if "--rand_seed" in said else []
    parts += [as_file_name(f"{name}{'_'.join(values)}")[:_LONGEST] for name, values in read_axes(axis).items()]
    return "-".join([*parts, hashlib.sha256("\0".join(command).encode()).hexdigest()[:8]])
