# %% [markdown]
# # Train on your own small data
#
# A folder of images, one subfolder a class, becomes a trained model, its accuracy, pictures of what it attends to, and
# a page to point at, by four commands. So that this page runs anywhere, the images are written first: 600 digits as
# PNG files. Yours may be of any size and kind.

# %%
# %matplotlib inline
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits

import vit_rpe
from vit_rpe.cli import main

work = Path(tempfile.mkdtemp())
digits = load_digits()
for number, (pixels, label) in enumerate(zip(digits.images[:600], digits.target[:600], strict=True)):
    folder = work / "photos" / f"digit_{label}"
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray((pixels * 255 / 16).astype(np.uint8)).resize((16, 16)).save(folder / f"{number}.png")

# %% [markdown]
# ## Train
#
# In a shell this is `vit-rpe train --data.name folder --data.path photos ...`; here `main` runs the same command. There
# is no validation folder, so a fifth of every class is held out, the same for every training seed. Small data want a
# small model, a relative position and augmentation: `light` shifts the images, and flips them, which digits do not
# survive, so it stays away here.

# %%
words = ["train", "--config", "folder/vit_tiny_bias", "--data.path", str(work / "photos"), "--data.val_fraction", "0.2"]
words += ["--model.name", "vit_rpe_nano_patch4_32", "--model.img_size", "16", "--model.args", "{depth: 3}"]
words += ["--data.augment", "none", "--data.num_workers", "0", "--train.epochs", "20", "--train.lr", "2e-3"]
words += ["--train.warmup_epochs", "2", "--output", str(work / "run")]
assert main(words) == 0

# %% [markdown]
# ## What is in the run

# %%
print(sorted(path.name for path in (work / "run").iterdir()))
assert main(["evaluate", "--checkpoint", str(work / "run")]) == 0
summary = vit_rpe.list_runs(work)[0]
assert summary.accuracy > 0.8

# %%
image = sorted((work / "photos" / "digit_5").glob("*.png"))[0]
assert main(["predict", str(image), "--checkpoint", str(work / "run"), "--top", "3"]) == 0

# %% [markdown]
# ## Use the model in Python
#
# The checkpoint knows how its inputs are treated, so that an image of any size is what the model was trained on.

# %%
run = vit_rpe.load_run(work / "run")
pixels = run.preprocessing(image)[None]
print(run.class_names[int(run.model(pixels).argmax())])

# %% [markdown]
# ## Look at it
#
# `vit-rpe visualize --checkpoint RUN` and `vit-rpe explore --checkpoint RUN` write pictures and a page. In Python:

# %%
with torch.no_grad(), vit_rpe.viz.record(run.model) as seen:
    run.model(pixels)
grey = torch.tensor(np.array(Image.open(image).convert("L")) / 255, dtype=torch.float32)
vit_rpe.viz.plot_layers(seen, grey[None, None], query=(1, 1))

# %%
vit_rpe.viz.plot_bias(seen)

# %% [markdown]
# More data: [what every source takes](../data.md). Interrupting, resuming, learning rates: [training](../training.md).
# Another size afterwards: [change the resolution](change_resolution.ipynb).
