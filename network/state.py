"""What clients keep between rounds, by client and name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from utils.errors import UserError
from utils.files import write_atomically

MEMORY = 2 << 30  # bytes of states that a process holds before it leaves the rest to the disk


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors as `<prefix>.<name>`."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def part(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors called `<prefix>.<name>`, by `<name>`."""
    start = f"{prefix}."
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}


def in_kind_of(tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor of computed values in the type of another, rounded where that holds whole numbers."""
    return (tensor if like.dtype.is_floating_point else tensor.round()).to(like.dtype)


class ClientStates:
    """The named tensors that each client of this process keeps between rounds.

    A client stays with one process for a whole run, so that its state never moves. States lie in main memory, those
    used last, up to a bound; the others in one safetensors file a client. A checkpoint writes the states that have
    changed since the last one, each under a new version, and the files of the versions before stay until
    `forget_old`: whenever a run is killed, the files that its last checkpoint names are there and unchanged. A client
    without a state, because it has not taken part yet or has nothing to keep, costs nothing.

    Args:
        folder: where the files go.
        own: the clients of this process.
        n_clients: how many clients all processes have together.
        device: where states are used.
        memory: bytes of states to hold, at least the one used last.
    """

    def __init__(
        self, folder: Path, own: Collection[int], n_clients: int, device: torch.device, memory: int = MEMORY
    ) -> None:  # fmt: skip
        self.own, self.n_clients = sorted(own), n_clients
        self._folder, self._device, self._memory = folder, device, memory
        self._held: OrderedDict[int, dict[str, Tensor]] = OrderedDict()
        self._held_bytes = 0
        self._changed: set[int] = set()
        self._versions: dict[int, int] = {}
        self._next_version = 0
        self._old: list[Path] = []

    def __contains__(self, client: int) -> bool:
        return client in self._held or client in self._versions

    def load(self, client: int) -> dict[str, Tensor]:
        """A client's tensors on the device, none if it has no state; changes count once they are saved."""
        if client not in self:
            return {}
        if client not in self._held:
            self._hold(client, self._read(client))
        self._held.move_to_end(client)
        return {name: tensor.to(self._device) for name, tensor in self._held[client].items()}

    def save(self, client: int, state: Mapping[str, Tensor]) -> None:
        """Replace a client's state; the tensors are copied, in the plain memory order that they are read back in."""
        if not state and client not in self:
            return
        self._changed.add(client)
        copies = {name: tensor.detach().cpu() for name, tensor in state.items()}
        self._hold(client, {name: t.clone(memory_format=torch.contiguous_format) for name, t in copies.items()})

    def checkpoint(self) -> dict[int, int]:
        """Write what has changed; returns the version of each client's file, which `restore` takes."""
        for client in sorted(self._changed):
            self._write(client)
        return dict(self._versions)

    def forget_old(self) -> None:
        """Remove the files that the last checkpoint has replaced; to be called once that is safe on the disk."""
        for path in self._old:
            path.unlink(missing_ok=True)
        self._old, self._next_version = [], self._next_version + 1

    def restore(self, versions: Mapping[int, int]) -> None:
        """Go back to the states of a checkpoint, of those clients that this process has.

        Files of versions after it, which an interrupted round has left, are removed. UserError if a file is missing.
        """
        self._held.clear()
        self._changed.clear()
        self._held_bytes = 0
        self._versions = {client: versions[client] for client in self.own if client in versions}
        self._next_version = 1 + max(versions.values(), default=-1)
        named = {self._path(client) for client in self._versions}
        if missing := sorted(path.name for path in named if not path.is_file()):
            raise UserError(f"{self._folder}: {missing[0]} is missing; start without --resume_training True")
        own = set(self.own)
        for path in self._folder.glob("*-*.safetensors"):
            if path not in named and int(path.stem.split("-")[0]) in own:
                path.unlink()

    def _hold(self, client: int, state: dict[str, Tensor]) -> None:
        """Keep a state in memory, and leave those not used for longest to the disk if that is too much."""
        self._held_bytes += _bytes(state) - _bytes(self._held.pop(client, {}))
        self._held[client] = state
        while self._held_bytes > self._memory and len(self._held) > 1:
            oldest = next(iter(self._held))
            if oldest in self._changed:
                self._write(oldest)
            self._held_bytes -= _bytes(self._held.pop(oldest))

    def _write(self, client: int) -> None:
        if client in self._versions and self._versions[client] != self._next_version:
            self._old.append(self._path(client))
        self._versions[client] = self._next_version
        with write_atomically(self._path(client)) as temporary:
            save_file(self._held[client], temporary)
        self._changed.discard(client)

    def _read(self, client: int) -> dict[str, Tensor]:
        path = self._path(client)
        try:
            # Copies: a tensor that maps the file would keep its space on the disk when the file is removed.
            return {name: tensor.clone() for name, tensor in load_file(path).items()}
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: cannot be read ({error}); start without --resume_training True") from error

    def _path(self, client: int) -> Path:
        return self._folder / f"{client}-{self._versions[client]}.safetensors"


def _bytes(state: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in state.values())
