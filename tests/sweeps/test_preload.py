"""The server of a sweep holds all that its jobs will need."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conftest import ROOT, forks

# Run in a process of the server's as it is: a function of this module would bring what the tests import.
_ANSWER = "import sys; to.send({n: getattr(m, '__file__', None) or '' for n, m in sys.modules.items()})"


def test_nothing_of_the_project_is_left_to_be_imported() -> None:
    """Neither at the top of a module nor in a function: a job would read it from a file, which may have changed."""
    context = forks()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=exec, args=(_ANSWER, {"to": theirs}))
    process.start()
    loaded = {name: Path(file) for name, file in ours.recv().items()}
    process.join()
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir()} | {path.stem for path in ROOT.glob("*.py")}
    rooms -= {"tests"}  # which the forks of tests begin with
    # By name and by place: the environment, `.venv`, lies in the root as well.
    own = [file for name, file in loaded.items() if name.split(".")[0] in rooms and file.is_relative_to(ROOT)]
    needed = {module for file in own for module in _imported(file) if module.split(".")[0] in rooms}
    assert len(own) > 60 and needed <= loaded.keys()


def _imported(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_bytes())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
