"""An encoder's weights from a file: read as tensors alone, matched by their names, and none of them may be missing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.networks.config import config_from_metadata
from models.networks.conventions import (
    LOCAL,
    LONG,
    OWN_SCALING,
    QUICK_GELU,
    Scaling,
    activation_of,
    is_clip,
    is_openais,
    published_config,
    with_quick_gelu,
)
from utils.errors import UserError
from utils.versions import file_digest
from utils.words import some

if TYPE_CHECKING:
    from torch import Tensor, nn

    Tensors = Mapping[str, Tensor]

# What trainings and larger models put before the names of an encoder.
_PREFIXES = (
    "module.",
    "_orig_mod.",
    "model.",
    "backbone.",
    "encoder.",
    "teacher.",
    "student.",
    "network.",
    "visual.",
    "trunk.",
    "image_encoder.",
)
_DEPTH = 3  # of prefixes before each other
_LFS = b"version https://git-lfs"
_IN_FOLDER = ("model.safetensors", "pytorch_model.bin")  # as timm and the hub name them
_FEW = 3  # names that a message tells


class EncoderWeights:
    """The tensors of a file, to be put into an encoder; `about` says its name, size in bytes and SHA-256.

    `scaling` is that of its images, as far as OpenAI's CLIP says so by its names, and a model of ours by its settings;
    `about` has it, too.

    UserError where the file is not readable as tensors. Nothing in it is run.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._tensors = path, _read(path)
        self._missing: dict[int, tuple[str, Tensor]] = {}
        self._unused: list[str] = []
        self.was_put = False
        self.scaling = self._scaling()
        self.record = {"file": path.name, "bytes": path.stat().st_size, "sha256": file_digest(path)}
        self.record |= self.scaling.settings()
        self.line = ""

    @property
    def of_a_model_of_ours(self) -> bool:
        """Whether the names are those of a `TaskModel`, which are not a published network's."""
        return all(any(name.startswith(part) for name in self._tensors) for part in ("encoder.backbone.", "decoder."))

    @property
    def is_any_clip(self) -> bool:
        """Whether the names are those of a CLIP that OpenAI or others may have trained."""
        return is_clip(self._tensors) and not is_openais(self._tensors)

    def put_into(self, network: nn.Module, adapt: Callable[[Tensors, nn.Module], Tensors] | None = None) -> None:
        """Copy what fits by name and shape, after the prefix with which most fits was taken off.

        `adapt` changes names and shapes of what was saved to those of the network, as timm's checkpoint filters do.
        """
        own = network.state_dict(keep_vars=True)
        best, adapted_tensors, fitting = -1, dict(self._tensors), list[str]()
        for view in _views(self._tensors):
            adapted = _adapted(view, network, adapt)
            fits = [name for name, tensor in own.items() if name in adapted and adapted[name].shape == tensor.shape]
            if len(fits) > best:
                best, adapted_tensors, fitting = len(fits), dict(adapted), fits
        spoilt = [
            name
            for name in fitting
            if adapted_tensors[name].is_floating_point() and not adapted_tensors[name].isfinite().all()
        ]
        if spoilt:
            raise UserError(
                f"{self.path}: {len(spoilt)} of {len(fitting)} tensors have values that are not finite "
                f"({some(spoilt, _FEW)}); give a file that was saved before the training failed"
            )
        network.load_state_dict({name: adapted_tensors[name] for name in fitting}, strict=False)
        self.was_put = True
        # By identity: an encoder has the network's tensors under names of its own, and not all of them.
        rest = ((name, tensor) for name, tensor in own.items() if name not in fitting)
        self._missing = {id(tensor): (name, tensor) for name, tensor in rest if "num_batches_tracked" not in name}
        self._unused = [name for name in adapted_tensors if name not in own]

    def check(self, encoder: nn.Module, network_name: str) -> None:
        """Raise UserError where a tensor of the encoder is not from the file; `line` says then what was taken.

        Likewise where OpenAI's CLIP is put into a network with another activation than it was trained with. `wanted` is
        the argument that names the network.
        """
        own = encoder.state_dict(keep_vars=True).values()
        missing = [self._missing[id(tensor)][0] for tensor in own if id(tensor) in self._missing]
        if missing:
            raise UserError(
                f"{self.path} does not fit {network_name}: {len(missing)} of its {len(own)} tensors are missing "
                f"or of another shape ({some(missing, _FEW)}); give the weights of that network"
            )
        openais_transformer = is_openais(self._tensors) and is_clip(self._tensors)
        if openais_transformer and (activation := activation_of(encoder)) != QUICK_GELU:
            fits = with_quick_gelu(encoder)
            raise UserError(
                f"{self.path} is OpenAI's CLIP, which was trained with {QUICK_GELU}, "
                f"and {network_name} has {activation}; "
                f"give {network_name.partition(' ')[0]} {f'timm:{fits}' if fits else f'a network with {QUICK_GELU}'}"
            )
        self.line = f"all {len(own)} tensors of the encoder are from {self.path}"
        if self._unused:
            self.line += f", which has {len(self._unused)} others ({some(self._unused, _FEW)})"

    def _scaling(self) -> Scaling:
        if is_openais(self._tensors):
            from models.networks.backbones import CLIP

            return Scaling(*CLIP)
        if self.of_a_model_of_ours:
            from safetensors import SafetensorError, safe_open

            with (
                suppress(SafetensorError, KeyError, TypeError, ValueError),  # another's model, with names like ours
                safe_open(self.path, framework="pt") as file,
            ):
                return config_from_metadata(file.metadata())[0].scaling
        return OWN_SCALING


def conventions(
    network: nn.Module, network_name: str, used: Scaling, scaling: Scaling, weights: EncoderWeights | None = None
) -> str:
    """A line that names a network's activation, and the mean and deviation of images, and where each comes from.

    Args:
        network: an encoder, or a network of timm.
        wanted: the argument that names it.
        used: the mean and deviation by which it scales images.
        given: those that the user has given.
        weights: the file that its weights are from, if any.
    """
    own = _architecture(network, network_name)
    of_file = weights.scaling if weights else OWN_SCALING
    rows = [(f"activation {activation}", own)] if (activation := activation_of(network)) else []
    for name, values in used._asdict().items():
        file = str(weights.path) if weights and getattr(of_file, name) else own
        origin = f"--image_{name}" if getattr(scaling, name) else file
        rows.append((f"{LONG[name]} {' '.join(f'{value:.4g}' for value in values)}", origin))
    line = "; ".join(
        f"{', '.join(what for what, _ in group)} ({origin})" for origin, group in groupby(rows, key=lambda row: row[1])
    )
    if weights and weights.is_any_clip:
        line += "; the file's names do not say whose CLIP it is: OpenAI's has QuickGELU, LAION's GELU"
    with_quick = QUICK_GELU in str(published_config(network).get("notes"))
    if with_quick and not weights and activation_of(network) != QUICK_GELU:
        line += f"; timm's weights of this name were trained with {QUICK_GELU}"
        line += f", as timm:{other} has it" if (other := with_quick_gelu(network)) else ""
    return line


def _architecture(network: nn.Module, network_name: str) -> str:
    """Where a network's own conventions come from."""
    published = published_config(network)
    if LOCAL in network_name:
        return str(Path(network_name.partition(LOCAL)[2], "config.json"))
    if not published:
        return network_name
    return "timm's " + ".".join(filter(None, (published.get("architecture"), published.get("tag"))))


def timm_filter(network: nn.Module) -> Callable[[Tensors, nn.Module], Tensors] | None:
    """Timm's own translation of published checkpoints of this network, which resizes position embeddings, too."""
    return getattr(import_module(type(network).__module__), "checkpoint_filter_fn", None)


def local_config(name: str) -> tuple[dict[str, Any], str]:
    """The configuration of a folder as timm saves them, `local-dir:<folder>`, and its architecture."""
    import timm
    from timm.models._hub import load_model_config_from_path

    folder = name.removeprefix(LOCAL)
    try:
        config, architecture, _ = load_model_config_from_path(folder)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(
            f"{folder} has no config.json of a network of timm ({' '.join(str(error).split())}); "
            "give a folder as timm or its hub has them, with config.json and model.safetensors"
        ) from error
    if not isinstance(architecture, str) or not timm.is_model(architecture):
        raise UserError(
            f"{folder}/config.json: timm {timm.__version__} has no network {architecture!r}; see timm.list_models()"
        )
    return config, architecture


def file_in(name: str) -> Path:
    """The weights in a folder `local-dir:<folder>`; UserError where there are none."""
    folder = Path(name.removeprefix(LOCAL))
    file = next((folder / file_name for file_name in _IN_FOLDER if (folder / file_name).exists()), None)
    if file is None:
        raise UserError(f"{folder} has no {' or '.join(_IN_FOLDER)}; bring the weights, too")
    return file


def absolute(name: str) -> str:
    """The name of a network of timm, with a folder's path made absolute: later stages may run elsewhere."""
    before, is_local, folder = name.partition(LOCAL)
    return f"{before}{LOCAL}{Path(folder).resolve()}" if is_local else name


def _read(path: Path) -> dict[str, Tensor]:
    import torch
    from timm.models import load_state_dict

    if path.is_dir():
        raise UserError(f"{path} is a folder; give the file of weights in it")
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file; give the file of weights")
    try:
        with path.open("rb") as file:
            head = file.read(len(_LFS))
        if not head:
            raise UserError(f"{path} is empty; copy it again")
        if head == _LFS:
            raise UserError(f"{path} is a pointer of Git LFS, not the weights; fetch them: git lfs pull")
        with warnings.catch_warnings(action="ignore"):  # of other protocols of pickle
            content = load_state_dict(str(path), weights_only=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); see --encoder_weights") from error
    except (UserError, MemoryError):
        raise
    except Exception as error:  # whatever a broken file makes its reader raise
        raise UserError(
            f"{path}: neither safetensors nor a state dict without pickled code, or cut off "
            f"({' '.join(str(error).split())[:120] or type(error).__name__}); copy it again, or save it by "
            "torch.save(model.state_dict(), FILE)"
        ) from error
    while content and not any(isinstance(value, torch.Tensor) for value in content.values()):
        content = next((content[key] for key in ("teacher", *content) if isinstance(content.get(key), dict)), {})
    tensors = {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise UserError(f"{path} holds no tensors; give a state dict")
    return tensors


def _views(tensors: Tensors, depth: int = _DEPTH) -> Iterator[Tensors]:
    """The tensors as they are, and those below each prefix that occurs."""
    yield tensors
    for prefix in _PREFIXES:
        inner = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        if inner and depth:
            yield from _views(inner, depth - 1)


def _adapted(tensors: Tensors, network: nn.Module, adapt: Callable[[Tensors, nn.Module], Tensors] | None) -> Tensors:
    try:
        return adapt(dict(tensors), network) if adapt else tensors
    except Exception:  # a translation of a published checkpoint that this is not
        return tensors
