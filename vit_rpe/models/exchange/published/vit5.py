"""ViT-5: Vision Transformers for the Mid-2020s, arXiv 2602.08071; names as in its code, github.com/wangf3014/ViT-5.

A rotation by axes with pairs (2t, 2t + 1), base 10000, rows first, beside a learned embedding of the patches; q and k
are normalised before it. Registers stand behind the patches there, turned on a lattice of their own with base 100;
here they stand before them, and attention does not notice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from vit_rpe.encodings import Spec
from vit_rpe.models.exchange.positions import Layout
from vit_rpe.models.exchange.published.found import Found, base_of, square_grid, vision_transformer
from vit_rpe.models.exchange.weights import unwrap

NAME = "ViT-5"
MARK = re.compile(r"^blocks\.0\.attn\.rope\.freqs$")
BUFFER = re.compile(r"^blocks\.\d+\.attn\.rope(_reg)?\.freqs$")


def read(content: Mapping[str, Any], rpe: Spec | Sequence[Spec] | None, kwargs: Mapping[str, Any]) -> Found:
    """The model of a file.

    Raises:
        ValueError: a gated MLP, norms of two kinds, no embedding whose rows tell the grid, speeds without a base.
    """
    state = unwrap(content)
    weights = {key: value for key, value in state.items() if not BUFFER.match(key)}
    _check(weights)
    speeds = state["blocks.0.attn.rope.freqs"]
    spec: dict[str, Any] = {"name": "rope", "base": base_of(speeds, NAME)}
    if "blocks.0.attn.rope_reg.freqs" in state:
        spec["registers"] = base_of(state["blocks.0.attn.rope_reg.freqs"], NAME)
    registers: Tensor | None = weights.get("reg_token")
    dim = weights["patch_embed.proj.weight"].shape[0]
    return vision_transformer(
        weights,
        spec,
        square_grid(weights["pos_embed"].shape[1], NAME),
        num_heads=dim // (4 * len(speeds)),
        layout=Layout(interleaved=True),
        reg_tokens=0 if registers is None else registers.shape[1],
        no_embed_class=True,
        norm_layer="layernorm" if "norm.bias" in weights else "rmsnorm",
    )


def _check(weights: Mapping[str, Tensor]) -> None:
    if "blocks.0.mlp.fc1.weight" not in weights:
        raise ValueError(f"this {NAME} has a gated MLP, which its published sizes have not: only fc1 and fc2 are read")
    if "pos_embed" not in weights:
        raise ValueError(f"this {NAME} has no pos_embed, whose rows tell the grid its embedding is from")
    if "blocks.0.attn.q_norm.weight" in weights and "norm.bias" in weights:
        raise ValueError(f"this {NAME} normalises q and k otherwise than its blocks, and ours have one norm throughout")
