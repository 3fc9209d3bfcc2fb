"""Nothing in the package reads the weight or the sizes of a layer, for which something else may stand.

Over the syntax tree of every module: what reads all the same is named here, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import vit_rpe

SIZES = ("in_features", "out_features", "in_channels", "out_channels", "num_embeddings", "embedding_dim", "kernel_size")
INITIAL = ("reset_parameters", "zero_", "init_weights")
"""What draws first values, of layers that have just been made."""
HERE = "the one place that asks"
OWN = "its own parameter"
MADE = "of a layer that has just been made"
PLAIN = "conversion of weights: all layers are plain, as require_plain has seen"
THEIRS = "the original reads it too, and a map shows what the original does"

ALLOWED = {
    ("precision.py", "layer.weight"): HERE,
    ("encodings/_tables.py", "cast(nn.Linear, layer).weight"): "of a bare layer, see precision.py",
    ("layers/linear.py", "layer.out_features"): HERE,
    ("layers/linear.py", "part.kernel_size"): HERE,
    ("layers/attention.py", "self.qkv.weight"): "half of a bare layer, see precision.py",
    ("layers/attention.py", "self.qkv.bias"): "half of a bare layer, see precision.py",
    ("layers/absolute.py", "self.weight"): OWN,
    ("layers/conditional.py", "self.weight"): OWN,
    ("attention/reference.py", "self.weight"): "a tensor that a call holds",
    ("models/sequence/model.py", "self.in_features"): "its own argument",
    (
        "models/vision/patches.py",
        "self.proj.in_channels",
    ): "refuses other images: of a plain layer, else as it was made",
    ("models/vision/patches.py", "self.proj.out_channels"): MADE,
    ("models/backbone/loading.py", "next(encoding.parameters())"): "whether there are any",
    ("models/backbone/position.py", "next(part.parameters())"): "whether there are any",
    ("models/exchange/placing.py", "next(encoding.parameters())"): "whether there are any",
    ("models/exchange/coverage/reduced.py", "stages[0].blocks[0].attn.qkv.in_features"): MADE,
    ("models/exchange/coverage/reduced.py", "model.patch_embed.proj.out_channels"): MADE,
    ("models/exchange/describe.py", "embed.proj.bias"): PLAIN,
    ("models/exchange/describe.py", "embed.proj.in_channels"): PLAIN,
    ("models/exchange/describe.py", "attn.proj.in_features"): PLAIN,
    ("models/exchange/describe.py", "attn.proj.bias"): PLAIN,
    ("models/exchange/describe.py", "block.mlp.fc2.bias"): PLAIN,
    ("models/exchange/describe.py", "attn_pool.mlp.fc1.out_features"): PLAIN,
    ("models/exchange/describe.py", "getattr(block.mlp, 'fc1', None).out_features"): PLAIN,
    ("models/exchange/parts.py", "mlp.fc1.out_features"): PLAIN,
    ("models/exchange/parts.py", "mlp.fc1_g.out_features"): PLAIN,
    ("models/exchange/positions.py", "encoding.mlp.fc1.out_features"): PLAIN,
    ("models/families/swin.py", "layer.in_features"): "an argument that this attention of timm keeps",
    ("viz/recording/through.py", "module.kernel_size"): "of a convolution or a pooling, as its class says",
    ("models/families/_qkv.py", "layer.qkv.weight"): THEIRS,
    ("models/families/torch_multihead.py", "layer.out_proj.weight"): THEIRS,
    ("models/families/torch_multihead.py", "layer.out_proj.bias"): THEIRS,
    ("models/families/torchvision_swin.py", "layer.qkv.weight"): THEIRS,
    ("models/families/torchvision_swin.py", "layer.qkv.bias"): THEIRS,
    ("models/families/torchvision_swin.py", "layer.proj.weight"): THEIRS,
    ("models/families/torchvision_swin.py", "layer.proj.bias"): THEIRS,
}
OTHER_MEANINGS = ("terms.", ".distill.weight")
"""Biases of position terms, and a number of the configuration."""


def reads(tree: ast.AST) -> Iterator[str]:
    """Every read of a weight, of the bias of a part, of sizes of a layer, and of the first parameter of a module."""
    initial = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in INITIAL]
    skipped = {id(inner) for node in initial for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            of_part = node.attr == "bias" and isinstance(node.value, ast.Attribute)
            if of_part or node.attr in ("weight", *SIZES):
                yield ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
            name = node.args[1]
            if node.func.id == "getattr" and isinstance(name, ast.Constant) and name.value in ("weight", *SIZES):
                yield f"{ast.unparse(node.args[0])}.{name.value}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "next":
            first = ast.unparse(node.args[0]).removeprefix("iter(")
            if "parameters()" in first.split(" for ")[0]:
                yield f"next({first.partition(')')[0]}))"


def found_in(root: Path) -> set[tuple[str, str]]:
    found = set()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root).as_posix()
        found |= {
            (place, read)
            for read in reads(ast.parse(path.read_text()))
            if not any(meaning in read for meaning in OTHER_MEANINGS)
        }
    return found


def test_nothing_reads_a_layer() -> None:
    assert found_in(Path(vit_rpe.__file__).parent) == set(ALLOWED)


@pytest.mark.parametrize(
    "line",
    [
        *("F.linear(x, layer.qkv.weight)", "F.linear(x, weight=self.proj.weight)", "layer.qkv.bias is None"),
        *("width = layer.qkv.out_features // 3", "getattr(layer.proj, 'in_features')", "embed.proj.in_channels"),
        *("next(model.parameters()).device", "next(iter(layer.parameters())).dtype", "next(self.parameters(), None)"),
    ],
)
def test_a_read_is_found(line: str) -> None:
    assert list(reads(ast.parse(line)))


@pytest.mark.parametrize("line", ["terms.bias", "self.head_weight", "layer.weight = new", "placement_of(layer)"])
def test_what_reads_no_layer_is_left_alone(line: str) -> None:
    assert not list(reads(ast.parse(line)))
