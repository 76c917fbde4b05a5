"""What clients keep between rounds, by client and name.

Nothing here takes time in a round for clients that do not take part in it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from utils.errors import UserError
from utils.files import save_tensors, write_atomically, write_from

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_Key = tuple[int, int]  # client and version
_LAST, _FINISHED, _NOW = 1, 2, 3  # layers of versions

_START = "start without --resume_training True"
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


class Some(Collection[int]):
    """Some of the numbers 0..n - 1, in increasing order: a byte for each of the n, rather than an object for each.

    >>> some = Some([4, 1], 6)
    >>> list(some), len(some), 4 in some, 5 in some
    ([1, 4], 2, True, False)
    """

    def __init__(self, numbers: Collection[int], n: int) -> None:
        self._among = np.zeros(n, bool)
        self._among[np.fromiter(numbers, np.int64, len(numbers))] = True

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and 0 <= number < len(self._among) and bool(self._among[number])

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._among).tolist())

    def __len__(self) -> int:
        return int(self._among.sum())


class VersionLog:
    """The version of each client's state in a checkpoint: a file that grows by what has changed since the one before.

    A note is a client and a version, two int64; of a client's notes the last one counts. A checkpoint says how many
    notes are its own. So one of a million clients, of which a hundred took part, costs a hundred notes.

    Args:
        path: the file, which the main process writes.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._n, self._unwritten = path, 0, dict[int, int]()

    def add(self, changed: Mapping[int, int]) -> int:
        """Write what has changed since the last checkpoint, and return what the next one has to say, for `read`."""
        notes = np.array([*{**self._unwritten, **changed}.items()], "<i8").reshape(-1, 2)
        if len(notes):
            write_from(self._path, 16 * self._n, notes)
        self._n, self._unwritten = self._n + len(notes), {}
        return self._n

    def read(self, record: int | Mapping[str, int]) -> dict[int, int]:
        """The clients' versions, by what a checkpoint says: the number of notes or, once, the versions themselves.

        UserError where the file is missing or too short.
        """
        if not isinstance(record, int):
            return {int(client): version for client, version in record.items()}
        try:
            notes = np.fromfile(self._path, "<i8", 2 * record) if record else np.zeros(0, np.int64)
        except OSError as error:
            raise UserError(f"{self._path}: cannot be read ({error}); {_START}") from error
        if len(notes) < 2 * record:
            raise UserError(f"{self._path}: is too short for the checkpoint beside it; {_START}")
        return dict(notes.reshape(-1, 2).tolist())

    def go_on(self, record: int | Mapping[str, int]) -> None:
        """Write the next notes behind those that a checkpoint names."""
        if isinstance(record, int):
            self._n, self._unwritten = record, {}
        else:
            self._n, self._unwritten = 0, self.read(record)


