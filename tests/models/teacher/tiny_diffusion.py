"""A Stable Diffusion of random weights, two thousand times smaller than the published ones, made offline."""

from __future__ import annotations

import json
from pathlib import Path

import torch

WIDTH = 16  # of the text encoder's output
BETAS = (0.00085, 0.012)  # the published noise: the squares of a thousand evenly spaced square roots
CHANNELS = (32, 32, 16, 8)  # of the denoiser's blocks, the deepest first


def save_tiny_diffusion(folder: Path, seed: int = 0) -> Path:
    """Write a Stable Diffusion pipeline of the published architecture with random weights; returns its folder."""
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(seed)
    unet = UNet2DConditionModel(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=CHANNELS[::-1],
        cross_attention_dim=WIDTH,
        attention_head_dim=2,
        norm_num_groups=4,
    )
    vae = AutoencoderKL(
        block_out_channels=(4, 4, 8, 8),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=4,
        norm_num_groups=2,
    )
    text = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=514,
            hidden_size=WIDTH,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=77,
            bos_token_id=512,
            eos_token_id=513,
        )
    )
    pipeline = StableDiffusionPipeline(
        vae,
        text,
        CLIPTokenizer.from_pretrained(_save_tokenizer(folder / "words")),
        unet,
        DDIMScheduler(
            beta_schedule="scaled_linear", beta_start=BETAS[0], beta_end=BETAS[1], clip_sample=False, steps_offset=1
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(folder / "model")
    return folder / "model"


def _save_tokenizer(folder: Path) -> Path:
    """CLIP's tokenizer without merges: a token for each byte, within and at the end of a word."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    about = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder
