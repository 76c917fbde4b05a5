"""Modules that all jobs need, imported once by the server that they are forked from.

Importing takes several seconds, up to a third of a short run. The hash of the sources is determined here as well,
because a job that is forked later runs the code as it was loaded, even if files have changed since.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

from utils.versions import ROOT, source_hash

# The stages, and the folder of each stage's run directories in the result path; initial models have none.
STAGES = {
    "extract_datapoints_for_experiments.py": "extract_datapoints",
    "model_initialization.py": "",
    "train_centralized_task_model.py": "train_centralized",
    "extract_embeddings.py": "extract_embeddings",
    "extract_diffusion_features.py": "extract_diffusion_features",
    "test_fed.py": "test_federated",
}
# Modules of libraries that are otherwise imported on first use.
_LATER = (
    "matplotlib.backends.backend_agg",
    "safetensors.torch",
    "scipy.optimize",
    "scipy.special",
    "torch._dynamo",
    "torchmetrics.functional.image",
)
_OWN = {path.parent.name for path in ROOT.glob("*/__init__.py")} | {path.stem for path in ROOT.glob("*.py")}
_FROM = re.compile(r"^ *from ([\w.]+) import ", re.MULTILINE)  # parsing every file would take seconds
MODULES: dict[str, ModuleType] = {}


def _import_all(script: Path) -> None:
    """Run all import statements of a script, including those in its functions."""
    nodes = ast.walk(ast.parse(script.read_bytes()))
    imports: list[ast.stmt] = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), script, "exec"), {})


def _import_own() -> None:
    """Import all modules of the project that loaded ones import, at their top or in functions."""
    done: set[str] = set()
    while waiting := {name for name in sys.modules if name.partition(".")[0] in _OWN} - done:
        done |= waiting
        for file in filter(None, (getattr(sys.modules[name], "__file__", None) for name in waiting)):
            for name in _FROM.findall(Path(file).read_text(encoding="utf-8")):
                if name.partition(".")[0] in _OWN:
                    importlib.import_module(name)


source_hash()
for _script in STAGES:
    _import_all(ROOT / _script)
    MODULES[_script] = importlib.import_module(_script.removesuffix(".py"))
_import_own()
for _module in _LATER:
    importlib.import_module(_module)
