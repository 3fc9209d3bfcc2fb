"""Checks of image, patch and pooling options, each with one clear sentence."""

from __future__ import annotations

from numbers import Integral

from vit_rpe.checks import unknown_name

COUNTS = dict.fromkeys(("in_chans", "embed_dim", "depth", "num_heads"), 1)
POOLS = ("", "avg", "avgmax", "max", "token", "map")


def check_divides(img_size: int | tuple[int, int], patch_size: int | tuple[int, int], padded: bool = False) -> None:
    """Raise ValueError unless both sides of the image are whole patches (or ``padded`` to be)."""
    image, patch = _sides(img_size), _sides(patch_size)
    if len(image) != 2 or len(patch) != 2 or any(side < 1 for side in (*image, *patch)):
        raise ValueError(
            "img_size and patch_size must be positive pixels, one number or height and width, "
            f"got {img_size!r} and {patch_size!r}"
        )
    if not padded and any(side % step != 0 for side, step in zip(image, patch, strict=True)):
        raise ValueError(
            f"image height and width must be divisible by the patch, got img_size={image} and patch_size={patch}"
        )


def _sides(size: object) -> tuple[int, ...]:
    """One side as both, two as they are, anything else as nothing."""
    given = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    return given if all(isinstance(side, Integral) and not isinstance(side, bool) for side in given) else ()


def check_pool(global_pool: str, class_token: bool) -> None:
    """Raise ValueError for an unknown pooling, or token pooling without a class token."""
    if global_pool not in POOLS:
        raise unknown_name("global_pool", global_pool, POOLS)
    if global_pool == "token" and not class_token:
        raise ValueError("global_pool='token' needs class_token=True; got class_token=False")
