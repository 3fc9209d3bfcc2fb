"""What timm tests for every model, over our registry: creation, configuration, forward, backward, heads, features."""

from __future__ import annotations

import fnmatch

import pytest
import timm
import torch
from timm.models._features_fx import GraphExtractNet, create_feature_extractor

from tests.models.tiny import NAMES, OWN, PUBLIC_NAMES, SIZE, images, randomize, tiny
from vit_rpe.models.shipped import shipped_models

# one of each family of public architectures; the others differ by sizes
FAMILIES = (
    "vit_rpe_timm_small_patch16_224",
    "vit_rpe_deit3_small_patch16_224",
    "vit_rpe_timm_small_patch14_reg4_dinov2",
    "vit_rpe_timm_base_patch32_clip_224",
    "vit_rpe_relpos_small_patch16_224",
    "vit_rpe_srelpos_small_patch16_224",
    "vit_rpe_relpos_medium_patch16_cls_224",
    "vit_rpe_beit_base_patch16_224",
    "vit_rpe_timm_betwixt_patch16_rope_reg4_gap_256",
    "vit_rpe_timm_small_patch16_rope_mixed_ape_224",
    "vit_rpe_timm_small_plus_patch16_dinov3",
)
SAMPLE = (*OWN, *FAMILIES)
every_name = pytest.mark.parametrize(
    "name",
    [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.exhaustive) for name in NAMES],
)


@every_name
def test_every_name_can_be_created(name: str) -> None:
    with torch.device("meta"):
        model = timm.create_model(name)
    cfg = model.pretrained_cfg
    state = model.state_dict()
    assert f"{cfg['first_conv']}.weight" in state
    if model.num_classes > 0:
        assert f"{cfg['classifier']}.weight" in state
        assert model.get_classifier().out_features == model.num_classes == cfg["num_classes"]
    model.reset_classifier(0)
    assert f"{cfg['classifier']}.weight" not in model.state_dict()
    assert len(model.feature_info) == len(model.blocks)
    fixed = [key for key, parameter in model.named_parameters() if not parameter.requires_grad]
    assert all("pape_ri" in name and key.endswith("attn.rpe.c") for key in fixed), "drawn once, never learned"


def test_the_listing_shows_all_and_says_which_have_weights() -> None:
    assert set(timm.list_models(module="vit_rpe")) >= set(PUBLIC_NAMES)
    with_weights = timm.list_models("vit_rpe_*", pretrained=True)
    assert "vit_rpe_relpos_small_patch16_224.sw_in1k" in with_weights
    assert set(fnmatch.filter(with_weights, "vit_rpe_nano*")) == set(shipped_models())


def test_tags_keep_the_file_normalisation_and_crop_of_timm() -> None:
    for ours, theirs in (
        ("vit_rpe_relpos_small_patch16_224.sw_in1k", "vit_relpos_small_patch16_224.sw_in1k"),
        ("vit_rpe_timm_small_patch16_224.augreg_in1k", "vit_small_patch16_224.augreg_in1k"),
        ("vit_rpe_beitv2_base_patch16_224.in1k_ft_in1k", "beitv2_base_patch16_224.in1k_ft_in1k"),
    ):
        mine, original = timm.models.get_pretrained_cfg(ours), timm.models.get_pretrained_cfg(theirs)
        assert mine.hf_hub_id == original.hf_hub_id == f"timm/{theirs}"
        for key in ("mean", "std", "crop_pct", "interpolation", "input_size", "num_classes"):
            assert getattr(mine, key) == getattr(original, key)


@every_name
def test_forward_backward_and_every_gradient(name: str) -> None:
    model = randomize(tiny(name)).train()
    x = images()
    model(x).square().mean().backward()
    missing = [key for key, own in model.named_parameters() if own.requires_grad and own.grad is None]
    assert not missing
    assert all(own.grad.isfinite().all() for own in model.parameters() if own.requires_grad)
    model.eval()
    torch.testing.assert_close(model(x), model(x), rtol=0, atol=0)
    assert model(x).shape == (3, 5)


@every_name
def test_heads_and_features(name: str) -> None:
    model = randomize(tiny(name))
    x = images()
    features = model.forward_features(x)
    assert features.shape == (3, model.num_prefix_tokens + 24, 24)
    torch.testing.assert_close(model.forward_head(features), model(x))
    assert model.forward_head(features, pre_logits=True).shape == (3, 24)
    model.reset_classifier(0, "")
    assert model(x).shape == features.shape
    model.reset_classifier(7, "avg")
    assert model(x).shape == (3, 7)
    assert model.num_features == model.head_hidden_size == 24


