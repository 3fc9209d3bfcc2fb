"""Weights and answers that are not finite: no command counts them as the first class."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vit_rpe
from vit_rpe.cli import main
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint, read_info, save_checkpoint
from vit_rpe.training.metrics import NoAnswerError, evaluate

COMMANDS = {
    "evaluate": ["evaluate", "--checkpoint", "{run}"],
    "predict": ["predict", "{image}", "--checkpoint", "{run}"],
    "visualize": ["visualize", "--checkpoint", "{run}", "--image", "{image}", "--output", "{out}"],
    "explore": ["explore", "--checkpoint", "{run}", "--image", "{image}", "--output", "{out}.html"],
    "export": ["export", "{run}", "--format", "torch_export", "--output", "{out}.pt2"],
    "extrapolate": ["extrapolate", "--checkpoint", "{run}", "--output", "{out}"],
}


def broken(places: dict[str, str], folder: Path, name: str, value: float) -> Path:
    """The checkpoint of ``places`` with one number changed."""
    loaded = load_checkpoint(places["run"])
    weights = loaded.model.state_dict()
    weights[name].view(-1)[0] = value
    folder.mkdir()
    save_checkpoint(folder, weights, read_info(Path(places["run"])))
    return folder


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
@pytest.mark.parametrize("command", COMMANDS)
def test_weights(command: str, value: float, places: dict[str, str], tmp_path: Path, capsys) -> None:
    run = broken(places, tmp_path / "broken", "head.bias", value)
    words = [word.format(run=run, image=places["image"], out=tmp_path / "out") for word in COMMANDS[command]]
    assert main(words) == 1
    assert "holds numbers that are not finite, in head.bias" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"not finite, in head\.bias"):
        vit_rpe.load_run(run)


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_answers(command: str, places: dict[str, str], tmp_path: Path, capsys) -> None:
    """Finite weights that overflow: the first class would be named, or be right for its share of the images."""
    run = broken(places, tmp_path / "broken", "patch_embed.proj.bias", 3e38)
    words = [word.format(run=run, image=places["image"]) for word in COMMANDS[command]]
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert "answer is not a number for" in err
    assert "%" not in out


def test_one_answer_of_many() -> None:
    logits = torch.eye(5)[:, :3].contiguous()
    logits[3, 1] = float("nan")
    batches = [(torch.arange(5), torch.tensor([0, 1, 2, 0, 0]))]
    model = torch.nn.Embedding.from_pretrained(logits)
    with pytest.raises(NoAnswerError, match="for 1 of 5 labels"):
        evaluate(model, batches, prepare=lambda images: images, num_classes=3, device=torch.device("cpu"))
    logits[3] = torch.tensor([float("-inf"), 0.0, 0.0])  # a class that is ruled out is an answer
    model = torch.nn.Embedding.from_pretrained(logits)
    found = evaluate(model, batches, prepare=lambda images: images, num_classes=3, device=torch.device("cpu"))
    assert found.top1 == pytest.approx(0.8)
