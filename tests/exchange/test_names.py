"""Windowed models of timm under names of ours."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import timm
import torch

from vit_rpe.cli import main
from vit_rpe.models.exchange.in_place import positioned_layers
from vit_rpe.models.families.samples.of_timm import SWIN, randomize

NANO = "vit_rpe_swin_nano_patch2_window4_32"


def test_names_have_files_of_timm_as_tags() -> None:
    names = timm.list_models(module="vit_rpe_windowed")
    assert {NANO, "vit_rpe_swin_tiny_patch4_window7_224", "vit_rpe_samvit_base_patch16"} <= set(names)
    for name in (
        "swin_tiny_patch4_window7_224.ms_in22k",
        "swinv2_tiny_window8_256.ms_in1k",
        "samvit_base_patch16.sa1b",
    ):
        theirs, ours = timm.get_pretrained_cfg(name), timm.get_pretrained_cfg(f"vit_rpe_{name}")
        assert theirs is not None
        assert ours is not None
        assert (ours.hf_hub_id, ours.input_size, ours.mean) == (theirs.hf_hub_id, theirs.input_size, theirs.mean)


def test_every_name_builds_without_memory() -> None:
    for name in ("vit_rpe_swinv2_cr_tiny_ns_224", "vit_rpe_maxvit_tiny_tf_224", "vit_rpe_coatnet_nano_rw_224"):
        with torch.device("meta"):
            model = timm.create_model(name, rpe="alibi")
        assert {layer.rpe.name for layer in positioned_layers(model).values()} == {"alibi"}


def test_nano_is_small() -> None:
    model = timm.create_model(NANO, num_classes=10)
    assert sum(parameter.numel() for parameter in model.parameters()) < 500_000
    assert [tuple(layer.rpe.grid.size) for layer in positioned_layers(model).values()] == [(4, 4)] * 6
    assert model.pretrained_cfg["architecture"] == NANO
    assert model.pretrained_cfg["input_size"] == (3, 32, 32)
    assert not model.pretrained_cfg.get("hf_hub_id")


def test_a_public_file_loads_by_name(tmp_path: Path) -> None:
    """A file of timm's, as ``pretrained=True`` would fetch it."""
    small = {"img_size": 64, "window_size": 4, "num_classes": 5, **SWIN}
    theirs = randomize(timm.create_model("swin_tiny_patch4_window7_224", **small)).eval()
    torch.save(theirs.state_dict(), tmp_path / "swin.pth")
    overlay = {"file": str(tmp_path / "swin.pth"), "num_classes": 5}
    ours = timm.create_model(
        "vit_rpe_swin_tiny_patch4_window7_224.ms_in1k", pretrained=True, pretrained_cfg_overlay=overlay, **small
    ).eval()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rpe", ["rope", "alibi"])
def test_from_scratch_nothing_warns(rpe: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        timm.create_model(NANO, rpe=rpe)


def test_it_trains_by_config(tmp_path: Path) -> None:
    words = ["--config", "cifar10/swin_nano_bias", "--data.name", "digits", "--model.img_size", "16"]
    words += ["--data.augment", "none", "--data.mixup", "0", "--data.cutmix", "0", "--data.num_workers", "0"]
    words += ["--train.epochs", "1", "--train.precision", "no", "--train.warmup_epochs", "0"]
    assert main(["train", *words, "--output", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "best" / "model.safetensors").exists()
