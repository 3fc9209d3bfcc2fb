"""Weights of timm's models, renamed and laid out as ours.

Parameters of position encodings are set apart: they are placed by ``placing.py``, which knows the model they go to.

Legend: H heads, D head width, C = H D channels, R rows of a flat table.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from vit_rpe.models.exchange.positions import Layout

DROPPED = re.compile(
    r"(^|\.)(relative_position_index|rel_coords_log|attn_mask|k_bias|mask_token)$"
    r"|^rope\.(periods|bands|pos_embed)|^pre_logits"
)
RENAMED = (
    (re.compile(r"(^|\.)gamma_([12])$"), r"\1ls\2.gamma"),
    (re.compile(r"^register_tokens$"), "reg_token"),
    (re.compile(r"\.mlp\.w12\."), ".mlp.fc1."),
    (re.compile(r"\.mlp\.w3\."), ".mlp.fc2."),
)
PREFIXES = ("module.", "_orig_mod.", "visual.trunk.", "trunk.")
MLP_ENCODING = re.compile(r"^(?:blocks\.(\d+)\.attn\.rel_pos|shared_rel_pos)\.mlp\.(fc[12]\.(?:weight|bias))$")
FLAT_TABLE = re.compile(
    r"^(?:blocks\.(\d+)\.attn(?:\.rel_pos)?|shared_rel_pos|rel_pos_bias)\.relative_position_bias_table$"
)


class Placed(NamedTuple):
    """Whose parameter a tensor is: the encoding's name, its parameter, and the layer (None: shared by all)."""

    encoding: str
    parameter: str
    layer: int | None


class Weights(NamedTuple):
    """A converted file: what has our names already, and the encodings' parameters (flat tables still flat)."""

    plain: dict[str, Tensor]
    encodings: dict[Placed, Tensor]


def unwrap(state_dict: Mapping[str, object]) -> dict[str, Tensor]:
    """The weights inside a training checkpoint, without the prefixes that wrappers add; what torch says of modules
    beside them (``_metadata``: the sizes they were trained on) stays beside them.

    Raises:
        ValueError: there are no tensors inside.
    """
    for key in ("state_dict_ema", "model_ema", "state_dict", "model", "module"):
        inner = state_dict.get(key)
        if isinstance(inner, Mapping):
            state_dict = inner
    told: dict[str, object] = dict(getattr(state_dict, "_metadata", None) or {})
    tensors = {key: value for key, value in state_dict.items() if isinstance(value, Tensor)}
    if not tensors:
        raise ValueError(f"the checkpoint holds no tensors, only: {', '.join(map(str, list(state_dict)[:5]))}")
    for prefix in PREFIXES:
        if any(key.startswith(prefix) for key in tensors):
            tensors = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            told = {f"{path}.".removeprefix(prefix).rstrip("."): value for path, value in told.items()}
    found = OrderedDict(tensors)
    if told:
        found._metadata = OrderedDict(told)  # type: ignore[attr-defined]
    return found


def is_foreign(state_dict: Mapping[str, Tensor]) -> bool:
    """Whether rotary weights are still in the layout of another library (our own files never have these names)."""
    marks = re.compile(r"(^|\.)(gamma_1|q_bias|q_proj\.weight|rope\.freqs)$")
    return any(marks.search(key) for key in state_dict)


def rename(state_dict: Mapping[str, Tensor], num_heads: int, layout: Layout) -> Weights:
    """Give timm's weights our names and layout.

    Args:
        state_dict: unwrapped weights of a timm model, or of ours (which stay as they are).
        num_heads: H of the model the weights are from.
        layout: how rotary weights are laid out in it.
    """
    plain: dict[str, Tensor] = {}
    encodings: dict[Placed, Tensor] = {}
    for key, value in _merge_class_row(state_dict).items():
        if DROPPED.search(key):
            continue
        for pattern, new in RENAMED:
            key = pattern.sub(new, key)
        mlp, table = MLP_ENCODING.match(key), FLAT_TABLE.match(key)
        if mlp is not None:
            encodings[Placed("cpb", mlp[2], _layer(mlp[1]))] = value
        elif table is not None:
            encodings[Placed("bias", "table", _layer(table[1]))] = value
        elif key == "rope.freqs":
            for layer, frequencies in enumerate(value.unbind(1)):  # (2, H, D/2) each
                own = frequencies.flip(0) if layout.width_first else frequencies
                encodings[Placed("rope_mixed", "frequencies", layer)] = own
        else:
            plain[key] = value
    return Weights(_rotate_rows(_join_projections(plain), num_heads, layout), encodings)


def _layer(text: str | None) -> int | None:
    return None if text is None else int(text)


def _merge_class_row(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """DINOv2's own files with registers embed the class token's position too: add that row to the token itself."""
    if "register_tokens" not in state:
        return state
    rows = state["pos_embed"]
    return {**state, "cls_token": state["cls_token"] + rows[:, :1], "pos_embed": rows[:, 1:]}


def _join_projections(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """q, k and v, or their biases, kept apart in the file, as one ``qkv``; a missing key bias is zero."""
    joined: dict[str, Tensor] = {}
    for key, value in state.items():
        stem, _, last = key.rpartition(".")
        if last == "q_bias":
            joined[f"{stem}.qkv.bias"] = torch.cat([value, torch.zeros_like(value), state[f"{stem}.v_bias"]])
        elif key.endswith(".q_proj.weight"):
            stem = stem.removesuffix(".q_proj")
            parts = [state[f"{stem}.{part}_proj.weight"] for part in "qkv"]
            joined[f"{stem}.qkv.weight"] = torch.cat(parts)
        elif key.endswith(".q_proj.bias"):
            stem = stem.removesuffix(".q_proj")
            given = [state.get(f"{stem}.{part}_proj.bias") for part in "qkv"]
            joined[f"{stem}.qkv.bias"] = torch.cat([torch.zeros_like(value) if b is None else b for b in given])
        elif last != "v_bias" and not re.search(r"\.[kv]_proj\.(weight|bias)$", key):
            joined[key] = value
    return joined


def source_channels(head_dim: int, layout: Layout) -> Tensor:
    """Which channel of a file's head becomes each channel of ours, int64 (D,)."""
    pair = torch.arange(head_dim // 2)
    if layout.width_first and layout.per_axis:
        pair = torch.cat([pair[head_dim // 4 :], pair[: head_dim // 4]])
    if layout.interleaved:
        return torch.cat([2 * pair, 2 * pair + 1])
    return torch.cat([pair, pair + head_dim // 2])


def _rotate_rows(state: dict[str, Tensor], num_heads: int, layout: Layout) -> dict[str, Tensor]:
    """Reorder the channels of q and k so that rotary pairs lie as ours do; dot products are unchanged."""
    if layout in (Layout(), Layout(width_first=True, per_axis=False)):
        return state
    for key, value in state.items():
        if re.search(r"\.attn\.qkv\.(weight|bias)$", key):
            heads = value.unflatten(0, (3, num_heads, -1))  # (3, H, D, ...)
            channels = source_channels(heads.shape[2], layout).to(value.device)
            heads = torch.cat([heads[:2].index_select(2, channels), heads[2:]])
            state[key] = heads.flatten(0, 2)
        elif re.search(r"\.attn\.[qk]_norm\.(weight|bias)$", key):
            state[key] = value.index_select(0, source_channels(value.shape[0], layout).to(value.device))
    return state
