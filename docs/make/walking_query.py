"""The moving picture of README: ``python docs/make/walking_query.py``.

A query walks over scikit-learn's photograph of a temple; three encodings say where it looks. Nothing is trained: these
are formulas without parameters, and every token holds the same, so that only position tells keys apart.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_sample_image

from vit_rpe import TokenGrid, create_encoding
from vit_rpe.attention import AttentionCall

TARGET = Path(__file__).resolve().parents[1] / "pictures" / "walking_query.webp"
GRID, PATCH, FRAMES = TokenGrid((16, 20)), 15, 48
HEADS, WIDTH = 8, 64
SHOWN = {
    "alibi": (1, "the nearer, the more"),
    "lookhere": (2, "one direction a head"),
    "rope": (0, "turned by the offset"),
}
"""Encodings with the head that is drawn, and what they do."""


def weights(name: str, head: int) -> np.ndarray:
    """Attention of every patch, (queries, rows, columns), of one head, by position alone."""
    tokens = torch.ones(1, HEADS, GRID.num_tokens, WIDTH)
    with torch.no_grad():
        terms = create_encoding(name, HEADS, WIDTH, GRID, depth_index=11, depth=12)(GRID, GRID)
        call = AttentionCall(tokens, tokens, tokens, terms, None, WIDTH**-0.5, lambda out: out)
        return call.weights()[0, head].view(-1, *GRID.size).numpy()


def way(frame: int) -> tuple[int, int]:
    """Where the query stands: once around, in an ellipse."""
    angle = 2 * math.pi * frame / FRAMES
    rows, columns = GRID.size
    return round((rows - 1) * (0.5 + 0.38 * math.sin(angle))), round((columns - 1) * (0.5 + 0.42 * math.cos(angle)))


def panel(photograph: np.ndarray, values: np.ndarray, query: tuple[int, int]) -> Image.Image:
    """The photograph in grey, coloured where the query looks."""
    size = (GRID.size[1] * PATCH, GRID.size[0] * PATCH)
    heat = np.asarray(
        Image.fromarray((values / values.max()).astype(np.float32)).resize(size, Image.Resampling.BICUBIC)
    )
    heat = heat.clip(0, 1)[..., None] ** 0.7
    picture = Image.fromarray(
        ((1 - heat) * photograph * 0.6 + heat * colormaps["inferno"](0.25 + 0.7 * heat[..., 0])[..., :3] * 255).astype(
            np.uint8
        )
    )
    row, column = query
    box = (column * PATCH, row * PATCH, (column + 1) * PATCH - 1, (row + 1) * PATCH - 1)
    ImageDraw.Draw(picture).rectangle(box, outline=(60, 230, 255), width=2)
    return picture


def main() -> None:
    """Draw all frames and write the file."""
    height, width = GRID.size[0] * PATCH, GRID.size[1] * PATCH
    photograph = Image.fromarray(load_sample_image("china.jpg")).convert("L").resize((width, height))
    grey = np.asarray(photograph, dtype=np.float32)[..., None].repeat(3, axis=-1)
    maps = {name: weights(name, head) for name, (head, _) in SHOWN.items()}
    font = ImageFont.load_default(size=14)
    frames = []
    for frame in range(FRAMES):
        row, column = way(frame)
        page = Image.new("RGB", (3 * width + 20, height + 52), (16, 18, 24))
        draw = ImageDraw.Draw(page)
        for number, (name, (_, words)) in enumerate(SHOWN.items()):
            left = number * (width + 10)
            draw.text((left + 4, 5), f"{name}: {words}", fill=(235, 235, 235), font=font)
            page.paste(panel(grey, maps[name][row * GRID.size[1] + column], (row, column)), (left, 28))
        line = "Where the marked patch looks by position alone: one head each, nothing trained"
        draw.text((4, height + 31), line, fill=(160, 165, 175), font=font)
        frames.append(page)
    frames[0].save(TARGET, save_all=True, append_images=frames[1:], duration=90, loop=0, quality=55, method=4)
    print(TARGET, f"{TARGET.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
