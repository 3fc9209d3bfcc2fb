"""Positions as constants, for deployment at one fixed size.

``freeze`` computes the terms of every encoding once and hands them out from then on. Parameters keep their names, the
constants are not saved. What could make them wrong raises: another grid, loading weights, ``train()``, a parameter
changed in place, ``set_input_size``. Only a change through ``parameter.data`` is not noticed: torch does not count it.
``unfreeze`` brings the encodings back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vit_rpe.encodings import CombinedEncoding, PositionEncoding
from vit_rpe.models.backbone.position import once_for_all_layers
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms

Position = PositionEncoding | CombinedEncoding


class FrozenPosition(nn.Module):
    """The terms of an encoding on one grid.

    Args:
        position: in evaluation mode; its parameters and modules are found here under the same names.
        grid: queries and keys lie on it.
    """

    def __init__(self, position: Position, grid: TokenGrid, device: Device) -> None:
        super().__init__()
        self._parameters = position._parameters
        self._modules = position._modules
        self.training = False
        self.original = (position,)  # in a tuple, so that it is no module of this one
        self.grid = grid
        self.device = device
        self.terms = self._compute()
        self.versions = self._versions()
        self.register_load_state_dict_pre_hook(_refuse_to_load)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        """The constants.

        Raises:
            ValueError: another grid, or a parameter was changed since.
        """
        if q != self.grid or k != self.grid:
            raise ValueError(f"positions are frozen for the grid {self.grid.size}, got {q.size}: call unfreeze() first")
        if not torch.compiler.is_compiling() and self.versions != self._versions():
            raise ValueError("a position parameter was changed while positions are frozen: call unfreeze() first")
        return self.terms

    def train(self, mode: bool = True) -> FrozenPosition:
        """Refuses to train; evaluation is what it is in already."""
        if mode:
            raise ValueError("positions are frozen: call unfreeze() before train()")
        return self

    def no_weight_decay(self) -> set[str]:
        return self.original[0].no_weight_decay()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FrozenPosition:
        super()._apply(fn, recurse)
        self.device = fn(torch.empty(0, device=self.device)).device
        self.terms = _changed(self.terms, lambda tensor: tensor.to(self.device))
        self.versions = self._versions()
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenPosition:
        return FrozenPosition(copy.deepcopy(self.original[0], memo), self.grid, self.device)

    def _compute(self) -> PositionTerms:
        with torch.inference_mode(False), torch.no_grad():  # constants that a later forward with gradients may use
            terms = once_for_all_layers(self.original[0](self.grid, self.grid, self.device))
            return _changed(terms, lambda tensor: tensor.detach().clone())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.versions = self._versions()  # the parameters were made anew with the module

    def _versions(self) -> list[tuple[int, int]]:
        return [(id(parameter), parameter._version) for parameter in self.parameters()]


def freeze_positions(model: nn.Module, grid: TokenGrid, device: Device) -> None:
    """Replace every encoding called ``rpe`` inside ``model`` by its constants.

    Raises:
        ValueError: the model is in training mode.
    """
    if model.training:
        raise ValueError("only a model in evaluation mode can be frozen: call eval() first")
    for module in list(model.modules()):
        position = getattr(module, "rpe", None)
        if isinstance(position, (PositionEncoding, CombinedEncoding)):
            module.rpe = FrozenPosition(position, grid, device)


def unfreeze_positions(model: nn.Module) -> None:
    """Bring every encoding back."""
    for module in list(model.modules()):
        position = getattr(module, "rpe", None)
        if isinstance(position, FrozenPosition):
            module.rpe = position.original[0]


def _refuse_to_load(module: nn.Module, *args: Any) -> None:
    raise ValueError("positions are frozen: call unfreeze() before loading weights")


def _changed(terms: PositionTerms, change: Callable[[Tensor], Tensor]) -> PositionTerms:
    """The same terms of other tensors; queries and keys that turn alike still do."""
    new: PositionTerms = _map_tensors(terms, change)
    return new._replace(rotate_k=new.rotate_q) if terms.rotate_k is terms.rotate_q else new


def _map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, TokenGrid) or not isinstance(value, tuple):
        return value
    items = [_map_tensors(item, change) for item in value]
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
