"""A transformer over token sequences with relative position: encoder or causal, for classes, tags or language.

Blocks and attention are the vision transformer's; only the way in and out differs. A sequence is a grid of one axis.

Legend: B batch, N tokens of a sequence, P prefix tokens, C channels, V vocabulary, F features of an input vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from timm.layers import LayerNorm
from torch import Tensor, nn

from vit_rpe.checks import check_count, check_rates, checked, unknown_name
from vit_rpe.encodings import Spec, check_resizable, find_encodings
from vit_rpe.layers.absolute import check_pos_embed, sincos_embedding
from vit_rpe.layers.kv_cache import DecodingCache
from vit_rpe.layers.options import as_window
from vit_rpe.models.backbone.blocks import build_blocks, run_block
from vit_rpe.models.backbone.init_weights import init_encodings, init_layers, init_tokens, undecayed
from vit_rpe.models.backbone.loading import resample_on_load, resized_embedding
from vit_rpe.models.backbone.position import RebuildArguments
from vit_rpe.models.backbone.resizing import resize_positions
from vit_rpe.models.sequence.generate import check_decoding, check_prompt, continue_tokens
from vit_rpe.models.sequence.io import HEADS, POOLS, absolute_embedding, check_ids, check_ways, pool_sequence
from vit_rpe.models.sequence.layout import lay_out, layer_cache, shared_between_layers
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.geometry_cache import sharing

# what depends on sizes and positions is no graph of tensors: any FX tracer takes these as single steps
for _step in ("absolute_embedding", "lay_out", "layer_cache", "pool_sequence", "shared_between_layers"):
    torch.fx.wrap(_step)


class SequenceTransformer(nn.Module):
    """Transformer over sequences (Attention Is All You Need, arXiv 1706.03762; pre-norm blocks).

    Args:
        vocab_size: V, for token ids; or ``in_features``: F, for feature vectors. One of the two.
        length: the native length, the one position parameters are made for.
        num_classes: outputs; 0 for features only. The language-model head has V outputs and needs none.
        head: ``"classification"`` (one answer a sequence), ``"token"`` (one a token) or ``"lm"`` (a distribution over
            the vocabulary a token).
        pool: for classification, ``"avg"``, ``"max"``, ``"last"`` (visible token) or ``"token"`` (the class token).
        embed_dim, depth, num_heads, mlp_ratio: C, number of blocks, heads, MLP width over C.
        rpe: ``"none"``, an encoding by name, ``{"name": ..., option: ...}``, or a list of those.
        rpe_shared: one set of parameters for all layers.
        pos_embed: ``"none"``, ``"learned"``, ``"sincos"`` or, where not causal, ``"conditional"`` (behind the first
            block).
        causal: a token sees itself and the tokens before it.
        window: a token sees tokens at most this many places away.
        class_token: a prefix token without position; not for causal models, where it would see nothing.
        qkv_bias, qk_norm, init_values, attn_impl, logit_clip: of the blocks, as in the vision transformer.
        drop_rate, pos_drop_rate, proj_drop_rate, attn_drop_rate, drop_path_rate: regularisation.

    Raises:
        ValueError: both or neither way in, unknown names, options that exclude each other.
    """

    _model_args = RebuildArguments()

    @checked(
        least={
            **dict.fromkeys(("vocab_size", "length", "in_features", "embed_dim", "depth", "num_heads"), 1),
            "num_classes": 0,
        },
        positive=("mlp_ratio",),
    )
    def __init__(
        self,
        vocab_size: int | None = None,
        length: int = 256,
        num_classes: int | None = None,
        *,
        in_features: int | None = None,
        head: str = "classification",
        pool: str = "avg",
        embed_dim: int = 256,
        depth: int = 6,
        num_heads: int = 4,
        mlp_ratio: float = 4.0,
        rpe: Spec | Sequence[Spec] | None = "bias",
        rpe_shared: bool = False,
        pos_embed: str = "none",
        causal: bool = False,
        window: int | None = None,
        class_token: bool = False,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        init_values: float | None = None,
        attn_impl: str = "auto",
        logit_clip: float | None = None,
        drop_rate: float = 0.0,
        pos_drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        check_pos_embed(pos_embed, causal=causal)
        check_rates(drop_rate=drop_rate, pos_drop_rate=pos_drop_rate)
        check_rates(proj_drop_rate=proj_drop_rate, attn_drop_rate=attn_drop_rate, drop_path_rate=drop_path_rate)
        for option, value, choices in (("head", head, HEADS), ("pool", pool, POOLS)):
            if value not in choices:
                raise unknown_name(option, value, choices)
        self.num_classes = check_ways(
            vocab_size, in_features, num_classes, head=head, pool=pool, class_token=class_token, causal=causal
        )
        self.vocab_size = vocab_size
        self.in_features = in_features
        self.head_type = head
        self.pool_type = pool
        self.num_features = self.embed_dim = embed_dim
        self.num_prefix_tokens = int(class_token)
        self.pos_embed_type = pos_embed
        self.causal = causal
        self.grad_checkpointing = False
        self.grid = TokenGrid((length,), num_prefix=self.num_prefix_tokens)
        self.window = as_window(window, self.grid)

        if vocab_size is not None:
            self.token_embed: nn.Module = nn.Embedding(vocab_size, embed_dim, **factory)
        else:
            self.token_embed = nn.Linear(in_features or 0, embed_dim, **factory)
        self.cls_token = nn.Parameter(torch.empty(1, 1, embed_dim, **factory)) if class_token else None
        learned = pos_embed == "learned"
        self.pos_embed = nn.Parameter(torch.empty(1, length, embed_dim, **factory)) if learned else None
        if pos_embed == "sincos":
            sincos_embedding(TokenGrid((1,)), embed_dim)  # refuse a width that does not split
        self.pos_drop = nn.Dropout(pos_drop_rate)
        self.rpe, self.blocks = build_blocks(
            depth,
            embed_dim,
            num_heads,
            self.grid,
            rpe=rpe,
            rpe_shared=rpe_shared,
            drop_path_rate=drop_path_rate,
            conditional=pos_embed == "conditional",
            attention={
                "dropout": attn_drop_rate,
                "qkv_bias": qkv_bias,
                "qk_norm": qk_norm,
                "logit_clip": logit_clip,
                "attn_impl": attn_impl,
            },
            block={"mlp_ratio": mlp_ratio, "init_values": init_values, "proj_drop": proj_drop_rate},
            factory=factory,
        )
        self.norm = LayerNorm(embed_dim, **factory)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = nn.Linear(embed_dim, self.num_classes, **factory) if self.num_classes else nn.Identity()
        resample_on_load(self)
        self.init_weights()

    @property
    def length(self) -> int:
        """The native length."""
        return self.grid.size[0]

    def init_weights(self) -> None:
        """Draw all weights anew; encodings by their own rules."""
        init_layers(self)
        if isinstance(self.token_embed, nn.Embedding):
            nn.init.trunc_normal_(self.token_embed.weight, std=0.02)
        init_tokens(self.pos_embed, self.cls_token)
        init_encodings(self)

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that weight decay must leave alone: class token, positions and what encodings name."""
        return {"pos_embed", "cls_token"} | undecayed(self)

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Parameter groups for layer decay: an encoding goes with its block, a shared one with the stem."""
        return {
            "stem": r"^cls_token|pos_embed|token_embed|^rpe",
            "blocks": [(r"^blocks\.(\d+)", None), (r"^norm", (99999,))],
        }

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute each block in backward instead of keeping its activations."""
        self.grad_checkpointing = enable

    def get_classifier(self) -> nn.Module:
        return self.head

    @checked(least={"length": 1})
    def set_length(self, length: int) -> None:
        """Make another length the native one: embeddings and tables are resampled, parameters replaced.

        Create the optimiser afterwards.
        """
        check_resizable(self)
        before, self.grid = self.grid, TokenGrid((length,), num_prefix=self.num_prefix_tokens)
        if self.pos_embed is not None:
            self.pos_embed = resized_embedding(self.pos_embed, before.size, self.grid.size)
        resize_positions(self, self.grid)

    def new_cache(self, context: int | None = None) -> DecodingCache:
        """An empty key/value cache for ``forward``.

        Args:
            context: the most tokens that will be decoded; default: the native length.

        Raises:
            ValueError: the model is not causal, or an encoding cannot decode step by step.
        """
        if not self.causal:
            raise ValueError("a key/value cache needs causal=True: otherwise later tokens change the earlier ones")
        check_decoding(encoding for _, encoding in find_encodings(self))
        if context is not None:
            check_count("context", context)
        return DecodingCache(len(self.blocks), self.length if context is None else context)

    def generate(
        self,
        prompt: Tensor,
        num_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        context: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Continue token ids.

        Args:
            prompt: int64 (B, T), at least one token.
            num_tokens: how many to add.
            temperature: divides the logits; 0 takes the most likely token.
            top_k: draw from the k most likely tokens only; None for all.
            context: the context limit; default: the native length, or all tokens where that is more.
            generator: for the draws.

        Returns:
            int64 (B, T + num_tokens), the prompt first. The model stays in the mode it is in.

        Raises:
            ValueError: no causal language model, an empty prompt, ids outside of the vocabulary, a bad option, or more
                tokens than the model can place.
        """
        if self.head_type != "lm" or self.vocab_size is None:
            raise ValueError(f"only a language model (head='lm') generates, this one has head={self.head_type!r}")
        check_prompt(prompt, num_tokens, self.vocab_size, temperature=temperature, top_k=top_k)
        cache = self.new_cache(max(self.length, prompt.shape[1] + num_tokens) if context is None else context)
        return continue_tokens(
            partial(self, cache=cache), prompt, num_tokens, temperature=temperature, top_k=top_k, generator=generator
        )

    def embed(self, x: Tensor, grid: TokenGrid) -> Tensor:
        """Ids (B, N) or vectors (B, N, F) that lie on ``grid`` to tokens (B, P + N, C)."""
        try:
            x = self.token_embed(x)
        except IndexError:
            check_ids(x, self.vocab_size or 0)  # says which id; an accelerator would have to wait for it
            raise
        kind = self.pos_embed_type
        if kind in ("learned", "sincos"):
            x = x + absolute_embedding(kind, self.pos_embed, grid, self.embed_dim, x.device).to(x.dtype)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.pos_drop(x)

    @sharing()
    def forward_features(
        self,
        x: Tensor,
        visible: Tensor | None = None,
        *,
        cache: DecodingCache | None = None,
        context: int | None = None,
    ) -> Tensor:
        """As :meth:`forward`, to tokens (B, P + N, C) after the last norm."""
        q, k, visible = lay_out(
            *(x, visible, cache, context),
            vocab_size=self.vocab_size,
            in_features=self.in_features,
            native=self.grid,
        )
        x = self.embed(x, q)
        shared = shared_between_layers(self.rpe, q, k, x.device, causal=self.causal, window=self.window)
        recompute = self.grad_checkpointing and self.training and cache is None
        for index, block in enumerate(self.blocks):
            of_layer = layer_cache(cache, index)
            x = run_block(block, x, q, shared, None, visible, context_grid=k, cache=of_layer, recompute=recompute)
        return self.norm(x)

    def forward_head(self, x: Tensor, visible: Tensor | None = None, pre_logits: bool = False) -> Tensor:
        """Tokens (B, P + N, C) to logits: pooled for classification, one a token otherwise."""
        x = self.head_drop(
            pool_sequence(x, visible, self.pool_type, self.num_prefix_tokens)
            if self.head_type == "classification"
            else x[:, self.num_prefix_tokens :]
        )
        return x if pre_logits else self.head(x)

    def forward(
        self,
        x: Tensor,
        visible: Tensor | None = None,
        *,
        cache: DecodingCache | None = None,
        context: int | None = None,
    ) -> Tensor:
        """Sequences to logits.

        Args:
            x: token ids (B, N), or vectors (B, N, F).
            visible: bool (B, N), False for padding; a padded token is no key and is not pooled. Pad on the right, so
                that the others keep their positions.
            cache: keys and values of the tokens before ``x`` (:meth:`new_cache`); those of ``x`` are added to it.
            context: the context limit, for encodings that normalise by it; default: the native length, or that of the
                sequence where it is longer.

        Returns:
            (B, num_classes) for classification, (B, N, num_classes) for tokens, (B, N, V) for a language model.

        Raises:
            ValueError: another shape, more tokens than the context limit or a learned ``pos_embed`` holds.
        """
        return self.forward_head(self.forward_features(x, visible, cache=cache, context=context), visible)
