"""Switching autocast off where low precision would be wrong."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """A context without autocast on this device; the meta device has none to switch off."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)
