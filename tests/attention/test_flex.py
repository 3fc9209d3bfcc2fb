"""FlexAttention: its function of a logit and its blocks against the definition, in value and gradient; compiled.

torch has no backward of it on the CPU. What it would differentiate there is applied to a matrix of logits, and, by
torch's own operator without its kernels, to attention as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.nn.attention import flex_attention as of_torch
from torch.testing import assert_close

from tests.attention.cases import compare, encoding_cases, gradients
from tests.encodings.build import SCALE, build, grid_pairs, inputs, learned, native_grid
from vit_rpe import RelativeMultiheadAttention, TokenGrid
from vit_rpe.attention import KERNELS, Kernel, Options, attend
from vit_rpe.attention.flex import blocks
from vit_rpe.attention.flex.scores import score_function
from vit_rpe.attention.kernels import flex as kernel
from vit_rpe.attention.per_axis import absorb_constants
from vit_rpe.attention.placement import placed
from vit_rpe.position.masks import GeometricMask, unmask_empty_rows
from vit_rpe.position.terms import PositionTerms

# torch looks for gradients where it copies what a tensor is, and hides its own warning unless warnings are errors
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
]

BY_MATRIX = "flex, on a matrix of logits"
MECHANISMS = ("bias", "bias_axial", "decomposed", "transformer_xl", "rope_mixed")
LARGE = TokenGrid((9, 31), num_prefix=2)  # three blocks of 128 tokens


def compiler_is_missing() -> str | None:
    """Why nothing can be compiled for the CPU here, or None."""
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler

        get_cpp_compiler()
    except Exception as error:  # torch's own errors differ by version
        return f"compiling for the CPU needs a C++ compiler: {error}"
    if not torch.cpu._is_avx2_supported():
        return "FlexAttention on the CPU needs AVX2"
    return None


MISSING = compiler_is_missing()
compiles = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def on_matrix(q: Tensor, k: Tensor, v: Tensor, terms: PositionTerms, options: Options) -> Tensor:
    """Attention whose logits exist, each of them changed by the function FlexAttention would be handed."""
    shifted, rest = absorb_constants(q, terms)
    change = score_function(q, k, rest, scale=options.scale, logit_clip=options.logit_clip)
    q, k = placed(shifted, k, terms)
    logits = q @ k.mT * options.scale
    if change is not None:
        for axis in range(4, 0, -1):
            change = torch.vmap(change, in_dims=(0, *(0 if own == axis else None for own in range(1, 5))))
        with TransformGetItemToIndex():
            logits = change(logits, *(torch.arange(length) for length in logits.shape))
    if options.visible is None:
        return logits.softmax(-1) @ v
    seen, empty = unmask_empty_rows(options.visible)
    return logits.masked_fill(~seen, float("-inf")).softmax(-1).masked_fill(empty, 0.0) @ v


@pytest.fixture
def matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS, BY_MATRIX, Kernel(on_matrix, kernel.flex_refuses, clips=True))


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel as a machine would run it that has a backward: torch's operator, uncompiled."""
    monkeypatch.setattr(of_torch, "_validate_device", lambda *tensors: None)
    monkeypatch.setattr(kernel, "_compiled", lambda device: of_torch.flex_attention)
    monkeypatch.setitem(KERNELS, "flex", KERNELS["flex"]._replace(cannot=lambda *call: None))


def chosen(case: Any) -> Any:
    """Every encoding as it is in 2-D by default, with its options and on other grids in the full matrix."""
    _, axes, options = case.values
    return case if axes == 2 and not options else pytest.param(*case.values, id=case.id, marks=pytest.mark.exhaustive)


@pytest.mark.usefixtures("matrix")
@pytest.mark.parametrize(("name", "axes", "options"), [chosen(case) for case in encoding_cases()])
def test_every_logit_as_the_definition(name: str, axes: int, options: dict[str, Any]) -> None:
    compare(name, axes, options, "native", 2, BY_MATRIX)
    if not options:
        compare(name, axes, options, "cross", 0, BY_MATRIX)
        compare(name, axes, options, "pooled_keys", 1, BY_MATRIX)


