"""Frequencies of rotary encodings: along which directions pairs of channels turn, how fast, and on which coordinates.

A pair of channels turns by the angle f . x, x the coordinates of its token. ``layout`` says along which directions the
F = D/2 vectors f point; speeds fall geometrically from ``fastest`` (radians a step) by the ratio ``base``.

Legend: n axes, H heads, F = D/2 pairs, M speeds of a layout, S/P tokens along an axis/of the grid, N with prefix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.geometry_cache import once_per_forward

LAYOUTS = ("axial", "spiral", "golden", "simplex")
Rotation = tuple[Tensor, Tensor]
Directions = list[list[list[float]]]


def speeds(count: int, base: float, fastest: float = 1.0, zero_share: float = 0.0, device: Device = None) -> Tensor:
    """Radians per step for every pair of channels: fastest base^(-m / count), m = 0 ... count - 1, float32.

    The last round(zero_share count) pairs do not turn.
    """
    steps = torch.arange(count, device=device, dtype=torch.float32)
    found = fastest * base ** (-steps / count)
    still = round(zero_share * count)
    return F.pad(found[: count - still], (0, still)) if still else found


def axial_vectors(speed: Tensor, axes: int) -> Tensor:
    """Give every axis pairs of channels of its own, turning at the same speeds: (M,) to (n, 1, n M)."""
    count = speed.shape[0]
    rows = [F.pad(speed, (axis * count, (axes - 1 - axis) * count)) for axis in range(axes)]
    return torch.stack(rows)[:, None]


def spiral_directions(pairs: int, directions: int) -> Directions:
    """Spiral RoPE: half of the pairs lies along rows turned by phi, half along columns turned by phi; (2, 1, F).

    Args:
        directions: K over the half turn; pair m of a half has phi = 90 degrees (floor(m/2) mod K/2) / (K/2).
    """
    steps = directions // 2
    turned = [math.pi / 2 * (pair // 2 % steps) / steps for pair in range(pairs // 2)]
    rows, columns = [math.cos(phi) for phi in turned], [math.sin(phi) for phi in turned]
    return [[rows + [-value for value in columns]], [columns + rows]]


def golden_directions(axes: int, num_heads: int, pairs: int) -> Directions:
    """Golden-gate RoPE: evenly spread directions, all different over pairs and heads; (n, H, F).

    The root g > 1 of g^(n+1) = g + 1 gives a sequence that fills the n-dimensional cube evenly; through the inverse
    normal distribution it fills the sphere.
    """
    golden = 2.0
    for _ in range(64):
        golden = (1 + golden) ** (1 / (axes + 1))
    points = []
    for number in range(1, num_heads * pairs + 1):
        point = [NormalDist().inv_cdf(number * golden**-axis % 1.0) for axis in range(1, axes + 1)]
        norm = math.hypot(*point)
        points.append([value / norm for value in point])
    heads = [points[head * pairs : (head + 1) * pairs] for head in range(num_heads)]
    return [[[point[axis] for point in own] for own in heads] for axis in range(axes)]


def simplex_corners(axes: int) -> list[list[float]]:
    """The n + 1 unit vectors of a regular simplex, the first along axis 0; in 1-D that one alone."""
    if axes == 1:
        return [[1.0]]
    return _corners(axes)


def _corners(axes: int) -> list[list[float]]:
    if axes == 1:
        return [[1.0], [-1.0]]
    width = math.sqrt(1 - 1 / axes**2)
    return [[1.0] + [0.0] * (axes - 1)] + [[-1 / axes] + [width * x for x in corner] for corner in _corners(axes - 1)]


def layout_directions(layout: str, *, axes: int, num_heads: int, pairs: int, directions: int) -> Directions:
    """Unit vectors along which the pairs of a layout turn, numbers (n, H or 1, F); the simplex has its corners only.

    Args:
        directions: K of the spiral.
    """
    if layout == "spiral":
        return spiral_directions(pairs, directions)
    if layout == "golden":
        return golden_directions(axes, num_heads, pairs)
    corners = simplex_corners(axes) if layout == "simplex" else []
    return [[[corner[axis] for corner in corners]] for axis in range(axes)]


def fixed_vectors(
    layout: str,
    directions: Directions,
    *,
    pairs: int,
    base: float,
    fastest: float,
    zero_share: float,
    device: Device = None,
) -> Tensor:
    """The vectors f of a layout, float32 (n, H or 1, F).

    Args:
        directions: from :func:`layout_directions`, made once: compilation does not follow how.
    """
    axes = len(directions)
    if layout == "axial":
        return axial_vectors(speeds(pairs // axes, base, fastest, zero_share, device), axes)
    units = torch.tensor(directions, device=device)
    if layout == "spiral":
        return units * speeds(pairs // 2, base, fastest, zero_share, device).repeat(2)
    if layout == "golden":
        return units * rising_speeds(pairs, base, fastest, zero_share, device)
    speed = speeds(pairs // units.shape[-1], base, fastest, zero_share, device)
    vectors = (units[..., None] * speed).flatten(2)  # (n, 1, (n + 1) S)
    return F.pad(vectors, (0, pairs - vectors.shape[-1]))


def rising_speeds(count: int, base: float, fastest: float, zero_share: float, device: Device = None) -> Tensor:
    """From fastest / base up to fastest, after round(zero_share count) that stand still, float32 (count,)."""
    still = round(zero_share * count)
    last = count - still - 1
    steps = torch.arange(-last, 1, device=device, dtype=torch.float32)
    return F.pad(fastest * base ** (steps / max(last, 1)), (still, 0))


@once_per_forward
def places(grid: TokenGrid, axis: int, device: Device, dtype: torch.dtype) -> Tensor:
    """Lattice coordinates along one axis, (S,)."""
    return grid.axis_positions(axis, device).to(dtype)


def rotation(vectors: Tensor, coordinates: Sequence[Tensor], num_prefix: int) -> Rotation:
    """cos and sin of all tokens' angles, (H, N, F); the prefix comes first and has angle 0.

    Sums of products, not matrix products: autocast leaves those alone.

    Args:
        vectors: f, (n, H, F).
        coordinates: x along each axis, (S,).
    """
    angles = [x[:, None] * speed[:, None, :] for x, speed in zip(coordinates, vectors.unbind(0), strict=True)]
    learning = vectors.requires_grad and torch.is_grad_enabled()
    return with_prefix_angles(_of_sum(angles) if learning else _joined(angles), num_prefix)


def with_prefix_angles(turned: Rotation, num_prefix: int) -> Rotation:
    """Angle 0 for the prefix tokens in front: (H, P, F) -> (H, N, F)."""
    if num_prefix == 0:
        return turned
    cos, sin = turned
    return F.pad(cos, (0, 0, num_prefix, 0), value=1.0), F.pad(sin, (0, 0, num_prefix, 0))


def _of_sum(angles: list[Tensor]) -> Rotation:
    """cos and sin of a sum of angles (H, S, F), one an axis, for all tuples of coordinates: (H, P, F)."""
    total = angles[0]
    for more in angles[1:]:
        total = (total[:, :, None] + more[:, None]).flatten(1, 2)
    return total.cos(), total.sin()


def _joined(angles: list[Tensor]) -> Rotation:
    """:func:`_of_sum` by cos(a + b) = cos a cos b - sin a sin b: a cosine for each coordinate, not for each token.

    For inference: its gradient costs more than that of the sum.
    """
    cos, sin = angles[0].cos(), angles[0].sin()
    for more in angles[1:]:
        a, b, c, d = cos[:, :, None], sin[:, :, None], more.cos()[:, None], more.sin()[:, None]
        cos, sin = torch.addcmul(a * c, b, d, value=-1), torch.addcmul(a * d, b, c)
        cos, sin = cos.flatten(1, 2), sin.flatten(1, 2)
    return cos, sin


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is above 0."""
    if not value > 0:
        raise ValueError(f"{name} must be positive, got {value!r}")


def as_heads_share(turned: Rotation) -> Rotation:
    """(1, N, F) -> (N, F), where all heads turn alike."""
    cos, sin = turned
    return (cos[0], sin[0]) if cos.shape[0] == 1 else turned
