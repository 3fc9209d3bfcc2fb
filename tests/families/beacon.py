"""Where on the image a map lies, tested without knowing how a family cuts images.

Every attention is made to add nothing, so that a patch reaches only the tokens that cover it. Two images differ in one
patch: then the weights of a query keep their proportions but at that patch, and there the map must change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vit_rpe.viz import Recording, record
from vit_rpe.viz.recording.on_image import patches_per_token
from vit_rpe.viz.recording.record import attention_layers


def silent(module: nn.Module, args: Any, output: Any) -> Any:
    """The output of an attention, zero."""
    if isinstance(output, tuple):
        return (torch.zeros_like(output[0]), *output[1:])
    return torch.zeros_like(output)


def look(model: nn.Module, x: Tensor, forward: Callable[[nn.Module, Tensor], Any]) -> Recording:
    """A recording of a model whose attention adds nothing."""
    handles = [layer.register_forward_hook(silent) for layer in attention_layers(model).values()]
    with torch.no_grad(), record(model) as seen:
        forward(model, x)
    for handle in handles:
        handle.remove()
    return seen


def check_beacon(model: nn.Module, x: Tensor, forward: Callable[[nn.Module, Tensor], Any]) -> None:
    """Change one patch after the other of the first image, and look in all layers."""
    before = look(model, x[:1], forward)
    rows, columns = before.image
    reached: set[str] = set()
    height, width = x.shape[-2] // rows, x.shape[-1] // columns
    for beacon in [(0, 0), (rows - 1, columns - 1), (rows // 2, columns // 3)]:
        changed = x[:1].clone()
        changed[:, :, beacon[0] * height :, beacon[1] * width :][:, :, :height, :width].neg_().add_(1.0)
        after = look(model, changed, forward)
        for layer, name in enumerate(before.names):
            sight = before.sights[name]
            assert sight is not None
            token = patches_per_token(before.image, sight.image)
            here = [at // by for at, by in zip(beacon, token, strict=True)]
            same = torch.zeros(rows, columns, dtype=torch.bool)
            same[here[0] * token[0] :, here[1] * token[1] :][: token[0], : token[1]] = True
            queries: list[Any] = ["mean"] if sight.pools else near(beacon, before.image, token)
            for query in queries:
                old, new = (seen.attention(layer, query=query)[0] for seen in (before, after))
                old, new = (
                    row[:, before.map_grid(layer).num_prefix :].reshape(-1, rows, columns) for row in (old, new)
                )
                if bool(same[query] if isinstance(query, tuple) else False):
                    continue
                if not bool((old[:, beacon[0], beacon[1]] > 0).all()):
                    torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-6)
                    continue
                change = new.clamp_min(1e-9) / old.where(old > 1e-5, torch.nan)
                elsewhere = change.where(new > 1e-5, torch.nan)[:, ~same]
                usual = elsewhere.nanquantile(0.5, dim=1, keepdim=True)
                if bool(change[:, same].isnan().all()) or bool(usual.isnan().all()):
                    continue
                assert bool(((elsewhere / usual).log().abs().nan_to_num() < 1e-4).all()), (name, beacon, query)
                assert bool(((change[:, same] / usual).log().abs() > 1e-3).any()), (name, beacon, query)
                reached.add(name)
    assert reached == set(before.names)


def near(place: tuple[int, int], image: tuple[int, ...], token: tuple[int, ...]) -> list[tuple[int, int]]:
    """Patches under the neighbours of the token at a place, and a few others."""
    found = [(0, 0), (image[0] // 2, image[1] // 2), (image[0] - 1, 0)]
    found += [(place[0] + i * token[0], place[1] + j * token[1]) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    return [at for at in found if all(0 <= one < side for one, side in zip(at, image, strict=True))]
