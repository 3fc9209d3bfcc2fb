"""The position encodings of timm's models, as ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from timm.layers import RelPosBias, RelPosMlp, RotaryEmbeddingCat, RotaryEmbeddingDinoV3, RotaryEmbeddingMixed

from vit_rpe.models.exchange.parts import cannot_express, require


@dataclass(frozen=True)
class Layout:
    """How a file lays out what ours lays out otherwise.

    Attributes:
        interleaved: rotary pairs are channels (2t, 2t + 1); ours are (t, t + D/2).
        width_first: the angles of the second axis come first ("xy"); ours go by axis.
        per_axis: the two halves of the angles belong one to each axis (axial), not all to both (mixed).
    """

    interleaved: bool = False
    width_first: bool = False
    per_axis: bool = True


Position = tuple[dict[str, Any], Layout]


def relpos_position(model: Any, name: str) -> Position:
    """Log-coordinate MLP -> ``cpb``, table -> ``bias``; shared or in every layer."""
    shared = model.shared_rel_pos is not None
    encoding = model.shared_rel_pos if shared else model.blocks[0].attn.rel_pos
    if isinstance(encoding, RelPosMlp):
        modes = {"cr": "log", "swin": "swinv2"}
        require(encoding.mode in modes, name, f"the relative position MLP mode {encoding.mode!r}")
        require(tuple(encoding.pretrained_window_size) == (0, 0), name, "a pretrained_window_size")
        spec = {"name": "cpb", "mode": modes[encoding.mode], "hidden": encoding.mlp.fc1.out_features}
    elif isinstance(encoding, RelPosBias):
        spec = {"name": "bias", "prefix": "learned" if encoding.prefix_tokens else "zero"}
    else:
        raise cannot_express(name, f"a relative position of type {type(encoding).__name__}")
    return {"rpe": spec, "rpe_shared": shared}, Layout()


def beit_position(model: Any, name: str) -> Position:
    """Table with class token entries -> ``bias`` with learned prefix; shared or in every layer."""
    shared = model.rel_pos_bias is not None
    layerwise = model.blocks[0].attn.relative_position_bias_table is not None
    require(not (shared and layerwise), name, "a shared table and one in every layer at once")
    if not shared and not layerwise:
        return {"rpe": "none"}, Layout()
    return {"rpe": {"name": "bias", "prefix": "learned"}, "rpe_shared": shared}, Layout()


def eva_position(model: Any, name: str) -> Position:
    """Axial -> ``rope``, mixed -> ``rope_mixed``, DINOv3 -> ``rope_normalized``."""
    rope = model.rope
    if rope is None:
        return {"rpe": "none"}, Layout()
    if isinstance(rope, RotaryEmbeddingCat):
        require(not rope.in_pixels, name, "rotary frequencies in pixels")
        spec: dict[str, Any] = {"name": "rope", "base": float(rope.temperature)}
        if rope.ref_feat_shape is not None:
            spec["reference"] = tuple(rope.ref_feat_shape)
    elif isinstance(rope, RotaryEmbeddingMixed):
        spec = {"name": "rope_mixed", "base": float(rope.temperature)}
    elif isinstance(rope, RotaryEmbeddingDinoV3):
        require(rope.temperature is not None and rope.min_period is None, name, "rotary periods given by their ends")
        assert rope.temperature is not None
        spec = {"name": "rope_normalized", "base": float(rope.temperature), "normalize": rope.normalize_coords}
        changes = {"shift": rope.shift_coords, "jitter": rope.jitter_coords, "rescale": rope.rescale_coords}
        spec.update({key: value for key, value in changes.items() if value is not None})
    else:
        raise cannot_express(name, f"a rotary embedding of type {type(rope).__name__}")
    offset = float(getattr(rope, "grid_offset", 0.0))
    require(offset == 0.0 or isinstance(rope, RotaryEmbeddingCat), name, "a rotary grid offset")
    if offset != 0.0:
        spec["origin"] = offset
    augmented = getattr(rope, "aug_active", False) and not isinstance(rope, RotaryEmbeddingDinoV3)
    require(not augmented, name, "random rotary coordinates in training")
    layout = Layout(
        interleaved=not getattr(model.blocks[0].attn, "rotate_half", False),
        width_first=rope.grid_indexing == "xy",
        per_axis=not isinstance(rope, RotaryEmbeddingMixed),
    )
    return {"rpe": spec}, layout
