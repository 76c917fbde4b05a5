"""A task's model: an encoder and a decoder, saved with the settings that rebuild it."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from datasets.tasks import Task, get_task
from models.networks.config import VERSIONS, ModelConfig, config_from_metadata
from models.networks.conventions import Scaling
from models.networks.decoders import DECODERS, Decoder, decoder_entry, with_decoder
from models.networks.encoders import ENCODERS, EncoderRequest, build_encoder, check_pixels, weights_for
from models.networks.frames import FramesApart
from models.networks.kept_outputs import full_model
from models.networks.lora import merged
from models.networks.parts import set_eval
from models.networks.weights import EncoderWeights, conventions
from utils.errors import UserError
from utils.files import save_tensors, write_atomically
from utils.streams import derived_seed
from utils.versions import tensors_digest
from utils.words import some

_SCALE = 16  # of the smallest map that most networks come to


class Outputs(NamedTuple):
    """What a model makes of B images.

    `encoded` (B, F) are the encoder's vectors. `embedding` (B, …) is what stands before the model's last layer, a map
    or a vector: what is clustered. `output` is (B, C, S, S) or (B, classes).
    """

    encoded: Tensor
    embedding: Tensor
    output: Tensor

    def representation(self, name: str) -> Tensor:
        """What a method's `--representation` says: "features", which are the encoder's vectors, or "embedding"."""
        return self.encoded if name == "features" else self.embedding


class TaskModel(nn.Module):
    """Images to `Outputs` for one task; `bf16` lets it compute under bfloat16 autocast.

    Args:
        config: what to build, with the encoder's own decoder if it names none; UserError if the image size is not a
            multiple of 16.
        pretrained: start the encoder from its published weights.
        weights: start it from these; the config says so then.
    """

    def __init__(self, config: ModelConfig, pretrained: bool = False, weights: EncoderWeights | None = None) -> None:
        super().__init__()
        if config.image_size < _SCALE or config.image_size % _SCALE:
            raise UserError(f"--image_size must be a multiple of {_SCALE}, not {config.image_size}")
        if config.published_quirks and (config.image_mean or config.image_std):
            raise UserError("--published_quirks takes images as they are, unscaled; omit --image_mean and --image_std")
        task = get_task(config.task, config.depth_target, config.published_quirks)
        if task.frames > 1 and (pretrained or weights):  # which are of networks that see one photograph
            config = replace(config, frames_apart=True)
        config = with_decoder(config)
        self.config = replace(config, weights=weights.record) if weights else config
        self.bf16 = False
        if task.categorical and config.classes is None:
            raise UserError(f"{task.name}: the model names no classes; run model_initialization.py")
        self.task: Task = task if config.classes is None else task.with_classes(config.classes)
        decoder = decoder_entry(config, self.task)
        request = EncoderRequest(
            config.image_size,
            pretrained,
            config.norm_of_encoder,
            decoder.most_stride,
            weights,
            self.config.scaling,
            task.frames,
            config.frames_apart,
        )
        self.encoder = build_encoder(config.encoder, request)
        if config.published_quirks:
            self.encoder.take_images_as_they_are()
        self.decoder: Decoder = decoder.build(config, self.task, self.encoder)

    @property
    def embedding_size(self) -> int:
        """Numbers an image in the embedding, whatever its shape."""
        return math.prod(self.decoder.embedding_shape)

    def arithmetic(self, device: torch.device) -> AbstractContextManager:
        """The precision in which the model computes on a device."""
        return torch.autocast(device.type, torch.bfloat16) if self.bf16 else nullcontext()

    def forward(self, images: Tensor) -> Outputs:
        """What the model makes of images (B, `task.in_channels`, S, S) in [0, 1], as float32."""
        with self.arithmetic(images.device):
            encoded, maps = self.encoder(images)
            embedding, output = self.decoder(encoded, maps)
        return Outputs(encoded.float(), embedding.float(), output.float())


def init_file(folder: Path, task: str, use_cbam: bool) -> Path:
    """Where a task's initial model is kept."""
    return folder / f"init_model_{task}{'_cbam' if use_cbam else ''}.safetensors"


def save_model(model: TaskModel, path: Path, versions: Mapping[str, int] | None = None) -> None:
    """Write settings and all weights of the whole model, adapters merged, into a safetensors file, atomically.

    `versions` are noted beside them; see `made_as`.
    """
    tensors = merged(
        {name: tensor.detach().cpu().contiguous() for name, tensor in full_model(model).state_dict().items()}
    )
    with write_atomically(path) as temporary:
        # In one entry: of several, a safetensors file has any order, and equal models would be different files.
        content = model.config.record() | ({VERSIONS: versions} if versions else {})
        save_tensors(tensors, temporary, {"config": json.dumps(content)})


def versions_of(config: ModelConfig) -> dict[str, int]:
    """The declared versions of a model's encoder and decoder, by name; networks of timm have none."""
    chosen = (("encoder", config.encoder, ENCODERS), ("decoder", config.decoder, DECODERS))
    return {f"{part} {name}": entries[name].version for part, name, entries in chosen if name in entries}


