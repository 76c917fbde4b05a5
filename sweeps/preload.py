"""What jobs have in common, imported once, by the server that they are forked from.

Importing takes several seconds, as much as a third of a short run. Code versions are taken here as well: a job that is
forked later runs the code as it was loaded, whatever has happened to the files since.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

from utils.versions import ROOT, code_version

# The stages, and the folder of each one's run directories in the result path; an initial model has none.
STAGES = {
    "extract_datapoints_for_experiments.py": "extract_datapoints",
    "model_initialization.py": "",
    "train_centralized_task_model.py": "train_centralized",
    "extract_embeddings.py": "extract_embeddings",
    "test_fed.py": "test_federated",
}
# Imported by the project's modules, or by libraries, only where they are used first.
_LATER = (
    "datasets.captures", "matplotlib.backends.backend_agg", "models.backbones", "safetensors.torch", "scipy.optimize",
    "scipy.special", "torch._dynamo", "torchmetrics.functional.classification", "torchmetrics.functional.image",
)  # fmt: skip
MODULES: dict[str, ModuleType] = {}


def _import_all(script: Path) -> None:
    """Run all import statements of a script, those in its functions among them."""
    nodes = ast.walk(ast.parse(script.read_bytes()))
    imports: list[ast.stmt] = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), script, "exec"), {})


for _script in STAGES:
    code_version(_script)
    _import_all(ROOT / _script)
    MODULES[_script] = importlib.import_module(_script.removesuffix(".py"))
for _module in _LATER:
    importlib.import_module(_module)
