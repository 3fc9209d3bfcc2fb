"""What users of vision transformers met when they changed the size of images, tried on ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch

import vit_rpe
from tests.models.tiny import randomize, tiny


def test_a_checkpoint_path_is_resampled_like_public_weights(tmp_path: Path) -> None:
    """timm issue 1794: ``checkpoint_path`` goes past the filter that resamples."""
    options = {"rpe": "bias", "pos_embed": "learned", "class_token": True}
    source = randomize(tiny(**options, img_size=(8, 12)))
    torch.save({"state_dict": source.state_dict()}, tmp_path / "checkpoint.pth")
    found = tiny(**options, img_size=(12, 8), checkpoint_path=str(tmp_path / "checkpoint.pth"))
    source.set_input_size((12, 8))
    assert all(torch.equal(value, found.state_dict()[key]) for key, value in source.state_dict().items())


@pytest.mark.parametrize("rpe", ["none", "bias"])
def test_a_native_size_that_is_not_square_and_another_in_hand(rpe: str) -> None:
    """timm pull request 2317 and issue 2190, dinov2 issues 333 and 506: the native grid was taken to be square."""
    options = {"rpe": rpe, "pos_embed": "learned", "class_token": True, "reg_tokens": 2}
    model = randomize(tiny(**options, img_size=(8, 12), dynamic_img_size=True))
    model.set_input_size((16, 6))
    assert model(torch.randn(1, 3, 6, 16)).shape == (1, 5)
    x = torch.randn(2, 3, 16, 6)
    static = tiny(**options, img_size=(16, 6)).eval()
    static.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(x), static(x))


@pytest.mark.parametrize("native", [224, 518])
def test_every_number_of_patches_is_the_one_asked_for(native: int) -> None:
    """dinov2 pull request 378: 61 / 14 x 14 gave 60 patches, and so on."""
    model = tiny(rpe="none", pos_embed="learned", img_size=native, patch_size=14, depth=1, dynamic_img_size=True).eval()
    for side in (546, 602, 976 // 14 * 14, 1092, 1204, 1610, 1722):
        tokens, grid, _ = model.embed(torch.zeros(1, 3, side, 14))
        assert (grid.size, tokens.shape[1]) == ((side // 14, 1), side // 14)


def test_maps_of_padded_images_of_any_size() -> None:
    """timm pull request 2111: ``get_intermediate_layers`` took the native grid for that of the image."""
    model = tiny(dynamic_img_size=True, dynamic_img_pad=True, patch_size=4).eval()
    for features in model.get_intermediate_layers(torch.randn(1, 3, 13, 30), n=[0, 1], reshape=True, norm=True):
        assert features.shape == (1, 24, 4, 8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("pos_embed", ["learned", "sincos"])
def test_a_model_in_another_precision_keeps_it_at_every_size(dtype: torch.dtype, pos_embed: str) -> None:
    """transformers pull request 28504: the resampled embedding came back in float32."""
    model = randomize(tiny(rpe="bias", pos_embed=pos_embed, class_token=True, dynamic_img_size=True)).to(dtype)
    assert model(torch.randn(1, 3, 12, 10, dtype=dtype)).dtype == dtype
    model.set_input_size((10, 14))
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    assert model(torch.randn(1, 3, 10, 14, dtype=dtype)).dtype == dtype


def test_a_class_token_is_never_guessed_from_the_number_of_rows() -> None:
    """A review of vision_transformer's pull request 317: 196 rows passed for 195 and a class token."""
    source = randomize(tiny(rpe="none", pos_embed="learned", img_size=(28, 28)))
    assert source.pos_embed.shape[1] == 196
    found = tiny(rpe="none", pos_embed="learned", img_size=(20, 36))
    found.load_state_dict(source.state_dict())
    source.set_input_size((20, 36))
    assert torch.equal(found.pos_embed, source.pos_embed)
    with pytest.raises(RuntimeError, match=r"196 rows, the grid .* with 1 prefix rows needs 197"):
        tiny(rpe="none", pos_embed="learned", img_size=(28, 28), class_token=True).load_state_dict(
            {**source.state_dict(), "pos_embed": torch.zeros(1, 196, 24), "cls_token": torch.zeros(1, 1, 24)}
        )


def test_an_embedding_of_patches_alone_is_resized_beside_a_class_token() -> None:
    """timm pull request 1365: ``no_embed_class`` was forgotten when resizing."""
    theirs = randomize(
        timm.create_model("deit3_small_patch16_224", img_size=(32, 48), depth=1, embed_dim=24, num_heads=3)
    )

    ours = vit_rpe.from_timm(theirs, img_size=(64, 48)).eval()
    theirs.set_input_size((64, 48))
    x = torch.randn(2, 3, 64, 48)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
