"""MViTv2, Hiera, GCViT and CaiT: where a patch looks on the image, against timm's own weights and timm's own order."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from timm.models import gcvit
from torch import Tensor, nn

import vit_rpe
from vit_rpe.models.exchange.in_place import positioned_layers
from vit_rpe.models.families.mvitv2 import fit_tables
from vit_rpe.models.families.samples.of_timm import randomize, sample, unrolled
from vit_rpe.viz import Recording, record, record_class


def build(case: str) -> nn.Module:
    return sample(case)[0]


def image(case: str) -> Tensor:
    return sample(case)[1]


def recorded(model: nn.Module, x: Tensor) -> Recording:
    with torch.no_grad():
        before = model(x)
        with record(model) as seen:
            after = model(x)
    assert torch.equal(before, after)
    return seen


@contextmanager
def softmaxes(model: Any) -> Iterator[list[Tensor]]:
    """What every softmax of a forward gives."""
    own: list[Tensor] = []
    softmax = Tensor.softmax
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False

    def kept(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        own.append(softmax(self, *args, **kwargs))
        return own[-1]

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "softmax", kept)
        yield own


def some(size: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(0, 0), (size[0] - 1, size[1] - 1), (size[0] // 2, size[1] // 3), (1, size[1] - 2)]


@pytest.mark.parametrize("case", ["mvitv2", "mvitv2-cls", "mvitv2-odd"])
def test_pooled_keys_are_spread_and_pooled_queries_cover(case: str) -> None:
    """A key of stride s is shared evenly by the patches under the s x s tokens from its own place on."""
    model, x = build(case.removesuffix("-odd")), image(case.removesuffix("-odd"))
    if case == "mvitv2-odd":  # 13 x 19 tokens, then 7 x 10 and 4 x 5: no stride divides them
        x = torch.randn(2, 3, 52, 76)
    seen, sizes = recorded(model, x), []
    plain: Any = copy.deepcopy(model)
    for name in seen.names:
        plain.get_submodule(name).register_forward_pre_hook(lambda _, args: sizes.append(tuple(args[1])))
    with softmaxes(plain) as own:
        plain(x)
    rows, columns = seen.image or ()
    assert (rows, columns) == sizes[0] == ((13, 19) if case == "mvitv2-odd" else (x.shape[2] // 4, x.shape[3] // 4))
    assert len(set(sizes)) == 3
    prefix = int(case == "mvitv2-cls")
    for layer, (weights, stage) in enumerate(zip(own, sizes, strict=True)):
        attn: Any = plain.get_submodule(seen.names[layer])
        merged = next(factor for factor in (1, 2, 4, 8) if -(-rows // factor) == stage[0])
        q_by, k_by = (1 if pool is None else pool.stride[0] for pool in (attn.pool_q, attn.pool_k))
        q_columns, k_columns = -(-stage[1] // q_by), -(-stage[1] // k_by)
        torch.testing.assert_close(seen.attention(layer), weights, rtol=1e-5, atol=1e-6)
        keys = [i // merged // k_by * k_columns + j // merged // k_by for i in range(rows) for j in range(columns)]
        share = torch.tensor([1 / keys.count(key) for key in keys])
        for at in some((rows, columns)):
            place = prefix + at[0] // merged // q_by * q_columns + at[1] // merged // q_by
            expected = weights[:, :, place, prefix:][..., keys] * share
            found = seen.attention(layer, query=at)
            torch.testing.assert_close(found[..., prefix:], expected, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(found[..., :prefix], weights[:, :, place, :prefix], rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:-1]))
        if prefix:
            found = seen.attention(layer, query="class")
            expected = torch.cat([weights[:, :, 0, :1], weights[:, :, 0, 1:][..., keys] * share], dim=-1)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_mask_units_lie_where_timm_put_them() -> None:
    model: Any = build("hiera")
    x = image("hiera")
    seen, stages = recorded(model, x), unrolled(model)
    plain: Any = copy.deepcopy(model)
    with softmaxes(plain) as own:
        plain(x)
    assert seen.image == (16, 24)
    stage = [0, 0, 1, 1, 2, 2]  # the first layer of a stage asks with fewer, and still sees all of the one before
    for layer, weights in enumerate(own):
        attn = model.blocks[layer].attn
        keys, queries = stages[stage[layer]], stages[stage[layer] + (attn.q_stride > 1)]
        windows = weights.shape[2] if weights.ndim == 5 else 1
        weights = weights.unflatten(1, (-1,)) if weights.ndim == 5 else weights[:, :, None]
        for at in some((16, 24)):
            token = next(number for number, patches in enumerate(queries) if at[0] * 24 + at[1] in patches)
            slot, window = divmod(token, windows)
            expected = torch.zeros(2, attn.heads, 16 * 24)
            for key in range(weights.shape[-1]):
                patches = keys[key * windows + window]
                expected[..., patches] += weights[:, :, window, slot, key, None] / len(patches)
            found = seen.attention(layer, query=at)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:-1]))
        step = len(queries[0]) ** 0.5  # patches of one query have one map
        if step > 1:
            places = [(i, j) for i in range(0, 16, int(step)) for j in range(0, 24, int(step))]
            mean = torch.stack([seen.attention(layer, query=at) for at in places]).mean(0)
            torch.testing.assert_close(seen.attention(layer, query="mean"), mean, rtol=1e-5, atol=1e-6)


def test_heads_that_talk_have_the_maps_of_their_softmax() -> None:
    model, x = build("cait"), image("cait")
    seen = recorded(model, x)
    plain = copy.deepcopy(model)
    with softmaxes(plain) as own:
        plain(x)
    assert seen.image == (4, 6)
    assert len(own) == len(seen) == 4
    for layer, weights in enumerate(own[:2]):
        torch.testing.assert_close(seen.attention(layer), weights, rtol=1e-5, atol=1e-6)
        for at in some((4, 6)):
            found = seen.attention(layer, query=at)
            torch.testing.assert_close(found, weights[:, :, at[0] * 6 + at[1]], rtol=1e-5, atol=1e-6)
    for layer, weights in enumerate(own[2:], start=2):
        torch.testing.assert_close(seen.attention(layer, query="class"), weights[:, :, 0], rtol=1e-5, atol=1e-6)
    with record(model, keep_outputs=True) as seen, torch.no_grad():
        model(x)
    rebuilt = seen.call(1).output(seen.attention(1))
    torch.testing.assert_close(rebuilt, seen.outputs[seen.names[1]], rtol=1e-5, atol=1e-5)


def laid_out(case: str, tokens: Tensor, model: Any) -> Tensor:
    """A map (1, h, w, C) as timm hands it to the attention of a first stage."""
    if case == "gcvit":
        return gcvit.window_partition(tokens, model.stages[0].blocks[0].window_size).flatten(1, 2)
    sequence = tokens.flatten(1, 2)
    if case == "mvitv2-cls":
        return torch.cat([torch.zeros_like(sequence[:, :1]), sequence], dim=1)
    return model.unroll(sequence) if case == "hiera" else sequence


def shouting(layer: Any) -> None:
    """Keys are what the tokens hold, queries all the same: the only token that is not zero draws all attention."""
    channels = layer.proj.out_features
    weight, bias = layer.qkv.weight, layer.qkv.bias
    for parameter in layer.parameters():
        parameter.zero_()
    first = 0 if getattr(layer, "use_global", False) else channels  # where queries come from elsewhere: keys and values
    weight[first : first + channels].copy_(torch.eye(weight.shape[1]).repeat(channels // weight.shape[1], 1))
    bias[: first or None] = 20.0
    for name in ("pool_q", "pool_k"):
        if getattr(layer, name, None) is not None:
            getattr(layer, name).weight[:, :, 1, 1] = 1.0
    for name in ("norm_q", "norm_k"):
        if getattr(layer, name, None) is not None:
            setattr(layer, name, nn.Identity())
    for name in ("proj_l", "proj_w"):
        if hasattr(layer, name):
            getattr(layer, name).weight.copy_(torch.eye(layer.num_heads))


@pytest.mark.parametrize(
    ("case", "path", "reach", "shares"),
    [
        ("mvitv2", "stages.0.blocks.0.attn", (16, 24), (4, 4)),
        ("mvitv2", "stages.1.blocks.0.attn", (16, 24), (2, 2)),
        ("mvitv2-cls", "stages.0.blocks.0.attn", (24, 16), (4, 4)),
        ("gcvit", "stages.0.blocks.0.attn", (2, 3), (1, 1)),
        ("gcvit", "stages.0.blocks.1.attn", (2, 3), (1, 1)),
        ("hiera", "blocks.0.attn", (8, 8), (1, 1)),
        ("hiera", "blocks.1.attn", (8, 8), (1, 1)),
        ("cait", "blocks.0.attn", (4, 6), (1, 1)),
    ],
)
def test_a_beacon_is_seen_by_all_that_can_reach_it(case: str, path: str, reach: Any, shares: Any) -> None:
    model, x = build(case), image(case)[:1]
    layer: Any = model.get_submodule(path)
    with torch.no_grad():
        shouting(layer)
    rows, columns = recorded(model, x).image or ()
    for beacon in [(0, 0), (rows - shares[0], columns - shares[1]), (rows // 2, columns // 3 // shares[1] * shares[1])]:
        tokens = torch.zeros(1, rows, columns, layer.qkv.in_features)
        tokens[:, beacon[0], beacon[1]] = 5.0

        def instead(module: nn.Module, args: Any, tokens: Tensor = tokens) -> Any:
            rest = [torch.full_like(each, 20.0) if isinstance(each, Tensor) else each for each in args[1:]]
            return laid_out(case, tokens, model), *rest

        handle = layer.register_forward_pre_hook(instead)
        with torch.no_grad(), record(model) as seen:
            model(x)
        handle.remove()
        number = seen.names.index(path)
        for at in [
            *some((rows, columns)),
            beacon,
            (max(beacon[0] - 1, 0), beacon[1]),
            (beacon[0], max(beacon[1] - 1, 0)),
        ]:
            found = seen.attention(number, query=at)[0][..., seen.map_grid(number).num_prefix :]
            there = found.unflatten(-1, (rows, columns))[:, beacon[0] :, beacon[1] :][:, : shares[0], : shares[1]]
            if all(one // side == other // side for one, other, side in zip(at, beacon, reach, strict=True)):
                assert bool((there.sum((1, 2)) > 0.99).all()), (beacon, at)
                torch.testing.assert_close(there, there[:, :1, :1].expand_as(there))
            else:
                assert bool((there == 0).all()), (beacon, at)


def test_a_position_where_there_was_none_changes_nothing_at_first() -> None:
    theirs, x = build("hiera"), image("hiera")
    with pytest.raises(ValueError, match="has no relative position to keep"):
        vit_rpe.replace_attention(copy.deepcopy(theirs))
    with torch.no_grad():
        expected = theirs(x)
        ours = vit_rpe.replace_attention(theirs, "bias")
        torch.testing.assert_close(ours(x), expected, rtol=1e-4, atol=1e-5)
        before = recorded(ours, x).attention(1, query=(5, 9))
        randomize(ours)
    seen = recorded(ours, x)
    sizes = [tuple(layer.rpe.state_dict()["table"].shape[1:]) for layer in positioned_layers(ours).values()]
    assert sizes == [(15, 15), (15, 15), (7, 7), (7, 7), (7, 11), (7, 11)]
    assert not torch.allclose(seen.attention(1, query=(5, 9)), before)
    ours(x).square().sum().backward()
    assert all(parameter.grad is not None for name, parameter in ours.named_parameters() if ".rpe." in name)


def test_an_offset_keeps_its_row_at_another_size() -> None:
    """timm reads a smaller image's rows from the beginning of the table, ours the rows of its offsets."""
    ours = vit_rpe.replace_attention(build("mvitv2"))
    theirs: Any = build("mvitv2")
    whole = {name: tensor.clone() for name, tensor in theirs.state_dict().items() if "rel_pos" in name}
    fit_tables(theirs, (32, 64))
    with torch.no_grad():
        for name, table in theirs.named_parameters():
            if "rel_pos" in name:
                attn = theirs.get_submodule(name.rpartition(".")[0])
                strides = [1 if pool is None else pool.stride[0] for pool in (attn.pool_q, attn.pool_k)]
                ratio = max(1, strides[1] // strides[0])
                zero, there = ((((len(each) + 1) // 2) - 1) // ratio * ratio for each in (table, whole[name]))
                table.copy_(whole[name][there - zero :][: len(table)])
        x = torch.randn(2, 3, 32, 64)
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


def test_gradients_of_layers_that_give_their_size_too() -> None:
    found = record_class(build("mvitv2"), image("mvitv2"), 2)
    weighted = found.gradient_weighted(3, query="mean")
    assert weighted.shape[0] == 2
    assert bool((weighted > 0).any())


@pytest.mark.parametrize("case", ["mvitv2-cls", "gcvit", "hiera", "cait"])
def test_whatever_is_asked_of_a_layer_has_an_answer(case: str) -> None:
    seen = record_class(build(case), image(case), 1)
    assert seen.image is not None
    for layer in (each for each in range(len(seen)) if not seen.pools(each)):
        patches = seen.map_grid(layer).num_tokens
        for maps in (seen.content, seen.position, seen.gradient_weighted):
            assert maps(layer, query=(1, 2)).shape[-1] == patches
        torch.testing.assert_close(seen.position(layer, query=(1, 2)).sum(-1), torch.ones(2, seen.heads(layer)))
        assert bool((seen.distance(layer) > 0).all())
        assert bool((seen.by_offset(layer).nan_to_num() != 0).any()) == (case not in ("hiera", "cait"))
