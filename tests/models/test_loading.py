"""Weights of another size, sharing, age or kind: they fit, are resampled, or are refused with one clear line."""

from __future__ import annotations

import pytest
import timm
import torch
from safetensors.torch import save_file

import vit_rpe
from tests.models.tiny import images, randomize, tiny


def test_flat_table_keeps_its_prefix_rows_and_its_order() -> None:
    """A table of 100 dh + dw with 7, 8, 9 for the prefix, in BEiT's layout, on a 2 x 3 grid."""
    theirs = timm.create_model("beit_base_patch16_224", img_size=(32, 48), depth=1, embed_dim=24, num_heads=3)
    table = torch.tensor([100.0 * dh + dw for dh in (-1, 0, 1) for dw in (-2, -1, 0, 1, 2)] + [7.0, 8.0, 9.0])
    theirs.blocks[0].attn.relative_position_bias_table.data = table[:, None].repeat(1, 3)
    ours = vit_rpe.from_timm(theirs)
    rpe = ours.blocks[0].attn.rpe
    assert rpe.table[1, 2, 4] == 102
    assert rpe.table[1, 0, 0] == -102
    assert rpe.prefix_bias.tolist() == [[7.0, 8.0, 9.0]] * 3
    ours.set_input_size((64, 80))
    rpe = ours.blocks[0].attn.rpe
    assert rpe.table.shape == (3, 7, 9)
    assert rpe.prefix_bias.tolist() == [[7.0, 8.0, 9.0]] * 3
    assert (rpe.table[0].diff(dim=0) >= 0).all(), "a ramp stays a ramp"


def public_file(tmp_path, name: str, size: tuple[int, int], **kwargs) -> tuple[torch.nn.Module, dict]:
    theirs = randomize(timm.create_model(name, img_size=size, depth=2, **kwargs))
    save_file(theirs.state_dict(), tmp_path / "weights.safetensors")
    overlay = {"file": str(tmp_path / "weights.safetensors"), "input_size": (3, *size), "hf_hub_id": None}
    return theirs, overlay


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("vit_rpe_relpos_small_patch16_224", "vit_relpos_small_patch16_224"),
        ("vit_rpe_beit_base_patch16_224", "beit_base_patch16_224"),
        ("vit_rpe_timm_small_patch16_rope_mixed_ape_224", "vit_small_patch16_rope_mixed_ape_224"),
        ("vit_rpe_timm_small_patch16_rope_224", "vit_small_patch16_rope_224"),
        ("vit_rpe_timm_tiny_patch16_224", "vit_tiny_patch16_224"),
    ],
)
def test_a_public_file_loads_through_its_entry_point(tmp_path, ours: str, theirs: str) -> None:
    args = {"embed_dim": 48, "num_heads": 3}
    original, overlay = public_file(tmp_path, theirs, (32, 48), **args)
    model = timm.create_model(ours, pretrained=True, pretrained_cfg_overlay=overlay, depth=2, **args).eval()
    x = images((32, 48), batch=2)
    torch.testing.assert_close(model(x), original(x), atol=1e-4, rtol=1e-4)
    other = timm.create_model(
        ours, pretrained=True, pretrained_cfg_overlay=overlay, depth=2, img_size=(48, 64), num_classes=4, **args
    )
    model.set_input_size((48, 64))
    x = images((48, 64), batch=2)
    torch.testing.assert_close(other.eval().forward_features(x), model.forward_features(x))


def test_the_source_grid_is_never_guessed(tmp_path) -> None:
    """25 rows are a 1 x 13 grid or a 3 x 3 one: only the stored size decides."""
    args = {"embed_dim": 24, "num_heads": 3, "rel_pos_type": "bias"}
    original, overlay = public_file(tmp_path, "vit_relpos_small_patch16_224", (16, 208), **args)
    build = {"depth": 2, "embed_dim": 24, "num_heads": 3, "rpe": "bias", "pretrained": True}
    name = "vit_rpe_relpos_small_patch16_224"
    right = timm.create_model(name, pretrained_cfg_overlay=overlay, **build).eval()
    x = images((16, 208), batch=2)
    torch.testing.assert_close(right(x), original(x), atol=1e-4, rtol=1e-4)
    assert right.blocks[0].attn.rpe.table.shape == (3, 1, 25)
    with pytest.raises(ValueError, match="say the image size"):
        timm.create_model(name, pretrained_cfg_overlay={**overlay, "input_size": (3, 64, 64)}, **build)


