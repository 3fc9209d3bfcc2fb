"""The rotary family: what its layouts have in common, registers, larger grids, and what rope_mixed contains."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.encodings.build import HEAD_DIM, HEADS, SCALE, build, inputs, output
from tests.oracles import ORACLES, attention_by_loops
from vit_rpe.attention import attention_weights
from vit_rpe.encodings import create_encoding
from vit_rpe.encodings._rotary import golden_directions
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.geometry_cache import sharing

LAYOUTS = [{"layout": "spiral"}, {"layout": "golden"}, {"layout": "simplex"}, {"zero_share": 0.4}]


@pytest.mark.parametrize(("size", "prefix"), [((2, 3), 4), ((2, 3), 5), ((3, 2), 10), ((1, 2, 3), 9)])
@pytest.mark.parametrize("options", [{}, *LAYOUTS, {"scaling": "yarn"}], ids=str)
def test_registers_follow_the_oracle(size: tuple[int, ...], prefix: int, options: dict[str, Any]) -> None:
    grid = TokenGrid(size, prefix)
    if "spiral" in options.values() and len(size) != 2:
        return
    if "scaling" in options:
        options = {**options, "native": (1,) * len(size)}
    encoding = build("rope", grid, {**options, "registers": 4.0})
    tensors = inputs(grid, grid, batch=1)
    expected = attention_by_loops(ORACLES["rope"].answer, encoding, *tensors, grid, grid, SCALE)
    torch.testing.assert_close(output(encoding, grid, grid, tensors), expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("size", "prefix"), [((2, 3), 0), ((2, 3), 1), ((2, 3), 2), ((2, 3), 6), ((5,), 4)])
def test_registers_that_fill_no_lattice_are_refused(size: tuple[int, ...], prefix: int) -> None:
    with pytest.raises(ValueError, match="registers stand on a square"):
        create_encoding({"name": "rope", "registers": 100.0}, HEADS, HEAD_DIM, TokenGrid(size, prefix))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scaling": "ntk", "layout": "golden"}, "layout='axial' alone"),
        ({"scaling": "yarn", "reference": (7, 7)}, "leave scaling='yarn' out"),
        ({"directions": 8}, "those of layout='spiral'"),
        ({"layout": "spiral", "directions": 16}, "divisible by 4 directions"),
        ({"layout": "spiral", "directions": 3}, "must be even"),
        ({"native": (2, 3)}, "there is no scaling"),
        ({"scaling": "yarn", "native": (2,)}, "one positive size per axis"),
        ({"scaling": "yarm"}, "did you mean 'yarn'"),
        ({"layout": "axal"}, "did you mean 'axial'"),
        ({"fastest": 0.0}, "fastest must be positive"),
        ({"zero_share": 1.0}, "zero_share must be a share"),
    ],
    ids=str,
)
def test_what_excludes_each_other_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        create_encoding({"name": "rope", **options}, HEADS, HEAD_DIM, TokenGrid((2, 3)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scaling": "ntk"}, "learned frequencies"),
        ({"scaling": "yarn", "normalized": True}, "leave scaling='yarn' out"),
        ({"noise": 0.0}, "noise must be positive"),
    ],
    ids=str,
)
def test_rope_mixed_refuses(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        create_encoding({"name": "rope_mixed", **options}, HEADS, HEAD_DIM, TokenGrid((2, 3)))
    with pytest.raises(ValueError, match=r"2 axes|divisible by 4"):
        create_encoding({"name": "rope_mixed", "layout": "axial"}, HEADS, 6, TokenGrid((2, 3)))


def test_published_spiral() -> None:
    """16 directions where the width allows, else fewer; the fastest pair of rows turns by 1.5 along h."""
    for width, directions in ((64, 16), (96, 8), (48, 4), (8, 2)):
        encoding = create_encoding({"name": "rope", "layout": "spiral"}, 1, width, TokenGrid((14, 14)))
        turns = torch.atan2(*reversed(torch.tensor(encoding.directions)[:, 0, : width // 4]))
        assert len(turns.unique()) == directions // 2
    encoding = create_encoding({"name": "rope", "layout": "spiral", "fastest": 1.5}, 1, 64, TokenGrid((14, 14)))
    vectors = encoding.vectors(1e4)
    torch.testing.assert_close(vectors[:, 0, 0], torch.tensor([1.5, 0.0]))
    torch.testing.assert_close(vectors[:, 0, 16], torch.tensor([0.0, 1.5]))
    phi, speed = math.radians(90 / 8), 1.5 * 1e4 ** (-2 * 2 / 32)
    torch.testing.assert_close(vectors[:, 0, 2], speed * torch.tensor([math.cos(phi), math.sin(phi)]))


@pytest.mark.parametrize("axes", [2, 3])
def test_golden_directions_spread_evenly(axes: int) -> None:
    points = torch.tensor(golden_directions(axes, 12, 32), dtype=torch.float64).flatten(1)
    torch.testing.assert_close(points.norm(dim=0), torch.ones(384, dtype=torch.float64))
    torch.testing.assert_close(points @ points.T / 384, torch.eye(axes, dtype=torch.float64) / axes, atol=0.01, rtol=0)


@pytest.mark.parametrize("scaling", ["linear", "ntk", "yarn"])
def test_scaling_on_the_native_grid_and_below_is_no_scaling(scaling: str) -> None:
    native, larger = TokenGrid((6, 4)), TokenGrid((12, 6))
    plain, encoding = (build("rope", native, options) for options in ({}, {"scaling": scaling}))
    for grid in (native, TokenGrid((3, 4))):
        assert torch.equal(encoding(grid, grid).rotate_q[0], plain(grid, grid).rotate_q[0])
    resized = encoding.resized(larger)
    assert torch.equal(resized(larger, larger).rotate_q[0], encoding(larger, larger).rotate_q[0])
    assert not torch.equal(resized(larger, larger).rotate_q[0], plain(larger, larger).rotate_q[0])


def test_ntk_keeps_the_fastest_and_divides_the_slowest() -> None:
    encoding = create_encoding({"name": "rope", "scaling": "ntk"}, 1, 32, TokenGrid((4, 5)))
    plain = create_encoding("rope", 1, 32, TokenGrid((4, 5)))
    grid = TokenGrid((12, 5))
    angle, before = (torch.atan2(*reversed(found(grid, grid).rotate_q))[5] for found in (encoding, plain))
    torch.testing.assert_close(angle[0], before[0])
    torch.testing.assert_close(angle[7], before[7] / 3)


def test_moves_are_the_same_for_all_layers_and_windows_of_a_forward() -> None:
    grid = TokenGrid((3, 4), 1)
    window = TokenGrid((1, 4), 0, origin=(2, 0), extent=(3, 4))
    one, other = (build("rope_mixed", grid, {"noise": 0.3}).train() for _ in range(2))
    with sharing():
        whole = one(grid, grid)
        assert whole.rotate_q is whole.rotate_k
        torch.testing.assert_close(one(window, grid).rotate_q[0], whole.rotate_q[0][:, -4:])
        torch.testing.assert_close(other(grid, grid).rotate_k[0], whole.rotate_k[0])
    with sharing():
        assert not torch.equal(one(grid, grid).rotate_q[0], whole.rotate_q[0])
    assert torch.equal(one.eval()(grid, grid).rotate_q[0], build("rope_mixed", grid)(grid, grid).rotate_q[0])


def commuting(layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Generators L_a (n, D, D) of rotations that commute, written without a look at pairs of channels, and a grid.

    STRING: L_a = P S_a P^T with any orthogonal P, here polynomials of one skew matrix, which commute with it.
    ComRoPE-LD: multiples of one skew matrix. ComRoPE-AP: blocks, each for one axis.
    """
    generator = torch.Generator().manual_seed(5)
    random = torch.randn(8, 8, generator=generator, dtype=torch.float64)
    skew = (random - random.T) / 4
    if layout == "string":
        return torch.stack([skew, skew @ skew @ skew + 0.3 * skew])
    if layout == "linearly dependent":
        return torch.stack([0.7 * skew, -1.3 * skew])
    blocks = torch.zeros(2, 8, 8, dtype=torch.float64)
    blocks[0, :4, :4], blocks[1, 4:, 4:] = skew[:4, :4], skew[4:, 4:]
    return blocks


