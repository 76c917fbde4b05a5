"""What a script reaches: the whole of what a run executes, and none of its neighbours."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FrameType, MappingProxyType

import pytest

from datasets.tasks import TASKS, Task
from network.algorithms import ALGORITHMS
from utils import program
from utils.program import ENGINE, Program
from utils.versions import _ASIDE, ROOT, words_of

Version = Callable[..., dict[str, str]]

FILES = {
    "stage.py": '"""A stage."""\nfrom package import part\nimport numpy as np\n\ndef main(name):\n'
    '    return part.run(np.pi, name)\n\nif __name__ == "__main__":\n    main()\n',
    "package/part.py": "from package.deep.base import Base\nfrom package.pieces import PIECES, SHAPES\n\n"
    "def run(x, name):\n    return Base, SHAPES[PIECES[name]]\n\ndef idle():\n    return 1\n",
    "package/pieces.py": "from utils.registry import Registry\nfrom package import more\n"
    "from package.more import Square\nLIMIT = 3\n\ndef circle():\n    return LIMIT\n\nclass Round:\n    pass\n\n"
    "SHAPES: Registry[int] = {s.__name__: s for s in (circle, Square)}\n"
    'PIECES: Registry[int] = {"a": more.first, "b": ("circle", 2), "c": lambda: more.third(SHAPES["Square"])}\n',
    "package/more.py": "class Square:\n    size = 1\n\ndef first():\n    return 1\n\ndef third(of):\n    return of\n",
    "package/deep/base.py": "class Base:\n    size = 3\n",
    "package/deep/__init__.py": "",
    "package/__init__.py": "",
    "package/unused.py": "x = 1\n",
    "utils/registry.py": "Registry = dict\n",
    "utils/plots.py": "import package.unused\n",
}


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Parse each text once: an edit of one file leaves the others' modules as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "Module", cache(program.Module))
        yield


@pytest.fixture
def version_of(tmp_path: Path) -> Version:
    """The version of a small project's stage with some files' content replaced."""

    def version(changed: Mapping[str, str] = MappingProxyType({}), *words: str) -> dict[str, str]:
        for name, text in {**FILES, **changed}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return Program(tmp_path / "stage.py", {"utils/plots.py"}).version(words)

    return version


def edited(name: str, old: str, new: str) -> dict[str, str]:
    """A small project's file with one text in place of another."""
    assert old in FILES[name]
    return {name: FILES[name].replace(old, new)}


@pytest.mark.parametrize(
    "changed",
    [
        {"package/unused.py": "x = 2\n"},
        edited("package/part.py", "return 1", "return 2"),  # of a function that nothing calls
        edited("stage.py", '"""A stage."""', '"""Other words."""  # why'),
        edited("stage.py", "import numpy as np\n", "import numpy as np, package.unused\n"),
        {"package/deep/base.py": 'class Base:\n    """A docstring\n    of two lines."""\n\n    size = (3)\n'},
        edited("package/pieces.py", "class Round:\n    pass", "class Round:\n    size = 1"),
        {"utils/plots.py": "draw = 1\n"},
        {"package/unused.py": "print(1)\n"} | edited("stage.py", "import numpy", "import utils.plots, numpy"),
        {"README.md": "text"},
    ],
)
def test_text_layout_and_strangers_leave_the_version_alone(version_of: Version, changed: dict[str, str]) -> None:
    assert version_of(changed, "a") == version_of({}, "a")


@pytest.mark.parametrize(
    "changed",
    [
        edited("stage.py", "run(np.pi", "run(np.e"),
        {"package/deep/base.py": "class Base:\n    size = 4\n"},  # three imports away
        {"package/deep/base.py": "from package.unused import x as Base\n"},
        edited("stage.py", "import numpy as np", "import torch as np"),  # the same names of another library
        {"package/unused.py": "print(1)\n"} | edited("stage.py", "import numpy", "import package.unused, numpy"),
        {"package/__init__.py": "print(1)\n"},  # what a package runs when it is imported
        {"package/deep/__init__.py": "import sys\nsys.path = []\n"},
        edited("package/more.py", "return 1", "return 1\n\nfirst = print"),  # a second definition of one name
        {"package/unused.py": "x = 2\n"} | edited("package/deep/base.py", "size = 3", "from ..unused import x"),
    ],
)
def test_code_that_a_stage_needs_changes_its_version(version_of: Version, changed: dict[str, str]) -> None:
    assert version_of(changed, "a") != version_of({}, "a")


