"""Whether anything waits for a number from the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Operators whose result, or its shape, the host has to know: on a GPU each of them waits until the device is done.
_WAITS = {"_local_scalar_dense", "equal", "is_nonzero", "masked_select", "nonzero", "_unique2", "unique_dim"}


class _Refusing(TorchDispatchMode):
    """Refuses these operators on any device, and an index of booleans, which has as many results as are true."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        """Run an operator."""
        name = func.overloadpacket.__name__
        booleans = name in ("index", "index_put", "index_put_") and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        if name in _WAITS or booleans:
            raise RuntimeError(f"{name} waits for the device")
        return func(*args, **(kwargs or {}))


def nothing_waits(device: torch.device) -> AbstractContextManager[object]:
    """RuntimeError, within, as soon as something waits for the device; on a CPU, where an operator would on a GPU.

    A copy to the host (`cpu`, `tolist`) is none on a CPU, and only a GPU finds it.
    """
    return _nothing_synchronises() if device.type == "cuda" else _Refusing()


@contextmanager
def _nothing_synchronises() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
