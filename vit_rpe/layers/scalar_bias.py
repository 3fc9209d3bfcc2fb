"""The classic 1-D relative position bias as a module of its own, for people with their own attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vit_rpe.checks import checked
from vit_rpe.encodings import RelativeBias
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import dense_bias


class RelativePositionBias(nn.Module):
    """A learned scalar per head and clipped distance, to be added to attention logits.

    ``bias[0, h, i, j] = table[h, clip(i - j, -k, k) + k]`` (query minus key); beyond ``k`` the edge values hold.

    Args:
        num_heads: H.
        max_relative_distance: k; the table has 2k + 1 entries a head.
        init_std: standard deviation of the initial values (truncated normal).

    Raises:
        ValueError: fewer than one head, or a negative distance.
    """

    @checked(least={"num_heads": 1, "max_relative_distance": 0})
    def __init__(
        self,
        num_heads: int,
        max_relative_distance: int = 32,
        *,
        init_std: float = 0.02,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.max_relative_distance = max_relative_distance
        grid = TokenGrid((max_relative_distance + 1,))
        with torch.device(device if device is not None else torch.get_default_device()):
            self.encoding = RelativeBias(num_heads, 1, grid, max_distance=max_relative_distance, init_std=init_std).to(
                dtype
            )

    def forward(self, seq_len: int) -> Tensor:
        """The bias of a sequence of ``seq_len`` tokens with itself, (1, H, seq_len, seq_len), float32 or better.

        Raises:
            ValueError: ``seq_len`` below 1.
        """
        grid = TokenGrid((seq_len,))
        bias = dense_bias(self.encoding(grid, grid))
        assert bias is not None
        return bias[None]
