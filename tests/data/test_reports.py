"""What people reported about other packages' data loading, tried here: the right value, or a refusal in words."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from vit_rpe.data import DataConfig, DataNotFoundError, build_data

from .image_files import write_class_folders
from .test_image_kinds import half_white, read, tiff_data
from .test_shards import png, write_shard
from .test_splits import write_parquet


def build(name, path, **options):
    return build_data(DataConfig(name=name, path=str(path), **options), img_size=(9, 13), in_chans=3, seed=0)


def test_checkpoints_of_a_notebook_are_no_class(tmp_path):
    """pytorch/vision 2831: a hidden folder becomes the first class and moves all numbers."""
    write_class_folders(tmp_path, {".ipynb_checkpoints": 3, "a": 3, "b": 3})
    write_class_folders(tmp_path / "a", {".ipynb_checkpoints": 2})
    bundle = build("folder", tmp_path)
    assert bundle.class_names == ["a", "b"]
    assert bundle.account.left_out == {"hidden": 2}


@pytest.mark.parametrize("names", [("train", "test"), ("train", "val")])
def test_images_directly_in_the_folders_of_splits(tmp_path, names):
    """huggingface/datasets 7880: the names of splits become labels."""
    write_class_folders(tmp_path, dict.fromkeys(names, 3))
    with pytest.raises(DataNotFoundError, match=r"(no images in .*train: expected|no folder of a class)"):
        build("folder", tmp_path)


def test_an_unlabelled_test_folder_and_a_table_beside_training(tmp_path):
    """fastai 2336: test images end up in training, as a class of their own."""
    write_class_folders(tmp_path / "train", {"label_0": 5, "label_1": 5})
    write_class_folders(tmp_path, {"test": 4})
    (tmp_path / "labels.csv").write_text("id,label\n")
    bundle = build("folder", tmp_path)
    assert (bundle.class_names, len(bundle.train), len(bundle.val)) == (["label_0", "label_1"], 8, 2)
    assert bundle.account.left_out == {"folders without classes": 1, "beside the folders of splits": 1}


def test_a_class_without_validation_images_moves_no_number(tmp_path):
    """timm 957, ultralytics 13936: validation numbers its classes by itself."""
    write_class_folders(tmp_path / "train", {"0": 2, "90": 2, "180": 2, "270": 2})
    write_class_folders(tmp_path / "val", {"0": 1, "90": 1, "180": 0, "270": 1})
    with pytest.warns(UserWarning, match="no validation image: 180"):
        assert list(build("folder", tmp_path).val.labels) == [0, 1, 3]


@pytest.mark.parametrize("files", [["photo of a train", "test tubes"], ["a", "contest-1"], ["latest", "trainer"]])
def test_words_inside_of_file_names_are_no_splits(files, tmp_path):
    """huggingface/datasets 5021: "train" or "test" anywhere in a name makes a split and drops the other files."""
    for number, file in enumerate(files):
        write_parquet(tmp_path / f"{file}.parquet", 10 * number)
    bundle = build("parquet", tmp_path)
    assert len(bundle.train) + len(bundle.val) == 8
    assert bundle.held_out == "validation"


def test_dots_in_the_keys_and_folders_of_shards(tmp_path):
    """webdataset 237, huggingface/datasets 7150: what follows the first dot is the kind; folders may have dots."""
    samples = [(f"v1.0/{n}", png(n), str(n % 2)) for n in range(4)]
    write_shard(tmp_path / "good.tar", samples)
    assert len(build("webdataset", tmp_path / "good.tar").train) == 2
    write_shard(tmp_path / "bad.tar", [*samples, *((f"22.0{n}", png(n), "0") for n in range(2))])
    bundle = build("webdataset", tmp_path / "bad.tar")
    assert len(bundle.train) + len(bundle.val) == 4
    assert bundle.account.left_out == {"neither KEY.cls nor an image KEY.png ... without a dot in KEY": 4}


def test_camera_data_that_are_an_address(tmp_path):
    """Pillow 7879: "not a TIFF file (header b'http://n' not valid)" for a JPEG that is whole."""
    file = io.BytesIO()
    Image.fromarray(half_white()).save(file, "JPEG", exif=b"Exif\0\0http://ns.adobe.com/xap/1.0/", quality=95)
    np.testing.assert_allclose(read(file.getvalue(), 2, 4, 1)[:, :, 0], [[255, 255, 0, 0], [0, 0, 0, 0]], atol=2)


@pytest.mark.parametrize("scale", [1, 256, 257])
def test_a_palette_of_bytes_in_a_tiff_file(scale):
    """Pillow 2157: a colour map of 0..255 instead of 0..65535 makes the whole image black."""
    colours = np.zeros((3, 256), dtype="<u2")
    colours[:, 1], colours[:, 2] = (200, 100, 50), (255, 0, 10)
    tags = [*((tag, 3, 1, struct.pack("<H", value)) for tag, value in
            ((256, 2), (257, 1), (258, 8), (259, 1), (262, 3), (278, 1))), (273, 4, 1, struct.pack("<I", 8)),
            (279, 4, 1, struct.pack("<I", 2)), (320, 3, 768, (colours * scale).astype("<u2").tobytes())]  # fmt: skip
    content = tiff_data(tags, first=12)
    content = content[:8] + bytes([1, 2, 0, 0]) + content[8:]
    assert read(content, 1, 2)[0].tolist() == [[200, 100, 50], [255, 0, 10]]


def test_several_pictures_in_a_jpeg_file():
    """Pillow 1138, 5164: cameras append thumbnails; the first picture is the image."""
    file = io.BytesIO()
    first = Image.fromarray(half_white()).convert("RGB")
    first.save(file, "MPO", save_all=True, append_images=[first.resize((8, 4))], quality=95)
    np.testing.assert_allclose(read(file.getvalue(), 2, 4, 1)[:, :, 0], [[255, 255, 0, 0], [0, 0, 0, 0]], atol=2)


@pytest.mark.parametrize("mode", ["I;16", "I;16L", "I;16B", "I;16N"])
def test_sixteen_bits_in_every_byte_order(mode):
    """Pillow 9931: native byte order was clipped to 255."""
    image = Image.new(mode, (2, 1), 0x1234)
    assert read(image, 1, 2, 1).flatten().tolist() == [18, 18]


def test_a_folder_without_images_between_classes(tmp_path):
    """pytorch/vision 4925: a folder of notes beside the classes stops everything, or becomes a class."""
    write_class_folders(tmp_path, {"a": 5, "b": 5})
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("")
    bundle = build("folder", tmp_path)
    assert bundle.class_names == ["a", "b"]
    assert bundle.account.left_out["folders without an image of their own"] == 1
