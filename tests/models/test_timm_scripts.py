"""timm's scripts with our models: the launcher of docs/timm.md, and the calls that the scripts make.

The scripts are not part of timm's package. What stands in for them here goes through the same functions of timm, in
their order and with their arguments: options, model, data, optimiser, schedule, EMA, checkpoint, and loading that.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

DOCUMENT = Path(__file__).parents[2] / "docs" / "timm.md"

SCRIPT = """
import argparse
import torch
from timm.data import create_dataset, create_loader, resolve_data_config
from timm.loss import LabelSmoothingCrossEntropy
from timm.models import create_model, load_checkpoint, resume_checkpoint
from timm.optim import create_optimizer_v2, optimizer_kwargs
from timm.scheduler import create_scheduler_v2, scheduler_kwargs
from timm.utils import CheckpointSaver, ModelEmaV3, ParseKwargs, accuracy

parser = argparse.ArgumentParser()
parser.add_argument("--data-dir")
parser.add_argument("--model")
parser.add_argument("--model-kwargs", nargs="*", default={}, action=ParseKwargs)
parser.add_argument("--num-classes", type=int)
parser.add_argument("--img-size", type=int)
parser.add_argument("--checkpoint", default="")
parser.add_argument("--layer-decay", type=float)
for name, value in {"opt": "adamw", "lr": 3e-3, "weight_decay": 0.05, "momentum": 0.9, "sched": "cosine",
                    "epochs": 1, "warmup_epochs": 0, "cooldown_epochs": 0}.items():
    parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)

if __name__ == "__main__":
    args = parser.parse_args()
    options = {"pretrained": False, "in_chans": 3, "num_classes": args.num_classes, "global_pool": None,
               "scriptable": False, **args.model_kwargs}
    if not args.checkpoint:
        options |= {"drop_rate": 0.0, "drop_path_rate": None, "drop_block_rate": None, "bn_momentum": None,
                    "bn_eps": None, "checkpoint_path": ""}
    torch.manual_seed(0)
    model = create_model(args.model, **options)
    data = resolve_data_config(vars(args), model=model)

    def loader(split, training):
        dataset = create_dataset("", root=args.data_dir, split=split, is_training=training, batch_size=4)
        return create_loader(dataset, input_size=data["input_size"], batch_size=4, is_training=training, no_aug=True,
                             use_prefetcher=False, interpolation=data["interpolation"], mean=data["mean"],
                             std=data["std"], num_workers=0, crop_pct=data["crop_pct"], device=torch.device("cpu"))

    def evaluate():
        model.eval()
        with torch.no_grad():
            logits, target = zip(*((model(x), y) for x, y in loader("validation", False)))
        logits = torch.cat(logits)
        return accuracy(logits, torch.cat(target))[0].item(), logits.square().sum().item()

    if args.checkpoint:
        load_checkpoint(model, args.checkpoint, use_ema=False)
        print("result", *evaluate())
    else:
        optimizer = create_optimizer_v2(model, **optimizer_kwargs(cfg=args))
        batches = loader("train", True)
        scheduler, _ = create_scheduler_v2(optimizer, **scheduler_kwargs(args), updates_per_epoch=len(batches))
        ema = ModelEmaV3(model, decay=0.9)
        model.train()
        for step, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            LabelSmoothingCrossEntropy(0.1)(model(x), y).backward()
            optimizer.step()
            ema.update(model, step=step)
        scheduler.step(1)
        saver = CheckpointSaver(model=model, optimizer=optimizer, args=args, model_ema=ema, checkpoint_dir=".")
        saver.save_checkpoint(0, metric=evaluate()[0])
        assert resume_checkpoint(model, "last.pth.tar", optimizer=optimizer) == 1
        print("result", *evaluate())
"""


def launcher() -> list[str]:
    """The documented words before the name of the script."""
    found = re.search(r'python -c "([^"]+)" \\\n', DOCUMENT.read_text())
    assert found is not None
    return [sys.executable, "-W", "error::UserWarning", "-c", found[1]]


def folder_of_images(root: Path) -> None:
    """Two classes, dark and light, of noisy images."""
    random = np.random.default_rng(0)
    for split, count in (("train", 6), ("validation", 3)):
        for name, grey in (("dark", 60), ("light", 190)):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = np.clip(random.normal(grey, 20, (9, 11, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{number}.png")


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*launcher(), *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_train_and_validate_through_the_documented_launcher(tmp_path: Path) -> None:
    folder_of_images(tmp_path / "images")
    (tmp_path / "script.py").write_text(SCRIPT)
    words = ["script.py", "--data-dir", "images", "--model", "vit_rpe_nano_patch2_8", "--num-classes", "2"]
    words += ["--img-size", "8", "--model-kwargs", "depth=2", "rpe={'name': 'bias', 'max_distance': 2}"]
    trained = run([*words, "--layer-decay", "0.8"], tmp_path)
    assert trained.returncode == 0, trained.stderr
    validated = run([*words, "--checkpoint", "last.pth.tar"], tmp_path)
    assert validated.returncode == 0, validated.stderr
    assert trained.stdout.splitlines()[-1] == validated.stdout.splitlines()[-1]
    assert re.fullmatch(r"result [\d.]+ [\d.]+", validated.stdout.splitlines()[-1])
