"""Images that are no whole patches: one number of patches, that of the padded image, everywhere."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import vit_rpe
from tests.models.tiny import randomize, tiny


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rpe", ["bias", "decomposed", "cpb", "rope_normalized", "none"])
@pytest.mark.parametrize("pos_embed", ["learned", "sincos"])
def test_a_padded_image_is_the_image_with_zeros_around(rpe: str, pos_embed: str, dynamic: bool) -> None:
    options = {"rpe": rpe, "pos_embed": pos_embed, "patch_size": (3, 4), "class_token": True}
    model = randomize(tiny(**options, img_size=(8, 17), dynamic_img_pad=True, dynamic_img_size=dynamic))
    whole = tiny(**options, img_size=(9, 20)).eval()
    assert model.grid == whole.grid
    whole.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 8, 17)
    torch.testing.assert_close(model(x), whole(F.pad(x, (0, 3, 0, 1))))
    model.set_input_size((13, 6))
    whole.set_input_size((15, 8))
    assert model.patch_embed.grid_size == (5, 2)
    x = torch.randn(2, 3, 13, 6)
    torch.testing.assert_close(model(x), whole(F.pad(x, (0, 2, 0, 2))))


def test_the_size_of_the_report() -> None:
    model = vit_rpe.VisionTransformer(
        img_size=220, patch_size=16, dynamic_img_pad=True, depth=1, embed_dim=24, num_heads=3
    )
    assert model(torch.zeros(1, 3, 220, 220)).shape == (1, 1000)
    assert model.blocks[0].attn.rpe.table.shape[1:] == (27, 27)
