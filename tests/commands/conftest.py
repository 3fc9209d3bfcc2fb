"""What the commands are tried on."""

from __future__ import annotations

import json

import numpy as np
import pytest
import timm
from PIL import Image

import vit_rpe  # noqa: F401  (registers the models with timm)
from vit_rpe.data import Preprocessing
from vit_rpe.training.checkpoint.checkpoint import CheckpointInfo, save_checkpoint

NAME = "vit_rpe_nano_patch2_8"
ARGS = {"img_size": [8, 8], "in_chans": 1, "num_classes": 10, "class_token": True, "depth": 2, "rpe": "bias"}


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Checkpoints on digits, images, a folder of images by class, a study with one cell done, a folder of runs."""
    root = tmp_path_factory.mktemp("places")
    treatment = Preprocessing((8, 8), 1, (0.5,), (0.25,)).to_dict()
    for name in ("run", "other"):
        (root / name).mkdir()
        model = timm.create_model(NAME, **ARGS)
        info = CheckpointInfo(NAME, ARGS, list("0123456789"), treatment, data={"name": "digits"})
        save_checkpoint(root / name, model.state_dict(), info)
    random = np.random.default_rng(0)
    for path in (
        "image.png",
        "image2.png",
        *(f"folder/{split}/{name}/1.png" for split in ("train", "val") for name in "ab"),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(root / path)
    (root / "study" / "cells" / "none-seed0").mkdir(parents=True)
    row = {"label": "none", "rpe": '"none"', "args": "{}", "seed": 1, "fraction": 1.0, "img_size": "null", "epochs": 30}
    row |= {"parameters": 1, "accuracy": 50.0, "seconds": 1.0, "images_per_second": 1.0}
    (root / "study" / "cells" / "none-seed0" / "result.json").write_text(json.dumps({**row, "seed": 0}))
    table = "\n".join([",".join(row), ",".join(map(str, row.values())).replace('"none"', '"""none"""')])
    (root / "study_table").write_text(table + "\n")
    for name, accuracy in (("a", 0.5), ("b", 0.75)):
        (root / "runs" / name).mkdir(parents=True)
        config = {"model": {"name": NAME, "rpe": "bias"}, "data": {"name": "digits"}, "train": {"epochs": 3}}
        (root / "runs" / name / "config.yaml").write_text(json.dumps(config))
        (root / "runs" / name / "metrics.csv").write_text(f"epoch,test_accuracy\n1,{accuracy}\n2,{accuracy / 2}\n")
    (root / "runs" / "damaged").mkdir()
    (root / "runs" / "damaged" / "config.yaml").write_text("model: [")
    found = {name: str(root / name) for name in ("run", "other", "folder", "study", "study_table", "runs")}
    return {**found, "image": str(root / "image.png"), "image2": str(root / "image2.png")}
