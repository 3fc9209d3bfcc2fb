"""An encoding as constants, for deployment at one fixed size.

Its terms on one grid are computed once and handed out from then on. Parameters keep their names, the constants are not
saved. What could make them wrong raises: another grid or native size, loading weights, ``train()``, a parameter changed
in place. Only a change through ``parameter.data`` is not noticed: torch does not count it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from vit_rpe.encodings._interface import PositionEncoding
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms

Prepare = Callable[[PositionTerms], PositionTerms]


class FrozenPosition(PositionEncoding):
    """The terms of an encoding on one grid.

    Args:
        position: in evaluation mode; its parameters and modules are found here under the same names.
        grid: queries and keys lie on it.
        device: of the constants.
        prepare: applied to the terms once, for instance to spread tables over pairs.
        queries: where queries lie, if not on ``grid``.
    """

    def __init__(
        self,
        position: PositionEncoding,
        grid: TokenGrid,
        device: Device,
        prepare: Prepare,
        *,
        queries: TokenGrid | None = None,
    ) -> None:
        if position.card.content:
            raise ValueError(f"{position.name!r} depends on what the tokens hold and cannot be constants")
        self.name, self.spec = position.name, position.spec
        self.card = replace(position.card, per_pair=False)
        super().__init__(position.num_heads, position.head_dim, grid)
        self._parameters = position._parameters
        self._modules = position._modules
        self.training = False
        self.original = (position,)  # in a tuple, so that it is no module of this one
        self.device = device
        self.prepare = prepare
        self.grids = (grid if queries is None else queries, grid)
        self.terms = self._compute()
        self.versions = self._versions()
        self.register_load_state_dict_pre_hook(_refuse_to_load)

    @property
    def parts(self) -> Any:
        return self.original[0].parts

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        """The constants.

        Raises:
            ValueError: another grid, or a parameter was changed since.
        """
        if (q, k) != self.grids:
            raise ValueError(f"positions are frozen for the grid {self.grid.size}, got {k.size}: call unfreeze() first")
        if not torch.compiler.is_compiling() and self.versions != self._versions():
            raise ValueError("a position parameter was changed while positions are frozen: call unfreeze() first")
        return self.terms

    def train(self, mode: bool = True) -> FrozenPosition:
        """Refuses to train; evaluation is what it is in already."""
        if mode:
            _refuse("train()")
        return self

    def check_resizable(self) -> NoReturn:
        _refuse("another size")

    def resized(self, grid: TokenGrid, tied: dict[int, nn.Parameter] | None = None) -> NoReturn:
        self.check_resizable()

    def reset_parameters(self) -> NoReturn:
        _refuse("drawing weights")

    def zero_(self) -> NoReturn:
        _refuse("zero_()")

    def no_weight_decay(self) -> set[str]:
        return self.original[0].no_weight_decay()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FrozenPosition:
        super()._apply(fn, recurse)
        self.device = fn(torch.empty(0, device=self.device)).device
        self.terms = _changed(self.terms, lambda tensor: tensor.to(self.device))
        self.versions = self._versions()
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenPosition:
        return FrozenPosition(
            copy.deepcopy(self.original[0], memo), self.grid, self.device, self.prepare, queries=self.grids[0]
        )

    def _compute(self) -> PositionTerms:
        with torch.inference_mode(False), torch.no_grad():  # constants that a later forward with gradients may use
            terms = self.prepare(self.original[0](*self.grids, self.device))
            return _changed(terms, lambda tensor: tensor.detach().clone())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.versions = self._versions()  # the parameters were made anew with the module

    def _versions(self) -> list[tuple[int, int]]:
        return [(id(parameter), parameter._version) for parameter in self.parameters()]


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"positions are frozen: call unfreeze() before {what}")


def _refuse_to_load(module: nn.Module, *args: Any) -> None:
    _refuse("loading weights")


def _changed(terms: PositionTerms, change: Callable[[Tensor], Tensor]) -> PositionTerms:
    """The same terms of other tensors; queries and keys that turn alike still do."""
    new: PositionTerms = _map_tensors(terms, change)
    new = new._replace(rotate_k=new.rotate_q) if terms.rotate_k is terms.rotate_q else new
    return new._replace(blocks_k=new.blocks_q) if terms.blocks_k is terms.blocks_q else new


def _map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, TokenGrid) or not isinstance(value, tuple):
        return value
    items = [_map_tensors(item, change) for item in value]
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
