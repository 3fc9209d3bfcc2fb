"""Published vision transformers in plain loops, in float64, from their formulas; weights have the names of their files.

``Meet`` says what two tokens make of each other: (layer, head, i, j, q_i, k_j) -> logit, None where j is hidden.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Weights = dict[str, Tensor]
Meet = Callable[[int, int, int, int, Tensor, Tensor], Tensor | None]
Extra = Callable[[int, int, int], Tensor]


def linear(x: Tensor, weights: Weights, name: str) -> Tensor:
    bias = weights.get(f"{name}.bias")
    return x @ weights[f"{name}.weight"].T + (0 if bias is None else bias)


def normed(x: Tensor, weights: Weights, name: str, eps: float) -> Tensor:
    """Layer norm, or root mean square norm where there is no bias."""
    bias = weights.get(f"{name}.bias")
    if bias is None:
        return weights[f"{name}.weight"] * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    centred = x - x.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    return weights[f"{name}.weight"] * centred / scale + bias


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def patches(image: Tensor, weights: Weights) -> Tensor:
    """Rows of patches first, (P, C)."""
    kernel, bias = weights["patch_embed.proj.weight"], weights["patch_embed.proj.bias"]
    high, wide = kernel.shape[2:]
    found = []
    for top in range(0, image.shape[1], high):
        for left in range(0, image.shape[2], wide):
            patch = image[:, top : top + high, left : left + wide]
            found.append((kernel * patch).sum((1, 2, 3)) + bias)
    return torch.stack(found)


def attention(
    x: Tensor, weights: Weights, layer: int, heads: int, meet: Meet, before: Callable | None, extra: Extra | None
) -> Tensor:
    """Tokens (N, C); ``before`` changes q and k first, ``extra`` is a vector that joins a value."""
    name = f"blocks.{layer}.attn"
    q, k, v = linear(x, weights, f"{name}.qkv").unflatten(1, (3, heads, -1)).permute(1, 2, 0, 3)
    if before is not None:
        q, k = before(layer, q, "q"), before(layer, k, "k")
    rows = []
    for head in range(heads):
        for i in range(len(x)):
            seen = {j: meet(layer, head, i, j, q[head, i], k[head, j]) for j in range(len(x))}
            seen = {j: logit for j, logit in seen.items() if logit is not None}
            values = torch.stack([v[head, j] if extra is None else v[head, j] + extra(layer, i, j) for j in seen])
            rows.append(torch.stack(list(seen.values())).softmax(0) @ values)
    joined = torch.stack(rows).unflatten(0, (heads, len(x))).transpose(0, 1).flatten(1)
    return linear(joined, weights, f"{name}.proj")


def encoded(
    x: Tensor,
    weights: Weights,
    heads: int,
    meet: Meet,
    *,
    eps: float,
    before: Callable | None = None,
    extra: Extra | None = None,
) -> Tensor:
    """Tokens through all blocks and the last norm; a branch is scaled where the file has a scale for it."""
    depth = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
    for layer in range(depth):
        name = f"blocks.{layer}"
        first = attention(normed(x, weights, f"{name}.norm1", eps), weights, layer, heads, meet, before, extra)
        x = x + scale(weights, name, 1) * first
        hidden = gelu(linear(normed(x, weights, f"{name}.norm2", eps), weights, f"{name}.mlp.fc1"))
        x = x + scale(weights, name, 2) * linear(hidden, weights, f"{name}.mlp.fc2")
    return normed(x, weights, "norm", eps)


def scale(weights: Weights, name: str, branch: int) -> Tensor | float:
    return next((weights[key] for key in (f"{name}.gamma_{branch}", f"{name}.ls{branch}.gamma") if key in weights), 1.0)


def draw(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> Weights:
    """Random weights that matter: matrices by their width, everything of position large."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {}
    for name, shape in shapes.items():
        spread = 1.0 if "lookup" in name or len(shape) < 2 else math.prod(shape[1:]) ** -0.5
        drawn[name] = torch.randn(shape, generator=generator) * (spread if "pos_embed" not in name else 1.0)
    return drawn


def shapes_of_vit(
    dim: int, depth: int, patch: tuple[int, int], classes: int, *, bias: bool = True, qkv_bias: bool = True
) -> dict[str, tuple[int, ...]]:
    """Names and shapes that DeiT's code gives; ``bias`` of the norms."""
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, dim),
        "patch_embed.proj.weight": (dim, 3, *patch),
        "patch_embed.proj.bias": (dim,),
    }
    for layer in range(depth):
        name = f"blocks.{layer}"
        for norm in ("norm1", "norm2"):
            shapes[f"{name}.{norm}.weight"] = (dim,)
        shapes[f"{name}.attn.qkv.weight"] = (3 * dim, dim)
        if qkv_bias:
            shapes[f"{name}.attn.qkv.bias"] = (3 * dim,)
        shapes |= {f"{name}.attn.proj.weight": (dim, dim), f"{name}.attn.proj.bias": (dim,)}
        shapes |= {f"{name}.mlp.fc1.weight": (4 * dim, dim), f"{name}.mlp.fc1.bias": (4 * dim,)}
        shapes |= {f"{name}.mlp.fc2.weight": (dim, 4 * dim), f"{name}.mlp.fc2.bias": (dim,)}
    shapes["norm.weight"] = (dim,)
    if bias:
        shapes |= {name.replace("weight", "bias"): shape for name, shape in shapes.items() if "norm" in name}
    return shapes | {"head.weight": (classes, dim), "head.bias": (classes,)}
