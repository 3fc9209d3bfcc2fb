"""One resampling for every route by which weights come in: load then resize = resize then load = create at the size."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import vit_rpe
from tests.models.tiny import randomize, tiny
from vit_rpe.models import SequenceTransformer

Size = tuple[int, int]

SIZES = [((4, 16), (8, 8)), ((4, 4), (8, 8)), ((8, 12), (6, 4)), ((8, 12), (10, 14))]
"""From and to, in pixels; in the first as many patches lie otherwise."""

CASES: dict[str, dict[str, Any]] = {
    "bias": {"rpe": "bias"},
    "decomposed": {"rpe": "decomposed"},
    "bias_prefix": {"rpe": {"name": "bias", "prefix": "learned"}, "class_token": True, "reg_tokens": 2},
    "bias_alone_embedded": {"rpe": "bias", "class_token": True, "no_embed_class": True},
    "shared": {"rpe": "bias", "rpe_shared": True, "class_token": True},
    "two": {"rpe": ["bias_axial", "rope_mixed"]},
    "geometric": {"rpe": {"name": "bias", "resample": "geometric"}},
    "exact_shaw": {"rpe": {"name": "shaw", "max_distance": "exact"}, "class_token": True},
    "cpb": {"rpe": "cpb"},
    "cpb_shared": {"rpe": ["cpb", "bias"], "rpe_shared": True},
    "none": {"rpe": "none", "class_token": True},
    "clipped": {"rpe": {"name": "bias", "max_distance": 3}},
    "padded": {"rpe": "bias", "dynamic_img_pad": True, "patch_size": 3, "dynamic_img_size": True},
}
for _name in vit_rpe.list_encodings():
    CASES.setdefault(_name, {"rpe": _name})


def loaded(weights: Any, case: dict[str, Any], size: Size, **options: bool) -> nn.Module:
    model = tiny(**case, img_size=size)
    model.load_state_dict(weights, **options)
    return model


def through_torch_save(weights: Any) -> Any:
    file = io.BytesIO()
    torch.save(weights, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def resized_before(source: nn.Module, case: dict[str, Any], sizes: tuple[Size, Size], folder: Path) -> nn.Module:
    model = tiny(**case, img_size=sizes[0])
    model.set_input_size(sizes[1])
    model.load_state_dict(source.state_dict())
    return model


def from_file(source: nn.Module, case: dict[str, Any], sizes: tuple[Size, Size], folder: Path) -> nn.Module:
    file = folder / "weights.safetensors"
    save_file(source.state_dict(), file)
    overlay = {"file": str(file), "input_size": (3, *sizes[0]), "num_classes": 5}
    return tiny(**case, img_size=sizes[1], pretrained=True, pretrained_cfg_overlay=overlay)


def from_folder(source: nn.Module, case: dict[str, Any], sizes: tuple[Size, Size], folder: Path) -> nn.Module:
    timm.models.save_for_hf(source, folder / "hub", safe_serialization=True)
    return timm.create_model(f"local-dir:{folder / 'hub'}", pretrained=True, img_size=sizes[1])


def resized_twice_kept(source: nn.Module, case: dict[str, Any], sizes: tuple[Size, Size], folder: Path) -> nn.Module:
    """Resized, kept in a folder, and built again from it."""
    model = copy.deepcopy(source)
    model.set_input_size(sizes[1])
    timm.models.save_for_hf(model, folder / "resized", safe_serialization=True)
    return timm.create_model(f"local-dir:{folder / 'resized'}", pretrained=True)


Route = Callable[[nn.Module, dict[str, Any], tuple[Size, Size], Path], nn.Module]
ROUTES: dict[str, Route] = {
    "loaded": lambda source, case, sizes, _: loaded(source.state_dict(), case, sizes[1]),
    "not_strict": lambda source, case, sizes, _: loaded(source.state_dict(), case, sizes[1], strict=False),
    "assigned": lambda source, case, sizes, _: loaded(source.state_dict(), case, sizes[1], assign=True),
    "torch_save": lambda source, case, sizes, _: loaded(through_torch_save(source.state_dict()), case, sizes[1]),
    "resized_before": resized_before,
    "file": from_file,
    "folder": from_folder,
    "resized_and_kept": resized_twice_kept,
}
SAMPLED = ("bias", "decomposed", "bias_prefix", "shared", "cpb", "none", "padded")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "case", [name if name in SAMPLED else pytest.param(name, marks=pytest.mark.exhaustive) for name in CASES]
)
def test_the_square(case: str, route: str, tmp_path: Path) -> None:
    options = {"pos_embed": "learned", **CASES[case]}
    for number, sizes in enumerate(SIZES):
        folder = tmp_path / str(number)
        folder.mkdir()
        source = randomize(tiny(**options, img_size=sizes[0]))
        found = ROUTES[route](source, options, sizes, folder).eval()
        expected = copy.deepcopy(source)
        expected.set_input_size(sizes[1])
        assert found.grid == expected.grid
        for key, value in expected.state_dict().items():
            assert torch.equal(found.state_dict()[key], value), (key, sizes)
        x = torch.randn(2, 3, *sizes[1])
        torch.testing.assert_close(found(x), expected(x), rtol=0, atol=0)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("rpe", ["bias", "cpb", ["bias_axial", "rope_mixed"]])
def test_the_square_with_another_sharing(rpe: Any, shared: bool) -> None:
    options = {"rpe": rpe, "pos_embed": "learned", "class_token": True}
    source = randomize(tiny(**options, rpe_shared=shared))
    if not shared:
        for block in source.blocks:
            block.attn.rpe.load_state_dict(source.blocks[0].attn.rpe.state_dict())
    there, expected = {**options, "rpe_shared": not shared}, tiny(**options, rpe_shared=not shared)
    expected.load_state_dict(source.state_dict())
    expected.set_input_size((14, 10))
    found = loaded(source.state_dict(), there, (14, 10)).eval()
    x = torch.randn(2, 3, 14, 10)
    torch.testing.assert_close(found(x), expected.eval()(x), rtol=0, atol=0)


def test_the_square_of_patches() -> None:
    source = randomize(tiny(pos_embed="learned", patch_size=2))
    found = tiny(pos_embed="learned", patch_size=(4, 3), img_size=(16, 15))
    found.load_state_dict(source.state_dict())
    source.set_input_size((16, 15), (4, 3))
    x = torch.randn(2, 3, 16, 15)
    torch.testing.assert_close(found.eval()(x), source(x), rtol=0, atol=0)


@pytest.mark.parametrize("rpe", ["bias", "cpb", "none", ["bias_axial", "rope_mixed"]])
@pytest.mark.parametrize("shared", [False, True])
def test_the_square_of_sequences(rpe: Any, shared: bool) -> None:
    if shared and rpe == "none":
        return
    args = {"vocab_size": 11, "embed_dim": 24, "depth": 2, "num_heads": 3, "rpe": rpe, "pos_embed": "learned"}
    source = randomize(SequenceTransformer(**args, length=7, rpe_shared=shared, class_token=True))
    found = SequenceTransformer(**args, length=12, rpe_shared=shared, class_token=True).eval()
    found.load_state_dict(source.state_dict())
    source.set_length(12)
    x = torch.randint(11, (2, 12))
    torch.testing.assert_close(found(x), source(x), rtol=0, atol=0)


def test_a_model_of_timms_takes_the_same_way() -> None:
    theirs = randomize(timm.create_model("test_vit", depth=2, img_size=(32, 48)))
    ours = vit_rpe.from_timm(theirs, rpe={"name": "bias", "prefix": "learned"}, img_size=(48, 64)).eval()
    resized = vit_rpe.from_timm(theirs, rpe={"name": "bias", "prefix": "learned"}).eval()
    resized.set_input_size((48, 64))
    theirs.set_input_size((48, 64))
    x = torch.randn(2, 3, 48, 64)
    torch.testing.assert_close(ours(x), resized(x), rtol=0, atol=0)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)


def test_a_model_of_timms_with_an_encoding_put_into_it() -> None:
    def built(size: Size) -> nn.Module:
        return vit_rpe.add_rpe(timm.create_model("test_vit", depth=2, img_size=size), ["bias", "fire"])

    source, found = randomize(built((32, 96))), built((64, 48)).eval()
    found.load_state_dict(source.state_dict())
    source.set_input_size((64, 48))
    x = torch.randn(2, 3, 64, 48)
    torch.testing.assert_close(found(x), source(x))


def test_weights_that_stand_inside_a_larger_model() -> None:
    def larger(size: Size) -> nn.Module:
        return nn.ModuleDict({"encoder": tiny(pos_embed="learned", rpe="none", img_size=size), "head": nn.Linear(3, 5)})

    source, found = randomize(larger((8, 12))), larger((12, 8))
    found.load_state_dict(source.state_dict())
    source["encoder"].set_input_size((12, 8))
    assert torch.equal(found["encoder"].pos_embed, source["encoder"].pos_embed)


def test_the_weights_given_are_left_as_they_are() -> None:
    given = randomize(tiny(pos_embed="learned", img_size=(4, 16))).state_dict()
    before = {key: value.clone() for key, value in given.items()}
    loaded(given, {"pos_embed": "learned"}, (8, 8))
    assert given.keys() == before.keys()
    assert all(torch.equal(given[key], value) for key, value in before.items())


def offsets_seen(model: nn.Module) -> Tensor:
    """What the first layer adds for the offsets (1, 0), (0, -2) and (1, 2)."""
    grid, width = model.grid, model.grid.size[1]
    rpe = model.rpe if model.blocks[0].attn.rpe is None else model.blocks[0].attn.rpe
    weights = vit_rpe.attention_weights(
        torch.zeros(1, 3, grid.num_patches, 8), torch.zeros(1, 3, grid.num_patches, 8), rpe(grid, grid), scale=1.0
    ).log()[0]
    at = 1 * width + 2  # the query at (1, 2)
    return torch.stack([weights[:, at, key] - weights[:, at, at] for key in (2, width + 4, 0)])


@pytest.mark.parametrize("name", ["cpb", "kerple", "alibi"])
@pytest.mark.parametrize("route", ["loaded", "torch_save", "resized_before", "file", "folder", "resized_and_kept"])
def test_a_continuous_encoding_means_the_same_offset_by_the_same_value(name: str, route: str, tmp_path: Path) -> None:
    case = {"rpe": name}
    source = randomize(tiny(**case, img_size=(8, 12)))
    found = ROUTES[route](source, case, ((8, 12), (12, 20)), tmp_path)
    torch.testing.assert_close(offsets_seen(found), offsets_seen(source), rtol=1e-4, atol=1e-4)
