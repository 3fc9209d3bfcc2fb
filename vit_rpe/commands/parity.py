"""Compare converted models with timm's own, on random weights: the table in docs/timm.md.

Each architecture is built by timm, filled with large random weights, converted with ``vit_rpe.from_timm`` and run on
the same random images, square and not. The numbers are the largest absolute differences; nothing is downloaded.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from vit_rpe.checks import check_count
from vit_rpe.commands._coverage_table import print_coverage, print_families
from vit_rpe.commands._export_table import print_export_table
from vit_rpe.commands._maps_table import print_maps
from vit_rpe.commands._options import Renamed

__all__ = ["PATHS", "Difference", "add_arguments", "compare", "run"]

PATHS: dict[str, tuple[str, ...]] = {
    "plain ViT (AugReg)": ("vit_tiny_patch16_224", "vit_small_patch16_224"),
    "DeiT, DeiT-III": ("deit_tiny_patch16_224", "deit3_small_patch16_224"),
    "DINOv2, with and without registers": ("vit_small_patch14_dinov2", "vit_small_patch14_reg4_dinov2"),
    "CLIP image tower": ("vit_base_patch32_clip_224",),
    "relative position MLP (relpos, srelpos)": ("vit_relpos_small_patch16_224", "vit_srelpos_small_patch16_224"),
    "the same with class token": ("vit_relpos_medium_patch16_cls_224", "vit_relpos_base_patch16_clsgap_224"),
    "table with class token (BEiT, BEiT v2)": ("beit_base_patch16_224", "beitv2_base_patch16_224"),
    "axial rotary (SBB)": ("vit_medium_patch16_rope_reg1_gap_256", "vit_betwixt_patch16_rope_reg4_gap_256"),
    "axial rotary (RoPE-ViT), with and without embedding": (
        "vit_small_patch16_rope_224",
        "vit_small_patch16_rope_ape_224",
    ),
    "mixed rotary, with and without embedding": (
        "vit_small_patch16_rope_mixed_224",
        "vit_small_patch16_rope_mixed_ape_224",
    ),
    "normalised rotary with registers (DINOv3)": (
        "vit_small_patch16_dinov3",
        "vit_small_plus_patch16_dinov3",
        "vit_small_patch16_dinov3_qkvb",
        "vit_tiny_patch16_dinov3_qkvb",
    ),
    "EVA-02 and its CLIP tower": ("eva02_tiny_patch14_336", "eva02_base_patch16_clip_224"),
    "LingBot": ("vit_small_patch16_lingbot",),
}


@dataclass(frozen=True)
class Difference:
    """Largest absolute differences between timm's model and ours, and the largest logit for scale."""

    logits: float
    features: float
    scale: float


def compare(name: str, grid: tuple[int, int], *, seed: int = 0, **changes: Any) -> Difference:
    """Build, convert and run one architecture.

    Args:
        name: in timm.
        grid: patches (height, width) of the images.
        changes: arguments of timm's model, such as fewer blocks than the architecture has; None for its own.
    """
    import timm
    import torch

    import vit_rpe
    from vit_rpe.models.exchange.coverage import randomize

    embed: Any = timm.create_model(name, device="meta").patch_embed
    patch = embed.patch_size
    size = tuple(count * side for count, side in zip(grid, patch, strict=True))
    args: dict[str, Any] = {"img_size": size, "num_classes": 11, **changes}
    theirs: Any = timm.create_model(name, **args).eval()
    randomize(theirs, seed)
    ours: Any = vit_rpe.from_timm(theirs)
    images = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(seed + 1))
    with torch.no_grad():
        logits, features = theirs(images), theirs.forward_features(images)
        return Difference(
            logits=float((ours(images) - logits).abs().max()),
            features=float((ours.forward_features(images) - features).abs().max()),
            scale=float(logits.abs().max()),
        )


GRID = (6, 9)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--depth", type=int, metavar="N", help="blocks a model; default: all of the architecture")
    parser.add_argument("--grid", type=int, nargs=2, metavar=("H", "W"), help=f"patches, default {GRID[0]} {GRID[1]}")
    parser.add_argument("--export", action="store_true", help="instead: ViT-S/16 with every encoding in ONNX Runtime")
    parser.add_argument(
        "--coverage", action="store_true", help="instead: timm's files with a relative or rotary position"
    )
    parser.add_argument(
        "--maps", action="store_true", help="instead: recorded attention maps of every family against its own softmax"
    )
    parser.add_argument("--families", nargs="+", metavar="NAME", help="with --maps: only these, or a package's")
    parser.add_argument("--architectures", nargs="+", metavar="NAME", help="with --coverage: only these")
    parser.add_argument("--encodings", nargs="+", metavar="NAME", help="with --export: only these")
    parser.add_argument("--rpe", dest="encodings", nargs="+", action=Renamed, new="--encodings")


def run(args: argparse.Namespace) -> int:
    """Print one row an import path and one a family of ``replace_attention``, or with ``--export`` one an encoding, in
    Markdown.

    Returns:
        The exit status: 1 where ``--coverage`` finds a file that is not exact.

    Raises:
        ValueError: an unknown encoding, no blocks or patches, or an option of the other table.
    """
    from vit_rpe.encodings import encoding_class

    for number in (args.depth, *(args.grid or ())):
        if number is not None:
            check_count("--depth and --grid", number)
    if args.encodings and not args.export:
        raise ValueError("--encodings goes with --export: the other table compares architectures of timm")
    if args.grid and args.export:
        raise ValueError("--grid does not go with --export: that table has images of 224 x 224 pixels")
    if args.coverage and (args.export or args.depth or args.grid):
        raise ValueError("--coverage takes every architecture at a size of its own: no --export, --depth or --grid")
    if args.architectures and not args.coverage:
        raise ValueError("--architectures goes with --coverage")
    if args.maps and (args.coverage or args.export or args.depth or args.grid):
        raise ValueError("--maps takes small models of its own: no --coverage, --export, --depth or --grid")
    if args.families and not args.maps:
        raise ValueError("--families goes with --maps")
    for name in args.encodings or []:
        encoding_class(name)
    if args.maps:
        print_maps(args.families)
        return 0
    if args.coverage:
        return 0 if print_coverage(args.architectures) else 1
    if args.export:
        print_export_table(args.encodings, args.depth)
        return 0
    wide = tuple(args.grid or GRID)
    square = (wide[0], wide[0])
    print("| import path | architectures | logits, square | logits, non-square | features | largest logit |")
    print("|---|---|---|---|---|---|")
    for path, names in PATHS.items():
        on_square = [compare(name, square, depth=args.depth) for name in names]
        on_wide = [compare(name, wide, depth=args.depth) for name in names]
        both = on_square + on_wide
        print(
            f"| {path} | {', '.join(f'`{name}`' for name in names)} "
            f"| {max(row.logits for row in on_square):.1e} | {max(row.logits for row in on_wide):.1e} "
            f"| {max(row.features for row in both):.1e} | {max(row.scale for row in both):.1f} |",
            flush=True,
        )
    print_families()
    return 0