@pytest.mark.usefixtures("matrix")
def test_the_soft_cap_comes_last() -> None:
    grid = native_grid(2, 1)
    encoding, tensors = build("bias", grid), inputs(grid, grid)
    wanted = [*tensors, *learned(encoding)]
    outs = [
        attend(*tensors, encoding(grid, grid), scale=SCALE, logit_clip=0.7, impl=impl) for impl in (BY_MATRIX, "eager")
    ]
    assert_close(*outs)
    assert_close(*(gradients(out, wanted) for out in outs))


@pytest.mark.usefixtures("learning")
@pytest.mark.parametrize(
    "name", [name if name in MECHANISMS else pytest.param(name, marks=pytest.mark.exhaustive) for name in
             dict.fromkeys(case.values[0] for case in encoding_cases() if case.values[1] == 2)]
)  # fmt: skip
def test_attention_as_the_definition(name: str) -> None:
    """With a mask, and rows that see nothing."""
    q_grid, k_grid = grid_pairs(2, 1)["native"]
    visible = torch.rand(2, 1, q_grid.num_tokens, k_grid.num_tokens) > 0.4
    visible[0, 0, 3] = False
    visible[1, 0, 0] = False
    compare(name, 2, {}, "native", 1, "flex", visible=visible)


@pytest.mark.slow
@pytest.mark.usefixtures("learning")
@pytest.mark.parametrize("name", ["bias", pytest.param("transformer_xl", marks=pytest.mark.exhaustive)])
def test_in_one_graph_with_gradients(name: str) -> None:
    """What torch.compile is to make one program of, traced and differentiated."""
    torch.compiler.reset()
    layer = RelativeMultiheadAttention(32, 2, rpe=name, grid=TokenGrid((3, 5), 1), window=1, attn_impl="flex")
    x = torch.randn(2, 16, 32)
    wanted = [*layer.parameters()]
    found = torch.autograd.grad(torch.compile(layer, backend="aot_eager", fullgraph=True)(x).sin().sum(), wanted)
    layer.attn_impl = "eager"
    assert_close(found, torch.autograd.grad(layer(x).sin().sum(), wanted), rtol=1e-4, atol=1e-5)


MASKS = [GeometricMask(*each) for each in product((False, True), (None, 0, 1, 2)) if any(e is not None for e in each)]


