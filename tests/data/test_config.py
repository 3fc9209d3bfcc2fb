"""Wrong data options are refused with their name, before anything is read."""

import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from vit_rpe.data import DATA_NAMES, DataConfig, ImageData, TextData, build_data, read_config
from vit_rpe.data.sources import SOURCES


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "cifar"}, r"data\.name 'cifar'.*did you mean 'cifar10'"),
        ({"on_bad_image": "skipp"}, r"data\.on_bad_image 'skipp'.*did you mean 'skip'"),
        ({"interpolation": "cubic"}, r"data\.interpolation 'cubic'.*did you mean 'bicubic'"),
        ({"start_method": "swapn"}, r"data\.start_method 'swapn'.*did you mean 'spawn'"),
        ({"batch_size": 0}, r"data\.batch_size=0, expected at least 1"),
        ({"eval_batch_size": 0}, r"data\.eval_batch_size=0, expected at least 1 or null"),
        ({"num_workers": -1}, r"data\.num_workers=-1, expected at least 0"),
        ({"val_fraction": 1.0}, r"data\.val_fraction=1\.0, expected between 0 and 1, both excluded"),
        ({"fraction": 0.0}, r"data\.fraction=0\.0, expected above 0, at most 1"),
        ({"crop_pct": 1.5}, r"data\.crop_pct=1\.5, expected above 0, at most 1, or null"),
        ({"mix_prob": 0.5}, r"data\.mix_prob=0\.5, expected data\.mixup or data\.cutmix above 0"),
        ({"mixup": 0.1, "mix_switch_prob": 0.1}, r"data\.mix_switch_prob=0\.1, expected data\.mixup and data\.cutmix"),
        ({"max_bad_images": 3}, r"data\.max_bad_images=3, expected data\.on_bad_image=skip"),
        ({"path": "photos"}, r"data\.path='photos' means nothing for data\.name=digits.*folder.*text"),
        (
            {"name": "cifar10", "val_path": "v"},
            r"data\.val_path='v'.*data\.name=cifar10.*\(folder, parquet, webdataset",
        ),
        ({"name": "folder", "download": True}, r"data\.download=True.*\(fashion_mnist, cifar10, cifar100\)"),
        ({"name": "webdataset", "image_key": "png"}, r"data\.image_key='png'.*\(hf, parquet\)"),
        ({"name": "folder", "length": 7}, r"data\.length=7 .*\(text, text_classes\)"),
        ({"name": "text", "mixup": 0.2}, r"data\.mixup=0\.2 means nothing for data\.name=text"),
        ({"name": "text_classes", "windows": 4}, r"data\.windows=4 .*\(text\)"),
        ({"img_sise": 4}, r"unknown option data\.img_sise \(did you mean 'img_size'\?\)"),
        ({"mix_prob": 2.0}, r"data\.mix_prob=2\.0, expected between 0 and 1"),
        ({"mean": (127.5, 127.5, 127.5)}, r"data\.mean=.*expected one number on the 0\.\.1 scale per channel"),
        ({"std": ()}, r"data\.std=\(\), expected one number"),
        ({"std": (0.2, 0.0, 0.1)}, r"data\.std=\(0\.2, 0\.0, 0\.1\), expected all above 0"),
        ({"background": (0, 0, 256)}, r"data\.background=\(0, 0, 256\), expected three of 0\.\.255"),
        ({"max_pixels": 10**9}, r"data\.max_pixels=1000000000, expected at most 178956970"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(**options)


@pytest.mark.parametrize("name", DATA_NAMES)
def test_files_with_the_options_of_all_sources_are_read(name):
    """Run folders of earlier versions hold every option, those of other sources at their defaults."""
    old = {**asdict(TextData()), **asdict(ImageData()), "name": name, "batch_size": 6, "mean": None}
    config = read_config(json.loads(json.dumps(old)))
    assert config == DataConfig(name=name, batch_size=6)
    assert config.kind == SOURCES[name].config.kind
    assert read_config(json.loads(json.dumps(asdict(config)))) == config


def test_options_of_the_other_kind_are_refused_by_name():
    config = replace(DataConfig(name="folder", path="p"), name="text")
    with pytest.raises(ValueError, match=r"data\.name=text gives text, these are options of images"):
        build_data(config, img_size=(8, 8), in_chans=1, seed=0)


def test_importing_the_data_package_stays_light():
    heavy = ("albumentations", "cv2", "sklearn", "datasets", "matplotlib")
    code = f"import sys, vit_rpe.data; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
