"""The frozen diffusion model against closed forms, and against its own blocks called one by one."""

from __future__ import annotations

import builtins
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from models.teacher.diffusion import Diffusion
from tests.models.teacher.tiny_diffusion import BETAS, CHANNELS, WIDTH
from utils.errors import UserError

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tiny_diffusion: Path) -> Diffusion:
    return Diffusion(str(tiny_diffusion), (2, 3, 4), CPU)


def inputs_of(model: Diffusion, n: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Latents, timesteps and texts of some passes."""
    images = torch.rand(n, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    texts = model.texts(["a photo of a cat", "a photo of a wardrobe", "a photo of a cat"])[:n]
    return model.latents(images), torch.tensor([0, 150, 999])[:n], texts


@pytest.mark.parametrize("timestep", [0, 150, 261, 999])
def test_noise_is_the_closed_form(model: Diffusion, timestep: int) -> None:
    betas = np.linspace(*np.sqrt(BETAS), 1000) ** 2
    kept = np.cumprod(1 - betas)[timestep]
    published = {0: 0.99915, 150: 0.82781, 261: 0.65567, 999: 0.00466}  # of Stable Diffusion
    assert kept == pytest.approx(published[timestep], abs=1e-5)
    latents, noise = torch.randn(2, 4, 8, 8), torch.randn(2, 4, 8, 8)
    expected = np.sqrt(kept) * latents + np.sqrt(1 - kept) * noise
    torch.testing.assert_close(model.noisy(latents, noise, timestep), expected.float(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("timestep", [0, 1, 2, 10])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_adds_as_much_noise(model: Diffusion, timestep: int, dtype: torch.dtype) -> None:
    kept = np.cumprod(1 - np.linspace(*np.sqrt(BETAS), 1000) ** 2)[timestep]
    draw = torch.Generator().manual_seed(0)
    latents, noise = torch.full((1, 4, 128, 128), 2.0**-8, dtype=dtype), torch.randn(1, 4, 128, 128, generator=draw)
    found = model.noisy(latents, noise, timestep)
    assert found.dtype == dtype
    # 65,536 numbers: the standard errors of mean and deviation are 0.4 % and 0.3 % of the deviation.
    deviation = np.sqrt(1 - kept)
    assert float(found.double().std()) == pytest.approx(deviation, rel=0.015)
    assert float(found.double().mean()) == pytest.approx(np.sqrt(kept) * 2.0**-8, abs=0.02 * deviation)
    near_one = model.noisy(torch.ones_like(latents), noise, timestep)  # where a sum in half precision would lose it
    assert float(near_one.double().mean()) == pytest.approx(np.sqrt(kept), abs=0.02 * deviation)


def test_latents_are_the_scaled_mode_and_no_draw(model: Diffusion) -> None:
    images = torch.rand(2, 3, 64, 64)
    found = model.latents(images)
    vae = model._parts.vae
    with torch.no_grad():
        mean, _ = vae.quant_conv(vae.encoder(2 * images - 1)).chunk(2, dim=1)
    assert found.shape == (2, 4, 8, 8)
    torch.testing.assert_close(found, 0.18215 * mean)
    assert torch.equal(found, model.latents(images))


@torch.no_grad()
def test_maps_are_those_of_the_blocks_called_by_hand(model: Diffusion) -> None:
    latents, timesteps, texts = inputs_of(model)
    unet = model._parts.unet
    time = unet.time_embedding(unet.time_proj(timesteps))
    hidden = unet.conv_in(latents)
    skips = [hidden]
    for block in unet.down_blocks:
        more = {"encoder_hidden_states": texts} if hasattr(block, "attentions") else {}
        hidden, kept = block(hidden, time, **more)
        skips += kept
    hidden = unet.mid_block(hidden, time, encoder_hidden_states=texts)
    expected = []
    for block in unet.up_blocks:
        n = len(block.resnets)
        more = {"encoder_hidden_states": texts} if hasattr(block, "attentions") else {}
        hidden = block(hidden, tuple(skips[-n:]), time, **more)
        skips = skips[:-n]
        expected.append(hidden)
    found = model.maps(latents, timesteps, texts)
    assert [each.shape[1:] for each in found] == [(c, s, s) for c, s in zip(CHANNELS[1:], (4, 8, 8), strict=True)]
    for mine, by_hand in zip(found, expected[1:], strict=True):
        torch.testing.assert_close(mine, by_hand)


@torch.no_grad()
def test_keeping_maps_changes_nothing(model: Diffusion, tiny_diffusion: Path) -> None:
    from diffusers import UNet2DConditionModel

    latents, timesteps, texts = inputs_of(model)
    plain = UNet2DConditionModel.from_pretrained(tiny_diffusion / "unet").eval()
    expected = plain(latents, timesteps, texts).sample
    assert torch.equal(model._parts.unet(latents, timesteps, texts).sample, expected)
    assert not any(parameter.requires_grad for parameter in model._parts.unet.parameters())


def test_texts_are_the_text_models_last_states(model: Diffusion) -> None:
    found = model.texts(["a photo of a cat"] * 70 + ["a photo of a " + "very " * 100 + "long prompt"])
    assert found.shape == (71, 77, WIDTH)
    parts = model._parts
    tokens = parts.tokenizer("a photo of a cat", padding="max_length", max_length=77, return_tensors="pt").input_ids
    with torch.no_grad():
        expected = parts.text_encoder(tokens).last_hidden_state[0]
    torch.testing.assert_close(found[0], expected)
    torch.testing.assert_close(found[69], expected)


def test_the_digest_knows_the_weights(model: Diffusion, tiny_diffusion: Path) -> None:
    again = Diffusion(str(tiny_diffusion), (4,), CPU)
    assert again.digest == model.digest
    with torch.no_grad():
        again._parts.text_encoder.get_parameter(next(iter(dict(again._parts.text_encoder.named_parameters())))).add_(1)
    assert again.digest != model.digest


def test_what_is_missing_is_said_in_a_line(
    tiny_diffusion: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"--layers 5: the decoder of .* has the layers 1 to 4"):
        Diffusion(str(tiny_diffusion), (2, 5), CPU)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no Stable Diffusion with safetensors weights") as raised:
        Diffusion(str(tmp_path / "empty"), (2,), CPU)
    assert "\n" not in str(raised.value)


def test_a_hub_that_cannot_be_reached_says_no_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("diffusers", reason="needs diffusers, of requirements-diffusion.txt")

    def refuse(*_: object, **__: object) -> None:
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
        raise OSError("no connection")

    monkeypatch.setattr("diffusers.StableDiffusionPipeline.from_pretrained", refuse)
    with pytest.raises(UserError, match=r"none of this name that can be downloaded \(no connection\)"):
        Diffusion("someone/some-model", (2,), CPU)
    assert not caplog.records


def test_what_is_no_plain_stable_diffusion_is_said_before_it_is_asked(tiny_diffusion: Path, tmp_path: Path) -> None:
    from diffusers import UNet2DConditionModel

    folder = shutil.copytree(tiny_diffusion, tmp_path / "cut")
    shutil.rmtree(folder / "tokenizer")
    with pytest.raises(UserError, match="it has no tokenizer of its text encoder; give a complete Stable Diffusion 1"):
        Diffusion(str(folder), (2,), CPU)
    # As XL's folders, whose denoiser takes sizes and a second encoder's text, and whose other parts fit.
    folder = shutil.copytree(tiny_diffusion, tmp_path / "larger")
    said = {name: value for name, value in UNet2DConditionModel.load_config(folder / "unet").items() if name[0] != "_"}
    said |= {"addition_embed_type": "text_time", "addition_time_embed_dim": 8}
    UNet2DConditionModel(**said | {"projection_class_embeddings_input_dim": 64}).save_pretrained(folder / "unet")
    with pytest.raises(UserError, match="needs more than a text, as Stable Diffusion XL's does; give a complete"):
        Diffusion(str(folder), (2,), CPU)


def test_without_the_packages_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *more: object, **others: object) -> object:
        if name.split(".")[0] == "diffusers":
            raise ModuleNotFoundError("No module named 'diffusers'", name="diffusers")
        return real(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UserError, match=r"needs diffusers: pip install -r requirements-diffusion\.txt"):
        Diffusion("anywhere", (2,), CPU)