def made_as(path: Path) -> tuple[ModelConfig, dict[str, int] | None]:
    """The settings of the initial model in `path`, and the `versions_of` them with which it was made.

    None where it was made before these were noted. UserError where the file is not a model of this project.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return config_from_metadata(file.metadata())
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not a model of this project ({error}); run model_initialization.py again") from error


def make_initial_model(
    path: Path, config: ModelConfig, seed: int, pretrained: bool | None = None, weights_file: Path | None = None
) -> str:
    """Build a model with random weights by `seed`, and save it in `path`; returns in words what was made.

    `pretrained` starts the encoder from its published weights; None does so where such weights exist. `weights_file`
    starts it from that file. UserError as for `TaskModel`, and where they could not be downloaded or do not fit.
    """
    pretrained, weights = weights_for(config.encoder, pretrained, weights_file)
    torch.manual_seed(derived_seed("initial_model", seed))
    model = TaskModel(config, pretrained, weights)
    warnings = _try(model)
    save_model(model, path, versions_of(model.config))
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    origin = weights.path.name if weights else "pretrained" if pretrained else "random"
    description = f"{config.encoder} ({origin}) at {config.image_size} px"
    made = f"{config.task}: {description}, {millions:.2f} M parameters, in {path}"
    return "\n".join(filter(None, (*_origins(model, pretrained, weights), warnings, made)))


def _origins(model: TaskModel, pretrained: bool, weights: EncoderWeights | None) -> list[str]:
    """Lines that say which weights the encoder has, and with what it computes with them; none for random weights."""
    config, encoder = model.config, model.encoder
    if isinstance(encoder, FramesApart):
        encoder = encoder.backbone
    scaling = Scaling(config.image_mean, config.image_std)
    if not (weights or pretrained or any(scaling)):
        return []
    used = Scaling(*(tuple(constant.flatten()[:3].tolist()) for constant in (encoder.mean, encoder.std)))
    line = "images are as they are (--published_quirks)"
    if not config.published_quirks:
        line = conventions(encoder, f"--encoder {config.encoder}", used, scaling, weights)
    return [weights.line, line] if weights else [line]


def _try(model: TaskModel) -> str:
    """What there is to say of a new model after a step's forward and backward pass; empty if nothing.

    UserError where it cannot take images of its size, as some networks are built for one alone; where its output is
    not as large as the image, as with maps that do not halve exactly; where layers share a weight, which has several
    names in what clients send; and where an encoder cuts images into patches that leave out pixels.
    """
    config, size = model.config, model.config.image_size
    called = f"--encoder {config.encoder}"
    names = [[name for name, _ in model.named_parameters(remove_duplicate=is_unique)] for is_unique in (False, True)]
    if shared := sorted(set(names[0]) - set(names[1])):
        raise UserError(
            f"{called} has layers that share weights ({some(shared, 2)}), which clients cannot train; give another"
        )
    trial, generator = copy.deepcopy(model), torch.Generator().manual_seed(0)
    images = torch.rand(2, model.task.in_channels, size, size, generator=generator).requires_grad_()
    try:
        with torch.random.fork_rng(devices=()):
            outputs = trial.train()(images)
            sum(output.square().sum() for output in outputs).backward()
            set_eval(trial)
            vectors, maps = trial.encoder(seen := images.detach().requires_grad_())
            torch.autograd.backward(sum(tensor.square().sum() for tensor in (vectors, *maps)))
    except Exception as error:  # whatever a network raises whose shapes do not fit
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{called} with --decoder {config.decoder} cannot be trained on images of {size} pixels ({reason}); "
            "give another --image_size, --encoder or --decoder"
        ) from error
    if model.task.dense and outputs.output.shape[-2:] != (size, size):
        width = outputs.output.shape[-1]
        raise UserError(
            f"{called} with --decoder {config.decoder} makes maps of {width} instead of {size} pixels; "
            "give another --image_size, --encoder or --decoder"
        )
    assert seen.grad is not None
    return check_pixels(size, seen.grad.ne(0).any(dim=1).any(dim=0), model.encoder, called)


def fingerprint(model: TaskModel) -> str:
    """SHA-256 of a model's settings and weights."""
    content = json.dumps(model.config.record()) + tensors_digest(model.state_dict())
    return hashlib.sha256(content.encode()).hexdigest()


def load_model(path: Path, task: str, made_by: str) -> TaskModel:
    """Rebuild the model in `path`.

    Raises `UserError` where the file is missing (naming the stage `made_by`), broken, or of another task.
    """
    if not path.is_file():
        raise UserError(f"{path} is missing; run {made_by} --task {task} first")
    try:
        with safe_open(path, framework="pt") as file:
            config, _ = config_from_metadata(file.metadata())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not a model of this project ({error}); run {made_by} again") from error
    if config.task != task:
        raise UserError(f"{path} holds a model for {config.task}, not for --task {task}")
    model = TaskModel(config)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise UserError(f"{path}: the weights do not fit the network; run {made_by} again") from error
    if bad := [name for name, tensor in model.state_dict().items() if not tensor.isfinite().all()]:
        raise UserError(f"{path}: weights that are not finite, of {bad[0]}; run {made_by} again")
    return model
