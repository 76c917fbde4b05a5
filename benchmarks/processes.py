"""How benchmarks start programs over several processes."""

from __future__ import annotations

import sys


def several(n_processes: int) -> list[str]:
    """The beginning of a command that runs a program over so many processes of this machine's CPU."""
    if n_processes == 1:
        return [sys.executable]
    launch = f"-m accelerate.commands.launch --multi_gpu --num_machines 1 --num_processes {n_processes}"
    return [sys.executable, *f"{launch} --mixed_precision no --dynamo_backend no --main_process_port 0".split()]
