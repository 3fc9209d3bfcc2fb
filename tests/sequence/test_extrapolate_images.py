"""``vit-rpe extrapolate`` on image checkpoints: other sizes, shifts, position removed, and what it refuses."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState

from vit_rpe.cli import main
from vit_rpe.models import SequenceTransformer, VisionTransformer
from vit_rpe.models.exchange.ablate import remove_position
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.run import train


@pytest.fixture(autouse=True)
def _fresh_accelerate() -> Iterator[None]:
    yield
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def test_sizes_and_shifts(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["--model.args={in_chans: 1, depth: 2, embed_dim: 16, num_heads: 2}", "--data.fraction=0.2"]
    words += ["--pictures=false", "--train.epochs=3", "--train.warmup_epochs=1", "--train.lr=0.005"]
    result = train(parse_config([*words, f"--output={tmp_path / 'run'}"]))
    picture = tmp_path / "there" / "curves.png"
    command = ["extrapolate", "--checkpoint", str(tmp_path / "run" / "last"), "--output", str(picture)]
    assert main([*command, "--without-position", "--factors", "0.5", "1", "1.3", "--shifts", "0", "0.25"]) == 0
    assert "run without position" in capsys.readouterr().out
    with picture.with_suffix(".csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = {(row["label"], row["changed"], row["place"]): float(row["result"]) for row in rows}
    assert set(found) == {
        (label, *place)
        for label in ("run", "run without position")
        for place in (("size", "4x4"), ("size", "8x8"), ("size", "10x10"), ("shift", "0"), ("shift", "2"))
    }
    for name in ("size", "shift"):
        place = {"size": "8x8", "shift": "0"}[name]
        assert found["run", name, place] == pytest.approx(result.evaluation.top1)
    assert picture.stat().st_size > 5000
    assert main([*command, "--resample"]) == 1
    assert "--resample is for language models" in capsys.readouterr().err
    assert main([*command, "--label", "one", "two"]) == 1
    assert "one name a checkpoint: 1, got 2" in capsys.readouterr().err


def test_removing_position_makes_an_encoder_blind_to_order() -> None:
    ids, order = torch.randint(7, (2, 9)), torch.randperm(9)
    options = {"embed_dim": 12, "depth": 2, "num_heads": 2, "pos_embed": "learned", "rpe": ["bias", "rope"]}
    model = SequenceTransformer(7, 9, 4, **options).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    assert not torch.allclose(model(ids), model(ids[:, order]))
    remove_position(model)
    torch.testing.assert_close(model(ids), model(ids[:, order]))

    images = torch.randn(2, 3, 4, 6)
    vision = VisionTransformer((4, 6), 1, num_classes=4, embed_dim=12, depth=2, num_heads=2, pos_embed="sincos").eval()
    remove_position(vision)
    torch.testing.assert_close(vision(images), vision(images.flip(-1)))
    with pytest.raises(ValueError, match="our transformers only, got Linear"):
        remove_position(torch.nn.Linear(2, 2))
