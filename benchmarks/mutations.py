"""Small wrong changes of the code, one at a time, and whether its tests find them.

    nice python -m benchmarks.mutations --jobs 2                      (half an hour on two cores)
    nice python -m benchmarks.mutations network/privacy.py reports    (of these files and folders alone)

`mutations.toml` lists them by file: what each breaks, a text that the file has once, and by what it is replaced. Each
is made in a copy of the checkout, in which the tests that mirror the file run (`network/privacy.py`:
`tests/network/test_privacy.py`), or those that `tests` names, of these what pytest's `-k` selects by `select`. They
first run on the code as it is, since what fails then finds nothing. A mutation survives where they pass all the same;
`survives` says why that is right: nothing changes, or nothing that is promised.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from benchmarks.forked_tests import LOG
from utils import progress
from utils.args import POSITIVE_INT, Parser
from utils.errors import UserError, run_script
from utils.words import counted

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_suffix(".toml")
LONGEST = 600.0  # seconds of a mutation's tests; a loop without an end is found by it
KILLED, SURVIVED = "killed", "survived"
OUTCOMES = {0: SURVIVED, 1: KILLED, 5: "select selects no test"}  # by pytest's exit code


@dataclass(frozen=True)
class Mutation:
    """An entry of the list."""

    file: str
    breaks: str
    text: str
    by: str
    tests: tuple[str, ...] = ()
    select: str = ""
    survives: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.breaks}"

    @property
    def tested_by(self) -> tuple[str, ...]:
        """The files of tests, by default the one that mirrors the file."""
        path = Path(self.file)
        return self.tests or (str(Path("tests") / path.parent / f"test_{path.name}"),)

    def applied(self, root: Path) -> str:
        """The changed text of the file; UserError unless it has the text to replace exactly once."""
        whole = (root / self.file).read_text(encoding="utf-8")
        if (n := whole.count(self.text)) != 1:
            raise UserError(f"{self}: its text is in the file {n} times, not once; mend the entry in {LIST.name}")
        return whole.replace(self.text, self.by)


def read() -> list[Mutation]:
    """All entries, in order."""
    files = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return [
        Mutation(file, **entry | {"tests": tuple(entry.get("tests", ()))})
        for file, entries in files.items() for entry in entries
    ]  # fmt: skip


def chosen(mutations: Sequence[Mutation], names: Sequence[str]) -> list[Mutation]:
    """Those of these files and folders, by default all; UserError for a name that has none."""
    for name in names:
        if not any(Path(each.file).is_relative_to(name) for each in mutations):
            raise UserError(f"{name}: {LIST.name} has no mutation of it; give a file or folder of the checkout")
    return [each for each in mutations if any(Path(each.file).is_relative_to(name) for name in names or ["."])]


class Copy:
    """A copy of the checkout's files, without what git ignores, and the process that runs tests there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        for name in names:
            if (ROOT / name).is_file():  # a removed one may still be listed
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, root / name)
        self._process: subprocess.Popen[str] | None = None

    def exit_code(self, tests: Sequence[str], selected: str) -> int:
        """Pytest's; that of failed tests where they do not end in time."""
        process = self._process = self._process or subprocess.Popen(
            [sys.executable, "-m", "benchmarks.forked_tests"], cwd=self.root, env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert process.stdin and process.stdout
        print(
            json.dumps(["-x", "-q", "-p", "no:cacheprovider", *tests, "-k", selected]), file=process.stdin, flush=True
        )
        if select.select([process.stdout], [], [], LONGEST)[0]:
            return int(process.stdout.readline())
        self.close()
        return 1

    def outcome(self, mutation: Mutation) -> str:
        """`KILLED`, `SURVIVED`, or why the tests could not run; the file is then as it was."""
        before = (self.root / mutation.file).read_text(encoding="utf-8")
        try:
            self._write(mutation.file, mutation.applied(self.root))
            code = self.exit_code(mutation.tested_by, mutation.select)
        finally:
            self._write(mutation.file, before)
        return OUTCOMES.get(code, f"its tests cannot run (exit code {code})")

    def outcomes(self, mutations: Sequence[Mutation]) -> Iterator[tuple[Mutation, str]]:
        """Each of these mutations, all with the same files of tests, and its outcome."""
        selected = {each.select for each in mutations}
        code = self.exit_code(mutations[0].tested_by, "" if "" in selected else f"({') or ('.join(sorted(selected))})")
        for each in mutations:
            found = f"its tests fail without it ({self._last_line()})" if code else self.outcome(each)
            progress.say(f"{found}: {each}")
            yield each, found

    def _last_line(self) -> str:
        return ([""] + (self.root / LOG).read_text(errors="replace").splitlines())[-1]

    def _write(self, name: str, text: str) -> None:
        file = self.root / name
        file.write_text(text, encoding="utf-8")
        Path(cache_from_source(str(file))).unlink(missing_ok=True)  # it counts as fresh by seconds and size alone

    def close(self) -> None:
        """End the process, with all that it has started."""
        if self._process:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def tried(mutations: Sequence[Mutation], jobs: int) -> dict[Mutation, str]:
    """The outcome of each mutation, so many at the same time."""
    groups = [[each for each in mutations if each.tested_by == tests]
              for tests in dict.fromkeys(each.tested_by for each in mutations)]  # fmt: skip
    waiting = iter(groups)  # one of a list is safe among threads

    def work(folder: Path) -> dict[Mutation, str]:
        copy = Copy(folder)
        try:
            return {each: outcome for group in waiting for each, outcome in copy.outcomes(group)}
        finally:
            copy.close()

    with tempfile.TemporaryDirectory(prefix="mutations-") as folder, ThreadPoolExecutor(jobs) as pool:
        found = {}
        for each in pool.map(work, [Path(folder, str(job)) for job in range(jobs)]):
            found |= each
    return {each: found[each] for each in mutations}


def main() -> None:
    """Print what survives; exit code 1 where something does without a reason, or is killed in spite of one."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="files and folders whose mutations are made; default: all")
    parser.add_argument("--jobs", type=POSITIVE_INT, default=1, help="mutations at the same time, each in its own copy")
    args = parser.parse_args()
    mutations = chosen(read(), args.names)
    for each in mutations:
        each.applied(ROOT)
    found = tried(mutations, args.jobs)
    n_killed = sum(outcome == KILLED for outcome in found.values())
    print(f"{n_killed} of {counted(len(found), 'mutation')} killed ({n_killed / len(found):.1%})")
    for each, outcome in found.items():
        if outcome != KILLED or each.survives:
            print(f"{outcome}: {each}" + f"; {each.survives}" * bool(each.survives))
    sys.exit(any(outcome != (SURVIVED if each.survives else KILLED) for each, outcome in found.items()))


if __name__ == "__main__":
    run_script(main)
