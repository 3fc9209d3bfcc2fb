"""One thing to run: a model or a layer, an input, inference or a training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import timm
import torch
from timm.models.vision_transformer_sam import Attention as SamAttention
from torch import nn

from vit_rpe.benchmark.candidates.peers import CLASSES, PEERS, Shape, counterpart, ours
from vit_rpe.layers import RelativeMultiheadAttention
from vit_rpe.models import replace_attention
from vit_rpe.models.exchange.in_place import freeze
from vit_rpe.models.vit_rpe import SIZES
from vit_rpe.position.geometry import TokenGrid

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
MOST_COMPILED = 1024


class Job(NamedTuple):
    """What to run; JSON-able, so that a child process can be told.

    Attributes:
        subject: a spec of our encodings, or with ``peer`` the name of a peer (``"counterpart"``: ours built for it).
        what: ``"model"``; ``"layer"`` (one attention layer of the size, without the rest of a block; with the subject
            ``"timm"`` that of Segment Anything); or a timm model by name, as it is where that is the subject, else
            with that position in its attention.
        window: radius of the keys that a layer sees; None for all.
        frozen: a model with our positions as constants, in inference.
    """

    subject: Any
    peer: str | None = None
    what: str = "model"
    size: str = "small"
    img_size: int = 224
    patch_size: int = 16
    depth: int | None = None
    batch: int = 1
    training: bool = False
    compiled: bool = False
    frozen: bool = False
    attn_impl: str = "auto"
    device: str = "cpu"
    dtype: str = "float32"
    window: int | None = None

    @property
    def label(self) -> str:
        name = self.subject if isinstance(self.subject, str) else self.subject["name"]
        if self.peer is not None and name == "counterpart":
            return f"ours for {self.peer}"
        return f"{name} ({self.attn_impl})" if self.attn_impl != "auto" else name

    @property
    def shape(self) -> Shape:
        return Shape(self.size, self.img_size, self.patch_size, self.depth)


def build(job: Job) -> tuple[nn.Module, torch.Tensor]:
    """The module in the right mode on its device, and its input."""
    device, dtype = torch.device(job.device), DTYPES[job.dtype]
    torch.manual_seed(0)
    if job.what == "layer":
        dims = SIZES[job.size]
        side = job.img_size // job.patch_size
        width, heads = dims["embed_dim"], dims["num_heads"]
        x = torch.randn(job.batch, side * side, width)
        if job.subject == "timm":
            module: nn.Module = SamAttention(width, heads, use_rel_pos=True, input_size=(side, side))
            x = x.unflatten(1, (side, side))
        else:
            grid = TokenGrid((side, side))
            module = RelativeMultiheadAttention(
                width, heads, rpe=job.subject, grid=grid, window=job.window, attn_impl=job.attn_impl
            )
    else:
        if job.what != "model":
            module = timm.create_model(job.what, img_size=job.img_size, num_classes=CLASSES)
            module = module if job.subject == "timm" else replace_attention(module, job.subject)
        elif job.peer is None:
            module = ours(job.subject, job.shape, attn_impl=job.attn_impl)
        elif job.subject == "counterpart":
            module = counterpart(PEERS[job.peer], job.shape)
        else:
            module = PEERS[job.peer].build(job.shape)
        x = torch.randn(job.batch, 3, job.img_size, job.img_size)
    module = module.to(device=device, dtype=dtype).train(job.training)
    if job.frozen:
        freeze(module)
    if job.compiled:
        # models of one class share their code: past torch's limit of programs the next ones would run uncompiled
        torch._dynamo.config.cache_size_limit = torch._dynamo.config.accumulated_cache_size_limit = MOST_COMPILED
        module.compile()
    return module, x.to(device=device, dtype=dtype)


def callable_of(job: Job) -> tuple[Callable[[], None], torch.device]:
    """The job as a function to call: one forward without gradients, or one forward and backward."""
    module, x = build(job)

    def infer() -> None:
        with torch.no_grad():
            module(x)

    def step() -> None:
        module(x).float().square().mean().backward()
        module.zero_grad(set_to_none=True)

    return (step if job.training else infer), x.device
