"""Evaluating leaves each module of a model in the mode it had, whatever happens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from vit_rpe.training.metrics import evaluate


@pytest.mark.parametrize("fails", [False, True])
def test_modes_come_back(fails: bool) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(4, 3), nn.Dropout()), nn.Identity())
    model[1].eval()  # a frozen part
    before = [module.training for module in model.modules()]

    def prepare(inputs: Any) -> torch.Tensor:
        assert not any(module.training for module in model.modules())
        if fails:
            raise OSError("a batch that cannot be read")
        return inputs

    batches = [(torch.randn(2, 4), torch.tensor([0, 2]))]
    if fails:
        with pytest.raises(OSError, match="cannot be read"):
            evaluate(model, batches, prepare=prepare, num_classes=3, device=torch.device("cpu"))
    else:
        evaluate(model, batches, prepare=prepare, num_classes=3, device=torch.device("cpu"))
    assert [module.training for module in model.modules()] == before == [True, True, False, False, False, True]
