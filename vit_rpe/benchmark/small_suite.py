"""What position costs where there are few tokens: ``vit-rpe benchmark --suite small``.

Training steps of a small ViT (64 wide, 4 layers) from handwritten digits on, over ``none``; and attention alone under a
mask that learns, over torch's own: the product, without the checks of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.attention.kernels.sdpa import masked_sdpa
from vit_rpe.attention.reference import Options
from vit_rpe.benchmark.candidates.jobs import Job
from vit_rpe.benchmark.measuring.compare import Effort, Result, compare_times
from vit_rpe.benchmark.measuring.timing import interleave

TABLES = ("bias", "bias_axial", "t5")
OTHERS = (
    "cpb",
    "alibi",
    "kerple",
    "rope",
    "rope_mixed",
    "decomposed",
    "shaw",
    "irpe",
    "deberta",
    "transformer_xl",
)
MODELS = ((8, 2, 64), (28, 4, 64), (28, 2, 16))
"""Pixels, pixels of a patch, images: 16, 49 and 196 tokens."""
TARGET = 1.15

CALLS = ((16, 1), (16, 64), (16, 256), (49, 1), (49, 64), (64, 50), (196, 1), (196, 16), (196, 64), (400, 8), (1024, 4))
"""Tokens and samples of attention alone."""
HEADS, WIDTH = 4, 16


def small_suite(effort: Effort, *, quick: bool, threads: int | None, say: Callable[[str], None]) -> Iterator[Result]:
    """Every row, as it is measured.

    Args:
        effort: a comparison of models may take twice its ``seconds``, one of calls a fifth.
        quick: a table, a rotation and content on the smallest images, and two calls, to see that all works.
        threads: not needed, for no process is started.
        say: told what is being measured.
    """
    names = ("none", "bias", "rope_mixed", "shaw") if quick else ("none", *TABLES, *OTHERS)
    for side, patch, batch in MODELS[:1] if quick else MODELS:
        setting = f"nano, 4 layers, {(side // patch) ** 2} tokens, training step, batch {batch}"
        say(setting)
        base = Job("none", size="nano", img_size=side, patch_size=patch, depth=4, batch=batch, training=True)
        jobs = {name: base._replace(subject=name) for name in names}
        longer = effort._replace(seconds=2 * effort.seconds)
        for row in compare_times(jobs, dict.fromkeys(names[1:], "none"), setting, longer):
            if row.name != "none":
                wanted = TARGET if row.name in TABLES and side // patch < 14 else None
                yield row._replace(target=wanted)
    say("attention under a mask that learns")
    for tokens, batch in CALLS[:2] if quick else CALLS:
        setting = f"attention under a mask that learns, {tokens} tokens, forward + backward, batch {batch}"
        work = {"torch": _call(tokens, batch, _by_torch), "ours": _call(tokens, batch, _by_us)}
        taken = interleave(
            work, seconds=effort.seconds / 5, rounds=effort.rounds, least=effort.least, clock=effort.clock
        )
        ratio = taken["ours"].over(taken["torch"])
        yield Result(setting, "bias", "torch", taken["ours"].typical, ratio, target=1.0)


def _call(tokens: int, batch: int, run: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> Callable[[], None]:
    """Attention of what one projection made, as in a layer, and its gradients."""
    packed = torch.randn(batch, tokens, 3, HEADS, WIDTH, requires_grad=True)
    mask = torch.randn(HEADS, tokens, tokens, requires_grad=True)
    gradient = torch.randn(batch, tokens, HEADS * WIDTH)

    def step() -> None:
        q, k, v = (part.transpose(1, 2) for part in packed.unbind(2))
        torch.autograd.grad(run(q, k, v, mask).transpose(1, 2).flatten(2), [packed, mask], gradient)

    return step


def _by_torch(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask)


def _by_us(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return masked_sdpa(q, k, v, mask[None], Options(WIDTH**-0.5, None, 0.0, None))