@pytest.mark.parametrize(
    "statement, used",
    [
        ("from package.unused import x", "x"), ("import package.unused", "package.unused.x"),
        ("import package.unused as u", "u.x"), ("from package import unused", "vars(unused)['x']"),
        ("from .unused import x as y", "y"), ("from . import unused", "unused.x"),
        ("from .deep import again", "again.x"), ("from package.unused import *", "x"),
    ],
)  # fmt: skip
def test_every_way_of_importing_is_followed(version_of: Version, statement: str, used: str) -> None:
    text = FILES["package/part.py"].replace("return Base,", f"return {used}, Base,")
    for part in (f"{statement}\n{text}", text.replace("    return", f"    {statement}\n    return", 1)):
        files = {"package/part.py": part, "package/deep/again.py": "from ..unused import x\n"}
        assert version_of(files) != version_of(files | {"package/unused.py": "x = 2\n"})


def test_the_order_of_what_runs_on_import_counts(version_of: Version) -> None:
    for first, second in (("print(1)\n", "print(2)\n"), ("LIMIT = 1\n", "LIMIT = 2\n")):
        one, other = (
            {"package/pieces.py": FILES["package/pieces.py"] + text} for text in (first + second, second + first)
        )
        assert version_of(one, "b") != version_of(other, "b")


@pytest.mark.parametrize(
    "registry",
    ['{"b": 1} | {"a": more.first}', '{**{}, "a": more.first}', "dict(a=more.first)", "{LIMIT: more.first}"],
)
def test_a_registry_whose_keys_cannot_be_told_counts_as_a_whole(version_of: Version, registry: str) -> None:
    text = FILES["package/pieces.py"]
    files = {"package/pieces.py": f"{text[: text.index('PIECES')]}PIECES: Registry = {registry}\n"}
    assert set(version_of(files, "a")) == {ENGINE}
    assert version_of(files) != version_of(files | edited("package/more.py", "return 1", "return 2"))


def test_words_lead_to_entries_and_these_to_others(version_of: Version) -> None:
    pieces, shapes = "package.pieces.PIECES[{}]", "package.pieces.SHAPES[{}]"
    assert set(version_of({})) == {ENGINE}
    assert set(version_of({}, "a", "other")) == {ENGINE, pieces.format("a")}
    assert set(version_of({}, "b")) == {ENGINE, pieces.format("b"), shapes.format("circle")}  # named in the entry
    assert set(version_of({}, "c")) == {ENGINE, pieces.format("c"), shapes.format("Square")}  # looked up in its code


@pytest.mark.parametrize(
    "changed, words",
    [
        (edited("package/more.py", "return 1", "return 2"), "a"),
        (edited("package/pieces.py", '("circle", 2)', '("circle", 3)'), "b"),
        (edited("package/pieces.py", "LIMIT = 3", "LIMIT = 4"), "b"),
        (edited("package/more.py", "return of", "return -of"), "c"),
        (edited("package/more.py", "size = 1", "size = 2"), "c"),
        (edited("package/pieces.py", '"c": lambda', '"d": 1, "c": lambda'), ""),
        (edited("package/pieces.py", "class Round", "def oval():\n    return 1\n\nclass Round")
         | edited("package/pieces.py", "(circle, Square)", "(circle, Square, oval)"), ""),
    ],
)  # fmt: skip
def test_an_edit_of_an_entry_is_one_of_those_that_name_it(
    version_of: Version, changed: dict[str, str], words: str
) -> None:
    different = [word for word in "abc" if version_of(changed, word) != version_of({}, word)]
    assert different == list(words)


def test_digests_are_of_parts(version_of: Version) -> None:
    before, after = version_of({}, "a"), version_of(edited("package/more.py", "return 1", "return 2"), "a")
    assert before[ENGINE] == after[ENGINE] and len(before) == len(after) == 2


