# %% [markdown]
# # Look at the attention of any timm model
#
# Attention that runs in a fused kernel never makes its weights, so most tools ask you to switch it off or to patch the
# model. `vit_rpe.viz.record` leaves the model alone: it keeps what goes *into* the attention layers and computes the
# weights afterwards.

# %%
# %matplotlib inline
import timm
import torch
from sklearn.datasets import load_digits, load_sample_image
from torch.nn import functional as F

import vit_rpe

torch.manual_seed(0)

# %% [markdown]
# ## A plain vision transformer of timm
#
# Weights from the internet are not needed for this page: we train timm's own class on scikit-learn's digits for some
# seconds. Nothing in it is ours.

# %%
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
labels = torch.tensor(digits.target)
shape = {"img_size": 8, "patch_size": 2, "in_chans": 1, "embed_dim": 48, "depth": 3, "num_heads": 4}
model = timm.models.VisionTransformer(**shape, num_classes=10)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
for _ in range(15):
    for index in torch.randperm(1500).split(50):
        optimizer.zero_grad()
        F.cross_entropy(model(images[index]), labels[index]).backward()
        optimizer.step()
with torch.no_grad():
    right = (model.eval()(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
print(f"{right:.0%} of the images it has not seen")
assert right > 0.5

# %% [markdown]
# Record one forward pass, and ask where the class token looks: layer by layer, head by head.

# %%
seen_images = images[1500:1502]
pixels = (seen_images + 1) / 2  # 0 to 1, for the pictures
with torch.no_grad(), vit_rpe.viz.record(model) as seen:
    model(seen_images)
vit_rpe.viz.plot_layers(seen, pixels, query="class")

# %% [markdown]
# The maps are tensors too, and they are exact: weights times values, projected, is what the layer gave.

# %%
layer = model.blocks[1].attn
weights = seen.attention(1)  # (images, heads, queries, keys)
torch.testing.assert_close(weights.sum(dim=-1), torch.ones_like(weights[..., 0]))
inputs = []
hook = layer.register_forward_hook(lambda module, args, output: inputs.append((args[0], output)))
with torch.no_grad():
    model(seen_images)
    hook.remove()
    x, output = inputs[0]
    values = layer.qkv(x).reshape(2, 17, 3, 4, 12).permute(2, 0, 3, 1, 4)[2]
    rebuilt = layer.proj((weights @ values).transpose(1, 2).reshape(2, 17, 48))
torch.testing.assert_close(rebuilt, output, atol=1e-5, rtol=1e-5)
print("largest difference", float((rebuilt - output).abs().max()))

# %% [markdown]
# ## A model with windows
#
# Swin's patches look inside a window, which every other layer shifts. `query=(row, column)` is a patch of the *image*:
# windows are put together and shifted back. The weights here are random, so the only thing to see is where a patch
# *can* look.

# %%
photograph = torch.tensor(load_sample_image("china.jpg")).permute(2, 0, 1)[None] / 255
photograph = F.interpolate(photograph[..., :420, 100:520], (112, 112), mode="bilinear", antialias=True)
swin = timm.create_model("swin_tiny_patch4_window7_224", img_size=112, depths=(2,), num_heads=(3,)).eval()
with torch.no_grad(), vit_rpe.viz.record(swin) as seen_windows:
    swin(photograph)
vit_rpe.viz.plot_layers(seen_windows, photograph, query=(13, 10))

# %% [markdown]
# ## Other things to ask
#
# * `seen.content(layer)` and `seen.position(layer)`: the same map without position, and position alone;
# * `seen.bias(layer)`: what position adds to the logits;
# * `vit_rpe.viz.record_class(model, images, target=7)`: weighted by the gradient of a class;
# * `vit-rpe explore`: a page in which you point at a patch. [Pictures](../pictures.md) has all of it, and says which
#   models are described. One that is not is refused by the class of its attention: nothing is guessed.

# %%
print(f"{len(seen)} layers, {seen.num_heads} heads; {seen.names[0]}")
vit_rpe.viz.plot_rollout(seen, pixels)
