"""A big model is looked at one layer at a time."""

from __future__ import annotations

import subprocess
import sys

import pytest

# One map of 12 heads and 785 tokens takes 30 MB, those of all layers 355 MB.
CODE = """
import torch
from tests.viz.build import vision_model
from vit_rpe.viz import mean_distance, record, rollout
def peak():  # of this program: what getrusage says begins with the size of the process that started it
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1])
torch.set_num_threads(1)
model = vision_model(img_size=224, patch_size=8, in_chans=1, embed_dim=48, num_heads=12, depth=12, reg_tokens=0)
with torch.no_grad(), record(model) as seen:
    model(torch.randn(1, 1, 224, 224))
seen.attention(0)
before = peak()
rollout(seen.attention(layer) for layer in range(12))
rows = [maps(layer, query=(3, 5)) for layer in range(12) for maps in (seen.attention, seen.content)]
for layer in range(12):
    mean_distance(seen.attention(layer), *seen.grids(layer))
    seen.content(layer), seen.position(layer), seen.bias(layer)
print((peak() - before) // 1024, before // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory in Linux's unit")
def test_785_tokens_12_layers_12_heads() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    more, before = map(int, done.stdout.split())
    assert more < 250
    assert before + more < 2000
