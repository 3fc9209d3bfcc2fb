"""Images and text are two implementations of one interface, and one rule says what an image file is."""

import os

import pytest
import torch
from PIL import Image

from vit_rpe.data import Batch, ImageData, Preprocessing, TextData, TextTreatment, image_treatment, text_treatment
from vit_rpe.data.account import Account
from vit_rpe.data.images.config import image_data
from vit_rpe.data.images.files import image_files
from vit_rpe.data.text.config import text_data
from vit_rpe.data.treatment import Treatment

IMAGES = Preprocessing((6, 10), 3, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
TEXT = TextTreatment(("\ufffd", "a", "b"), 9, "language")


@pytest.mark.parametrize("treatment", [IMAGES, TEXT], ids=["images", "text"])
def test_both_give_what_the_interface_asks_for(treatment):
    for name in [name for name in (*vars(Treatment), *Treatment.__annotations__) if not name.startswith("_")]:
        assert hasattr(treatment, name), name
    assert treatment.size == {"images": (6, 10), "text": (9,)}[treatment.kind]
    assert treatment.unit == {"images": "images", "text": "characters"}[treatment.kind]
    assert type(treatment).from_dict(treatment.to_dict()) == treatment
    assert treatment.model_args(3)["num_classes"] == 3


def test_a_size_of_images_is_one_of_images():
    assert IMAGES.resized((8, 4)) == Preprocessing((8, 4), 3, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    with pytest.raises(ValueError, match="the model takes text"):
        TEXT.resized((8, 4))


def test_the_wrong_kind_is_refused_in_words():
    assert image_treatment(IMAGES, "x") is IMAGES
    assert text_treatment(TEXT, "x") is TEXT
    with pytest.raises(ValueError, match="the student takes text, not images"):
        image_treatment(TEXT, "the student")
    with pytest.raises(ValueError, match="the model takes images, not text"):
        text_treatment(IMAGES, "the model")
    with pytest.raises(ValueError, match=r"data\.name=text gives text, not images"):
        image_data(TextData())
    with pytest.raises(ValueError, match=r"data\.name=digits gives images, not text"):
        text_data(ImageData())


def test_the_old_name_of_a_batchs_inputs_warns():
    batch = Batch(torch.zeros(2, 3), torch.zeros(2))
    with pytest.warns(DeprecationWarning, match=r"Batch\.images is now Batch\.inputs"):
        assert batch.images is batch.inputs


def test_files_for_prediction_follow_the_rule_of_training(tmp_path):
    for name in ("b10.png", "b9.JPG", ".hidden.png", "._b9.JPG", "paper.pdf", "deep/c.webp", ".trash/d.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "again").symlink_to(tmp_path)
    account = Account()
    found = image_files([tmp_path], account)
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["b9.JPG", "b10.png", "deep/c.webp"]
    assert account.left_out == {"hidden": 3, "no images by their names": 1}
    assert image_files([tmp_path / ".hidden.png", tmp_path / "paper.pdf"], Account())[0].name == ".hidden.png"
    with pytest.raises(ValueError, match="no such image"):
        image_files([tmp_path / "none"], Account())
    with pytest.raises(ValueError, match="no images in"):
        image_files([tmp_path / "folder.png"], Account())


def test_names_that_are_no_utf_8_are_told_somehow(tmp_path):
    from vit_rpe.data import DataConfig, build_data

    for number, name in enumerate((b"caf\xe9", b"bar")):
        os.mkdir(os.path.join(os.fsencode(tmp_path), name))
        for image in (b"1.png", b"\xff.png", b"3.png"):
            path = os.path.join(os.fsencode(tmp_path), name, image)
            Image.new("L", (4, 4), 9 * number).save(os.fsdecode(path))
    bundle = build_data(DataConfig(name="folder", path=str(tmp_path)), img_size=(4, 4), in_chans=1, seed=0)
    assert bundle.class_names == ["bar", "caf\\xe9"]
    names = [bundle.train.images.name(index) for index in range(len(bundle.train))]
    "".join([*names, *bundle.class_names, bundle.split, bundle.account.words()]).encode()
    assert bundle.train[0][0].max() == 9  # of bar
