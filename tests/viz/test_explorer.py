"""The explorer's file: packing, size, escaping, what it refuses."""

from __future__ import annotations

import base64
import gzip
import json
import re

import numpy as np
import pytest
import torch

from tests.viz.build import HEIGHT, WIDTH, images, vision_model
from vit_rpe.models.sequence.model import SequenceTransformer
from vit_rpe.models.vit_rpe import SIZES
from vit_rpe.viz import record
from vit_rpe.viz.explorer.packing import ALPHABET, Packer, base85
from vit_rpe.viz.explorer.write import explorer_page


def unpacked(text: str, length: int) -> bytes:
    digits = [ALPHABET.index(letter) for letter in text]
    words = [
        sum(digit * 85 ** (4 - place) for place, digit in enumerate(digits[at : at + 5]))
        for at in range(0, len(digits), 5)
    ]
    return gzip.decompress(b"".join(word.to_bytes(4, "big") for word in words)[:length])


def test_arrays_come_back_and_are_kept_once() -> None:
    packer = Packer()
    small = np.arange(-3, 4, dtype=np.int8)
    wide = np.array([[0.5, -2.25], [7.0, 1e-3]], dtype=np.float32)
    places = [packer.add(small), packer.add(wide), packer.add(small.copy())]
    assert places[0] == places[2]
    data = unpacked(*packer.text())
    for place, array in zip(places, (small, wide), strict=False):
        found = np.frombuffer(data, array.dtype, array.size, place["at"]).reshape(place["shape"])
        np.testing.assert_array_equal(found, array)


def test_rounded_values_keep_infinity_and_nan() -> None:
    packer = Packer()
    values = np.array([[0.0, -np.inf, 3.5], [np.nan, -7.0, 1e-4]])
    place = packer.add_rounded(values)
    whole = np.frombuffer(unpacked(*packer.text()), np.int16, 6, place["at"])
    assert whole[1] == -32768
    assert whole[3] == 32767
    finite = np.isfinite(values).flatten()
    np.testing.assert_allclose(whole[finite] * place["scale"], values.flatten()[finite], atol=place["scale"])
    assert packer.add_rounded(np.zeros((2, 2)))["scale"] == 1.0


def test_base_85_is_safe_in_a_page() -> None:
    assert len(set(ALPHABET)) == 85
    assert not set("\"'<>&\\`") & set(ALPHABET)
    assert base85(bytes([255] * 4)) == "".join(ALPHABET[digit] for digit in (82, 23, 54, 12, 0))


def page_of(model: torch.nn.Module, **more: object) -> str:
    with torch.no_grad(), record(model) as seen:
        model(images())
    given = {"names": ["a", "b"], "title": "model", **more}
    return explorer_page(seen, torch.rand(2, 1, HEIGHT, WIDTH), **given)


def test_names_stay_text() -> None:
    bad = "</script><script>alert(1)</script>"
    page = page_of(vision_model(), names=[bad, "{{blocks}}"], title=bad, captions=[bad, bad])
    assert bad not in page
    assert len(re.findall("</script>", page)) == 1 + 3 + 1
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert data["names"] == [bad, "{{blocks}}"]
    assert data["captions"] == [bad, bad]


def test_the_page_holds_everything_it_needs() -> None:
    page = page_of(vision_model())
    assert not re.search(r"https?://|<link|src=\"(?!data:)|import\(|fetch\(|XMLHttpRequest", page)
    assert "default-src 'none'" in page


def test_the_images_are_the_pixels_the_model_saw() -> None:
    import io

    from PIL import Image

    model = vision_model()
    with torch.no_grad(), record(model) as seen:
        model(images())
    pixels = torch.randint(0, 256, (2, 1, HEIGHT, WIDTH)) / 255
    page = explorer_page(seen, pixels, names=["a", "b"], title="")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    shown = Image.open(io.BytesIO(base64.b64decode(data["images"][1].split(",")[1])))
    np.testing.assert_array_equal(np.asarray(shown), (pixels[1, 0] * 255).round().to(torch.uint8))


@pytest.mark.slow
@pytest.mark.parametrize("rpe", ["bias", "rope_mixed"])
def test_the_size_of_a_large_page(rpe: str) -> None:
    model = vision_model(rpe, img_size=224, patch_size=16, in_chans=3, reg_tokens=0, **{**SIZES["small"], "depth": 12})
    x = torch.rand(4, 3, 224, 224)
    with torch.no_grad(), record(model) as seen:
        model(x)
    page = explorer_page(seen, torch.nn.functional.avg_pool2d(x, 5, 1, 2), names=list("abcd"), title="large")
    assert len(page.encode()) <= 10e6


def test_fewer_bits_make_a_smaller_page() -> None:
    model = vision_model()
    with torch.no_grad(), record(model) as seen:
        model(images())
    pixels = torch.rand(2, 1, HEIGHT, WIDTH)
    sizes = [
        len(explorer_page(seen, pixels, names=["a", "b"], title="", bits=bits)) for bits in (None, 16, 10, 8, 7, 6)
    ]
    assert sizes[0] == sizes[1]
    assert sizes[1:] == sorted(set(sizes), reverse=True)
    with pytest.raises(ValueError, match="bits must be 2 to 16, got 1"):
        explorer_page(seen, pixels, names=["a", "b"], title="", bits=1)


def test_what_has_no_image_is_refused() -> None:
    model = SequenceTransformer(11, 9, 5, embed_dim=24, depth=2, num_heads=3).eval()
    with torch.no_grad(), record(model) as seen:
        model(torch.randint(0, 11, (1, 7)))
    with pytest.raises(ValueError, match="does not attend over a whole image"):
        explorer_page(seen, torch.rand(1, 1, 4, 4), names=["a"], title="")


def test_a_mask_per_image_is_refused() -> None:
    model = vision_model()
    mask = torch.rand(2, 20, 20) > 0.3
    with torch.no_grad(), record(model) as seen:
        model(images(), attn_mask=mask)
    with pytest.raises(ValueError, match="same terms for all images"):
        explorer_page(seen, torch.rand(2, 1, HEIGHT, WIDTH), names=["a", "b"], title="")