@every_name
def test_intermediates(name: str) -> None:
    model = randomize(tiny(name, depth=3))
    x = images()
    final, maps = model.forward_intermediates(x)
    torch.testing.assert_close(final, model.forward_features(x))
    assert [tuple(each.shape) for each in maps] == [(3, 24, 4, 6)] * 3
    flat = model.forward_intermediates(x, output_fmt="NLC", intermediates_only=True, norm=True)
    torch.testing.assert_close(flat[-1], final[:, model.num_prefix_tokens :])
    early = model.forward_intermediates(x, indices=[0, 1], stop_early=True, intermediates_only=True)
    torch.testing.assert_close(early[1], maps[1])
    if model.num_prefix_tokens:
        pairs = model.forward_intermediates(x, 1, return_prefix_tokens=True, intermediates_only=True)
        assert pairs[0][1].shape == (3, model.num_prefix_tokens, 24)
    named = model.forward_intermediates(x, output_dict=True)
    torch.testing.assert_close(named["image_features"], final)
    torch.testing.assert_close(named["image_intermediates"][0], maps[0])
    dino = model.get_intermediate_layers(x, n=2, reshape=True, norm=True)
    assert [tuple(each.shape) for each in dino] == [(3, 24, 4, 6)] * 2
    kept = model.prune_intermediate_layers([1])
    assert kept == [1]
    assert len(model.blocks) == 2
    torch.testing.assert_close(model.forward_intermediates(x, [1], intermediates_only=True)[0], maps[1])


@every_name
def test_features_only(name: str) -> None:
    model = tiny(name, features_only=True, out_indices=(0, 1)).eval()
    assert model.feature_info.channels() == [24, 24]
    assert [tuple(each.shape) for each in model(images())] == [(3, 24, 4, 6)] * 2


@every_name
def test_another_input_size(name: str) -> None:
    model = randomize(tiny(name))
    model.set_input_size((10, 6))
    assert model(images((10, 6))).shape == (3, 5)
    assert model._model_args["img_size"] == (10, 6)
    assert timm.data.resolve_model_data_config(model)["mean"] == model.pretrained_cfg["mean"]
    flexible = randomize(tiny(name, dynamic_img_size=True))
    for size in ((8, 12), (6, 10), (12, 4)):
        assert flexible(images(size)).shape == (3, 5)
    model.set_input_size((16, 12), patch_size=4)
    assert model(images((16, 12))).shape == (3, 5)


@every_name
def test_gradient_checkpointing_changes_nothing(name: str) -> None:
    model = randomize(tiny(name)).train()
    x = images()
    model(x).square().sum().backward()
    plain = {key: own.grad.clone() for key, own in model.named_parameters() if own.requires_grad}
    model.zero_grad()
    model.set_grad_checkpointing(True)
    model(x).square().sum().backward()
    found = {key: own.grad for key, own in model.named_parameters() if own.requires_grad}
    for key, gradient in plain.items():
        torch.testing.assert_close(found[key], gradient)


@every_name
def test_fx_graph_forward_and_backward(name: str) -> None:
    model = randomize(tiny(name, dynamic_img_size=False))
    x = images()
    traced = GraphExtractNet(model, ["head"])
    torch.testing.assert_close(traced(x), model(x))
    taps = create_feature_extractor(model.train(), {"blocks.0": "first", "head": "logits"})
    outputs = taps(x)
    sum(each.square().sum() for each in outputs.values()).backward()
    assert all(own.grad is not None for own in taps.parameters() if own.requires_grad)


@every_name
def test_device_and_dtype(name: str) -> None:
    model = tiny(name, dtype=torch.bfloat16).eval()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model(images().bfloat16()).dtype == torch.bfloat16
    meta = tiny(name, device="meta")
    assert all(parameter.is_meta for parameter in meta.parameters())
    meta.to_empty(device="cpu").load_state_dict(tiny(name).state_dict())
    assert meta.eval()(images()).isfinite().all()
    assert tuple(meta.patch_embed.img_size) == SIZE


@pytest.mark.parametrize("name", ["vit_rpe_nano_patch2_8", "vit_rpe_beit_base_patch16_224"])
def test_attention_masks(name: str) -> None:
    model = randomize(tiny(name))
    x = images()
    tokens = model.num_prefix_tokens + 24
    everything = torch.ones(tokens, tokens, dtype=torch.bool)
    torch.testing.assert_close(model(x, attn_mask=everything), model(x))
    hidden = everything.clone()
    hidden[:, -1] = False
    as_float = torch.zeros(tokens, tokens).masked_fill(~hidden, float("-inf"))
    torch.testing.assert_close(model(x, attn_mask=hidden), model(x, attn_mask=as_float))
    assert (model(x, attn_mask=hidden) - model(x)).abs().max() > 1e-4