class ClientStates:
    """The named tensors that each client of this process keeps between rounds.

    A client stays with one process for a whole run, so that its state never moves. Every state has a version, a number
    that grows with the rounds; a resumed run counts on from its checkpoints' states. The most recently used states are
    in main memory, up to a bound; the others are on disk, one safetensors file per client and version. An aborted round
    can be rolled back: the states of the last finished round are kept until the next one is finished. A checkpoint
    writes the states that have changed since the one before. The files that the last two checkpoints name stay
    unchanged, so that a run may be killed at any time. A client without a state, because it has not taken part yet or
    has nothing to keep, costs nothing.

    Args:
        folder: where the files go.
        of_process: the clients of this process, which `of_process` has in increasing order.
        n_clients: the number of clients of all processes together.
        device: where states are used.
        memory: bytes of states to keep in memory; the most recently used one always is.
    """

    def __init__(
        self, folder: Path, of_process: Collection[int], n_clients: int, device: torch.device, memory: int = MEMORY
    ) -> None:
        self.of_process, self.n_clients = Some(of_process, n_clients), n_clients
        self._folder, self._device, self.memory = folder, device, memory
        self._version = 0
        self._held: OrderedDict[_Key, dict[str, Tensor]] = OrderedDict()
        self._held_bytes = 0
        self._on_disk: set[_Key] = set()
        # Each client's version in the checkpoint before the last, and what has changed since: until the last one, until
        # the end of the last finished round, until now.
        self._layers: list[dict[int, int]] = [{}, {}, {}, {}]
        self._replaced: list[_Key] = []  # to be removed once nothing refers to them

    def __contains__(self, client: int) -> bool:
        return self._version_of(client) is not None

    def load(self, client: int) -> dict[str, Tensor]:
        """A client's tensors on the device, empty if it has no state; changes take effect once they are saved."""
        version = self._version_of(client)
        if version is None:
            return {}
        key = (client, version)
        if key not in self._held:
            self._hold(key, self._read(key))
        self._held.move_to_end(key)
        # A state that is not on disk must survive a rollback unchanged, so the caller gets copies of its tensors.
        copy = key not in self._on_disk
        return {name: tensor.to(self._device, copy=copy) for name, tensor in self._held[key].items()}

    def save(self, client: int, state: Mapping[str, Tensor]) -> None:
        """Replace a client's state by copies of these tensors, made contiguous as they would be read from disk."""
        import torch

        version = self._version_of(client)
        if not state and version is None:
            return
        key, before = (client, self._version), (client, self._version if version is None else version)
        self._layers[_NOW][client] = self._version
        self._on_disk.discard(key)
        copies = {name: tensor.detach().cpu() for name, tensor in state.items()}
        self._hold(key, {name: t.clone(memory_format=torch.contiguous_format) for name, t in copies.items()})
        if before != key:
            self._replaced.append(before)
            if before in self._on_disk:
                self._release(before)

    def finish_round(self) -> None:
        """Make the present states those that `roll_back` returns to."""
        self._layers[_FINISHED].update(self._layers[_NOW])
        self._layers[_NOW].clear()
        self._version += 1
        self._forget_replaced()

    def roll_back(self, clients: Collection[int] | None = None) -> None:
        """Undo what these clients (by default all) have saved since the last finished round."""
        now = self._layers[_NOW]
        for client in list(now) if clients is None else clients:
            if client in now:
                self._replaced.append((client, now.pop(client)))
        self._forget_replaced()

    def checkpoint(self) -> dict[int, int]:
        """Finish the round and write what has changed since the last checkpoint; returns these clients' versions."""
        self.finish_round()
        changed = self._layers[_FINISHED]
        for key in changed.items():
            if key not in self._on_disk:
                self._write(key)
        return dict(changed)

    def forget_old(self) -> None:
        """Remove what only checkpoints before the last two refer to; to be called once the last is on disk."""
        before, last, finished, now = self._layers
        before.update(last)
        self._layers = [before, finished, {}, now]
        self._forget_replaced()

    def check(self, versions: Mapping[int, int]) -> None:
        """Raise UserError if one of this process's files of a checkpoint is missing or truncated."""
        for key in versions.items():
            if key[0] in self.of_process:
                with self._opened(key):
                    continue

    def restore(self, versions: Mapping[int, int], before: Mapping[int, int] | None = None) -> None:
        """Return to a checkpoint's states of the clients of this process, from the `versions` of all of them.

        Files that neither this checkpoint nor the one `before` it refers to, left by an interrupted round, are removed.
        """
        before = before or {}
        own = {client: version for client, version in versions.items() if client in self.of_process}
        older = {client: before[client] for client in own if client in before}
        changed = {client: version for client, version in own.items() if older.get(client) != version}
        self._held.clear()
        self._held_bytes = 0
        self._layers = [older, changed, {}, {}]
        self._replaced = [(client, older[client]) for client in changed if client in older]
        self._version = 1 + max([*versions.values(), *before.values()], default=-1)
        named = {self._path(key).name: key for key in (*older.items(), *own.items())}
        self._on_disk = set()
        for path in self._folder.glob("*-*.safetensors"):
            if path.name in named:
                self._on_disk.add(named[path.name])
            # A killed process also leaves half-written files, whose names begin with a dot.
            elif int(path.name.lstrip(".").split("-")[0]) in self.of_process:
                path.unlink()

    def _version_of(self, client: int, layer: int = _NOW) -> int | None:
        """A client's version, now or in an older layer; None without a state."""
        return next((layer[client] for layer in self._layers[layer::-1] if client in layer), None)

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
        remaining = []
        for key in self._replaced:
            if any(self._version_of(key[0], layer) == key[1] for layer in range(len(self._layers))):
                remaining.append(key)
            else:
                self._release(key)
                self._on_disk.discard(key)
                self._path(key).unlink(missing_ok=True)
        self._replaced = remaining

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
            raise UserError(f"{path}: cannot be read ({error}); {_START}") from error

    def _path(self, key: _Key) -> Path:
        return self._folder / f"{key[0]}-{key[1]}.safetensors"


def _bytes(state: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in state.values())
