"""What the files for those who install, cite and test the project promise."""

from __future__ import annotations

import ast
import re
import tomllib
from graphlib import TopologicalSorter
from itertools import chain

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import MODULES, ROOT


def requirements(name: str) -> list[Requirement]:
    lines = ((ROOT / name).read_text(encoding="utf-8")).splitlines()
    return [Requirement(line) for line in (line.partition("#")[0].strip() for line in lines) if line]


@pytest.mark.parametrize(
    "name",
    [
        "requirements.txt",
        "requirements-cluster.txt",
        "requirements-exr.txt",
        "requirements-flower.txt",
        "requirements-pretrained.txt",
        "requirements-privacy.txt",
        "requirements-taskonomy.txt",
        "requirements-test.txt",
    ],
)
def test_what_was_tested_is_what_is_required(name: str) -> None:
    tested = {canonicalize_name(each.name): each.specifier for each in requirements("constraints.txt")}
    for requirement in requirements(name):
        [version] = tested[canonicalize_name(requirement.name)]
        assert version.operator == "==" and requirement.specifier.contains(version.version), requirement


def test_citation_names_the_software_and_the_four_papers() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert (citation["title"], citation["version"], citation["license"]) == (
        project["name"],
        project["version"],
        project["license"],
    )
    dois = [paper["doi"] for paper in citation["references"]]
    assert dois == [f"10.48550/arXiv.{each}" for each in ("2503.14553", "2003.08082", "2111.11066", "2507.06482")]
    assert all(author["family-names"] for paper in citation["references"] for author in paper["authors"])


def test_workflow_calls_the_readmes_commands_on_what_the_project_supports() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    two = re.findall(r"^bash \S+", text.split("## Two commands")[1], re.MULTILINE)[:2]
    job = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))["jobs"]["commands"]
    steps = [step["run"] for step in job["steps"] if "run" in step]
    assert two == ["bash run_pipeline.sh", "bash run_tests.sh"] and set(two) <= set(steps)
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12"]
    assert (ROOT / job["env"]["PIP_CONSTRAINT"].split("'")[3]).is_file()


def test_every_supported_python_runs_the_ends_of_the_requirements_once_a_week() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["ranges"]
    pythons = job["strategy"]["matrix"]["python"]
    assert job["steps"][-1]["run"] == "bash scripts/oldest.sh ${{ matrix.python }}" and "schedule" in job["if"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["classifiers"] == [f"Programming Language :: Python :: {python}" for python in pythons]
    assert project["requires-python"] == f">={pythons[0]}"
    said = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Python {pythons[0]} to {pythons[-1]} and git" in said


@pytest.mark.parametrize(
    "system, machine, renders",
    [("Linux", "x86_64", True), ("Linux", "aarch64", False), ("Darwin", "arm64", True)],
)
def test_only_the_rooms_renderer_depends_on_the_system(system: str, machine: str, renders: bool) -> None:
    needed = {each.name: each.marker for each in requirements("requirements.txt") if each.marker}
    assert needed.keys() == {"embreex"}
    assert needed["embreex"].evaluate({"platform_system": system, "platform_machine": machine}) is renders


# From the ground floor up; the rooms of a floor do not know each other.
FLOORS = (("utils",), ("datasets",), ("models",), ("network",), ("stages",), ("deploy", "reports", "sweeps"))


def test_the_map_names_every_room_and_no_other() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Where things are")[1]
    table = "".join(re.findall(r"^\|([^|]+)\|", text, re.MULTILINE))
    named = {name.rstrip("/") for name in re.findall(r"`([a-z_/]+/)`", table)}
    rooms = {str(path.parent.relative_to(ROOT)) for path in MODULES}
    assert rooms - {"."} <= named | {name for name in rooms if name.startswith("tests/")}
    assert all((ROOT / name).is_dir() for name in named)


@pytest.mark.parametrize("floor", range(len(FLOORS)))
def test_a_room_knows_only_those_below_it(floor: int) -> None:
    """Not even where it imports late, or for types: what is computed depends on nothing that compares or draws it."""
    for room in FLOORS[floor]:
        others = {each for rooms in FLOORS[floor:] for each in rooms if each != room}
        for path in (ROOT / room).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_bytes())))
            known = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
            known += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
            assert not [name for name in known if name.split(".")[0] in others], path


def test_no_module_knows_itself_by_way_of_others() -> None:
    """Not even where it imports late, or for types: of two modules, one can be read without the other."""
    paths = [*ROOT.glob("*.py")]
    for room in chain.from_iterable(FLOORS):
        paths += (ROOT / room).rglob("*.py")
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    known: dict[str, set[str]] = {}
    for name, path in names.items():
        nodes = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.ImportFrom)]
        asked = {f"{node.module}.{alias.name}": node.module for node in nodes for alias in node.names}
        known[name] = {full if full in names else module for full, module in asked.items()} & names.keys() - {name}
    TopologicalSorter(known).prepare()  # raises CycleError, which names the modules
