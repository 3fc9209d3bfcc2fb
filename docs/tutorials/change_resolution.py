# %% [markdown]
# # Change the resolution without losing accuracy
#
# A model trained on small images should read larger ones. What happens to an offset it has never met is what tells the
# encodings apart. We train two small models at 8x8 pixels, read 12x12 with them, and then train on for a moment.

# %%
# %matplotlib inline
import tempfile
from pathlib import Path

import torch
from torch.nn import functional as F

import vit_rpe
from vit_rpe.cli import main
from vit_rpe.data import ImageData, build_data, eval_loader, train_loader

torch.manual_seed(0)
runs = Path(tempfile.mkdtemp())
recipe = [
    "--config",
    "digits/vit_nano_bias",
    "--train.epochs",
    "10",
    "--train.lr",
    "2e-3",
    "--train.warmup_epochs",
    "1",
]
recipe += ["--data.mixup", "0", "--model.args", "{in_chans: 1, depth: 3}"]
for name, rpe in {"cpb": "cpb", "rope": "rope"}.items():
    assert main(["train", *recipe, "--model.rpe", rpe, "--output", str(runs / name)]) == 0

# %% [markdown]
# `load_run(..., img_size=12)` gives the model at the other size: tables are resampled, formulas go on, coordinates that
# are relative to the grid follow it. `model.set_input_size((12, 12))` does the same to a model in hand.


# %%
def accuracy(run, size):
    config = ImageData(name="digits", batch_size=128)
    data = build_data(config, img_size=(size, size), in_chans=1, seed=0)
    right = total = 0
    with torch.no_grad():
        for images, labels in eval_loader(data, config):
            right += (run.model(data.to_device_batch(images, "cpu")).argmax(dim=1) == labels).sum().item()
            total += len(labels)
    return right / total


before = {}
for name in ("cpb", "rope"):
    for size in (8, 12):
        before[name, size] = accuracy(vit_rpe.load_run(runs / name, img_size=size), size)
        print(f"{name:5} at {size:2} px: {before[name, size]:.1%}")

# %% [markdown]
# Both are good at their own size. At 1.5 times that size the one whose offsets count as logarithms keeps much more than
# the one that turns by angles it never turned by: [what was measured](../results.md) has all encodings, five seeds.
#
# ## Train on, briefly
#
# Three epochs at the new size bring the accuracy back.


# %%
def train_on(run, size, epochs=3):
    config = ImageData(name="digits", batch_size=64)
    data = build_data(config, img_size=(size, size), in_chans=1, seed=0)
    loader = train_loader(data, config, seed=0)
    model = run.model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05)
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(data.to_device_batch(images, "cpu")), labels).backward()
            optimizer.step()
    model.eval()
    return run


run = train_on(vit_rpe.load_run(runs / "cpb", img_size=12), 12)
after = accuracy(run, 12)
print(f"cpb at 12 px after three epochs there: {after:.1%}")
assert after > before["cpb", 8] - 0.03

# %% [markdown]
# ## Any size in every call
#
# Without resampling, a model made with `dynamic_img_size=True` takes whatever comes: beyond its tables the value at the
# edge holds.

# %%
model = vit_rpe.VisionTransformer(
    img_size=32, patch_size=4, embed_dim=48, depth=2, num_heads=4, rpe="bias", dynamic_img_size=True
)
with torch.no_grad():
    print([tuple(model(torch.zeros(1, 3, *size)).shape) for size in ((32, 32), (20, 64))])

# %% [markdown]
# How tables are resampled, and the other way to do it (`resample="geometric"`):
# [tables at another resolution](../encodings.md#tables-at-another-resolution).
