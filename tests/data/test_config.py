"""Wrong data options are refused with their name, before anything is read."""

import subprocess
import sys

import pytest

from vit_rpe.data import DataConfig


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
        ({"mix_prob": 2.0}, r"data\.mix_prob=2\.0, expected between 0 and 1"),
        ({"std": (0.2, 0.0, 0.1)}, r"data\.std=\(0\.2, 0\.0, 0\.1\), expected all above 0"),
        ({"background": (0, 0, 256)}, r"data\.background=\(0, 0, 256\), expected three of 0\.\.255"),
        ({"max_pixels": 10**9}, r"data\.max_pixels=1000000000, expected at most 178956970"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(**options)


def test_importing_the_data_package_stays_light():
    heavy = ("albumentations", "cv2", "sklearn", "datasets", "matplotlib")
    code = f"import sys, vit_rpe.data; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
