"""Maps of windowed, dilated and merged attention, against what timm's own code does with tokens and weights."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

import vit_rpe
from vit_rpe.models.families import around
from vit_rpe.models.families.samples.of_timm import CASES, build, image
from vit_rpe.viz import record

WHOLE = (
    *("TransformerBlock2d", "EvaBlock", "DeepseekVitBlock", "LevitBlock", "LevitDownsample", "MetaBlock1d"),
    *("EfficientFormerV2Block", "Downsample", "RelPosBlock", "ResPostRelPosBlock", "Gemma4Block"),
)
"""Blocks whose attention sees all tokens, in raster order."""


class Captured(Exception):
    """Carries what an attention was given."""


class Catch(nn.Module):
    """Stands in for an attention."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.resolution = getattr(attention, "resolution", None)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        raise Captured(x)


def recorded(model: nn.Module, x: Tensor) -> Any:
    with torch.no_grad(), record(model) as seen:
        model(x)
    return seen


def weights_of(model: nn.Module, names: list[str], x: Tensor) -> dict[str, Tensor]:
    """The family's own weights, where it drops some of them in training: (B W, H, N, N)."""
    plain, found = copy.deepcopy(model), dict[str, Tensor]()
    softmax, running = Tensor.softmax, list[str]()
    one_by_one: dict[str, list[Tensor]] = {}
    for name in names:
        layer: Any = plain.get_submodule(name)
        layer.fused_attn = False
        if not hasattr(layer, "attn_drop"):  # LeViT and its kin: no other softmax is in their layers
            layer.register_forward_pre_hook(lambda module, args, name=name: running.append(name))
            layer.register_forward_hook(lambda module, args, output: running.clear())
            continue
        layer.attn_drop.register_forward_pre_hook(
            lambda module, args, name=name, heads=layer.num_heads: found.update(
                {name: args[0].reshape(-1, heads, *args[0].shape[-2:])}
            )
        )

    def keep(logits: Tensor, dim: int) -> Tensor:
        weights = softmax(logits, dim=dim)
        if running:  # of all heads, or of one after the other
            one_by_one.setdefault(running[-1], []).append(weights if weights.ndim == 4 else weights[:, None])
        return weights

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "softmax", keep)
        plain(x)
    return found | {name: torch.cat(parts, dim=1) for name, parts in one_by_one.items()}


def windows_of(model: nn.Module, name: str, size: tuple[int, int]) -> Tensor:
    """Which token of the stage lies where in the calls of a layer, by the block's own partition: (W, N), -1 padding."""
    holder: Any = copy.deepcopy(around(model, name)[0])
    holder.norm1 = nn.Identity()
    last = name.rpartition(".")[2]
    setattr(holder, last, Catch(getattr(holder, last)))
    if type(holder).__name__ in WHOLE:
        return torch.arange(size[0] * size[1])[None]
    if name.endswith("attn_grid"):
        holder.attn_block = nn.Identity()
    tokens = torch.arange(1.0, 1.0 + size[0] * size[1]).reshape(1, *size, 1)
    with pytest.raises(Captured) as caught:
        holder(tokens.movedim(-1, 1) if type(holder).__name__ == "LocalWindowAttention" else tokens)
    found: Tensor = caught.value.args[0]
    return found.reshape(len(found), -1).long() - 1


