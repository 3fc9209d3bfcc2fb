"""Features of sequence models by the names of layers, through torchvision's tracer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchvision.models.feature_extraction import create_feature_extractor

import vit_rpe
from tests.models.tiny import randomize
from vit_rpe.models import SequenceTransformer

SIZES: dict[str, Any] = {"embed_dim": 24, "depth": 2, "num_heads": 2}
OPTIONS: dict[str, dict[str, Any]] = {
    "class_token": {"class_token": True, "pool": "token", "pos_embed": "learned"},
    "shared": {"rpe": "bias", "rpe_shared": True, "window": 2},
    "language": {"head": "lm", "causal": True, "rpe": ["bias", "rope"]},
    "tags": {"head": "token", "pos_embed": "sincos", "rpe": "none"},
    "last": {"pool": "last", "qk_norm": True},
    "max": {"pool": "max", "pos_embed": "conditional"},
}
NAMES = [name for name in vit_rpe.list_encodings() if 1 in vit_rpe.encodings.encoding_class(name).card.axes]
for _name in NAMES:
    OPTIONS[_name] = {"rpe": _name}


def ids(length: int = 7) -> torch.Tensor:
    return torch.randint(11, (2, length))


@pytest.mark.parametrize("options", OPTIONS)
def test_every_option(options: str) -> None:
    model: Any = randomize(SequenceTransformer(11, 7, **{"num_classes": None, **SIZES, **OPTIONS[options]}))
    taps = create_feature_extractor(model, {"blocks.0.attn": "attention", "blocks.1": "last", "head": "logits"})
    for x in (ids(), ids(5)):
        found = taps(x)
        torch.testing.assert_close(model.norm(found["last"]), model.forward_features(x))
        torch.testing.assert_close(found["logits"], model(x))
    assert found["attention"].shape == found["last"].shape
    taps.train()(ids())["last"].sum().backward()
    assert model.blocks[0].attn.qkv.weight.grad is not None


def test_padding_and_decoding_step_by_step() -> None:
    x, visible = ids(), torch.arange(7).expand(2, -1) < torch.tensor([[5], [7]])
    model: Any = randomize(SequenceTransformer(11, 7, 3, class_token=True, **SIZES))
    taps = create_feature_extractor(model, {"head": "logits"})
    torch.testing.assert_close(taps(x, visible)["logits"], model(x, visible))
    with pytest.raises(ValueError, match="this model takes token ids"):
        taps(x.double())
    decoder: Any = randomize(SequenceTransformer(11, 7, head="lm", causal=True, **SIZES))
    traced: Any = torch.fx.symbolic_trace(decoder)
    cache = decoder.new_cache()
    steps = [traced(x[:, first:last], cache=cache) for first, last in ((0, 3), (3, 7))]
    torch.testing.assert_close(torch.cat(steps, dim=1), decoder(x))
