"""What is computed once in a forward: for the same arguments only, without gradients, and for no longer."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from vit_rpe.position import geometry_cache as module
from vit_rpe.position.geometry import TokenGrid, axis_offsets
from vit_rpe.position.geometry_cache import once_per_forward, open_store, sharing

calls: list[tuple[object, ...]] = []


@once_per_forward
def scaled(values: Tensor, factor: float, *, shift: float = 0.0) -> Tensor:
    calls.append((factor, shift))
    return values * factor + shift


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


def test_once_inside_and_every_time_outside() -> None:
    values = torch.ones(2)
    for _ in range(2):
        with sharing():
            first = scaled(values, 2.0)
            assert scaled(values, 2.0) is first
            assert scaled(values, 3.0).tolist() == [3, 3]
            assert scaled(values, 2.0, shift=1.0).tolist() == [3, 3]
            assert scaled(torch.zeros(2), 2.0).tolist() == [0, 0], "tensors count by identity"
    assert len(calls) == 8
    assert scaled(values, 2.0) is not scaled(values, 2.0)


def test_a_forward_inside_another_has_its_own() -> None:
    values = torch.ones(2)
    with sharing():
        outer = scaled(values, 2.0)
        with sharing():
            assert scaled(values, 2.0) is not outer
        assert scaled(values, 2.0) is outer


def test_ends_with_an_error_too() -> None:
    with pytest.raises(RuntimeError, match="stop"), sharing():
        raise RuntimeError("stop")
    assert open_store() is None


def test_gradients_are_never_kept() -> None:
    values = torch.ones(2, requires_grad=True)
    with sharing():
        assert scaled(values, 2.0) is not scaled(values, 2.0)
        with torch.no_grad():
            kept = scaled(values, 2.0)
            assert scaled(values, 2.0) is kept
        assert scaled(values, 2.0).requires_grad, "what was computed without a gradient is not handed out with one"


def test_not_under_torch_func() -> None:
    values = torch.arange(6.0).view(3, 2)
    with sharing():
        found = torch.vmap(lambda row: scaled(row, 2.0))(values)
        assert torch.equal(found, 2 * values)
        store = open_store()
        assert store is not None
        assert not store.results, "a tensor of one transformation means nothing in another"


def test_what_does_not_fit_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROOM", 20)
    values, others = torch.ones(2), torch.ones(4)
    with sharing():
        kept = scaled(values, 2.0)  # 8 bytes of 20
        assert scaled(others, 2.0) is not scaled(others, 2.0)
        assert scaled(values, 2.0) is kept


def test_offsets_belong_to_whoever_asks() -> None:
    """An encoding of somebody else may work on them in place."""
    grid = TokenGrid((2,))
    with sharing():
        axis_offsets(grid, grid, 0).abs_()
        assert axis_offsets(grid, grid, 0).tolist() == [[0, -1], [1, 0]]


def test_threads_do_not_share() -> None:
    values = torch.ones(2)
    found: list[Tensor] = []
    with sharing():
        mine = scaled(values, 2.0)
        worker = threading.Thread(target=lambda: found.append(scaled(values, 2.0)))
        worker.start()
        worker.join()
    assert found[0] is not mine