@pytest.mark.parametrize("shared", [True, False])
def test_shared_and_layerwise_encodings_convert(shared: bool) -> None:
    source = randomize(tiny(rpe="cpb", rpe_shared=shared))
    target = tiny(rpe="cpb", rpe_shared=not shared).eval()
    if shared:
        target.load_state_dict(source.state_dict())
        x = images()
        torch.testing.assert_close(target(x), source(x))
        source.load_state_dict(target.state_dict())  # equal layers: exact, and no warning
        torch.testing.assert_close(source(x), target(x))
    else:
        with pytest.warns(UserWarning, match="layers of the weights differ"):
            target.load_state_dict(source.state_dict())
        mean = torch.stack([block.attn.rpe.fc1.weight for block in source.blocks]).mean(0)
        torch.testing.assert_close(target.rpe.fc1.weight, mean)


def test_index_buffers_of_old_files_are_dropped() -> None:
    model = tiny(rpe="bias")
    state = dict(model.state_dict())
    state["blocks.0.attn.rpe.relative_position_index"] = torch.zeros(24, 24)
    state["relative_position_index"] = torch.zeros(24, 24)
    model.load_state_dict(state)


def test_same_size_is_bit_identical_and_other_sizes_keep_the_centre() -> None:
    source = randomize(tiny(rpe="bias", pos_embed="learned", class_token=True))
    same = tiny(rpe="bias", pos_embed="learned", class_token=True)
    same.load_state_dict(source.state_dict())
    for key, value in same.state_dict().items():
        assert torch.equal(value, source.state_dict()[key]), key
    larger = tiny(rpe="bias", pos_embed="learned", class_token=True, img_size=(12, 16))
    larger.load_state_dict(source.state_dict())
    torch.testing.assert_close(larger.blocks[0].attn.rpe.table[:, 5, 7], source.blocks[0].attn.rpe.table[:, 3, 5])
    assert torch.equal(larger.pos_embed[:, 0], source.pos_embed[:, 0])


def test_what_does_not_fit_is_refused_and_said() -> None:
    with pytest.raises(RuntimeError, match="only offsets can be resampled"):
        tiny(rpe="bias", num_heads=4).load_state_dict(tiny(rpe="bias", num_heads=3).state_dict())
    with pytest.raises(RuntimeError, match="do not say their own grid"):
        tiny(rpe="none", pos_embed="learned", img_size=(12, 16)).load_state_dict(
            dict(tiny(rpe="none", pos_embed="learned").state_dict())  # without what stands beside the weights
        )
    with pytest.warns(UserWarning, match="keeps the values it had"):
        tiny(rpe="bias").load_state_dict(tiny(rpe="none").state_dict(), strict=False)
    theirs = timm.create_model("vit_small_patch16_rope_224", depth=1, img_size=32)
    with pytest.raises(ValueError, match="num_heads=6, which cannot become 4"):
        vit_rpe.from_timm(theirs, num_heads=4)


def test_a_saved_model_comes_back_from_a_local_directory(tmp_path) -> None:
    model = randomize(tiny("vit_rpe_timm_small_patch16_rope_mixed_ape_224", global_pool="avg"))
    model.set_input_size((12, 8))
    model.reset_classifier(9)
    timm.models.save_for_hf(model, tmp_path, safe_serialization=True)
    back = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    x = images((12, 8))
    torch.testing.assert_close(back(x), model(x))
    resized = timm.create_model(f"local-dir:{tmp_path}", pretrained=True, img_size=(16, 20)).eval()
    model.set_input_size((16, 20))
    x = images((16, 20))
    torch.testing.assert_close(resized(x), model(x))
    converted = vit_rpe.from_timm(timm.create_model("test_vit", depth=2, img_size=(32, 48)), rpe="bias")
    timm.models.save_for_hf(randomize(converted), tmp_path / "converted", safe_serialization=True)
    again = timm.create_model(f"local-dir:{tmp_path / 'converted'}", pretrained=True).eval()
    x = images((32, 48))
    torch.testing.assert_close(again(x), converted(x))


