"""A frozen Stable Diffusion as an extractor of features: one pass of its denoiser, whose decoder's maps are kept.

That is DIFT's single step (Tang et al. 2023, arXiv 2306.03881), which FedDifRC (arXiv 2507.06482) takes its features
from. Any folder or hub name of the architecture will do: Stable Diffusion 1.x and 2.x have the same decoder.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from models.networks.encoders import quiet
from utils.errors import UserError
from utils.versions import tensors_digest

_REQUIREMENTS = "requirements-diffusion.txt"
_TEXTS_AT_ONCE = 64


class Diffusion:
    """The image encoder, text encoder and denoiser of a Stable Diffusion, in eval mode and without gradients.

    Args:
        name: a local folder that diffusers has saved, or a name of the Hugging Face hub.
        layers: the decoder's blocks whose maps are kept, by the paper's number n: 1 is the deepest.
        device: where it computes.
        precision: "fp32" or "bf16"; "auto" is half precision on a GPU, as the weights are published, else single.

    Raises:
        UserError: if a package is missing, the model could not be downloaded, or it has no such layer.
    """

    def __init__(self, name: str, layers: Sequence[int], device: torch.device, precision: str = "auto") -> None:
        halved = torch.float16 if device.type == "cuda" else torch.float32
        self.device, self._dtype = device, {"fp32": torch.float32, "bf16": torch.bfloat16}.get(precision, halved)
        self._parts = _load(name).to(device, self._dtype)
        if reason := _unfit(self._parts):
            raise UserError(f"--diffusion_model {name}: {reason}; give a complete Stable Diffusion 1.x or 2.x")
        for part in (self._parts.vae, self._parts.unet, self._parts.text_encoder):
            part.requires_grad_(False).eval()
        blocks = self._parts.unet.up_blocks
        if strange := [layer for layer in layers if not 1 <= layer <= len(blocks)]:
            raise UserError(f"--layers {strange[0]}: the decoder of {name} has the layers 1 to {len(blocks)}")
        self.width = int(self._parts.unet.config.cross_attention_dim)
        self._maps_of_pass: dict[int, Tensor] = {}
        for layer in layers:
            blocks[layer - 1].register_forward_hook(
                lambda *call, layer=layer: self._maps_of_pass.update({layer: call[2]})
            )
        self._layers = tuple(layers)

    @property
    def digest(self) -> str:
        """SHA-256 of all weights that bear on the features."""
        parts = {name: getattr(self._parts, name) for name in ("vae", "unet", "text_encoder")}
        return tensors_digest(
            {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
        )

    @torch.no_grad()
    def texts(self, texts: Sequence[str]) -> Tensor:
        """The token embeddings of prompts, (n, 77, width) on the device; longer prompts are cut."""
        parts = [list(texts[start : start + _TEXTS_AT_ONCE]) for start in range(0, len(texts), _TEXTS_AT_ONCE)]
        return torch.cat([self._parts.encode_prompt(part, self.device, 1, False)[0] for part in parts])

    @torch.no_grad()
    def latents(self, images: Tensor) -> Tensor:
        """The latents (B, 4, S/8, S/8) of images (B, 3, S, S) in [0, 1]: the mode of what the encoder says, scaled.

        The published code draws from it instead, so that no two runs have the same features.
        """
        scaled = images.to(self.device, self._dtype) * 2.0 - 1.0
        return self._parts.vae.encode(scaled).latent_dist.mode() * self._parts.vae.config.scaling_factor

    def noisy(self, latents: Tensor, noise: Tensor, timestep: int) -> Tensor:
        """sqrt(abar_t) z + sqrt(1 - abar_t) noise, equation 2 of FedDifRC in closed form; in the latents' precision.

        Half precision rounds sqrt(abar_t) of the first timesteps to 1, and the noise away: only the sum is rounded.
        """
        at = torch.full((len(latents),), timestep, device=self.device)
        sums = self._parts.scheduler.add_noise(latents.float(), noise.to(self.device, torch.float32), at)
        return sums.to(latents.dtype)

    @torch.no_grad()
    def maps(self, latents: Tensor, timesteps: Tensor, texts: Tensor) -> list[Tensor]:
        """What the layers see in one pass of the denoiser: (B, C, H, W) float32 for each.

        Args:
            latents: (B, 4, H, W), with the noise of their timestep.
            timesteps: (B,) int64.
            texts: (B, 77, width) token embeddings.
        """
        self._parts.unet(latents, timesteps.to(self.device), texts.to(self._dtype), return_dict=False)
        maps = [self._maps_of_pass[layer].float() for layer in self._layers]
        self._maps_of_pass.clear()
        return maps


def _unfit(parts: Any) -> str:
    """Why such a pipeline, which could be loaded, cannot be used; empty if it can."""
    if parts.unet.config.addition_embed_type is not None:
        return "its denoiser needs more than a text, as Stable Diffusion XL's does"
    # Of a folder without a tokenizer an empty one is made, which knows no length.
    if parts.tokenizer.model_max_length > parts.text_encoder.config.max_position_embeddings:
        return "it has no tokenizer of its text encoder"
    return ""


def _load(name: str) -> Any:
    """The pipeline with a scheduler that adds noise at any step; weights are read from safetensors files only."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the packages about themselves
            from diffusers import DDIMScheduler, StableDiffusionPipeline
            from diffusers.utils import logging as diffusers_logging
            from transformers.utils import logging as transformers_logging
    except ImportError as error:
        raise UserError(f"a diffusion model needs {error.name}: pip install -r {_REQUIREMENTS}") from error
    for logger in (diffusers_logging, transformers_logging):
        logger.set_verbosity(logging.ERROR)
        logger.disable_progress_bar()
    more: dict[str, Any] = {"safety_checker": None, "requires_safety_checker": False, "feature_extractor": None}
    try:
        with quiet():
            pipeline = StableDiffusionPipeline.from_pretrained(name, use_safetensors=True, **more)
        pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config)
    except (OSError, ValueError, TypeError, AttributeError, RuntimeError) as error:  # the hub's are OSErrors
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"--diffusion_model {name}: no Stable Diffusion with safetensors weights in such a folder, and none "
            f"of this name that can be downloaded ({reason})"
        ) from error
    return pipeline
