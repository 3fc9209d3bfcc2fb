"""Several encodings at once: their terms are combined (biases add, visibilities intersect)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from torch import Tensor, nn

from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, terms_of_tokens
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms, combine


class _Parts(nn.ModuleDict):
    """The encodings by name; calling it gives them in order. So ``parts`` is both a method and a module's path."""

    def forward(self) -> tuple[PositionEncoding, ...]:
        return tuple(self.values())  # type: ignore[arg-type]


class CombinedEncoding(PositionEncoding):
    """Encodings by name; calling it combines their terms. Parameters are found at ``parts.<name>.<parameter>``."""

    def __init__(self, parts: Sequence[PositionEncoding]) -> None:
        self.name = " + ".join(part.name for part in parts)
        self.card = _common_card([part.card for part in parts])
        super().__init__(parts[0].num_heads, parts[0].head_dim, parts[0].grid)
        self._modules["parts"] = _Parts({part.name: part for part in parts})

    @property
    def parts(self) -> _Parts:
        found = self._modules["parts"]
        assert isinstance(found, _Parts)
        return found

    def forward(
        self,
        q: TokenGrid,
        k: TokenGrid,
        device: Device = None,
        *,
        x: Tensor | None = None,
        x_k: Tensor | None = None,
    ) -> PositionTerms:
        """As :meth:`PositionEncoding.forward`; ``x`` and ``x_k`` are for the parts that read content.

        Raises:
            ValueError: the terms exclude each other, for instance two rotations.
        """
        return reduce(combine, [terms_of_tokens(part, q, k, device, x=x, x_k=x_k) for part in self.parts()])

    def has_entry_per_pair(self, q: TokenGrid, k: TokenGrid) -> bool:
        return any(part.has_entry_per_pair(q, k) for part in self.parts())

    def check_resizable(self) -> None:
        for part in self.parts():
            part.check_resizable()

    def resized(self, grid: TokenGrid, tied: dict[int, nn.Parameter] | None = None) -> PositionEncoding:
        return CombinedEncoding([part.resized(grid, tied) for part in self.parts()])

    def reset_parameters(self) -> None:
        for part in self.parts():
            part.reset_parameters()

    def zero_(self) -> None:
        for part in self.parts():
            part.zero_()

    def no_weight_decay(self) -> set[str]:
        return {f"parts.{part.name}.{own}" for part in self.parts() for own in part.no_weight_decay()}

    def extra_repr(self) -> str:
        return ""


def _common_card(cards: Sequence[Card]) -> Card:
    """What holds for all of them together."""
    adds = dict.fromkeys(field for card in cards for field in card.adds)
    return Card(
        paper="; ".join(card.paper for card in cards),
        adds=tuple(adds),
        extrapolation="; ".join(card.extrapolation for card in cards),
        axes=tuple(axes for axes in cards[0].axes if all(axes in card.axes for card in cards)),
        supports_kv_cache=all(card.supports_kv_cache for card in cards),
        additive=all(card.additive for card in cards),
        per_pair=any(card.per_pair for card in cards),
        content=any(card.content for card in cards),
    )