def test_without_weights_or_connection_there_is_one_clear_line(monkeypatch) -> None:
    with pytest.raises(RuntimeError, match="No pretrained weights exist"):
        tiny("vit_rpe_nano_patch2_8", pretrained=True)
    with pytest.raises(RuntimeError, match="Invalid pretrained tag"):
        timm.create_model("vit_rpe_relpos_small_patch16_224.nope")

    def offline(*args, **kwargs):
        raise FileNotFoundError("no such file on the hub and none in the cache")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", offline)
    with pytest.raises(RuntimeError, match="cannot get the weights of vit_rpe_relpos_small_patch16_224"):
        timm.create_model("vit_rpe_relpos_small_patch16_224.sw_in1k", pretrained=True)


@pytest.mark.parametrize("rpe", [["bias", "rope"], ["bias", "lookhere"], ["bias", "rope_mixed"]])
def test_sharing_converts_where_encodings_live_together_on_one_side_only(rpe: list[str]) -> None:
    """A parameterless encoding always lives at the model, one that differs by layer in the layers."""
    shared, x = randomize(tiny(rpe=rpe, rpe_shared=True)), images()
    layerwise = tiny(rpe=rpe).eval()
    layerwise.load_state_dict(shared.state_dict())
    torch.testing.assert_close(layerwise(x), shared(x))
    back = tiny(rpe=rpe, rpe_shared=True).eval()
    back.load_state_dict(layerwise.state_dict())
    torch.testing.assert_close(back(x), shared(x))


def test_as_many_rows_of_another_grid_are_resampled_too() -> None:
    source = randomize(tiny(rpe="bias_axial", pos_embed="learned", img_size=(8, 12)))
    target = tiny(rpe="bias_axial", pos_embed="learned", img_size=(12, 8))
    target.load_state_dict(source.state_dict())
    source.set_input_size((12, 8))
    torch.testing.assert_close(target.pos_embed, source.pos_embed)


def test_a_clipped_table_says_nothing_of_the_grid() -> None:
    """11 x 11 entries from max_distance=5, on a 4 x 9 grid with as many patches as 6 x 6."""
    rpe = {"name": "bias", "max_distance": 5}
    source = tiny(rpe=rpe, pos_embed="learned", img_size=(8, 18))
    with pytest.raises(RuntimeError, match="do not say their own grid"):
        tiny(rpe=rpe, pos_embed="learned", img_size=(12, 16)).load_state_dict(dict(source.state_dict()))


def test_a_layer_alone_says_what_it_keeps() -> None:
    layer = vit_rpe.RelativeMultiheadAttention(24, 3, rpe="bias", grid=(3, 4))
    with pytest.warns(UserWarning, match="keeps the values it had"):
        layer.load_state_dict({}, strict=False)


def test_arguments_that_the_weights_decide_are_refused_and_channels_adapted() -> None:
    theirs = timm.create_model("vit_tiny_patch16_224", depth=1, img_size=(32, 48), embed_dim=24, num_heads=3).eval()
    for changed in ({"embed_dim": 48}, {"depth": 2}, {"class_token": False}, {"pos_embed": "none"}):
        with pytest.raises(ValueError, match=f"{next(iter(changed))}=.* cannot become"):
            vit_rpe.from_timm(theirs, **changed)
    grey = vit_rpe.from_timm(theirs, in_chans=1)
    x = torch.randn(2, 1, 32, 48)
    torch.testing.assert_close(grey(x), theirs(x.expand(-1, 3, -1, -1)), atol=1e-4, rtol=1e-4)
