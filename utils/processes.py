"""The processes that a script computes in, and their devices."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from utils import progress

_Made = TypeVar("_Made")


def processes(use_accelerator: bool, **options: Any) -> Accelerator:
    """The processes that a launcher has started, or this one alone; on CPUs if not `use_accelerator` or none is there.

    Says so where `accelerate launch` should start several processes and has started one, as it does on CPUs.
    """
    # Not told that they are on CPUs, several processes would each take themselves to be alone, and do all the work.
    on_cpus = not (use_accelerator and torch.accelerator.is_available())
    accelerator = Accelerator(cpu=on_cpus, **options)
    # Where it takes itself to start one process, it tells of others by the address at which they would meet.
    alone = "ACCELERATE_MIXED_PRECISION" in os.environ and "WORLD_SIZE" not in os.environ
    if alone and "MASTER_ADDR" in os.environ and accelerator.num_processes == 1:
        progress.say(
            "accelerate launch should start several processes and has started one; with --multi_gpu it starts "
            "them all, on CPUs too (and then without --cpu)"
        )
    return accelerator


def from_main(accelerator: Accelerator, make: Callable[[], _Made]) -> _Made:
    """What `make` returns in the main process, in all processes; every process must call it, and no other makes it."""
    made: list[Any] = [make() if accelerator.is_main_process else None]
    if accelerator.num_processes > 1:
        broadcast_object_list(made)
    return made[0]
