"""timm's pretrained files with a relative or rotary position: exact, looked at only, or refused with the reason."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vit_rpe.models.exchange.coverage import Differences

__all__ = ["FAMILIES", "Outcome", "outcome_of", "print_coverage", "print_families"]

FAMILIES: dict[str, tuple[str, ...]] = {
    "Swin": ("swin_tiny_patch4_window7_224",),
    "Swin V2": ("swinv2_tiny_window8_256", "swinv2_base_window12to16_192to256"),
    "Swin V2-CR": ("swinv2_cr_tiny_ns_224",),
    "Segment Anything and ViTDet": ("samvit_base_patch16",),
    "MaxViT": ("maxvit_tiny_tf_224", "maxvit_rmlp_pico_rw_256"),
    "CoAtNet": ("coatnet_nano_rw_224", "coatnet_rmlp_nano_rw_224"),
    "MViTv2": ("mvitv2_tiny",),
    "GCViT": ("gcvit_xxtiny",),
    "LeViT": ("levit_128s", "levit_conv_128s"),
    "TinyViT": ("tiny_vit_5m_224",),
    "EfficientViT-M": ("efficientvit_m0",),
    "EfficientFormer": ("efficientformer_l1", "efficientformerv2_s0"),
    "EVA-02 and its CLIP tower": ("eva02_tiny_patch14_224", "eva02_base_patch16_clip_224"),
    "RoPE-ViT, PE, DINOv3": ("vit_small_patch16_rope_224", "vit_pe_core_tiny_patch16_384", "vit_small_patch16_dinov3"),
    "Sapiens2": ("vit_large_patch16_sapiens2",),
    "Qwen3-VL's, DeepSeek's and Gemma 4's towers": ("qwen3_vit_88m", "deepseek_vit_412m", "gemma4_vit_167m"),
}
"""What :func:`vit_rpe.replace_attention` takes, with architectures of timm that stand for the others."""

FLOAT32, FLOAT64 = 1e-4, 1e-9
"""Largest differences of features, relative to the largest feature, that count as exact.
Where leaving position out changes less than the first, the comparison says nothing."""


@dataclass(frozen=True)
class Outcome:
    """What became of one architecture.

    Attributes:
        state: ``"exact"``, ``"looked at only"`` or ``"refused"``.
        route: the function that takes it in; empty where none does.
        differences: of the features; None where none was computed.
        reason: why it is not exact.
    """

    state: str
    route: str = ""
    differences: Differences | None = None
    reason: str = ""


def outcome_of(name: str) -> Outcome:
    """Take one architecture in: names and shapes at full size on the meta device, numbers cut down."""
    import timm

    from vit_rpe.models.exchange.coverage import differences_of, on_meta, reduced_args
    from vit_rpe.viz import record

    reasons = []
    for convert in _routes():
        try:
            taken_in = convert(on_meta(name))
            if convert.__name__ == "replace_attention":
                taken_in.load_state_dict(on_meta(name).state_dict())
            found = differences_of(name, convert)
        except (AssertionError, ValueError, RuntimeError, TypeError) as error:
            reasons.append(str(error).split("\n")[0])
            continue
        if found.without < FLOAT32:
            return Outcome("refused", convert.__name__, found, "position does not matter in this comparison")
        if found.float32 <= FLOAT32 and found.float64 <= FLOAT64:
            return Outcome("exact", convert.__name__, found)
        return Outcome("refused", convert.__name__, found, "differs")
    try:
        with record(timm.create_model(name, **reduced_args(on_meta(name)))):
            return Outcome("looked at only", reason=reasons[0])
    except ValueError:
        return Outcome("refused", reason=reasons[0])


def _routes() -> tuple[Any, ...]:
    import vit_rpe

    return vit_rpe.replace_attention, vit_rpe.from_timm


def print_coverage(names: list[str] | None) -> bool:
    """Print one row an architecture, in Markdown, and the sums.

    Args:
        names: architectures of timm; None for all that have a relative or rotary position.

    Returns:
        Whether every file is exact.
    """
    from vit_rpe.models.exchange.coverage import architectures

    tags = architectures()
    print("| architecture | files | state | by | float32 | float64 | without position | why not |")
    print("|---|---|---|---|---|---|---|---|")
    files: Counter[str] = Counter()
    for name in names or tags:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = outcome_of(name)
        files[found.state] += len(tags.get(name, ("",)))
        numbers = [""] * 3 if found.differences is None else [f"{value:.1e}" for value in found.differences]
        cells = [f"`{name}`", str(len(tags.get(name, ("",)))), found.state, found.route, *numbers, found.reason]
        print("| " + " | ".join(cells) + " |", flush=True)
    print()
    parts = ", ".join(f"{files[state]} {state}" for state in ("exact", "looked at only", "refused"))
    print(f"{sum(files.values())} files: {parts}.")
    return files["exact"] == sum(files.values())


def print_families() -> None:
    """Print one row a family of :func:`vit_rpe.replace_attention`, in Markdown."""
    import vit_rpe
    from vit_rpe.models.exchange.coverage import differences_of

    print()
    print("| family | architectures | features, float32 | features, float64 | without position |")
    print("|---|---|---|---|---|")
    for family, names in FAMILIES.items():
        found = [differences_of(name, vit_rpe.replace_attention) for name in names]
        float32, float64 = max(each.float32 for each in found), max(each.float64 for each in found)
        cells = [family, ", ".join(f"`{name}`" for name in names), f"{float32:.1e}", f"{float64:.1e}"]
        print(f"| {' | '.join(cells)} | {min(each.without for each in found):.1e} |", flush=True)
