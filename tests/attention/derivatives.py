"""Ways to differentiate and transform attention, and what a kernel gives under each, beside the definition.

Legend: a cell is an encoding, a kernel and a way; it holds where the kernel gives what the definition gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, jacrev, jvp, vmap
from torch.utils.checkpoint import checkpoint

from tests.encodings.build import HEAD_DIM, HEADS, draw, native_grid
from vit_rpe import RelativeMultiheadAttention
from vit_rpe.attention import KERNELS
from vit_rpe.encodings import encoding_class

Named = Mapping[str, Tensor]


def layer_of(name: str, impl: str) -> RelativeMultiheadAttention:
    """Attention with this encoding on its largest number of axes up to 2, one prefix token, large parameters.

    Raises:
        ValueError: the kernel cannot compute the encoding.
    """
    axes = max(axes for axes in encoding_class(name).card.axes if axes <= 2)
    width = HEADS * HEAD_DIM
    with torch.random.fork_rng():
        torch.manual_seed(3)
        layer = RelativeMultiheadAttention(width, HEADS, rpe=name, grid=native_grid(axes, 1), attn_impl=impl)
    layer = layer.double().eval()
    if layer.rpe is not None:
        draw(layer.rpe, 1)
    return layer


def can(name: str, impl: str) -> bool:
    """Whether the kernel can compute the encoding, when built or when called."""
    try:
        layer = layer_of(name, impl)
        if impl not in OURS_REFUSE:
            layer(tokens(layer))
    except ValueError:
        return False
    return True


def tokens(layer: RelativeMultiheadAttention, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, layer.grid.num_tokens, HEADS * HEAD_DIM, generator=generator, dtype=torch.float64)


def loss(layer: RelativeMultiheadAttention, parameters: Named, x: Tensor) -> Tensor:
    return functional_call(layer, dict(parameters), (x,)).sin().sum()


def _gradients(value: Tensor, layer: RelativeMultiheadAttention) -> list[Tensor]:
    return list(
        torch.autograd.grad(
            value, [own for own in layer.parameters() if own.requires_grad], allow_unused=True, materialize_grads=True
        )
    )


def double_backward(layer: RelativeMultiheadAttention) -> Any:
    x = tokens(layer).requires_grad_()
    first = torch.autograd.grad(layer(x).sin().sum(), x, create_graph=True)[0]
    return _gradients(first.square().sum(), layer)


def per_sample(layer: RelativeMultiheadAttention) -> Any:
    def of_one(parameters: Named, x: Tensor) -> Tensor:
        return loss(layer, parameters, x[None])

    return vmap(grad(of_one), in_dims=(None, 0))(_parameters(layer), tokens(layer))


def ensemble(layer: RelativeMultiheadAttention) -> Any:
    several = {name: torch.stack([value, value * 0.5]) for name, value in _parameters(layer).items()}
    return vmap(grad(partial(loss, layer)), in_dims=(0, None))(several, tokens(layer))


def forward_mode(layer: RelativeMultiheadAttention) -> Any:
    parameters = _parameters(layer)
    directions = {name: value.cos() for name, value in parameters.items()}
    return jvp(partial(loss, layer), (parameters, tokens(layer)), (directions, tokens(layer, 1)))


def dual_numbers(layer: RelativeMultiheadAttention) -> Any:
    with torch.autograd.forward_ad.dual_level(), torch.no_grad():
        dual = torch.autograd.forward_ad.make_dual(tokens(layer), tokens(layer, 1))
        return torch.autograd.forward_ad.unpack_dual(layer(dual)).tangent


def jacobian(layer: RelativeMultiheadAttention) -> Any:
    return jacrev(lambda x: layer(x)[:, 1, :2])(tokens(layer))


def batched_backward(layer: RelativeMultiheadAttention) -> Any:
    out = layer(tokens(layer))[:, 1, :2].flatten()
    wanted = [own for own in layer.parameters() if own.requires_grad]
    return torch.autograd.grad(out, wanted, torch.eye(len(out)).double(), is_grads_batched=True, allow_unused=True)


def compiled(layer: RelativeMultiheadAttention) -> Any:
    torch.compiler.reset()
    found = torch.compile(layer, backend="aot_eager")(tokens(layer)).sin().sum()
    return found, _gradients(found, layer)


def recomputed(layer: RelativeMultiheadAttention) -> Any:
    x = tokens(layer).requires_grad_()
    return _gradients(checkpoint(layer, x, use_reentrant=False).sin().sum(), layer)


def compiled_per_sample(layer: RelativeMultiheadAttention) -> Any:
    torch.compiler.reset()
    one = grad(lambda parameters, x: loss(layer, parameters, x[None]))
    return torch.compile(vmap(one, in_dims=(None, 0)), backend="aot_eager")(_parameters(layer), tokens(layer))


WAYS: dict[str, Callable[[RelativeMultiheadAttention], Any]] = {
    "double backward": double_backward,
    "vmap(grad), samples": per_sample,
    "vmap(grad), models": ensemble,
    "jvp": forward_mode,
    "dual numbers": dual_numbers,
    "jacrev": jacobian,
    "batched backward": batched_backward,
    "compile": compiled,
    "compile(vmap(grad))": compiled_per_sample,
    "checkpoint": recomputed,
}

FUSED = ("alibi", "liere", "lookhere", "none", "pope", "rope", "rope_mixed", "rope_normalized")
"""Encodings whose mask needs no gradient, so that torch's fused kernel runs, which has no second derivative."""

TORCH_REFUSES: dict[tuple[str, str], tuple[str, ...]] = {
    ("double backward", "auto"): (*FUSED, "pape", "pape_ri", "shaw"),
    ("double backward", "sdpa"): FUSED,
    ("double backward", "windows"): ("alibi", "lookhere", "pape", "pape_ri", "shaw"),
    ("double backward", "fold"): ("deberta", "decomposed", "pape", "pape_ri", "shaw", "transformer_xl"),
}
"""Cells that end in an error of torch's; every other cell holds."""

OURS_REFUSE = {"flex": ("double backward", "batched backward", "compile", "checkpoint")}
"""Ways that a kernel refuses on the CPU, where it has no gradient; elsewhere they were not tried."""


def table() -> str:
    """What holds, as docs/design.md shows it."""
    kernels = ["auto", *KERNELS]
    lines = ["| | " + " | ".join(f"`{kernel}`" for kernel in kernels) + " |", "|---" * (1 + len(kernels)) + "|"]
    for way in WAYS:
        lines.append(f"| {way} | " + " | ".join(_outcome(way, kernel) for kernel in kernels) + " |")
    return "\n".join(lines)


def _outcome(way: str, kernel: str) -> str:
    if way in OURS_REFUSE.get(kernel, ()):
        return "refused on the CPU"
    names = ", ".join(TORCH_REFUSES.get((way, kernel), ()))
    return f"error: {names}" if names else "holds"


def _parameters(layer: RelativeMultiheadAttention) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in layer.named_parameters()}
