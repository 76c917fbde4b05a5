"""A frozen encoder runs once: its outputs for all images lie in a file beside them, and training reads those.

`<data_path>/packed/<size>/encoded/<images>/<encoder>_<digest>.npy` has the shape (N, K), with the images in the order
of the table; `models/networks/kept_outputs.py` says what a row holds. `<images>` is the version of the packed images,
and the digest is of all else that the rows depend on, so that a file is complete and right where it exists.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from datasets.packed import packed_version
from datasets.task_data import TaskData
from models.networks.costs import forward_flops
from models.networks.encoders import encoder_entry
from models.networks.kept_outputs import Layout, behind
from models.networks.parts import FROZEN_ENCODER
from models.networks.task_model import TaskModel
from models.networks.threads import threads_for
from models.settings import StepSettings
from utils.errors import UserError
from utils.files import as_file_name, locked
from utils.filling import fill, note_of, remove
from utils.versions import tensors_digest

MOST_BYTES = 8 << 30  # that `--encoder_outputs auto` keeps
_VERSION = 1  # to be raised when rows change
_BATCH = 64  # images that are encoded at once


def on_kept_outputs(
    model: TaskModel,
    data: TaskData,
    settings: StepSettings,
    accelerator: Accelerator,
    adapt_train: str | None = None,
) -> tuple[TaskModel, TaskData]:
    """The model behind its encoder's outputs, and the data that have them for images, or both as they are.

    That is by a training's settings: the encoder must be frozen, for non-participating clients that train
    `adapt_train`, too, and get the same images in every step. Runs of `--test_mode` have few images and do without.
    UserError where outputs in half precision are requested and cannot be had, or the disk is full.
    """
    trained = {settings.train, adapt_train or settings.train}
    possible = trained.issubset(FROZEN_ENCODER) and settings.augment == "none"
    if settings.encoder_outputs == "half" and not possible:
        raise UserError(
            "--encoder_outputs half needs a frozen encoder (--train decoder or head, --adapt_train too) that gets "
            "images as they are (--augment none); omit it"
        )
    if settings.encoder_outputs == "never" or not possible or data.shortened:
        return model, data
    model.to(accelerator.device).to(memory_format=torch.channels_last)
    packed = [packed_version(data.table, photograph, data.image_size) for photograph in model.task.photographs]
    if None in packed:
        raise UserError(f"{data.table.data_path}: the images have changed while they were read; start again")
    folder = data.table.data_path / "packed" / str(data.image_size) / "encoded" / _digest(packed)[:16]
    outputs = EncoderOutputs(model, data, settings.encoder_outputs == "half")
    if settings.encoder_outputs == "auto" and outputs.n_bytes > MOST_BYTES:
        if accelerator.is_main_process:
            print(
                f"the frozen encoder runs in every step: its outputs would take {_gib(outputs.n_bytes)}, more than "
                f"{_gib(MOST_BYTES)}; --encoder_outputs half keeps them in {_gib(outputs.n_bytes // 2)}"
            )
        return model, data
    with accelerator.main_process_first():  # the other processes find them
        stored = outputs.kept_in(folder)
    return outputs.model, data.on_inputs(torch.from_numpy(stored))


def _digest(packed: Sequence[str | None]) -> str:
    """Of the packed photographs that an encoder sees: of one, its own."""
    return str(packed[0]) if len(packed) == 1 else hashlib.sha256(" ".join(map(str, packed)).encode()).hexdigest()


class EncoderOutputs:
    """What a model's encoder, in eval mode, makes of all images, as far as the decoder looks at it.

    `model` is the model behind these outputs, `n_bytes` the size of their file.

    Args:
        model: on the data's device.
        data: the images.
        half: keep half precision.
    """

    def __init__(self, model: TaskModel, data: TaskData, half: bool) -> None:
        self._whole, self._data = model.eval(), data
        self.dtype = np.dtype(np.float16 if half else np.float32)
        image = data.batch(torch.zeros(1, dtype=torch.int64)).images
        encoded, maps = self._encode(image)
        self._layout = Layout.of(encoded, maps, _taken(model, encoded, maps))
        self.shape = (len(data), sum(self._layout.sizes))
        self.n_bytes = self.dtype.itemsize * self.shape[0] * self.shape[1]
        self.model = behind(model, self._layout, forward_flops(model.encoder, data))

    def kept_in(self, folder: Path) -> np.ndarray:
        """The rows (N, K), memory-mapped, computed first where they do not lie in the folder.

        Where a call was stopped, a later one goes on. Outputs for images that have been packed anew since, in the
        folders beside this one, are removed. UserError where the disk is full or half precision does not suffice.
        """
        path = folder / f"{self._name()}.npy"
        rows = self._mapped(path)
        if rows is not None:
            return rows
        with locked(folder.with_name(".lock")):  # who waits here finds them
            if (rows := self._mapped(path)) is None:
                for other in folder.parent.iterdir():
                    if other.is_dir() and other != folder:
                        shutil.rmtree(other, ignore_errors=True)
                self._compute(path)
                rows = self._mapped(path)
        if rows is None:
            raise UserError(f"{path}: cannot be read; give --encoder_outputs never")
        return rows

    def _name(self) -> str:
        """The encoder's name, and a digest of what its outputs depend on besides the images."""
        config, encoder = self._whole.config, self._whole.encoder
        constants = {name: tensor for name, tensor in encoder.named_buffers() if name not in encoder.state_dict()}
        inputs = (
            _VERSION,
            config.encoder,
            config.norm_of_encoder,
            config.decoder,
            self._whole.bf16,
            self._layout,
            str(self.dtype),
        )
        weights = [tensors_digest(state) for state in (encoder.state_dict(), constants)]
        # GPUs multiply in less than single precision, and another timm may have another network of this name.
        made_by = (encoder_entry(config.encoder).version, version("timm"), self._data.device.type)
        digest = hashlib.sha256(
            " ".join(map(str, [*inputs, config.image_size, *weights, *made_by])).encode()
        ).hexdigest()
        return f"{as_file_name(config.encoder)}_{digest[:16]}"

    def _mapped(self, path: Path) -> np.ndarray | None:
        """The file's rows; None where it is missing, cut short or of another kind."""
        try:
            rows = np.load(path, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return rows if (rows.shape, rows.dtype) == (self.shape, self.dtype) else None

    def _compute(self, path: Path) -> None:
        """Encode all images into the file, on as many threads as that takes: with others, sums round otherwise."""
        blocks = np.split(np.arange(self.shape[0]), range(_BATCH, self.shape[0], _BATCH))
        before = torch.get_num_threads()
        torch.set_num_threads(threads_for(self._whole, self._data, _BATCH))
        title = f"encoding ({_gib(self.n_bytes)})"
        try:
            fill(path, self.shape, self.dtype, path.stem, blocks, self._fill_block, title)
        except UserError as error:
            raise UserError(f"{error}, or --encoder_outputs never") from error
        except FloatingPointError as error:
            remove(path)
            raise UserError(
                "--encoder_outputs half: the encoder's outputs are too large for half precision; omit it"
            ) from error
        finally:
            torch.set_num_threads(before)
        note_of(path).unlink(missing_ok=True)  # the file's name says the same

    def _fill_block(self, array: np.memmap, at: np.ndarray) -> None:
        """Write the rows of these images; FloatingPointError where they are finite but do not fit."""
        rows = self._layout.pack(*self._encode(self._data.batch(torch.from_numpy(at)).images))
        with np.errstate(over="raise"):
            array[at] = rows.cpu().numpy()

    @torch.no_grad()
    def _encode(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        with self._whole.arithmetic(images.device):
            return self._whole.encoder(images)


@torch.enable_grad()
def _taken(model: TaskModel, encoded: Tensor, maps: Sequence[Tensor]) -> list[bool]:
    """Which of the maps the decoder's results depend on."""
    vector, *levels = (tensor.float().requires_grad_() for tensor in (encoded, *maps))
    if not levels:
        return []
    embedding, output = model.decoder(vector, levels)
    gradients = torch.autograd.grad(embedding.sum() + output.sum(), levels, allow_unused=True)
    return [gradient is not None for gradient in gradients]


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.3g} GiB"
