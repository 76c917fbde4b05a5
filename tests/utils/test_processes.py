"""What is said where a launcher has started fewer processes than it was asked for, and what they have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.processes import several
from tests.conftest import ROOT, start_in

LINE = "accelerate launch should start several processes and has started one"
OTHERS = "--num_machines 1 --mixed_precision no --dynamo_backend no --main_process_port 0"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (f"--cpu --num_processes 2 {OTHERS}", 1),
        (" ".join(several(2)[3:]), 0),  # as benchmarks start them
        (f"--num_processes 1 {OTHERS}", 0),
    ],
)
def test_one_process_in_place_of_several_is_said_and_all_have_what_the_main_one_made(
    tmp_path: Path, asked: str, said: int
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from utils.processes import from_main, processes\n"
        "found = processes(True)\n"
        "made = from_main(found, lambda: found.process_index + 7)\n"
        # One write per line, so that the two processes' lines do not mix.
        "sys.stdout.write(f'{found.num_processes} {made}\\n')\n"
        "found.end_training()\n"  # as scripts end: without it, a process may abort on its way out
    )
    launch = f"-m accelerate.commands.launch {asked} {program}"
    process = start_in(tmp_path, launch, environment={"CUDA_VISIBLE_DEVICES": ""}, errors="errors.txt")
    process.join()
    output, errors = ((tmp_path / name).read_text() for name in ("output.txt", "errors.txt"))
    assert process.exitcode == 0, errors
    assert errors.count(LINE) == said
    assert output == ("2 7\n2 7\n" if "multi" in asked else "1 7\n")
