"""What an attention layer of ours promises beside its forward."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any

from torch import nn

from vit_rpe.attention import AttentionCall


class AttentionLayer(nn.Module, ABC):
    """An attention layer that says what one call of it is; its forward applies exactly that.

    Attributes:
        num_heads: heads of the queries.
    """

    num_heads: int

    @abstractmethod
    def attention_call(self, *args: Any, **kwargs: Any) -> AttentionCall:
        """The call for the arguments of ``forward``."""

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """What ``forward`` is given, by name."""
        return dict(inspect.signature(self.forward).bind(*args, **kwargs).arguments)
