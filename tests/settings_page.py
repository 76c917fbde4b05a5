"""Makes docs/settings.md and docs/method_settings.md of the settings themselves.

`python -m tests.settings_page` writes them, a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from models.central.settings import TrainSettings
from models.networks.config import ModelConfig
from models.networks.parts import Adapters
from network.aggregation import AGGREGATIONS
from network.algorithms import ALGORITHMS
from network.attacks import ATTACKS
from network.importance import FedIR
from network.partition.rules import PARTITIONERS
from network.partition.settings import AssignSettings, PartitionSettings
from network.sampling import ClientSampling
from network.settings import AdaptSettings, LocalSettings, PrivacySettings, SimulationSettings
from utils.arguments import Argument
from utils.settings import arguments_in
from utils.stage import StageSettings

DOCS = Path(__file__).parents[1] / "docs"
_CLASSES = (
    ModelConfig,
    TrainSettings,
    PartitionSettings,
    AssignSettings,
    LocalSettings,
    SimulationSettings,
    ClientSampling,
    FedIR,
    PrivacySettings,
    AdaptSettings,
    Adapters,
)
_REGISTRIES = {
    "Federated methods, `network.algorithms.ALGORITHMS`": ALGORITHMS,
    "Partition rules, `network.partition.rules.PARTITIONERS`": PARTITIONERS,
    "Aggregations, `network.aggregation.AGGREGATIONS`": AGGREGATIONS,
    "Attacks, `network.attacks.ATTACKS`": ATTACKS,
}
_HEAD = """# All settings

What Python code gives to the classes of [From Python](python.md), and the command line as arguments of the same names.
`python -m tests.settings_page` makes this page of the classes' fields. Methods, partition rules, aggregators and
attacks have [settings of their own](method_settings.md).
"""
_METHODS_HEAD = """# Settings of methods, partition rules, aggregators and attacks

What each takes beside [the settings of all](settings.md): keywords in Python, arguments of the same names on
the command line. `python -m tests.settings_page` makes this page of their fields.
"""


def pages() -> dict[Path, str]:
    """The pages' Markdown by their files."""
    return {
        DOCS / "settings.md": "\n".join([_HEAD, *_of_classes()]),
        DOCS / "method_settings.md": "\n".join([_METHODS_HEAD, *_of_registries()]),
    }


def _of_classes() -> Iterator[str]:
    shared = arguments_in(StageSettings)
    for each in _CLASSES:
        yield f"## `{each.__module__}.{each.__name__}`\n\n{_first_line(each)}\n\n| field | default | |\n|---|---|---|"
        for one in fields(each):
            argument = one.metadata.get("argument") or shared.get(one.name)
            made = "required" if one.default_factory is MISSING else f"`{one.default_factory.__name__}()`"
            default = made if one.default is MISSING else _shown(one.default)
            yield _row(one.name, default, argument.text if argument else "", argument)
        yield ""


def _of_registries() -> Iterator[str]:
    for title, registry in _REGISTRIES.items():
        yield f"## {title}\n\n| name | argument | default | |\n|---|---|---|---|"
        for name, entry in registry.items():
            own: Mapping[str, Argument] = entry.arguments
            for argument, about in own.items():
                yield f"| `{name}` {_row(argument, _shown(about.default), about.text, about)}"
        without = ", ".join(f"`{name}`" for name, entry in registry.items() if not entry.arguments)
        yield f"\nWithout arguments: {without or 'none'}.\n"


def _shown(default: Any) -> str:
    """A default as Python code; a path as its text, since how a path is shown depends on the system."""
    return f"`{str(default)!r}`" if isinstance(default, Path) else f"`{default!r}`"


def _first_line(each: Any) -> str:
    return (each.__doc__ or "").splitlines()[0]


def _row(name: str, default: str, text: str, argument: Argument | None) -> str:
    choices = f" ({', '.join(map(str, argument.choices))})" if argument and argument.choices else ""
    return f"| `{name}` | {default} | {(text + choices).replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
