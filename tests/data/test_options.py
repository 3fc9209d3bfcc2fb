"""No option without effect: each option of each source, set to another value, changes something or is refused."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vit_rpe.data import DATA_NAMES, DataConfig, batch_mixer, build_data, eval_loader, train_loader
from vit_rpe.data.sources import SOURCES

from .image_files import speckle, write_class_folders
from .test_cifar import write_hundred, write_ten
from .test_fashion_mnist import write as write_fashion
from .test_shards import png, write_shard

CHANGED: dict[str, Any] = {
    "path": "nowhere",
    "val_path": "nowhere",
    "batch_size": 6,
    "eval_batch_size": 3,
    "num_workers": 1,
    "persistent_workers": False,
    "start_method": "spawn",
    "prefetch_factor": 5,
    "drop_last": False,
    "val_fraction": 0.55,
    "split_seed": 3,
    "fraction": 0.5,
    "img_size": (10, 8),
    "augment": "light",
    "download": True,
    "on_bad_image": "skip",
    "max_bad_images": 0,
    "max_pixels": 30,
    "crop_pct": 0.5,
    "interpolation": "nearest",
    "mean": (0.1, 0.2, 0.3),
    "std": (0.1, 0.2, 0.3),
    "background": (9, 8, 7),
    "image_key": "nothing",
    "label_key": "nothing",
    "mixup": 0.5,
    "cutmix": 0.5,
    "mix_prob": 0.5,
    "mix_switch_prob": 0.1,
    "length": 6,
    "characters": 5,
    "windows": 3,
    "val_characters": 64,
}
WITHOUT_A_GPU_NOTHING = {"pin_memory"}
BESIDE: dict[str, dict[str, Any]] = {  # what an option needs beside it; alone it is refused, see test_config.py
    "drop_last": {"batch_size": 9},  # which leaves a rest
    "persistent_workers": {"num_workers": 1},
    "start_method": {"num_workers": 1},
    "prefetch_factor": {"num_workers": 1},
    "max_bad_images": {"on_bad_image": "skip"},
    "mix_prob": {"mixup": 0.5},
    "mix_switch_prob": {"mixup": 0.5, "cutmix": 0.5},
}


def write_images(root: Path, broken: bool) -> str:
    """Two classes; an image with transparent pixels, and one that cannot be read if asked for."""
    from PIL import Image

    write_class_folders(root, {"a": 14, "b": 14})
    for name in "ab":
        Image.fromarray(speckle(9, 13, channels=4)).save(root / name / "alpha.png")
        (root / name / "last.png").write_bytes(b"no image" if broken else png(3))
    return str(root)


def write_text(root: Path) -> str:
    for name in ("x", "y"):
        (root / name).mkdir(parents=True)
        for number in range(12):
            (root / name / f"{number}.txt").write_text(f"{name}{number} abcdefgh " * 40)
    return str(root)


def data_of(name: str, root: Path, *, broken: bool = False) -> dict[str, Any]:
    """Small data for a source, and the options that lead to them."""
    last = b"no image" if broken else png(3)
    if name == "digits":
        return {}
    if name in ("text", "text_classes"):
        return {"path": write_text(root)}
    if name == "folder":
        return {"path": write_images(root, broken)}
    if name == "imagenet":
        write_images(root / "val", broken)
        return {"path": str(Path(write_images(root / "train", broken)).parent)}
    if name == "cifar10":
        write_ten(root)
    elif name == "cifar100":
        write_hundred(root)
    elif name == "fashion_mnist":
        write_fashion(root, packed=False)
    elif name == "webdataset":
        files = [png(n) for n in range(30)] + [alpha_png(), last] * 2
        samples = [(f"{n}", content, str(n * 2 // len(files))) for n, content in enumerate(files)]
        write_shard(root / "all.tar", samples)
        return {"path": str(root / "all.tar")}
    else:
        datasets = pytest.importorskip("datasets")
        table = datasets.Dataset.from_dict({"image": [png(n) for n in range(30)] + [alpha_png(), last] * 2,
                                            "label": [n * 2 // 34 for n in range(34)]})  # fmt: skip
        if name == "parquet":
            table.to_parquet(root / "all.parquet")
            return {"path": str(root / "all.parquet")}
        table.save_to_disk(root / "set")
        return {"path": str(root / "set")}
    return {"path": str(root)}


def alpha_png() -> bytes:
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(speckle(9, 13, channels=4)).save(file, "PNG")
    return file.getvalue()


def outcome(name: str, options: dict[str, Any]) -> Any:
    """All that comes of these options: batches, classes, words, or the error."""
    config = DataConfig(name=name, batch_size=options.pop("batch_size", 4), **options)
    try:
        return built(config)
    except ValueError as error:
        return str(error)


def built(config: Any) -> Any:
    text = config.kind == "text"
    bundle = build_data(
        config,
        img_size=None if text else (getattr(config, "img_size", None) or (8, 10)),
        in_chans=None if text else 3,
        seed=0,
    )
    train, val = train_loader(bundle, config, seed=0), eval_loader(bundle, config)
    workers = train._batches
    found: list[Any] = [bundle.split, json.dumps(bundle.treatment.to_dict()), bundle.class_names, len(train)]
    found += [workers.num_workers, workers.prefetch_factor, workers.persistent_workers]
    found += [type(workers.multiprocessing_context).__name__]
    mixer = batch_mixer(config, num_classes=bundle.num_classes, label_smoothing=0.0)
    found.append(None if mixer is None else sorted((k, v) for k, v in vars(mixer._mixup).items()))
    if not config.num_workers:
        for batches in (train, val):
            try:
                found += [(bundle.to_device_batch(x, "cpu").numpy().tobytes(), y.numpy().tobytes()) for x, y in batches]
            except ValueError as error:
                found.append(str(error))
    return found


SAMPLE = ("digits", "folder", "webdataset", "text", "text_classes")


@pytest.mark.parametrize(
    "name",
    [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.exhaustive) for name in DATA_NAMES],
)
def test_every_option_does_something_or_is_refused(name, tmp_path, monkeypatch):
    warnings.simplefilter("ignore")

    def fetched(*args, **options):
        raise ValueError("fetched")

    for module in ("cifar", "fashion_mnist"):
        monkeypatch.setattr(sys.modules[f"vit_rpe.data.sources.{module}"], "fetch", fetched)
    good, bad = data_of(name, tmp_path / "good"), data_of(name, tmp_path / "bad", broken=True)
    small = {"length": 5, "characters": 12} if SOURCES[name].config.kind == "text" else {}
    plain: dict[str, Any] = {}
    for field in fields(SOURCES[name].config):
        option = field.name
        if option == "name" or option in WITHOUT_A_GPU_NOTHING:
            continue
        beside = {**(bad if "bad_image" in option else good), **small, **BESIDE.get(option, {})}
        if option == "download" and "path" in beside:
            beside["path"] = str(tmp_path / "empty")
        key = json.dumps(beside, sort_keys=True)
        try:
            if key not in plain:
                plain[key] = outcome(name, dict(beside))
            changed = outcome(name, {**beside, option: CHANGED[option]})
        except ValueError:
            continue  # refused at once
        assert changed != plain[key], f"data.{option}={CHANGED[option]!r} changes nothing for {name} and is not refused"


def test_every_option_is_tried():
    known = {field.name for source in SOURCES.values() for field in fields(source.config)}
    assert known - {"name"} - WITHOUT_A_GPU_NOTHING == set(CHANGED)
    assert np.all([option in CHANGED for option in BESIDE])


def test_a_toy_source_needs_only_its_file_and_a_row(monkeypatch):
    """What CONTRIBUTING.md says: a function of the config in a file of its own, and a row in the table."""
    from vit_rpe.data.images.config import ImageData
    from vit_rpe.data.sources import ArrayImages, DataSource, images
    from vit_rpe.training.config.parse import parse_config

    def toy(config: ImageData) -> DataSource:
        """Twelve random images in two classes."""
        pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
        train = ArrayImages(pixels, np.arange(12, dtype=np.int64) % 2, "toy")
        return DataSource(train=train, val=None, class_names=["even", "odd"], mean=(0.5,) * 3, std=(0.25,) * 3)

    monkeypatch.setitem(SOURCES, "toy", images(toy, "val_fraction"))
    config = parse_config(["--data.name", "toy", "--data.val_fraction", "0.5", "--data.batch_size", "2"]).data
    bundle = build_data(config, img_size=(8, 8), in_chans=3, seed=0)
    assert bundle.split.startswith("toy: 6 training and 6 validation images")
    assert len(next(iter(train_loader(bundle, config, seed=0)))[1]) == 2
    assert bundle.account.words() == "met 12, took 12 (6 training and 6 validation), left out nothing"
    with pytest.raises(ValueError, match=r"data\.path='x' means nothing for data\.name=toy"):
        DataConfig(name="toy", path="x")
    named = Path(__file__).parents[2].joinpath("CONTRIBUTING.md").read_text()
    assert "vit_rpe/data/sources/__init__.py" in named
    assert "A new data source" in named


def test_the_page_has_a_row_of_every_source():
    page = Path(__file__).parents[2].joinpath("docs", "data.md").read_text()
    table = "".join(line for line in page.split("## Sources")[1].split("\n## ")[0].splitlines() if line[:1] == "|")
    assert [name for name in DATA_NAMES if f"`{name}`" not in table] == []
