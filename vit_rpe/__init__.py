"""Relative position encodings for vision transformers and token sequences.

>>> import timm, vit_rpe
>>> model = timm.create_model("vit_rpe_tiny_patch4_32", rpe="bias", num_classes=10)

What is named here is imported when it is first used, so that ``vit-rpe --help`` need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vit_rpe._moved import install
from vit_rpe._with_timm import register_models

if TYPE_CHECKING:
    from vit_rpe.attention import attend, attention_weights
    from vit_rpe.encodings import PositionEncoding, create_encoding, list_encodings
    from vit_rpe.layers import (
        LearnedEmbedding,
        RelativeMultiheadAttention,
        RelativePositionBias,
        sincos_embedding,
    )
    from vit_rpe.models import (
        VisionTransformer,
        add_rpe,
        freeze,
        from_published,
        from_timm,
        replace_attention,
        unfreeze,
    )
    from vit_rpe.position.geometry import TokenGrid
    from vit_rpe.position.terms import PositionTerms
    from vit_rpe.training.checkpoint.runs import list_runs, load_run

install()
register_models()

__version__ = "0.1.0"

__all__ = [
    "LearnedEmbedding",
    "PositionEncoding",
    "PositionTerms",
    "RelativeMultiheadAttention",
    "RelativePositionBias",
    "TokenGrid",
    "VisionTransformer",
    "__version__",
    "add_rpe",
    "attend",
    "attention_weights",
    "create_encoding",
    "freeze",
    "from_published",
    "from_timm",
    "list_encodings",
    "list_runs",
    "load_run",
    "replace_attention",
    "sincos_embedding",
    "unfreeze",
]

_HOMES = {
    "vit_rpe.attention": ("attend", "attention_weights"),
    "vit_rpe.encodings": ("PositionEncoding", "create_encoding", "list_encodings"),
    "vit_rpe.layers": (
        "LearnedEmbedding",
        "RelativeMultiheadAttention",
        "RelativePositionBias",
        "sincos_embedding",
    ),
    "vit_rpe.models": (
        "VisionTransformer",
        "add_rpe",
        "freeze",
        "from_published",
        "from_timm",
        "replace_attention",
        "unfreeze",
    ),
    "vit_rpe.position.geometry": ("TokenGrid",),
    "vit_rpe.position.terms": ("PositionTerms",),
    "vit_rpe.training.checkpoint.runs": ("list_runs", "load_run"),
}
_ROOMS = ("attention", "data", "encodings", "evaluation", "layers", "models", "position", "study", "training", "viz")


def __getattr__(name: str) -> Any:
    """A public name from its home, or a package of ours."""
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is not None:
        value = getattr(import_module(home), name)
    elif name in _ROOMS:
        value = import_module(f"vit_rpe.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS, "__doc__", "__file__", "__path__"])