# The project itself


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the project's code, to be edited."""
    for path in ROOT.glob("*.py"):
        shutil.copy(path, tmp_path)
    for name in ("datasets", "models", "network", "utils"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def edit(path: Path, name: str) -> None:
    """Change the code of a class or function of a file, at its end."""
    lines = path.read_text(encoding="utf-8").splitlines()
    [node] = [node for node in ast.parse("\n".join(lines)).body if getattr(node, "name", None) == name]
    lines.insert(node.end_lineno, f"{' ' * node.body[-1].col_offset}edited = True")
    path.write_text("\n".join(lines), encoding="utf-8")


def affected(script: Path, names: Iterable[str], change: Callable[[], None]) -> set[str]:
    """Those of the names, each the word of a run, whose runs have another version after a change."""
    before, after = Program(script, _ASIDE), change() or Program(script, _ASIDE)
    return {name for name in names if before.version([name]) != after.version([name])}


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "fedavg"])
def test_an_edit_of_a_method_is_one_of_it_and_its_subclasses(copy: Path, name: str) -> None:
    cls = ALGORITHMS[name]
    file = copy / Path(inspect.getfile(cls)).relative_to(ROOT)
    heirs = {other for other, algorithm in ALGORITHMS.items() if issubclass(algorithm, cls)}
    found = affected(copy / "test_fed.py", ALGORITHMS, lambda: edit(file, cls.__name__))
    assert found == heirs and "fedavg" not in found


@pytest.mark.parametrize(
    "file, name",
    [
        ("network/algorithms/fedavg.py", "FedAvg"), ("network/simulation.py", "Simulation"),
        ("network/local_training.py", "LocalTraining"), ("datasets/packed.py", "resize"), ("utils/args.py", "number"),
        ("models/networks/task_model.py", "TaskModel"), ("network/aggregation.py", "WeightedSum"),
        ("test_fed.py", "main"), ("network/partition/local_test.py", "deal_held_out"),
        ("datasets/tasks.py", "get_task"),
    ],
)  # fmt: skip
def test_an_edit_of_the_engine_is_one_of_all_methods(copy: Path, file: str, name: str) -> None:
    assert affected(copy / "test_fed.py", ALGORITHMS, lambda: edit(copy / file, name)) == set(ALGORITHMS)


METHOD = '''"""One's own method."""

from network.algorithms.fedavg import FedAvg


class Mine(FedAvg):
    def server_step(self, server, mean):
        return super().server_step(server, mean)
'''


def test_a_new_method_leaves_the_others_alone(copy: Path) -> None:
    folder, script, names = copy / "network/algorithms", copy / "test_fed.py", [*ALGORITHMS, "mine"]

    def add() -> None:
        (folder / "mine.py").write_text(METHOD)
        text = (folder / "__init__.py").read_text().replace('"fedavg": FedAvg,', '"mine": Mine, "fedavg": FedAvg,')
        text = text.replace("\nfrom network", "\nfrom network.algorithms.mine import Mine\nfrom network", 1)
        (folder / "__init__.py").write_text(text)

    assert affected(script, names, add) == {"mine"}
    assert affected(script, names, lambda: edit(folder / "mine.py", "Mine")) == {"mine"}


def functions_of(task: Task) -> set[str]:
    """The functions that a task's entry names, in any variant."""
    fields = [vars(task), *task.variants.values()]
    return {each[name].__name__ for each in fields for name in ("decode", "physical") if each.get(name)}


@pytest.mark.parametrize("script", ["test_fed.py", "train_centralized_task_model.py"])
@pytest.mark.parametrize("function", sorted(set().union(*map(functions_of, TASKS.values()))))
def test_an_edit_of_a_decoding_is_one_of_the_tasks_that_have_it(copy: Path, script: str, function: str) -> None:
    users = {name for name, task in TASKS.items() if function in functions_of(task)}
    assert affected(copy / script, TASKS, lambda: edit(copy / "datasets/tasks.py", function)) == users


@pytest.mark.parametrize("name", TASKS)
def test_an_edit_of_a_tasks_entry_is_one_of_this_task(copy: Path, name: str) -> None:
    path = copy / "datasets/tasks.py"
    head = f'Task(\n        "{name}", '
    assert path.read_text().count(head) == 1
    change = path.read_text().replace(head, f"{head}1 + ")
    assert affected(copy / "test_fed.py", TASKS, lambda: path.write_text(change) and None) == {name}


@pytest.mark.parametrize("loss", ["l1", "mse", "cross_entropy"])
def test_an_edit_of_a_loss_is_one_of_its_tasks(copy: Path, loss: str) -> None:
    users = {name for name, task in TASKS.items() if task.loss == loss}
    assert affected(copy / "test_fed.py", TASKS, lambda: edit(copy / "losses.py", loss)) == users


@pytest.mark.parametrize(
    "function, metrics",
    [("_ssim", {"ssim"}), ("_angles", {"angle"}), ("_class_hits", {"overlap", "hits"})],
)
def test_an_edit_of_a_metric_is_one_of_its_tasks(copy: Path, function: str, metrics: set[str]) -> None:
    users = {name for name, task in TASKS.items() if metrics & set(task.metrics)}
    assert affected(copy / "test_fed.py", TASKS, lambda: edit(copy / "models/central/metrics.py", function)) == users


