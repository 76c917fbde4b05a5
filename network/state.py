"""What clients keep between rounds, by client and name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from utils.errors import UserError
from utils.files import save_tensors, write_atomically

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_Key = tuple[int, int]  # client and version

MEMORY = 2 << 30  # bytes of states that a process keeps in memory; the rest goes to disk


def add_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors as `<prefix>.<name>`."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors called `<prefix>.<name>`, by `<name>`."""
    start = f"{prefix}."
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}


def zeros(model: nn.Module) -> dict[str, Tensor]:
    """A tensor of zeros for each of a model's parameters, by name."""
    import torch

    return {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}


def cast_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A copy of a tensor in the dtype of another, rounded if that is an integer type."""
    return (tensor if like.dtype.is_floating_point else tensor.round()).to(like.dtype, copy=True)


class ClientStates:
    """The named tensors that each client of this process keeps between rounds.

    A client stays with one process for a whole run, so that its state never moves. Every state has a version: the
    number of rounds that were finished when it was saved. The most recently used states are in main memory, up to a
    bound; the others are on disk, one safetensors file per client and version. An aborted round can be rolled back: the
    states of the last finished round are kept until the next one is finished. A checkpoint writes the states that have
    changed since the one before. The files that the last two checkpoints name stay unchanged, so that a run may be
    killed at any time. A client without a state, because it has not taken part yet or has nothing to keep, costs
    nothing.

    Args:
        folder: where the files go.
        own: the clients of this process.
        n_clients: the number of clients of all processes together.
        device: where states are used.
        memory: bytes of states to keep in memory; the most recently used one always is.
    """

    def __init__(
        self, folder: Path, own: Collection[int], n_clients: int, device: torch.device, memory: int = MEMORY
    ) -> None:
        self.own, self.n_clients = sorted(own), n_clients
        self._folder, self._device, self.memory = folder, device, memory
        self._version = 0
        self._held: OrderedDict[_Key, dict[str, Tensor]] = OrderedDict()
        self._held_bytes = 0
        self._on_disk: set[_Key] = set()
        # Each client's version: now, at the end of the last finished round, and in the last two checkpoints.
        self._current: dict[int, int] = {}
        self._finished: dict[int, int] = {}
        self._checkpoints: list[dict[int, int]] = []
        self._replaced: list[_Key] = []  # to be removed once nothing refers to them

    def __contains__(self, client: int) -> bool:
        return client in self._current

    def load(self, client: int) -> dict[str, Tensor]:
        """A client's tensors on the device, empty if it has no state; changes take effect once they are saved."""
        if client not in self:
            return {}
        key = (client, self._current[client])
        if key not in self._held:
            self._hold(key, self._read(key))
        self._held.move_to_end(key)
        # A state that is not on disk must survive a rollback unchanged, so the caller gets copies of its tensors.
        copy = key not in self._on_disk
        return {name: tensor.to(self._device, copy=copy) for name, tensor in self._held[key].items()}

    def save(self, client: int, state: Mapping[str, Tensor]) -> None:
        """Replace a client's state by copies of these tensors, made contiguous as they would be read from disk."""
        import torch

        if not state and client not in self:
            return
        key, before = (client, self._version), (client, self._current.get(client, self._version))
        self._current[client] = self._version
        self._on_disk.discard(key)
        copies = {name: tensor.detach().cpu() for name, tensor in state.items()}
        self._hold(key, {name: t.clone(memory_format=torch.contiguous_format) for name, t in copies.items()})
        if before != key:
            self._replaced.append(before)
            if before in self._on_disk:
                self._release(before)

    def finish_round(self) -> None:
        """Make the present states those that `roll_back` returns to."""
        self._finished = dict(self._current)
        self._version += 1
        self._forget_replaced()

    def roll_back(self, clients: Collection[int] | None = None) -> None:
        """Undo what these clients (by default all) have saved since the last finished round."""
        for client in self.own if clients is None else clients:
            if self._current.get(client) == self._version:
                self._replaced.append((client, self._current.pop(client)))
                if client in self._finished:
                    self._current[client] = self._finished[client]
        self._forget_replaced()

    def checkpoint(self) -> dict[int, int]:
        """Finish the round and write what has changed; returns each client's version, which `restore` takes."""
        self.finish_round()
        for key in self._finished.items():
            if key not in self._on_disk:
                self._write(key)
        return dict(self._finished)

    def forget_old(self) -> None:
        """Remove what only checkpoints before the last two refer to; to be called once the last is on disk."""
        if self._checkpoints:
            now = self._checkpoints[-1]
            self._replaced += [key for key in self._checkpoints[0].items() if now.get(key[0]) != key[1]]
        self._checkpoints = [*self._checkpoints[-1:], dict(self._finished)]
        self._forget_replaced()

    def check(self, versions: Mapping[int, int]) -> None:
        """Raise UserError if one of this process's files of a checkpoint is missing or truncated."""
        for client in self.own:
            if client in versions:
                with self._opened((client, versions[client])):
                    continue

    def restore(self, versions: Mapping[int, int], before: Mapping[int, int] | None = None) -> None:
        """Return to a checkpoint's states of the clients of this process.

        Files that neither this checkpoint nor the one `before` it refers to, left by an interrupted round, are removed.
        """
        own = [{c: named[c] for c in self.own if c in named} for named in (before or {}, versions)]
        self._held.clear()
        self._held_bytes = 0
        self._current, self._finished, self._checkpoints, self._replaced = own[1], dict(own[1]), own, []
        self._version = 1 + max([*versions.values(), *(before or {}).values()], default=-1)
        self._on_disk = {key for named in own for key in named.items() if self._path(key).is_file()}
        kept, clients = {self._path(key) for key in self._on_disk}, set(self.own)
        for path in self._folder.glob("*-*.safetensors"):
            # A killed process also leaves half-written files, whose names begin with a dot.
            if path not in kept and int(path.name.lstrip(".").split("-")[0]) in clients:
                path.unlink()

    def _hold(self, key: _Key, state: dict[str, Tensor]) -> None:
        """Keep a state in memory; if that is too much, move the least recently used ones to disk."""
        self._release(key)
        self._held[key] = state
        self._held_bytes += _bytes(state)
        while self._held_bytes > self.memory and len(self._held) > 1:
            oldest = next(iter(self._held))
            if oldest not in self._on_disk:
                self._write(oldest)
            self._release(oldest)

    def _release(self, key: _Key) -> None:
        self._held_bytes -= _bytes(self._held.pop(key, {}))

    def _forget_replaced(self) -> None:
        """Remove replaced states that neither the present, nor the last finished round, nor a checkpoint refers to."""
        naming = (self._current, self._finished, *self._checkpoints)
        kept = []
        for key in self._replaced:
            if any(named.get(key[0]) == key[1] for named in naming):
                kept.append(key)
            else:
                self._release(key)
                self._on_disk.discard(key)
                self._path(key).unlink(missing_ok=True)
        self._replaced = kept

    def _write(self, key: _Key) -> None:
        with write_atomically(self._path(key)) as temporary:
            save_tensors(self._held[key], temporary)
        self._on_disk.add(key)

    def _read(self, key: _Key) -> dict[str, Tensor]:
        with self._opened(key) as file:
            # Copies: a tensor that maps the file would keep its space on disk after the file is removed.
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping

    @contextmanager
    def _opened(self, key: _Key) -> Iterator[Any]:
        path = self._path(key)
        try:
            with safe_open(path, framework="pt") as file:
                yield file
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: cannot be read ({error}); start without --resume_training True") from error

    def _path(self, key: _Key) -> Path:
        return self._folder / f"{key[0]}-{key[1]}.safetensors"


def _bytes(state: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in state.values())
