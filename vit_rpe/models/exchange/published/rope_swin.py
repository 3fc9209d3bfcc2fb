"""Swin with rotary position in its windows, arXiv 2403.13298; names as in github.com/naver-ai/rope-vit.

Speeds are (2, H, D/2) in every layer, those along the width first; they turn pairs (2t, 2t + 1). Learned ones are
``rope_mixed``; those of the axial models are a buffer in which the first half of the pairs knows the width alone, and
are ``rope``. Merging layers stand at the end of a stage there, at the beginning of the next in timm's Swin, which hosts
the weights.

Legend: D head width, H heads, N tokens of a window.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import timm
import torch
from timm.layers import to_2tuple
from torch import Tensor, nn

from vit_rpe.encodings import Spec, find_encodings
from vit_rpe.models.exchange.complete import require_all
from vit_rpe.models.exchange.parts import ratio_of
from vit_rpe.models.exchange.placing import start_at_zero, unflatten_table
from vit_rpe.models.exchange.positions import Layout
from vit_rpe.models.exchange.published.found import base_of, count_of
from vit_rpe.models.exchange.weights import source_channels, unwrap

NAME = "RoPE-Swin"
MARK = re.compile(r"^layers\.0\.blocks\.0\.attn\.rope_freqs$")
HOST = "vit_rpe_swin_tiny_patch4_window7_224"
BUFFER = re.compile(r"\.(rope_t_[xy]|rope_freqs|relative_position_index|relative_position_bias_table|attn_mask)$")
MERGING = re.compile(r"^layers\.(\d+)\.downsample\.")


def build(content: Mapping[str, Any], rpe: Spec | Sequence[Spec] | None, kwargs: Mapping[str, Any]) -> nn.Module:
    """timm's Swin with the weights of a file.

    Raises:
        ValueError: an image whose windows the published code cuts otherwise, or weights that do not fill the model.
    """
    state = unwrap(content)
    kernel, size = state["patch_embed.proj.weight"], to_2tuple(kwargs.get("img_size", 224))
    depths = _depths(state)
    speeds = {
        (i, j): state[f"layers.{i}.blocks.{j}.attn.rope_freqs"] for i, many in enumerate(depths) for j in range(many)
    }
    axial = all(map(_is_axial, speeds.values()))
    given = {**kwargs, "window_size": to_2tuple(kwargs["window_size"])} if "window_size" in kwargs else dict(kwargs)
    window = _window(state, "layers.0.blocks.0.attn.", given.get("window_size", (7, 7)))
    _check_size((size[0] // kernel.shape[2], size[1] // kernel.shape[3]), window, len(depths))
    args: dict[str, Any] = {
        "img_size": size,
        "patch_size": kernel.shape[2],
        "in_chans": kernel.shape[1],
        "embed_dim": kernel.shape[0],
        "depths": depths,
        "num_heads": tuple(speeds[stage, 0].shape[1] for stage in range(len(depths))),
        "window_size": window,
        "mlp_ratio": ratio_of(state["layers.0.blocks.0.mlp.fc1.weight"].shape[0], kernel.shape[0]),
        "qkv_bias": "layers.0.blocks.0.attn.qkv.bias" in state,
        "num_classes": state["head.weight"].shape[0] if "head.weight" in state else 0,
    }
    for key in ("embed_dim", "depths", "num_heads", "window_size", "mlp_ratio", "qkv_bias", "in_chans"):
        if given.get(key, args[key]) != args[key]:
            raise ValueError(f"the weights have {key}={args[key]!r}, which cannot become {given[key]!r}")
    own: list[dict[str, Any]] = [{"name": "rope_mixed"}]
    if axial:
        own = [{"name": "rope", "base": base_of(speeds[0, 0][0, 0, : speeds[0, 0].shape[2] // 2], NAME)}]
    if "layers.0.blocks.0.attn.relative_position_bias_table" in state:
        own.append({"name": "bias"})
    model: Any = timm.create_model(HOST, rpe=own if rpe is None else rpe, **{**args, **given})
    layout = Layout(interleaved=True, width_first=True, per_axis=axial)
    weights = {}
    for key, value in state.items():
        if BUFFER.search(key):
            continue
        if ".attn.qkv." in key:
            value = _reordered(value, args["num_heads"][int(key.split(".")[1])], layout)
        key = MERGING.sub(lambda found: f"layers.{int(found[1]) + 1}.downsample.", key)
        weights[re.sub(r"^head\.", "head.fc.", key)] = value
    if model.num_classes != args["num_classes"]:
        weights = {key: value for key, value in weights.items() if not key.startswith("head.")}
        weights.update({key: value for key, value in model.state_dict().items() if key.startswith("head.")})
    require_all(weights, model)
    model.load_state_dict({**weights, **_positions(model, state, {spec["name"] for spec in own})})
    return model.eval()


def _positions(model: nn.Module, state: Mapping[str, Tensor], own: set[str]) -> dict[str, Tensor]:
    """The parameters of every encoding in a model: those of the file, or zero for one that it does not have."""
    found, others = {}, []
    for path, encoding in find_encodings(model):
        attention = path.partition(".rpe")[0]
        given: dict[str, Tensor] = {}
        if encoding.name in own and encoding.name == "rope_mixed":
            given = {"frequencies": state[f"{attention}.rope_freqs"].flip(0)}
        elif encoding.name in own and encoding.name == "bias":
            table = state[f"{attention}.relative_position_bias_table"]
            given = unflatten_table(table, encoding.grid.size)
        elif encoding.name not in own:
            others.append(encoding)
        found.update({f"{path}.{name}": value for name, value in given.items()})
    start_at_zero(others)
    return {**{key: value for key, value in model.state_dict().items() if ".rpe." in key}, **found}


def _depths(names: Mapping[str, Any]) -> tuple[int, ...]:
    stages = count_of(names, r"layers\.(\d+)\.")
    return tuple(count_of(names, rf"layers\.{stage}\.blocks\.(\d+)\.") for stage in range(stages))


def _window(state: Mapping[str, Tensor], prefix: str, otherwise: tuple[int, int]) -> tuple[int, int]:
    """The window of an attention, from the places of its tokens where they are in the file."""
    places = [state.get(f"{prefix}rope_t_{axis}") for axis in "yx"]
    height, width = (
        side if each is None else int(each.max()) + 1 for each, side in zip(places, otherwise, strict=True)
    )
    return height, width


def _is_axial(speeds: Tensor) -> bool:
    """Whether the first half of the pairs knows the width alone, and the second the height."""
    half = speeds.shape[2] // 2
    return float(speeds[1, :, :half].abs().max()) == 0 and float(speeds[0, :, half:].abs().max()) < 1e-6


def _reordered(rows: Tensor, num_heads: int, layout: Layout) -> Tensor:
    """Rows of ``qkv`` with the channels of q and k in our order."""
    heads = rows.unflatten(0, (3, num_heads, -1))
    channels = source_channels(heads.shape[2], layout).to(rows.device)
    return torch.cat([heads[:2].index_select(2, channels), heads[2:]]).flatten(0, 2)


def _check_size(grid: tuple[int, int], window: tuple[int, int], stages: int) -> None:
    """Raise ValueError where one short side makes their code cut smaller windows, or shift none, along both axes."""
    for stage in range(stages):
        height, width = grid[0] >> stage, grid[1] >> stage
        if height != width and min(height, width) <= max(window):
            raise ValueError(
                f"stage {stage} has {height} x {width} tokens, and the code of {NAME} cuts windows of the shorter side "
                f"there, without a shift, where timm's Swin has {window[0]} x {window[1]}: take larger or square images"
            )
