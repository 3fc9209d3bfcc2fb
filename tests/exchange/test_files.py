"""Files of somebody else's are read as far as they hold tensors, and told in words where they do not."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vit_rpe.models.exchange.files import read_file


class CfgNode(dict):
    """As the trainers of Swin keep beside the weights."""


def test_weights_with_what_trainers_keep_beside_them(tmp_path: Path) -> None:
    weights = {"norm.weight": torch.randn(3)}
    torch.save({"model": weights, "epoch": 3, "args": argparse.Namespace(lr=0.1)}, tmp_path / "a.pth")
    save_file(weights, tmp_path / "b.safetensors")
    torch.testing.assert_close(read_file(tmp_path / "a.pth")["model"], weights)
    torch.testing.assert_close(dict(read_file(str(tmp_path / "b.safetensors"))), weights)


def test_what_is_told_of_other_files(tmp_path: Path) -> None:
    torch.save({"model": {}, "config": CfgNode()}, tmp_path / "config.pth")
    with pytest.raises(ValueError, match=r"holds a [\w.]+\.CfgNode beside its weights.*save the weights alone"):
        read_file(tmp_path / "config.pth")
    torch.save(torch.zeros(3), tmp_path / "tensor.pth")
    with pytest.raises(ValueError, match="holds a Tensor, not weights by name"):
        read_file(tmp_path / "tensor.pth")
    (tmp_path / "text.safetensors").write_text("no weights")
    for name in ("text.safetensors", "absent.pth"):
        with pytest.raises(ValueError, match=name):
            read_file(tmp_path / name)
