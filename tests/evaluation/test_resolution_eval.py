"""The same weights read at other sizes, on fewer images, and under other arguments of the model."""

import pytest
import timm
import torch

import vit_rpe  # noqa: F401  (registers the models with timm)
from vit_rpe.data import Preprocessing
from vit_rpe.evaluation.resolution_eval import accuracy_by_shift, accuracy_by_size
from vit_rpe.training.checkpoint.checkpoint import CheckpointInfo, load_checkpoint, save_checkpoint

YARN = {"rpe": {"name": "rope", "scaling": "yarn"}}
ARGS = {"img_size": [8, 8], "in_chans": 1, "num_classes": 10, "depth": 2, "rpe": "rope"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rope")
    torch.manual_seed(0)
    model = timm.create_model("vit_rpe_nano_patch2_8", **ARGS)
    with torch.no_grad():  # so that places matter
        for block in model.blocks:
            block.attn.qkv.weight.mul_(20)
    treatment = Preprocessing((8, 8), 1, (0.5,), (0.25,)).to_dict()
    info = CheckpointInfo("vit_rpe_nano_patch2_8", ARGS, list("0123456789"), treatment, data={"name": "digits"})
    save_checkpoint(folder, model.state_dict(), info)
    return folder


def test_weights_read_under_another_encoding(checkpoint):
    images = torch.randn(2, 1, 8, 12)
    with torch.no_grad():
        rope, yarn = (
            [load_checkpoint(checkpoint, img_size=size, model_args=args).model for size in (None, (8, 12))]
            for args in (None, YARN)
        )
        torch.testing.assert_close(yarn[0](images[..., :8]), rope[0](images[..., :8]))
        assert (yarn[1](images) - rope[1](images)).abs().max() > 1e-3
        built = timm.create_model("vit_rpe_nano_patch2_8", **{**ARGS, **YARN})
        built.load_state_dict(rope[0].state_dict())
        built.set_input_size(img_size=(8, 12))
        torch.testing.assert_close(yarn[1](images), built.eval()(images))
    assert accuracy_by_size(checkpoint, [16], model_args=YARN) != accuracy_by_size(checkpoint, [16])
    with pytest.raises(ValueError, match="do not fit"):
        load_checkpoint(checkpoint, model_args={"embed_dim": 32})


def test_fewer_images_are_a_share_of_all(checkpoint):
    whole = accuracy_by_size(checkpoint, [8])[8]
    assert accuracy_by_size(checkpoint, [8], images=10**6)[8] == whole
    assert accuracy_by_shift(checkpoint, [0])[0] == whole
    part = accuracy_by_size(checkpoint, [8], images=7)[8]
    assert part * 7 == pytest.approx(round(part * 7), abs=1e-4)
    assert set(accuracy_by_shift(checkpoint, [1, 2], images=7)) == {1, 2}
    assert accuracy_by_shift(checkpoint, []) == {}
