"""The interface of a family of other people's models: one attention class, described.

To describe a family, write one file here with a subclass of :class:`Family` and name it in ``_registry.py``; a model of
one's own is described by :func:`register`. Recording and ``add_rpe`` then know it. Two questions are answered, and
neither is guessed from the shape of a tensor:

- **What does one call see of the image?** A :class:`Sight`: the whole grid, a window of it, pooled keys.
- **What does one call compute?** An :class:`vit_rpe.attention.AttentionCall`, made from the arguments of the layer's
  ``forward``, with whatever position one wants in it.

What is read off the modules around the layer (a block's shift, a model's class token) is read once, as numbers; only
the size of the image changes from call to call.

Legend: B samples, W windows of one image, H heads, D head width, N tokens of one call, n axes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.attention.lazy_terms import Position
from vit_rpe.layers import AttentionLayer
from vit_rpe.models.families._own import OwnPosition
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import NOTHING
from vit_rpe.precision import placement_of

Layers = tuple[type[nn.Module] | str, ...]
"""Attention classes, or their full names where the package they come from is optional."""


@dataclass(frozen=True)
class Sight:
    """What one attention call sees of the image.

    A call holds B W rows: row b W + w is window w of sample b. All windows have the same two grids, so one set of
    terms serves them; where each of them lies is said by its origin.

    Attributes:
        image: tokens of the whole image per axis, as the layer's stage has them; the tokens of a window that lie beyond
            are padding.
        q_grid, k_grid: queries and keys of one window, prefix tokens first: ``size`` that of the window, ``stride`` for
            pooled tokens (MViTv2).
        origins: where the first token of every window lies on the image, in the order of the windows; one window of
            zeros is the whole image.
        shift: the image was rolled by minus so many tokens per axis before it was cut into windows (Swin): the token
            at coordinate c of the rolled image is the one at (c + shift) mod ``image``. None: not rolled.
        spread: neighbouring tokens of a window lie so many tokens of the image apart per axis (grid attention), while
            they are neighbours to the position. None: next to each other.
        rolled: the size of what was rolled, where padding came before: coordinates are modulo it. None: ``image``.
        pools: the queries are no patches, but a class token alone or learned ones: ``q_grid`` only counts them.
    """

    image: tuple[int, ...]
    q_grid: TokenGrid
    k_grid: TokenGrid
    origins: tuple[tuple[int, ...], ...]
    shift: tuple[int, ...] | None = None
    spread: tuple[int, ...] | None = None
    rolled: tuple[int, ...] | None = None
    pools: bool = False

    @property
    def is_whole(self) -> bool:
        """Every query sees the whole image."""
        return len(self.origins) == 1


def whole_image(image: tuple[int, ...], num_prefix: int = 0) -> Sight:
    """What a call sees that has all tokens of the image, and prefix tokens in front."""
    grid = TokenGrid(image, num_prefix=num_prefix)
    return Sight(image, grid, grid, ((0,) * len(image),))


@dataclass
class Place:
    """Where one attention layer is in its model.

    Attributes:
        facts: what :meth:`Family.facts` found; numbers, no modules, so that copying a layer copies no model.
        image: tokens per axis of the image in hand, kept right by a hook on what :meth:`Family.watched` names; None
            before the first image and where nothing tells.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    image: tuple[int, ...] | None = None


