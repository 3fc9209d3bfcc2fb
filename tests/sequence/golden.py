"""Twenty training steps of a tiny causal language model for every position, as numbers to keep.

    python -m tests.sequence.golden

writes ``golden_losses.json`` anew: do so only when a change of the numbers is meant, and say why in the commit.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.nn.functional as F

from tests.sequence.build import POSITIONS
from vit_rpe.models import SequenceTransformer

FILE = Path(__file__).parent / "golden_losses.json"
STEPS, BATCH, LENGTH, VOCABULARY = 20, 3, 11, 7


def losses(position: str) -> list[float]:
    """Loss before each of the steps: own initial weights, AdamW, one batch whose next token is a sum of two before."""
    torch.manual_seed(5)
    sizes = {"embed_dim": 24, "depth": 2, "num_heads": 3, "mlp_ratio": 2.0}
    model = SequenceTransformer(VOCABULARY, LENGTH, head="lm", causal=True, **sizes, **POSITIONS[position]).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.arange(BATCH)[:, None] + torch.tensor([1, 2])
    while tokens.shape[1] <= LENGTH:
        tokens = torch.cat([tokens, (tokens[:, -1:] + 3 * tokens[:, -2:-1] + 1) % VOCABULARY], dim=1)
    found = []
    for _ in range(STEPS):
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        found.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return found


def main() -> None:
    FILE.write_text(json.dumps({name: losses(name) for name in sorted(POSITIONS)}, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
