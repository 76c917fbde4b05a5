"""Small wrong changes of the code, one at a time, and whether its tests find them.

    python -m benchmarks.mutations --jobs 2                      (all, as a last check of tests that have changed)
    python -m benchmarks.mutations network/privacy.py reports    (those of a file and a folder)

`mutations.toml` lists them by file. Each is made in a copy of the checkout, where the tests that mirror the file run
(of `network/privacy.py`, `tests/network/test_privacy.py`). They first run on the code as it is, for what fails then
finds nothing. A mutation survives where they pass all the same.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from benchmarks.forked_tests import ForkedTests
from utils import progress
from utils.args import POSITIVE_INT, Parser
from utils.errors import UserError, run_script
from utils.words import counted

ROOT, LIST = Path(__file__).parent.parent, Path(__file__).with_suffix(".toml")
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider")
KILLED, SURVIVED = "killed", "survived"
OUTCOMES = {0: SURVIVED, 1: KILLED, 5: "select selects no test"}  # by pytest's exit code


@dataclass(frozen=True)
class Mutation:
    """An entry of the list, which says what the fields mean."""

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
        """The files of tests."""
        path = Path(self.file)
        return self.tests or (str(Path("tests") / path.parent / f"test_{path.name}"),)

    def applied(self, root: Path) -> str:
        """The changed text of the file; UserError unless it has the text to replace exactly once."""
        source = (root / self.file).read_text(encoding="utf-8")
        if (n := source.count(self.text)) != 1:
            raise UserError(f"{self}: its text is in the file {n} times, not once; mend the entry in {LIST.name}")
        return source.replace(self.text, self.by)


def read(names: Sequence[str] = ()) -> list[Mutation]:
    """The entries of these files and folders, by default all, in order; UserError for a name that has none."""
    files = tomllib.loads(LIST.read_text(encoding="utf-8"))
    for name in names:
        if not any(Path(file).is_relative_to(name) for file in files):
            raise UserError(f"{name}: {LIST.name} has no mutation of it; give a file or folder as it names them")
    return [
        Mutation(file, **entry | {"tests": tuple(entry.get("tests", ()))})
        for file, entries in files.items()
        if any(Path(file).is_relative_to(name) for name in names or ["."])
        for entry in entries
    ]


class Copy(ForkedTests):
    """A copy of the checkout's files, without what git ignores, with the process that runs tests there."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        for name in filter(lambda name: (ROOT / name).is_file(), names):  # a removed one may still be listed
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)

    def outcome(self, mutation: Mutation) -> str:
        """`KILLED`, `SURVIVED`, or why the tests could not run; the file is then as it was."""
        before = (self.root / mutation.file).read_text(encoding="utf-8")
        try:
            self._write(mutation.file, mutation.applied(self.root))
            code = self.exit_code([*OPTIONS, *mutation.tested_by, "-k", mutation.select])
        finally:
            self._write(mutation.file, before)
        return OUTCOMES.get(code, f"its tests cannot run (exit code {code})")

    def outcomes(self, mutations: Sequence[Mutation]) -> Iterator[tuple[Mutation, str]]:
        """Each of these mutations, all with the same files of tests, and its outcome."""
        selected = {mutation.select for mutation in mutations}
        any_of = "" if "" in selected else f"({') or ('.join(sorted(selected))})"
        code = self.exit_code([*OPTIONS, *mutations[0].tested_by, "-k", any_of])
        last = self.last_line()
        for mutation in mutations:
            outcome = f"its tests fail without it ({last})" if code else self.outcome(mutation)
            progress.say(f"{outcome}: {mutation}")
            yield mutation, outcome

    def _write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text, encoding="utf-8")
        Path(cache_from_source(str(self.root / name))).unlink(missing_ok=True)  # fresh by seconds and size alone


def tried(mutations: Sequence[Mutation], jobs: int) -> dict[Mutation, str]:
    """The outcome of each mutation, so many files of tests at the same time."""
    by_tests: dict[tuple[str, ...], list[Mutation]] = {}
    for mutation in mutations:
        by_tests.setdefault(mutation.tested_by, []).append(mutation)
    waiting = iter(list(by_tests.values()))  # whose next one a single thread gets

    def work(folder: Path) -> dict[Mutation, str]:
        """The outcomes of those whose turn comes, in a copy in this folder."""
        copy = Copy(folder)
        try:
            return {mutation: outcome for group in waiting for mutation, outcome in copy.outcomes(group)}
        finally:
            copy.close()

    with tempfile.TemporaryDirectory(prefix="mutations-") as folder, ThreadPoolExecutor(jobs) as pool:
        of_jobs = [*pool.map(work, [Path(folder, str(job)) for job in range(jobs)])]
    return {mutation: outcomes[mutation] for mutation in mutations for outcomes in of_jobs if mutation in outcomes}


def main() -> None:
    """Print what survives; exit code 1 where something does without a reason, or is killed in spite of one."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="files and folders whose mutations are made; default: all")
    parser.add_argument("--jobs", type=POSITIVE_INT, default=1, help="mutations at the same time, each in its own copy")
    args = parser.parse_args()
    mutations = read(args.names)
    for mutation in mutations:
        mutation.applied(ROOT)
    outcomes = tried(mutations, args.jobs)
    n_killed = sum(outcome == KILLED for outcome in outcomes.values())
    print(f"{n_killed} of {counted(len(outcomes), 'mutation')} killed ({n_killed / len(outcomes):.1%})")
    for mutation, outcome in outcomes.items():
        if outcome != KILLED or mutation.survives:
            print(f"{outcome}: {mutation}" + f"; {mutation.survives}" * bool(mutation.survives))
    sys.exit(any(outcome != (SURVIVED if mutation.survives else KILLED) for mutation, outcome in outcomes.items()))


if __name__ == "__main__":
    run_script(main)
