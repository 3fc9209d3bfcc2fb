"""A model added as CONTRIBUTING says: a class of the shared parts, and an entry point beside the others."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import timm
import torch
from timm.models import register_model
from torch import Tensor, nn

from tests.models.tiny import randomize
from vit_rpe.models.backbone.blocks import build_blocks, run_block
from vit_rpe.models.backbone.init_weights import init_encodings, init_layers, undecayed
from vit_rpe.models.backbone.loading import resample_on_load
from vit_rpe.models.backbone.position import RebuildArguments, shared_terms
from vit_rpe.position.geometry import TokenGrid


class VolumeTransformer(nn.Module):
    """A transformer over volumes of single voxels: what a new kind of input needs and no more."""

    _model_args = RebuildArguments()

    def __init__(self, size: tuple[int, int, int] = (2, 3, 4), num_classes: int = 5, rpe: Any = "bias") -> None:
        super().__init__()
        self.num_classes = num_classes
        self.grid = TokenGrid(tuple(size))
        self.stem = nn.Linear(1, 24)
        self.rpe, self.blocks = build_blocks(
            2,
            24,
            3,
            self.grid,
            rpe=rpe,
            rpe_shared=False,
            drop_path_rate=0.0,
            attention={"attn_impl": "auto", "logit_clip": None},
            block={"mlp_ratio": 2.0},
            factory={},
        )
        self.head = nn.Linear(24, num_classes)
        resample_on_load(self)
        init_layers(self)
        init_encodings(self)

    def no_weight_decay(self) -> set[str]:
        return undecayed(self)

    def forward(self, x: Tensor) -> Tensor:
        """Volumes (B, T, H, W) to logits (B, num_classes)."""
        grid = TokenGrid(tuple(x.shape[1:]))
        x = self.stem(x.flatten(1)[..., None])
        shared = shared_terms(self.rpe, grid, None, None, x, causal=False, window=None)
        for block in self.blocks:
            x = run_block(block, x, grid, shared, recompute=False)
        return self.head(x.mean(1))


def register_toy() -> None:
    """What a file ``vit_rpe/models/rpe_volume.py`` does when ``vit_rpe/models/__init__.py`` imports it."""
    module = sys.modules.setdefault("vit_rpe.models.rpe_volume", ModuleType("vit_rpe.models.rpe_volume"))

    def rpe_volume_toy(pretrained: bool = False, **kwargs: Any) -> VolumeTransformer:
        known = {key: value for key, value in kwargs.items() if not key.startswith(("pretrained", "cache"))}
        return VolumeTransformer(**known)

    rpe_volume_toy.__module__ = module.__name__
    module.__all__ = []
    module.rpe_volume_toy = register_model(rpe_volume_toy)


def test_a_toy_model_is_found_by_name_and_loads_at_another_size() -> None:
    register_toy()
    assert timm.list_models(module="rpe_volume") == ["rpe_volume_toy"]
    source = randomize(timm.create_model("rpe_volume_toy", rpe=["bias", "alibi"]))
    larger = timm.create_model("rpe_volume_toy", rpe=["bias", "alibi"], size=(3, 5, 4)).eval()
    larger.load_state_dict(source.state_dict())
    assert larger.blocks[0].attn.rpe.table.shape == (3, 5, 9, 7)
    assert larger(torch.randn(2, 3, 5, 4)).shape == (2, 5)
    assert larger.no_weight_decay() == {f"blocks.{layer}.attn.rpe.table" for layer in range(2)}
    shared = source.blocks[0].attn.rpe.table
    assert torch.equal(larger.blocks[0].attn.rpe.table[:, 2, 4, 3], shared[:, 1, 2, 3])
