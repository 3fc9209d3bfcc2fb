"""Record a model together with the gradient of one class score, for gradient-weighted maps.

The forward pass is the usual, fused one. Gradients are taken at the outputs of the attention layers; how they reach the
weights of one map is worked out afterwards, layer by layer, in :meth:`Recording.gradient_weighted`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vit_rpe.viz.recording.inputs import Device
from vit_rpe.viz.recording.record import record
from vit_rpe.viz.recording.recording import Recording


def record_class(
    model: nn.Module, x: Tensor, target: int | Sequence[int] | Tensor | None = None, *, device: Device = None
) -> Recording:
    """Run ``model`` on ``x`` and record it with the gradients of the target's score.

    Args:
        model: a classifier in eval mode.
        x: (B, ...) its input.
        target: a class, or one per image (B,); None takes the class with the highest score.
        device: where maps are computed later; default: where the model is.

    Raises:
        ValueError: no batch, outputs that are not (B, classes) numbers, targets of another number or kind, or a class
            that does not exist.
    """
    if not isinstance(x, Tensor) or not x.ndim or not len(x):
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x must be a tensor of a batch of one or more, got {got}")
    if torch.is_inference_mode_enabled() or x.is_inference():
        raise ValueError(
            "record_class takes gradients, which torch.inference_mode forbids: call it outside, on a clone"
        )
    with torch.enable_grad(), record(model, device=device, keep_outputs=True) as seen:
        scores = model(x.detach().requires_grad_() if x.is_floating_point() else x)
        if scores.ndim != 2:
            raise ValueError(f"a class needs a classifier's (batch, classes) output, got {tuple(scores.shape)}")
        if bool(scores.isnan().any()):
            raise ValueError("the model's answer is not a number: no class has a gradient")
        chosen = scores.argmax(dim=1) if target is None else classes(target, len(scores)).to(scores.device)
        if bool(((chosen < 0) | (chosen >= scores.shape[1])).any()):
            raise ValueError(f"class {target} does not exist: the model has {scores.shape[1]} classes")
        score = scores.gather(1, chosen.expand(len(scores))[:, None]).sum()
        gradients = torch.autograd.grad(score, [seen.outputs[name] for name in seen.names], allow_unused=True)
    for name, gradient in zip(seen.names, gradients, strict=True):
        seen.gradients[name] = torch.zeros_like(seen.outputs[name]) if gradient is None else gradient
    seen.outputs.clear()
    return seen


def classes(target: int | Sequence[int] | Tensor, images: int) -> Tensor:
    """Targets as whole numbers, () or (B,).

    Raises:
        ValueError: another kind, or neither one nor one per image.
    """
    expected = f"target must be a class number, or one for each of the {images} images"
    try:
        chosen = torch.as_tensor(target)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{expected}, got {target!r}") from error
    if chosen.dtype == torch.bool or chosen.is_floating_point() or chosen.is_complex():
        raise ValueError(f"{expected}, got {target!r}")
    if chosen.ndim > 1 or (chosen.ndim == 1 and len(chosen) not in (1, images)):
        raise ValueError(f"{expected}, got targets of shape {tuple(chosen.shape)}")
    return chosen.long()
