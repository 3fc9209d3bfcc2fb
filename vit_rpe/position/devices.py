"""Which device a word means on this machine."""

from __future__ import annotations

import torch

from vit_rpe.checks import unknown_name

__all__ = ["find_device"]


def find_device(given: str | torch.device) -> torch.device:
    """The device, ``"auto"`` for an accelerator if there is one.

    Raises:
        ValueError: no such kind of device, or none of it in this machine.
    """
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if isinstance(given, str) and given == "auto":
        return torch.device("cpu") if found is None else found
    try:
        device = torch.device(given if isinstance(given, torch.device) else str(given))
    except RuntimeError:
        raise unknown_name("device", given, ["auto", "cpu", "cuda", "mps", "xpu"]) from None
    if device.type in ("cpu", "meta"):
        return device
    count = torch.accelerator.device_count() if found is not None and found.type == device.type else 0
    if (device.index or 0) >= count:
        there = "cpu" if found is None else f"cpu, {found.type} ({torch.accelerator.device_count()} of it)"
        raise ValueError(f"device {given}: this machine has no such device; it has {there}")
    return device
