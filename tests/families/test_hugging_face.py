"""Maps of models of Hugging Face's ``transformers``, against what they give with ``output_attentions``."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import vit_rpe
from tests.families.beacon import check_beacon
from vit_rpe.models.families.samples.of_hugging_face import CASES, TOWER, WITHOUT_SDPA, build, image
from vit_rpe.models.families.samples.of_timm import randomize
from vit_rpe.viz import Recording, record

RUNS = [(case, kind) for case in CASES for kind in ("eager", "sdpa") if kind == "eager" or case not in WITHOUT_SDPA]


def forward(model: nn.Module, x: Tensor, case: str, **options: Any) -> Tensor:
    found: Any = model(x, **CASES[case][3], **options)
    out: Tensor = found[0]
    return out


def recorded(model: nn.Module, x: Tensor, case: str) -> Recording:
    with torch.no_grad():
        before = forward(model, x, case)
        with record(model) as seen:
            after = forward(model, x, case)
    assert torch.equal(before, after)
    return seen


def own_weights(case: str, names: list[str], x: Tensor) -> dict[str, Tensor]:
    """What the layers of the unfused model give back beside their output, (B W, H, N, N)."""
    model, found = build(case, "eager"), {}
    for name in names:
        model.get_submodule(name).register_forward_hook(
            lambda _, __, output, name=name: found.update({name: output[1]})
        )
    with torch.no_grad():
        forward(model, x, case, output_attentions=True)
    return found


@pytest.mark.parametrize(("case", "kind"), RUNS)
def test_maps_are_the_familys_own(case: str, kind: str) -> None:
    model, x = build(case, kind), image(case)
    seen = recorded(model, x, case)
    towers = [name for name in seen.names if not name.startswith("head.")]
    own = own_weights(case, towers, x)
    assert len(towers) == len(own) >= 2
    for layer, name in enumerate(towers):
        weights = seen.attention(layer)
        torch.testing.assert_close(weights, own[name].reshape(weights.shape), rtol=1e-5, atol=1e-6)
        for query in ((1, 2), (3, 0)):
            row = seen.attention(layer, query=query)
            assert row.shape[-1] == seen.map_grid(layer).num_tokens
            assert bool((row.sum(-1) < 1 + 1e-5).all())
        if case not in ("swin", "swinv2", "swinv2-pretrained", "sam", "vitdet"):  # no padding
            torch.testing.assert_close(row.sum(-1), torch.ones(row.shape[:-1]))


@pytest.mark.parametrize("case", CASES)
def test_a_beacon_is_seen_where_it_is(case: str) -> None:
    check_beacon(build(case), image(case), lambda model, x: forward(model, x, case))


def test_prefix_tokens_and_class_token() -> None:
    prefixes = {"vit": 1, "deit": 2, "beit": 1, "dinov2-registers": 4, "dinov3": 3, "siglip": 0, "clip": 1}
    for case, number in prefixes.items():
        seen = recorded(build(case), image(case), case)
        assert seen.grids(0)[0].num_prefix == number
        if number:
            assert torch.equal(seen.attention(1, query="class"), seen.attention(1)[:, :, 0])


def test_content_position_and_bias() -> None:
    for case in ("beit", "swin", "swinv2", "sam", "dinov3"):
        seen = recorded(build(case), image(case), case)
        assert bool((seen.bias(0) != 0).any())
        for maps in (seen.content, seen.position):
            weights = maps(0)
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_a_pooling_head_has_learned_queries() -> None:
    model, x = build("siglip"), image("siglip")
    seen = recorded(model, x, "siglip")
    head: Any = model.get_submodule("head")
    with torch.no_grad():
        tokens: Any = model(x, **CASES["siglip"][3]).last_hidden_state
        _, expected = head.attention(head.probe.repeat(2, 1, 1), tokens, tokens, average_attn_weights=False)
    torch.testing.assert_close(seen.attention(2), expected)
    torch.testing.assert_close(seen.attention(2, query="mean"), expected[:, :, 0])
    with pytest.raises(ValueError, match=r"query \(0, 1\) names no query of a layer that pools"):
        seen.attention(2, query=(0, 1))


def test_a_tower_of_text_has_no_image() -> None:
    text = hf.CLIPTextConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32, vocab_size=11,
        max_position_embeddings=7, bos_token_id=0, eos_token_id=1, pad_token_id=2,
    )  # fmt: skip
    ids = torch.arange(6)[None]
    for kind in ("eager", "sdpa"):
        torch.manual_seed(0)
        model = randomize(hf.CLIPTextModel._from_config(text, attn_implementation=kind)).eval()
        with torch.no_grad(), record(model) as seen:
            model(ids)
        assert seen.image is None
        weights = seen.attention(1)
        assert bool((weights.triu(1) == 0).all())
        torch.testing.assert_close(weights.sum(-1), torch.ones(1, 3, 6))


def test_a_small_image_is_not_shifted() -> None:
    """The layer then forgets its shift, in the same call."""
    model = randomize(hf.SwinModel(hf.SwinConfig(**{
        "embed_dim": 12, "num_heads": [2], "depths": [2], "patch_size": 2, "window_size": 3, "image_size": 6,
    }))).eval()  # fmt: skip
    with torch.no_grad(), record(model) as seen:
        model(torch.randn(1, 3, 6, 6))
    assert [sight.shift for sight in seen.sights.values() if sight] == [None, None]


def test_other_encodings_are_not_put_there() -> None:
    with pytest.raises(ValueError, match=r"ViTModel has attention that can be recorded only: transformers\.\w+"):
        vit_rpe.replace_attention(hf.ViTModel(hf.ViTConfig(**{**TOWER})), rpe="bias")


def test_transformers_are_not_imported() -> None:
    code = "import sys, vit_rpe.viz, vit_rpe.models.families; assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
