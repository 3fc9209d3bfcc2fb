"""Drawing weights: nothing stays undrawn, by whatever way a model is built."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

import vit_rpe  # noqa: F401
from vit_rpe.models.backbone.init_weights import defer_linear_init


class OwnMlp(nn.Module):
    """A caller's MLP with a matrix of its own, which no ``init_weights`` draws."""

    def __init__(self, in_features: int, hidden_features: int, device=None, dtype=None, **_: object) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.empty(hidden_features, in_features, device=device, dtype=dtype))
        nn.init.kaiming_uniform_(self.first)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.first.T @ self.first


@pytest.fixture
def _empty_is_nan():
    """Undrawn memory shows: torch fills it with NaN."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


@pytest.mark.usefixtures("_empty_is_nan")
@pytest.mark.parametrize("weight_init", ["", "jax", "jax_nlhb", "moco", "reset", "skip"])
@pytest.mark.parametrize("mlp_layer", ["mlp", "swiglu", "swiglu_packed", OwnMlp])
def test_every_weight_is_drawn(weight_init, mlp_layer):
    assert torch.empty(3).isnan().all()
    model = timm.create_model(
        "vit_rpe_nano_patch2_8",
        rpe=["bias", "cpb", "rope_mixed"],
        depth=2,
        pos_embed="learned",
        class_token=True,
        reg_tokens=2,
        mlp_layer=mlp_layer,
        weight_init=weight_init,
    )
    undrawn = [name for name, value in model.named_parameters() if not value.isfinite().all()]
    assert undrawn == []


@pytest.mark.usefixtures("_empty_is_nan")
@pytest.mark.parametrize(("factories", "drawn"), [((None, "mlp"), False), ((None, OwnMlp), True)])
def test_what_the_model_draws_itself_is_not_drawn_before(factories, drawn):
    with defer_linear_init(True, *factories):
        assert bool(nn.Linear(3, 5).weight.isfinite().all()) == drawn
    assert nn.Linear(3, 5).weight.isfinite().all()


def test_linear_layers_outside_a_model_are_still_drawn():
    timm.create_model("vit_rpe_nano_patch2_8", depth=1)
    assert 0.2 < nn.Linear(64, 64).weight.std() * 64**0.5 < 0.8  # uniform in 1 / 8: deviation 1 / sqrt(3 * 64)
