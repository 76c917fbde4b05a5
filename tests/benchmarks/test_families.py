"""The check of timm's families: what is right, what mixes clients, and what cannot be tried."""

from __future__ import annotations

import pytest
import timm
import torch

from benchmarks import families
from network.engine.workspace import StackedCopies, VmappedCopies, Workspace
from tests.network.engine.test_workspace import IMAGE, Split
from utils.errors import UserError

SIZE = IMAGE[-1]


def test_clients_that_mix_differ_and_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    model = Split().double()
    assert families.difference(model, VmappedCopies(model, 2), SIZE) < 1e-12
    assert families.difference(model, StackedCopies(model, 2), SIZE) > 0.1
    right = families.of_copies("split", model, SIZE)
    assert right.words.startswith("VmappedCopies, differing by ") and not right.fails

    class Unchecked:
        side_by_side = True

        def __init__(self, *_: object) -> None: ...

        def __call__(self, n: int) -> Workspace:
            return StackedCopies(model, n)

    monkeypatch.setattr(families, "Workspaces", Unchecked)
    assert families.of_copies("split", model, SIZE).fails


def test_a_network_is_tried_at_a_size_that_it_takes() -> None:
    outcome = families.tried("test_vit")  # 160 pixels, or what it is made for
    assert outcome.network == "test_vit at 64 px" and not outcome.fails and "Copies, differing by" in outcome.words


def test_the_smallest_network_stands_for_its_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm, "list_models", lambda module: ["test_vit2", "resnet18", "resnet10t", "resnet34"])
    name, millions = families.smallest("any")
    assert name == "resnet10t" and millions == pytest.approx(4.9, abs=0.2)  # of timm's table, without the classes


def test_a_line_a_family_and_the_failures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    outcomes = {
        "one": families.Outcome("net1 at 64 px", "one by one"),
        "two": families.Outcome("net2", "differs", True),
    }
    monkeypatch.setattr(timm, "list_modules", lambda: ["one", "two", "three", "utilities"])
    monkeypatch.setattr(timm, "list_models", lambda module: [] if module == "utilities" else [module])
    monkeypatch.setattr(families, "smallest", lambda family: (family, 50.0 if family == "three" else 1.0))
    monkeypatch.setattr(families, "tried", outcomes.__getitem__)
    monkeypatch.setattr("sys.argv", ["families"])
    with pytest.raises(SystemExit, match="True"):
        families.main()
    assert capsys.readouterr().out.splitlines() == [
        "one: net1 at 64 px: one by one",
        "two: net2: differs",
        "three: three: left out, of 50 million",
        "1 of 3 families fail",
        "two: net2",
    ]
    monkeypatch.setattr("sys.argv", ["families", "resnett"])
    with pytest.raises(UserError, match="has no family resnett; give some of one, two, three"):
        families.main()
