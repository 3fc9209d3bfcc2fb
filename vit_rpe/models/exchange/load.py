"""The filter that timm calls on the weights of a file before it loads them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from timm.layers import to_2tuple
from torch import Tensor

from vit_rpe.models.backbone.loading import KERNEL, Grid, check_rows, fit_sharing, grid_of_tables, with_grid
from vit_rpe.models.exchange.complete import HEAD, require_all
from vit_rpe.models.exchange.describe import Description
from vit_rpe.models.exchange.placing import encodings_inside, place
from vit_rpe.models.exchange.positions import Layout
from vit_rpe.models.exchange.weights import is_foreign, rename, unwrap
from vit_rpe.models.vision.patches import patch_grid


def checkpoint_filter(
    state_dict: Mapping[str, object], model: Any, *, source: Description | None = None
) -> OrderedDict[str, Tensor]:
    """The weights of a file of timm's or ours, for a :class:`VisionTransformer`, with the grid that they are from.

    Args:
        state_dict: as read from the file.
        source: the public architecture the file belongs to, for files of timm's; None for our own.

    Raises:
        ValueError: another number of heads, a rotary file whose layout is unknown, a table or embedding whose grid is
            neither stored nor given, weights that do not fill the model.
    """
    state = unwrap(state_dict)
    foreign = is_foreign(state)
    if foreign and source is None and any("rotate_q" in part.card.adds for _, _, part in encodings_inside(model)):
        raise ValueError(
            "these weights are laid out as timm lays them out, and the order of their rotary channels is not stored: "
            "load them through the entry point of their architecture, or with vit_rpe.from_timm"
        )
    heads, stored = head_count(model), stored_heads(model, state, source)
    if stored not in (None, heads):
        raise ValueError(f"the weights have {stored} heads, the model {heads}")
    layout = source.layout if source is not None and foreign else Layout()
    trained_with = None if source is None or not foreign else source.trained_with
    weights = rename(state, heads, layout)
    own = fit_sharing(weights.plain, model.state_dict())
    grid = grid_of_tables(model, own) or stored_grid(model, state)
    placed = place(weights, model, grid, trained_with=trained_with)
    require_all(placed, model, except_for=HEAD)
    if "pos_embed" in placed and model.pos_embed is not None:
        check_rows(placed["pos_embed"], grid, model.pos_embed.shape[1] - model.grid.num_patches)
    return with_grid(placed, grid)


def head_count(model: Any) -> int:
    """Attention heads of every block."""
    return int(model.blocks[0].attn.num_heads)


def stored_heads(model: Any, state: Mapping[str, Tensor], source: Description | None) -> int | None:
    """Heads of the model a file is from: stored with it, or those of its public architecture if it has its width."""
    args = {**getattr(model, "pretrained_model_args", {})}
    kernel = state.get("patch_embed.proj.weight")
    if "num_heads" not in args and source is not None and kernel is not None:
        args = source.args if kernel.shape[0] == source.args["embed_dim"] else {}
    return args.get("num_heads")


def stored_grid(model: Any, state: Mapping[str, Tensor]) -> Grid | None:
    """The token grid a file was trained on, from the configuration stored with it and its patch kernel."""
    kernel = state.get(KERNEL)
    stored = getattr(model, "pretrained_model_args", {})
    size = stored.get("img_size") or (getattr(model, "pretrained_cfg", {}).get("input_size") or (3,))[1:]
    if kernel is None or kernel.ndim != 4 or not size:
        return None
    padded = stored.get("dynamic_img_pad", model.patch_embed.dynamic_img_pad)
    return patch_grid(to_2tuple(size), (kernel.shape[2], kernel.shape[3]), padded=padded)