def expected_map(weights: Tensor, windows: Tensor, stage: tuple[int, int], patches: tuple[int, int], at: Any) -> Tensor:
    """In plain loops: the row of the token over a patch, shared out over the patches of its keys."""
    factors = [
        2 ** round(torch.log2(torch.tensor(big / small)).item()) for big, small in zip(patches, stage, strict=True)
    ]
    row, column = (place // by for place, by in zip(at, factors, strict=True))
    window, slot = (windows == row * stage[1] + column).nonzero()[0].tolist()
    if weights.shape[2] < windows.shape[1]:  # every second token asks
        slot = row // 2 * -(-stage[1] // 2) + column // 2
    rows = weights.unflatten(0, (-1, len(windows)))[:, window, :, slot]  # (B, H, N)
    found = rows.new_zeros(*rows.shape[:2], *patches)
    for key, token in enumerate(windows[window].tolist()):
        if token < 0:
            continue
        covered = [
            (i, j)
            for i in range(patches[0])
            for j in range(patches[1])
            if (i // factors[0], j // factors[1]) == divmod(token, stage[1])
        ]
        for i, j in covered:
            found[:, :, i, j] += rows[:, :, key] / len(covered)
    return found.flatten(2)


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("mvitv2")])
def test_maps_are_the_familys_own(case: str) -> None:
    model, x = build(case), image(case)
    seen = recorded(model, x)
    own = weights_of(model, seen.names, x)
    rows, columns = seen.image
    for layer, name in enumerate(seen.names):
        torch.testing.assert_close(seen.attention(layer), own[name], rtol=1e-5, atol=1e-6)
        sight = seen.sights[name]
        stage = sight.k_grid.size if sight.is_whole else sight.image
        windows = windows_of(model, name, stage)
        prefix = sight.q_grid.num_prefix
        between = own[name][:, :, prefix:, prefix:]
        for at in [(0, 0), (rows - 1, columns - 1), (rows // 2, columns // 3), (1, columns - 2)]:
            expected = expected_map(between, windows, stage, seen.image, at)
            torch.testing.assert_close(seen.attention(layer, query=at)[..., prefix:], expected, rtol=1e-5, atol=1e-6)
            one = seen.attention(layer, head=0, query=at)
            assert torch.equal(one, seen.attention(layer, query=at)[:, 0])
            if (windows >= 0).all():
                torch.testing.assert_close(one.sum(-1), torch.ones(len(x)))
        if stage == seen.image and between.shape[2] == between.shape[3]:
            places = [divmod(token, stage[1]) for token in range(stage[0] * stage[1])]
            mean = torch.stack([expected_map(between, windows, stage, stage, at) for at in places]).mean(0)
            found = seen.attention(layer, query="mean")[..., prefix:]
            torch.testing.assert_close(found, mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_recording_changes_nothing(case: str) -> None:
    model, x = build(case), image(case)
    with torch.no_grad():
        before = model(x)
        with record(model) as seen:
            after = model(x)
    assert torch.equal(before, after)
    assert len(seen) >= 1


@pytest.mark.parametrize("case", CASES)
def test_a_replaced_attention_has_the_same_maps(case: str) -> None:
    model, x = build(case), image(case)
    theirs, ours = recorded(model, x), recorded(vit_rpe.replace_attention(copy.deepcopy(model)), x)
    assert theirs.names == ours.names
    for layer in range(len(ours)):
        for maps in ("attention", "content", "position"):
            for query in ((2, 3), "mean"):
                expected = getattr(theirs, maps)(layer, query=query)
                torch.testing.assert_close(getattr(ours, maps)(layer, query=query), expected, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(ours.bias(layer), theirs.bias(layer), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("case", "path"),
    [("swin", "layers.0.blocks.0"), ("swin", "layers.0.blocks.1"), ("sam", "blocks.0"), ("sam", "blocks.1")],
)
def test_a_beacon_is_seen_where_it_is(case: str, path: str) -> None:
    """One patch has a key that draws all attention: whoever can see it looks there, and nobody else."""
    model = build(case)
    block: Any = model.get_submodule(path)
    block.norm1 = nn.Identity()
    channels = block.attn.qkv.in_features
    with torch.no_grad():
        for parameter in block.attn.parameters():
            parameter.zero_()
        block.attn.qkv.weight[channels : 2 * channels].copy_(torch.eye(channels))
        block.attn.qkv.bias[:channels] = 20.0
    stage = (12, 18) if case == "swin" else (5, 7)
    windows = windows_of(model, f"{path}.attn", stage)
    mask = getattr(block, "attn_mask", None)
    for beacon in [(0, 0), (4, 5), (stage[0] - 1, stage[1] - 1), (stage[0] - 1, 2), (3, stage[1] - 1)]:
        x = torch.zeros(1, *stage, channels)
        x[0, beacon[0], beacon[1]] = 5.0
        with torch.no_grad(), record(model) as seen:
            block(x)
        goal = beacon[0] * stage[1] + beacon[1]
        window, key = (windows == goal).nonzero()[0].tolist()
        reached = 0
        for query in range(stage[0] * stage[1]):
            found = seen.attention(0, query=divmod(query, stage[1]))[0]
            at, slot = (windows == query).nonzero()[0].tolist()
            if at == window and (mask is None or mask[window, slot, key] == 0):
                assert (found.argmax(-1) == goal).all()
                assert (found[:, goal] > 0.99).all()
                reached += 1
            else:
                assert (found[:, goal] == 0).all()
        assert reached >= 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("davit_tiny", "over channels"),
        ("coat_tiny", "factorised"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_class(name: str, reason: str) -> None:
    with torch.device("meta"):
        model = timm.create_model(name)
    with pytest.raises(ValueError, match=reason.replace(".", r"\.")), record(model):
        pass


class OddAttention(nn.Linear):
    """Attention by its name, which no family describes."""


def test_what_no_family_describes_is_refused_by_its_class() -> None:
    model = nn.Sequential(OddAttention(4, 4))
    message = rf"no family describes attention of type {re.escape(__name__)}\.OddAttention"
    with pytest.raises(ValueError, match=message), record(model):
        pass
    with pytest.raises(ValueError, match=message):
        vit_rpe.replace_attention(model)


def test_queries_of_windows_are_patches() -> None:
    seen = recorded(build("swin"), image("swin"))
    with pytest.raises(ValueError, match="use a patch or 'mean'"):
        seen.attention(0, query=7)
    with pytest.raises(ValueError, match="outside the grid of 12 x 18"):
        seen.attention(2, query=(12, 0))
    with pytest.raises(ValueError, match="head 2 does not exist"):
        seen.attention(0, head=2, query=(0, 0))
