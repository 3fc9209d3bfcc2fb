# %% [markdown]
# # Write an encoding
#
# An encoding says what position adds to attention; layers, models, kernels, pictures, studies and export then know it
# by its name. This page writes one: a penalty for the Chebyshev distance, the number of steps a king needs on a
# chessboard, with one learned slope a head.
#
#     logit(i, j) += -w_h max_a |delta_a|
#
# ## The definition first
#
# One pair of tokens, in plain loops. It is slow, and it is what the fast form will be held to.

# %%
# %matplotlib inline
import timm
import torch
from torch import nn

import vit_rpe
from vit_rpe import PositionTerms, TokenGrid
from vit_rpe.encodings import Card, PositionEncoding, register
from vit_rpe.position.offset_tables import offset_range
from vit_rpe.position.terms import dense_bias

torch.manual_seed(0)


def by_loops(weight, q, k):
    bias = torch.zeros(len(weight), q.num_tokens, k.num_tokens)
    for i, one in enumerate(q.positions().tolist()):
        for j, other in enumerate(k.positions().tolist()):
            steps = max(abs(a - b) for a, b in zip(one, other, strict=True))
            bias[:, q.num_prefix + i, k.num_prefix + j] = -weight * steps
    return bias


# %% [markdown]
# ## The class
#
# It says a value for every *offset*, not for every pair: on a grid of 14x14 those are 27x27 numbers instead of 196x196,
# and kernels spread them as they need them. Prefix tokens (class, registers) have no position and get nothing.


# %%
@register("chebyshev", Card(paper="mine", adds=("offset_bias",), extrapolation="defined for every offset"))
class Chebyshev(PositionEncoding):
    """A learned penalty for the Chebyshev distance."""

    def __init__(self, num_heads, head_dim, grid, *, init=0.1):
        super().__init__(num_heads, head_dim, grid)
        self.init = init
        self.weight = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.constant_(self.weight, self.init)

    def forward(self, q, k, device=None):
        farthest = self.weight.new_zeros(())
        for axis in range(q.ndim):
            low, count = offset_range(q, k, axis)
            steps = torch.arange(count, device=self.weight.device) + low
            farthest = torch.maximum(farthest[..., None], steps.abs().float())
        return PositionTerms(offset_bias=(-self.weight.float().view(-1, *(1,) * q.ndim) * farthest,), grids=(q, k))


# %% [markdown]
# ## Is it right?
#
# Try it where mistakes show: grids that are not square, queries and keys of different sizes, weights that all differ,
# one, two and three axes, a class token.

# %%
for size_q, size_k in (((7,), (5,)), ((3, 5), (4, 2)), ((2, 3, 2), (3, 2, 2))):
    q, k = TokenGrid(size_q, num_prefix=1), TokenGrid(size_k, num_prefix=1)
    encoding = vit_rpe.create_encoding("chebyshev", num_heads=3, head_dim=8, grid=k)
    with torch.no_grad():
        encoding.weight.copy_(torch.tensor([0.5, -1.0, 2.0]))
    torch.testing.assert_close(dense_bias(encoding(q, k)), by_loops(encoding.weight, q, k))
print("the fast form is the definition, for 1, 2 and 3 axes")

# %% [markdown]
# ## Use it
#
# By name, with options, alone or beside others; every kernel that can compute it gives the same.

# %%
rpe = [{"name": "chebyshev", "init": 0.3}, "rope_mixed"]
model = timm.create_model("vit_rpe_nano_patch4_32", rpe=rpe, num_classes=5, drop_path_rate=0.0)
loss = model(torch.randn(2, 3, 32, 32)).square().mean()
loss.backward()
print({name: tuple(value.shape) for name, value in model.named_parameters() if "chebyshev" in name and ".0." in name})

outputs = []
for kernel in ("eager", "sdpa", "windows"):
    torch.manual_seed(0)
    layer = vit_rpe.RelativeMultiheadAttention(24, 3, rpe="chebyshev", grid=(4, 6), attn_impl=kernel)
    outputs.append(layer(torch.linspace(-1, 1, 2 * 24 * 24).view(2, 24, 24)))
torch.testing.assert_close(outputs[0], outputs[1])
torch.testing.assert_close(outputs[0], outputs[2])

# %% [markdown]
# And look at it, four heads with four slopes:

# %%
small = vit_rpe.VisionTransformer(img_size=36, patch_size=4, embed_dim=32, depth=1, num_heads=4, rpe="chebyshev").eval()
with torch.no_grad():
    small.blocks[0].attn.rpe.weight.copy_(torch.tensor([0.1, 0.4, -0.2, 1.0]))
    with vit_rpe.viz.record(small) as seen:
        small(torch.rand(1, 3, 36, 36))
vit_rpe.viz.plot_bias(seen)

# %% [markdown]
# ## From the command line
#
# Put the class into a file, `my_encoding.py`, and every command knows it:
#
# ```
# vit-rpe train --plugin my_encoding.py --model.rpe chebyshev
# vit-rpe encodings --plugin my_encoding.py
# ```
#
# A run remembers which plug-in it was made with, and never imports it by itself. What a term can be beside a bias by
# offset (vectors that meet q, k or v, rotations, hidden pairs) is in the reference of `PositionTerms`; how an encoding
# joins the package is in [CONTRIBUTING](../../CONTRIBUTING.md).
