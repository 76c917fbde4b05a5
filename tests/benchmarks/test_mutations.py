"""The list of mutations fits the code, and the runner tells what is killed from what survives, made small."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import mutations as module
from benchmarks.forked_tests import ForkedTests
from tests.conftest import ROOT
from utils.errors import UserError

ROOMS = {
    "datasets",
    "datasets/sources",
    "datasets/rooms",
    "models",
    "network",
    "network/partition",
    "network/algorithms",
    "network/aggregation",
    "network/attacks",
    "sweeps",
    "deploy",
    "reports",
    "utils",
}


def test_every_entry_of_the_list_fits_the_code() -> None:
    listed = module.read()
    for each in listed:
        compile(each.applied(ROOT), each.file, "exec")
        assert each.by != each.text and all((ROOT / name).is_file() for name in each.tested_by), each
    assert [each for each, n in Counter(map(str, listed)).items() if n > 1] == []
    folders = {parent.as_posix() for each in listed for parent in Path(each.file).parents}
    assert len(listed) >= 120 and folders >= ROOMS
    assert sum(bool(each.survives) for each in listed) <= 0.05 * len(listed)


DOUBLE = "def double(x):\n    return 2 * x  # of any sign\n"
LISTED = """
[["room/a.py"]]
breaks = "it is the square"
text = "2 * x"
by = "x * x"

[["room/a.py"]]
breaks = "another remark"
text = "of any sign"
by = "whatever it is"
survives = "nothing is computed otherwise"

[["hall/b.py"]]
breaks = "it halves"
text = "2 * x"
by = "x / 2"
tests = ["tests/both.py"]
select = "b"
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of two files, whose tests are that three doubled are six."""
    for name in ("room/a.py", "hall/b.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(DOUBLE)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "list.toml").write_text(LISTED)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "LIST", tmp_path / "list.toml")

    def exit_code(self: ForkedTests, arguments: list[str]) -> int:
        of = {"tests/room/test_a.py": "room/a.py", "tests/both.py": "hall/b.py"}
        assert arguments[-2:] == ["-k", "" if arguments[-3] == "tests/room/test_a.py" else arguments[-1]]
        scope: dict = {}
        exec((self.root / of[arguments[-3]]).read_text(), scope)
        return int(scope["double"](3) != 6)

    monkeypatch.setattr(ForkedTests, "exit_code", exit_code)
    monkeypatch.setattr(ForkedTests, "last_line", lambda self: "1 failed")
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["mutations", *words])
    with pytest.raises(SystemExit) as ended:
        module.main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_is_killed_and_what_survives_with_a_reason(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, jobs: str
) -> None:
    assert run(monkeypatch, "--jobs", jobs) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 of 3 mutations killed (66.7%)",
        "survived: room/a.py: another remark; nothing is computed otherwise",
    ]
    assert {(checkout / name).read_text() for name in ("room/a.py", "hall/b.py")} == {DOUBLE}
    assert run(monkeypatch, "hall") == 0
    assert capsys.readouterr().out == "1 of 1 mutation killed (100.0%)\n"


def test_what_survives_without_a_reason_or_dies_in_spite_of_one_fails(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (checkout / "list.toml").write_text(LISTED.replace('survives = "nothing is computed otherwise"', ""))
    assert run(monkeypatch) == 1 and capsys.readouterr().out.endswith("survived: room/a.py: another remark\n")
    (checkout / "list.toml").write_text(LISTED + 'survives = "nobody halves"\n')
    assert run(monkeypatch) == 1 and "killed: hall/b.py: it halves; nobody halves" in capsys.readouterr().out


def test_tests_that_fail_without_a_mutation_kill_nothing(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (checkout / "hall" / "b.py").write_text(DOUBLE + "double = lambda x: x\n")
    assert run(monkeypatch, "hall") == 1
    assert "its tests fail without it (1 failed): hall/b.py: it halves" in capsys.readouterr().out


def test_a_stale_entry_and_a_name_without_mutations_are_refused(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "hall" / "b.py").write_text(DOUBLE + DOUBLE)
    with pytest.raises(UserError, match=r"hall/b\.py: it halves: its text is in the file 2 times, not once"):
        monkeypatch.setattr("sys.argv", ["mutations"])
        module.main()
    with pytest.raises(UserError, match=r"attic: list\.toml has no mutation of it"):
        module.read(["attic"])


def test_forks_answer_with_pytests_exit_code_for_the_code_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_two():\n    assert 1 + 1 == 2\ndef test_three():\n    assert 1 == 2\n"
    )
    lines = ['["-k", "two"]', '["-k", "three"]', '["-k", "four"]']
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from benchmarks import forked_tests as f; "
    command = [sys.executable, "-c", f"{start}f.PACKAGES = (); f.main()"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["0", "1", "5"] and "2 deselected" in ForkedTests(tmp_path).last_line()