class Family(ABC):
    """How the attention layers of one kind are read.

    ``layer`` is always the attention module, or one that has its layers and numbers under their names (what
    ``add_rpe`` puts there); ``around`` the modules that hold it, innermost first; ``inputs`` the arguments of its
    ``forward`` by name, without those left at their default.
    """

    takes_position: ClassVar[bool] = False
    """Whether :func:`vit_rpe.replace_attention` can put an encoding into such layers; the others are only recorded."""
    needs_image: ClassVar[bool] = False
    """Whether the grids of a call depend on the size of the image, which its input does not tell."""
    channels: ClassVar[int] = -1
    """The axis of a layer's input that holds the channels."""
    tokens: ClassVar[tuple[str, ...]] = ("x",)
    """The arguments of a layer's ``forward`` that hold tokens: the first those of all windows, others whole images."""
    reads_content: ClassVar[bool] = True
    """Whether the input has a token of width H D for every query and every key, as encodings need that read content."""
    cuts_inside: ClassVar[bool] = False
    """Whether a layer is given whole images, and cuts them into windows itself."""
    mixes_heads: ClassVar[bool] = False
    """Whether the heads of a layer are mixed before or after the softmax (talking heads): kernels that never hold the
    weights cannot do it."""
    mask_argument: ClassVar[str | None] = None
    """The argument of a layer's ``forward`` that says what windows of a rolled image see, for families that have it."""
    position_names: ClassVar[tuple[str, ...]] = ()
    """The parameters, buffers and modules of a layer that hold its own position; exchange takes them out."""
    layers: ClassVar[Layers]
    """The attention classes it is for, exactly these: a subclass may compute something else. A class of a package that
    need not be installed is named, such as ``"transformers.models.vit.modeling_vit.ViTAttention"``."""

    def facts(self, layer: Any, around: Sequence[nn.Module]) -> Mapping[str, Any]:
        """What the modules around the layer know, as numbers: prefix tokens, window, shift, stride; by default none."""
        return {}

    def watched(self, layer: Any, around: Sequence[nn.Module]) -> nn.Module | None:
        """The module whose input tells the size of the image: the patch embedding, or the block where a model has
        stages. None: nothing tells."""
        return None

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...] | None:
        """Tokens per axis, from the positional arguments that the ``watched`` module is called with; None where they
        lie on no grid that is the same for all samples."""
        raise TypeError(f"{type(self).__name__} watches a module: image_of must say what its input tells")

    @abstractmethod
    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        """What this call sees; None where it is not known, or tokens were dropped."""

    def grids(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid] | None:
        """Where queries and keys lie to each other; families that know it without the image say so."""
        sight = self.sight(layer, place, inputs)
        return None if sight is None else (sight.q_grid, sight.k_grid)

    def native(self, layer: Any, facts: Mapping[str, Any]) -> TokenGrid:
        """The grid that a new encoding for this layer is made for.

        Raises:
            ValueError: the family is described for looking at it only, or the grid is not known.
        """
        raise ValueError(f"{type(self).__name__} is described for looking at it: it takes no other encoding")

    def native_grids(self, layer: Any, facts: Mapping[str, Any]) -> tuple[TokenGrid, TokenGrid]:
        """Queries and keys of a call on an image of the native size."""
        return (self.native(layer, facts),) * 2

    def native_visible(self, layer: Any, around: Sequence[nn.Module]) -> Tensor | None:
        """What the windows of an image of the native size see, bool (W, N, N); None: all, or it depends on the call."""
        return None

    def num_heads(self, layer: Any) -> int:
        """H of queries."""
        return int(layer.num_heads)

    def head_width(self, layer: Any) -> int:
        """D of queries and keys."""
        return int(layer.head_dim)

    def value_width(self, layer: Any) -> int:
        """Width of values, where it is another one."""
        return self.head_width(layer)

    def own(self, layer: Any, facts: Mapping[str, Any]) -> OwnPosition | None:
        """The layer's own position in our words, with copies of its weights; None where it has none."""
        return None

    def translate(self, layer: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The layer's own position weights, by their names, as parameters of our encoding."""
        return {}

    def remains(self, layer: Any) -> Mapping[str, Any]:
        """What stands where the modules of the layer's own position stood, for the modules around that ask."""
        return {}

    def position(self, layer: Any, sight: Sight | None, inputs: Mapping[str, Any]) -> Position:
        """What the layer itself knows of position, as terms for the grids of ``sight`` (tables, rotations)."""
        own = None if sight is None else self.own_at(layer, sight)
        if own is None or sight is None:
            return NOTHING
        encoding = own.encoding(self.num_heads(layer), self.head_width(layer), placement_of(layer), training=False)
        return encoding(sight.q_grid, sight.k_grid, inputs[self.tokens[0]].device)

    def own_at(self, layer: Any, sight: Sight) -> OwnPosition | None:
        """:meth:`own` as the layer uses it for these grids."""
        return self.own(layer, {})

    @abstractmethod
    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position) -> AttentionCall:
        """The attention call for these inputs, with ``position`` in it and the layer's own left out.

        ``q``, ``k`` and ``v`` are (B W, H, N, D), prefix tokens first, whatever the layout of the input (channels last
        maps are flattened); masks in the input hide keys in it; ``finish`` gives what ``forward`` gives.
        """

    def run(
        self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Position, attn_impl: str
    ) -> Tensor:
        """What ``forward`` gives, with ``position`` in it; families whose heads wait for each other have their own."""
        call = self.call(layer, inputs, sight, position)
        return call.finish(call.attend(attn_impl))


class PlacedLayer(AttentionLayer):
    """A layer of ours that stands where one of a family stood."""

    family: Family
    place: Place
