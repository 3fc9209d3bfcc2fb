"""timm entry points of the sequence model: ``rpe_sequence_{size}``, in the widths and depths of the ``vit_rpe_*``.

They do not begin with ``vit_rpe_``: all of those take images. ``timm.list_models(module="rpe_sequence")`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timm.models import register_model

from vit_rpe.checks import UnknownArgument, argument_error
from vit_rpe.models.sequence.model import SequenceTransformer
from vit_rpe.models.vit_rpe import SIZES

__all__ = ["SEQUENCE_PREFIX"]

SEQUENCE_PREFIX = "rpe_sequence_"


def _entry_point(name: str, size: str) -> Callable[..., SequenceTransformer]:
    def create(
        pretrained: bool = False,
        pretrained_cfg: Any = None,
        pretrained_cfg_overlay: Any = None,
        cache_dir: Any = None,
        **kwargs: Any,
    ) -> SequenceTransformer:
        if pretrained or pretrained_cfg or pretrained_cfg_overlay:
            raise ValueError(f"{name} has no published weights: leave pretrained and pretrained_cfg out")
        try:
            return SequenceTransformer(**{**SIZES[size], **kwargs})
        except (TypeError, UnknownArgument) as error:
            raise argument_error(name, error, SequenceTransformer) from error

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f"Sequence transformer {size}; arguments of SequenceTransformer."
    return create


for _size in SIZES:
    globals()[SEQUENCE_PREFIX + _size] = register_model(_entry_point(SEQUENCE_PREFIX + _size, _size))