@pytest.mark.parametrize("prefix", [0, 2])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("size", [4, 128])
def test_geometry_is_seen_without_a_mask_of_all_pairs(
    axes: int, prefix: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", size)
    for (q, k), mask in product(grid_pairs(axes, prefix).values(), MASKS):
        if not mask.is_causal and mask.window is None:
            continue
        dense, sight = mask.dense(q, k), blocks.of_geometry(mask, q, k, "cpu")
        rows, columns = torch.arange(q.num_tokens)[:, None], torch.arange(k.num_tokens)
        assert torch.equal(sight.pair(rows, rows, rows, columns), dense)
        exact = blocks.of_mask(dense)
        assert not (exact.some & ~sight.some).any()
        assert not (sight.every & ~exact.every).any()


def test_blocks_out_of_reach_are_skipped() -> None:
    grid = TokenGrid((64, 64))
    near = blocks.of_geometry(GeometricMask(window=7), grid, grid, "cpu")
    assert near.some.float().mean() < 0.27, "two rows a block: 15 or 16 of 64 rows are near"
    causal = blocks.of_geometry(GeometricMask(is_causal=True), grid, grid, "cpu")
    assert torch.equal(causal.some[0, 0], torch.ones(32, 32).tril().bool())
    assert torch.equal(causal.every[0, 0], torch.ones(32, 32).tril(-1).bool())
    padding = torch.arange(4096) < torch.tensor([700, 4096])[:, None]
    seen = blocks.block_mask([blocks.of_mask(padding[:, None, None]), causal], 4096, 4096)
    assert seen.kv_num_blocks[:, 0, -1].tolist() == [1, 1], "the last of the padded sample's keys, and the diagonal"
    assert seen.full_kv_num_blocks[:, 0, -1].tolist() == [5, 31]


@compiles
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "dtype"),
    [
        ("bias", {"window": 2}, torch.float32),
        pytest.param("decomposed", {}, torch.float32, marks=pytest.mark.exhaustive),
        pytest.param("transformer_xl", {}, torch.float32, marks=pytest.mark.exhaustive),
        pytest.param("rope_mixed", {"causal": True}, torch.bfloat16, marks=pytest.mark.exhaustive),
        pytest.param("bias", {"logit_clip": 1.0}, torch.float16, marks=pytest.mark.exhaustive),
        pytest.param("lookhere", {"causal": True, "window": 3}, torch.float32, marks=pytest.mark.exhaustive),
        pytest.param("pope", {}, torch.float32, marks=pytest.mark.exhaustive),
    ],
)
def test_compiled_for_the_cpu(name: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    """Several blocks, padding, and a sample that sees nothing."""
    layer = RelativeMultiheadAttention(32, 2, rpe=name, grid=LARGE, attn_impl="flex", **options).to(dtype)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(3, LARGE.num_tokens, 32, dtype=dtype)
    seen = torch.arange(LARGE.num_tokens) < torch.tensor([281, 130, 0])[:, None]
    with torch.no_grad():
        found = layer(x, key_visible=seen)
        layer.attn_impl = "eager"
        low = dtype != torch.float32
        assert_close(found, layer(x, key_visible=seen), rtol=5e-2 if low else 1e-4, atol=5e-2 if low else 1e-5)


ONE = (torch.zeros(2, 2, 4, 16),) * 3


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"requires_grad": True}, {}, "no backward of FlexAttention on the CPU; train with 'auto'"),
        ({}, {"dropout_p": 0.1}, "drops no weights, and dropout is 0.1"),
        ({"dtype": torch.float64}, {}, "computes in .*float32.* on the CPU, got torch.float64"),
    ],
)
def test_what_cannot_be_is_said(change: dict[str, Any], options: dict[str, Any], message: str) -> None:
    tensors = [torch.zeros(2, 2, 4, 16, **change) for _ in range(3)]
    with pytest.raises(ValueError, match=f"attn_impl='flex' cannot compute this attention: .*{message}"):
        attend(*tensors, PositionTerms(), scale=1.0, impl="flex", **options)


@pytest.mark.parametrize(("name", "message"), [("shaw", "values"), ("pape", "features"), ("irpe", "several axes")])
def test_encodings_that_cannot_be_looked_up_are_refused_where_a_layer_is_built(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"attn_impl='flex' cannot compute this attention: .*{message}"):
        RelativeMultiheadAttention(32, 2, rpe=name, grid=(3, 5), attn_impl="flex")


def test_a_table_alone_that_learns_is_refused() -> None:
    q = torch.zeros(2, 2, 4, 16)
    with pytest.raises(ValueError, match="no backward"):
        attend(q, q, q, PositionTerms(bias=torch.zeros(1, 4, 4, requires_grad=True)), scale=1.0, impl="flex")


@pytest.fixture
def full_precision() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="FlexAttention with gradients needs a GPU")
@pytest.mark.usefixtures("full_precision")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", MECHANISMS)
def test_on_a_gpu_with_gradients(name: str, compiled: bool) -> None:
    torch.compiler.reset()
    layer = RelativeMultiheadAttention(32, 2, rpe=name, grid=LARGE, window=3, attn_impl="flex").cuda()
    x = torch.randn(2, LARGE.num_tokens, 32, device="cuda")
    wanted, results = [*layer.parameters()], []
    for impl in ("flex", "eager"):
        layer.attn_impl = impl
        call = torch.compile(layer, fullgraph=True) if compiled and impl == "flex" else layer
        out = call(x)
        results.append((out, torch.autograd.grad(out.sin().sum(), wanted)))
    assert_close(*results, rtol=1e-3, atol=1e-3)
