"""The five images that come with the package: ``python docs/make/sample_digits.py``.

Digits drawn by pen strokes and made as small as scikit-learn's, so that what was trained on those reads these.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw

FOLDER = Path(__file__).resolve().parents[2] / "vit_rpe" / "samples"
STROKES = {
    "zero": [[(3.6, 0.9), (5.3, 1.7), (5.8, 4), (5.2, 6.4), (3.8, 7.2), (2.5, 6.2), (2.2, 4), (2.7, 1.7), (3.6, 0.9)]],
    "two": [
        [(2.2, 2.2), (3.2, 1), (4.8, 1.3), (5.1, 2.8), (4.2, 4.4), (2.4, 6.6)],
        [(2.4, 6.6), (3.6, 6.7), (6.2, 6.8)],
    ],
    "four": [[(3.9, 0.7), (2.8, 2.8), (1.8, 4.6), (3.6, 4.9), (6.2, 4.7)], [(4.9, 3.0), (4.6, 5.2), (4.4, 7.3)]],
    "six": [
        [(4.2, 0.8), (3.0, 2.8), (2.4, 4.8), (2.8, 6.6), (4.2, 7.2), (5.5, 6.2), (5.2, 4.8), (3.9, 4.4), (2.6, 5.2)]
    ],
    "seven": [[(2.0, 1.2), (3.8, 1.2), (5.6, 1.1), (4.8, 3.2), (3.6, 7.2)], [(2.6, 4.2), (4.0, 4.2), (5.6, 4.1)]],
}
"""Lines through points (x, y) of a field of 8 x 8."""
SCALE = 32


def main() -> None:
    """Draw and write them."""
    FOLDER.mkdir(exist_ok=True)
    for name, lines in STROKES.items():
        large = Image.new("L", (8 * SCALE, 8 * SCALE))
        draw = ImageDraw.Draw(large)
        for line in lines:
            draw.line([(x * SCALE, y * SCALE) for x, y in line], fill=255, width=round(1.15 * SCALE), joint="curve")
            for x, y in (line[0], line[-1]):
                radius = 0.57 * SCALE
                place = (x * SCALE - radius, y * SCALE - radius, x * SCALE + radius, y * SCALE + radius)
                draw.ellipse(place, fill=255)
        large.resize((8, 8), Image.Resampling.BOX).save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