@pytest.mark.parametrize(
    "file, name, words, of",
    [
        ("network/partition/without_alpha.py", "shards", ("paper", "equal_size", "shards", "iid"), "shards"),
        ("network/sampling.py", "by_size", ("uniform", "size"), "size"),
        ("models/networks/backbones.py", "TinyEncoder", ("tiny", "resnet18", "clip_vit_b32"), "tiny"),
        ("models/networks/taskonomy.py", "TaskonomyDecoder", ("taskonomy", "linear", "unet"), "taskonomy"),
    ],
)
def test_an_edit_of_another_registrys_entry_is_one_of_its_runs(
    copy: Path, file: str, name: str, words: tuple[str, ...], of: str
) -> None:
    assert affected(copy / "test_fed.py", words, lambda: edit(copy / file, name)) == {of}


def test_keys_are_those_of_the_registries_themselves() -> None:
    known = {}
    for script in ("test_fed.py", "model_initialization.py"):
        for module in Program(ROOT / script, _ASIDE)._modules.values():
            known |= {(module.name, name): set(entries) for name, entries in module.registries.items()}
    names = {"ALGORITHMS", "TASKS", "LOSSES", "METRICS", "PARTITIONERS", "ENCODERS", "DECODERS", "SAMPLERS"}
    assert names <= {name for _, name in known}
    for (module, name), keys in known.items():
        assert keys == set(getattr(importlib.import_module(module), name))


# What a run executes, noted by Python itself


@pytest.fixture
def executed(run_here: Callable) -> Callable[[str], set[tuple[str, int]]]:
    """The functions of the project that a command calls, by file and first line; what imports call is left out."""
    for name in ("test_fed", "train_centralized_task_model", "models.central.metrics", "torchmetrics.functional.image"):
        importlib.import_module(name)

    def run(command: str) -> set[tuple[str, int]]:
        seen = set()

        def note(frame: FrameType, event: str, argument: object) -> None:
            seen.add(frame.f_code)

        threading.setprofile(note)
        sys.setprofile(note)
        try:
            run_here(command)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        functions = [code for code in seen if code.co_flags & inspect.CO_OPTIMIZED]  # neither modules nor classes
        places = {(code.co_filename.removeprefix(f"{ROOT}/"), code.co_firstlineno) for code in functions}
        return {(file, line) for file, line in places
                if not file.startswith(("/", "<", ".venv/", "tests/")) and file not in _ASIDE}  # fmt: skip

    return run


FED = "test_fed.py --data_path {data} --n_clients 4 --n_rounds 1 --sgd_per_epoch 1 --min_client_ds_len 1 --alpha 1 "


@pytest.mark.parametrize(
    "task, stage",
    [
        ("normal", FED + "--type class_based --method fednova --partition equal_size"),
        ("segment_semantic", FED + "--type iid --method scaffold --clients_per_round 2 --client_sampling size"),
        ("depth_euclidean", "train_centralized_task_model.py --data_path {data} --n_epochs 1"),
    ],
)
def test_a_version_covers_all_that_a_run_executes(
    own_copy: Path, tmp_path: Path, run_here: Callable, executed: Callable, task: str, stage: str
) -> None:
    run_here(f"model_initialization.py --task {task} --image_size 32 --norm group --data_path {own_copy}")
    command = f"{stage.format(data=own_copy)} --task {task}"
    functions = executed(command)
    [path] = tmp_path.glob("results/*/**/args.json")
    words = words_of(json.loads(path.read_text()))
    assert len(functions) > 100
    assert sorted(functions - lines_of(command.split()[0], words)) == []
    assert functions - lines_of(command.split()[0], [])  # the task's and the method's own


def lines_of(script: str, words: Iterable[str]) -> set[tuple[str, int]]:
    """The lines that a version covers, by file; those of decorators, where a function's code begins, among them."""
    covered = set()
    for piece in frozenset().union(*Program(ROOT / script, _ASIDE).parts(words).values()):
        first = min(node.lineno for node in [piece.node, *getattr(piece.node, "decorator_list", [])])
        file = f"{piece.module.name.replace('.', '/')}.py"
        covered |= {(file, line) for line in range(first, piece.node.end_lineno + 1)}
    return covered
