"""Small models of Hugging Face's ``transformers``, random and large, one for each class of attention."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

from vit_rpe.models.families.samples.of_timm import randomize

VIT: dict[str, Any] = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "patch_size": 4}
WIDE: dict[str, Any] = {**VIT, "image_size": (16, 24), "intermediate_size": 32}
MLP: dict[str, Any] = {**VIT, "image_size": 16, "mlp_ratio": 2}
TOWER: dict[str, Any] = {**VIT, "image_size": 16, "intermediate_size": 32}
SWIN: dict[str, Any] = {"embed_dim": 12, "num_heads": [2, 3], "depths": [2, 2], "patch_size": 2, "window_size": 3}
SAM: dict[str, Any] = {
    **{"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "mlp_dim": 32, "patch_size": 4},
    **{"window_size": 3, "global_attn_indexes": [1], "output_channels": 8, "image_size": 20},
}
DET: dict[str, Any] = {**VIT, "num_hidden_layers": 3, "image_size": 20, "pretrain_image_size": 20, "window_size": 3}
STRETCHED: dict[str, Any] = {"interpolate_pos_encoding": True}

CASES: dict[str, tuple[Any, Any, tuple[int, int], dict[str, Any]]] = {
    "vit": (hf.ViTModel, hf.ViTConfig(**WIDE), (16, 24), {}),
    "deit": (hf.DeiTModel, hf.DeiTConfig(**WIDE), (16, 24), {}),
    "beit": (
        hf.BeitModel,
        hf.BeitConfig(**WIDE, use_relative_position_bias=True, use_absolute_position_embeddings=False),
        (16, 24),
        {},
    ),
    "beit-shared": (hf.BeitModel, hf.BeitConfig(**WIDE, use_shared_relative_position_bias=True), (16, 24), {}),
    "dinov2": (hf.Dinov2Model, hf.Dinov2Config(**MLP), (16, 24), {}),
    "dinov2-registers": (
        hf.Dinov2WithRegistersModel,
        hf.Dinov2WithRegistersConfig(**MLP, num_register_tokens=3),
        (24, 16),
        {},
    ),
    "dinov3": (hf.DINOv3ViTModel, hf.DINOv3ViTConfig(**WIDE, num_register_tokens=2), (24, 16), {}),
    "siglip": (hf.SiglipVisionModel, hf.SiglipVisionConfig(**TOWER), (16, 24), STRETCHED),
    "clip": (hf.CLIPVisionModel, hf.CLIPVisionConfig(**TOWER), (16, 24), STRETCHED),
    "swin": (hf.SwinModel, hf.SwinConfig(**SWIN, image_size=(20, 28)), (20, 28), {}),
    "swinv2": (hf.Swinv2Model, hf.Swinv2Config(**SWIN, image_size=(20, 28)), (20, 28), {}),
    "swinv2-pretrained": (
        hf.Swinv2Model,
        hf.Swinv2Config(**SWIN, image_size=(20, 28), pretrained_window_sizes=[4, 2]),
        (20, 28),
        {},
    ),
    "sam": (hf.SamVisionModel, hf.SamVisionConfig(**SAM), (20, 20), {}),
    "vitdet": (
        hf.VitDetModel,
        hf.VitDetConfig(**DET, use_relative_position_embeddings=True, window_block_indices=[0, 2]),
        (20, 28),
        {},
    ),
}
"""A model, its configuration, the size of an image, and what its ``forward`` takes besides."""
WITHOUT_SDPA = ("swinv2", "swinv2-pretrained", "vitdet")


def build(case: str, attention: str | None = None) -> nn.Module:
    """The model of a case, randomised, in evaluation mode; with an attention of ``transformers`` by its name."""
    kind, config, *_ = CASES[case]
    torch.manual_seed(0)
    model: nn.Module = kind._from_config(config, attn_implementation=attention)
    return randomize(model).eval()


def image(case: str) -> Tensor:
    """Two random images of the case's size."""
    return torch.randn(2, 3, *CASES[case][2], generator=torch.Generator().manual_seed(1))
