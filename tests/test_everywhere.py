"""Every recent encoding in every place: it works there, or is refused in a sentence (:data:`REFUSED`)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from tests.exchange.test_replace import replaced
from tests.models.tiny import images, randomize, tiny
from tests.training.conftest import forget_processes
from vit_rpe import RelativeMultiheadAttention, TokenGrid, viz
from vit_rpe.cli import main
from vit_rpe.data import Preprocessing
from vit_rpe.evaluation.resolution_eval import accuracy_by_size
from vit_rpe.models import SequenceTransformer
from vit_rpe.models.export import export_model
from vit_rpe.models.families.samples.of_timm import build as windowed
from vit_rpe.models.families.samples.of_timm import image as windowed_image
from vit_rpe.training.checkpoint.checkpoint import CheckpointInfo, save_checkpoint
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.run import train

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def rope(**options: Any) -> dict[str, Any]:
    return {"rpe": {"name": "rope", **options}}


def mixed(**options: Any) -> dict[str, Any]:
    return {"rpe": {"name": "rope_mixed", **options}}


ENCODINGS: dict[str, dict[str, Any]] = {
    "rope-spiral": rope(layout="spiral", directions=2),
    "rope-golden": rope(layout="golden"),
    "rope-simplex": rope(layout="simplex"),
    "rope-still": rope(zero_share=0.5, fastest=1.5),
    "rope-registers": rope(registers=100.0),
    "rope-linear": rope(scaling="linear"),
    "rope-ntk": rope(scaling="ntk"),
    "rope-yarn": rope(scaling="yarn", layout="golden"),
    "rope_mixed-axial": mixed(layout="axial"),
    "rope_mixed-normalized": mixed(normalized=True, noise=0.1),
    "rope_mixed-yarn": mixed(scaling="yarn"),
    "bias-impulse": {"rpe": {"name": "bias", "init": "impulse"}},
    "bias-symmetric": {"rpe": {"name": "bias", "symmetric": True}},
    "bias_axial-impulse": {"rpe": {"name": "bias_axial", "init": "impulse"}},
    "gaussian": {"rpe": "gaussian"},
    "fourier": {"rpe": "fourier"},
    "irpe": {"rpe": "irpe"},
    "pape": {"rpe": {"name": "pape", "parabolas": 3}},
    "pape_ri": {"rpe": "pape_ri"},
    "pope": {"rpe": "pope"},
    "liere": {"rpe": "liere"},
    "conditional": {"rpe": "none", "pos_embed": "conditional"},
}
PREFIX = {"class_token": True, "reg_tokens": 4}


def learns(model: torch.nn.Module, out: torch.Tensor) -> None:
    assert out.isfinite().all()
    out.square().mean().backward()
    missing = [name for name, own in model.named_parameters() if own.requires_grad and own.grad is None]
    assert not missing


def small(options: dict[str, Any], **more: Any) -> Any:
    return randomize(tiny(**{**PREFIX, **options, **more}))


def in_a_vit(options: dict[str, Any], folder: Path) -> None:
    model = small(options).train()
    learns(model, model(images()))


def in_windows(options: dict[str, Any], folder: Path) -> None:
    model = small(options, window=(1, 2), patch_drop_rate=0.25).train()
    learns(model, model(images()))


def at_other_sizes(options: dict[str, Any], folder: Path) -> None:
    model, x = small(options, dynamic_img_size=True), images((12, 10))
    assert model(x).isfinite().all()
    larger = tiny(**{**PREFIX, **options}, img_size=(12, 10)).eval()
    larger.load_state_dict(model.state_dict())
    model.set_input_size((12, 10))
    assert_close(larger(x), model(x))


def frozen(options: dict[str, Any], folder: Path) -> None:
    model, x = small(options), images()
    expected = model(x)
    model.freeze()
    assert_close(model(x), expected)


def compiled(options: dict[str, Any], folder: Path) -> None:
    torch._dynamo.reset()
    model = small(options, depth=1)
    with torch.no_grad():
        x = images()
        assert_close(torch.compile(model, backend="eager", fullgraph=True)(x), model(x), atol=1e-5, rtol=1e-4)


def exported(options: dict[str, Any], folder: Path) -> None:
    model = small(options, depth=1)
    assert export_model(model, folder / "model.pt2", file_format="torch_export", dynamic_size=True) <= 1e-4


def exported_to_onnx(options: dict[str, Any], folder: Path) -> None:
    assert export_model(small(options, depth=1), folder / "model.onnx", file_format="onnx") <= 1e-4


def replacing(case: str) -> Callable[[dict[str, Any], Path], None]:
    def check(options: dict[str, Any], folder: Path) -> None:
        model = replaced(windowed(case), options["rpe"])
        learns(model, model(windowed_image(case)))

    return check


def with_pooled_keys(options: dict[str, Any], folder: Path) -> None:
    grid = TokenGrid((4, 6), 5)
    pooled = TokenGrid((2, 3), 5, stride=(2, 2), extent=(4, 6))
    layer = randomize(RelativeMultiheadAttention(24, 3, rpe=options["rpe"], grid=grid))
    x, context = torch.randn(2, 29, 24), torch.randn(2, 11, 24)
    learns(layer, layer(x, grid, context=context, context_grid=pooled))


def decoding(options: dict[str, Any], folder: Path) -> None:
    model = SequenceTransformer(
        11, 6, head="lm", causal=True, **{"embed_dim": 24, "depth": 2, "num_heads": 2, **options}
    )
    model, ids = randomize(model).double(), torch.randint(11, (2, 6))
    cache = model.new_cache()
    steps = [model(ids[:, first:last], cache=cache) for first, last in ((0, 3), (3, 4), (4, 6))]
    assert_close(torch.cat(steps, dim=1), model(ids))
    assert model.generate(ids, 3).shape == (2, 9)


def encoding_sequences(options: dict[str, Any], folder: Path) -> None:
    sizes = {"embed_dim": 24, "depth": 2, "num_heads": 2, "class_token": True}
    model = randomize(SequenceTransformer(11, 6, 4, **{**sizes, **options}))
    ids, visible = torch.randint(11, (2, 8)), torch.arange(8).expand(2, -1) < 5
    assert model(ids, visible).isfinite().all()
    model.set_length(8)
    learns(model, model(ids))


def recorded(options: dict[str, Any], folder: Path) -> None:
    model = small(options)
    with torch.no_grad(), viz.record(model, keep_outputs=True) as seen:
        model(images())
    for layer, name in enumerate(seen.names):
        assert_close(seen.call(layer).output(seen.attention(layer)), seen.outputs[name], rtol=1e-5, atol=1e-5)
        for maps in (seen.content, seen.position):
            assert_close(maps(layer).sum(-1), torch.ones(3, 3, 29))
    viz.plot_bias(seen)


def drawn(command: str) -> Callable[[dict[str, Any], Path], None]:
    def check(options: dict[str, Any], folder: Path) -> None:
        sizes = {"img_size": [8, 8], "in_chans": 1, "num_classes": 2, "embed_dim": 24, "num_heads": 3, "depth": 2}
        sizes["mlp_ratio"] = 2
        args = {**sizes, **PREFIX, **options}
        model = randomize(tiny("vit_rpe_nano_patch2_8", **{**args, "img_size": (8, 8)}))
        treatment = Preprocessing((8, 8), 1, (0.5,), (0.25,)).to_dict()
        save_checkpoint(
            folder, model.state_dict(), CheckpointInfo("vit_rpe_nano_patch2_8", args, ["a", "b"], treatment)
        )
        picture = folder / "image.png"
        Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(picture)
        output = folder / ("out" if command == "visualize" else "out.html")
        words = [command, "--checkpoint", str(folder), "--image", str(picture), "--output", str(output)]
        errors: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stderr", Lines(errors))
            code = main(words)
        if code:
            raise ValueError("".join(errors))
        assert output.exists()

    return check


class Lines:
    """What a command says on its way."""

    def __init__(self, lines: list[str]) -> None:
        self.write = lines.append

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def trained(options: dict[str, Any], folder: Path) -> None:
    args = {"in_chans": 1, "depth": 2, "embed_dim": 24, "num_heads": 3, **PREFIX}
    args |= {key: value for key, value in options.items() if key != "rpe"}
    words = ["--data.fraction=0.05", "--data.mixup=0", "--data.batch_size=32", "--train.warmup_epochs=0"]
    words += ["--train.epochs=1", "--train.device=cpu", "--pictures=false", f"--output={folder / 'run'}"]
    forget_processes()
    train(parse_config([f"--model.args={args}", f"--model.rpe={options['rpe']}", *words]))
    forget_processes()
    found = accuracy_by_size(folder / "run", [8, 12])
    assert all(0 <= value <= 1 for value in found.values())


PLACES: dict[str, Callable[[dict[str, Any], Path], None]] = {
    "vit": in_a_vit,
    "window": in_windows,
    "sizes": at_other_sizes,
    "frozen": frozen,
    "compile": compiled,
    "export": exported,
    "onnx": exported_to_onnx,
    "swin": replacing("swin"),
    "sam": replacing("sam"),
    "maxvit": replacing("maxvit-table"),
    "pooled": with_pooled_keys,
    "cache": decoding,
    "sequence": encoding_sequences,
    "record": recorded,
    "visualize": drawn("visualize"),
    "explore": drawn("explore"),
    "train": trained,
}
OUR_MODELS_ONLY = ("swin", "sam", "maxvit", "pooled")
"""Places that take an encoding, where ``pos_embed`` is no option."""

REFUSED: dict[tuple[str, str], str] = {
    **{(place, "rope-registers"): "registers stand on a square" for place in ("swin", "sam", "maxvit")},
    **{(place, "rope-registers"): "registers stand on a square" for place in ("cache", "sequence")},
    **{(place, "rope-spiral"): "needs a grid of 2 axes" for place in ("cache", "sequence")},
    **{(place, "rope_mixed-axial"): "needs a grid of several axes" for place in ("cache", "sequence")},
    ("cache", "rope_mixed-normalized"): "cannot decode step by step",
    ("cache", "conditional"): "needs causal=False",
    **{("explore", name): "does not show features" for name in ("pape", "pape_ri")},
    **{("explore", name): "not by blocks nor polar" for name in ("pope", "liere")},
}


def cases() -> list[Any]:
    """Every encoding in a ViT, and one other encoding in each place; all pairs if exhaustive."""
    names = list(ENCODINGS)
    found = []
    for (number, place), name in product(enumerate(PLACES), names):
        if "pos_embed" in ENCODINGS[name] and place in OUR_MODELS_ONLY:
            continue
        sampled = place == "vit" or name == names[-2 - number % 5]
        marks = () if sampled else (pytest.mark.exhaustive,)
        found.append(pytest.param(name, place, id=f"{place}-{name}", marks=marks))
    return found


@pytest.mark.parametrize(("name", "place"), cases())
def test_works_or_is_refused_in_a_sentence(name: str, place: str, tmp_path: Path) -> None:
    refusal = REFUSED.get((place, name))
    if refusal is None:
        PLACES[place](ENCODINGS[name], tmp_path)
        return
    with pytest.raises(ValueError, match=refusal):
        PLACES[place](ENCODINGS[name], tmp_path)