def common_basis(generators: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """P (D, D) and f (n, D/2) such that P^T L_a P turns the pair (c, c + D/2) with speed f[a, c]."""
    _, vectors = torch.linalg.eig((generators * torch.tensor([1.0, 0.618])[:, None, None]).sum(0))
    values = torch.einsum("da,nde,ea->na", vectors.conj(), generators.to(vectors.dtype), vectors).imag
    mixture = (values * torch.tensor([1.0, 0.618])[:, None]).sum(0)
    kept = torch.argsort(mixture, descending=True)[: len(mixture) // 2]
    real, imaginary = vectors[:, kept].real, vectors[:, kept].imag
    return torch.cat([imaginary, real], dim=1) * math.sqrt(2), values[:, kept]


@pytest.mark.parametrize("layout", ["string", "linearly dependent", "axial blocks"])
def test_commuting_rotations_are_rope_mixed_in_another_basis(layout: str) -> None:
    """STRING and ComRoPE turn q by expm(sum_a x_a L_a); with W_q and W_k in the common basis rope_mixed does so too."""
    generators = commuting(layout)
    torch.testing.assert_close(generators[0] @ generators[1], generators[1] @ generators[0])
    basis, frequencies = common_basis(generators)
    torch.testing.assert_close(basis.T @ basis, torch.eye(8, dtype=torch.float64))
    grid = TokenGrid((2, 3))
    q, k = (torch.randn(1, 1, 6, 8, dtype=torch.float64) for _ in range(2))
    turns = torch.linalg.matrix_exp(torch.einsum("pa,ade->pde", grid.positions().double(), generators))
    theirs = torch.einsum("pde,bhpe->bhpd", turns, q) @ torch.einsum("pde,bhpe->bhpd", turns, k).mT
    encoding = create_encoding("rope_mixed", 1, 8, grid, dtype=torch.float64)
    encoding.load_state_dict({"frequencies": frequencies[:, None]})
    ours = attention_weights(q @ basis, k @ basis, encoding(grid, grid), scale=1.0)
    torch.testing.assert_close(ours, theirs.softmax(-1))
