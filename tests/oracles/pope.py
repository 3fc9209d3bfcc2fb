"""PoPE, arXiv 2509.10534: lengths from content, angles from places, one channel at a time."""

import math

import torch

from tests.oracles._pair import Answer, Pair
from vit_rpe.encodings import PositionEncoding

CHANGES: dict = {"base": [{"base": 5.0}]}
AXES_HAVE_CHANNELS = 1


def answer(encoding: PositionEncoding, pair: Pair) -> Answer:
    axes, width = len(pair.q_grid.size), len(pair.q)
    share, base = width // axes, encoding.spec.get("base", 10000.0)
    total = torch.zeros(())
    for channel in range(width):
        axis, number = divmod(channel, share)
        speed = base ** (-number * axes / width)
        angle_q = 0.0 if pair.q_pos is None else pair.q_pos[axis] * speed
        angle_k = torch.zeros(())
        if pair.k_pos is not None:
            phase = torch.clamp(encoding.phase[pair.head, channel], -2 * math.pi, 0)
            angle_k = pair.k_pos[axis] * speed + phase
        length_q, length_k = (torch.log1p(torch.exp(vector[channel])) for vector in (pair.q, pair.k))
        total = total + length_q * length_k * torch.cos(angle_q - angle_k)
    return Answer(pair.s * total)


def swap_axes(state: dict) -> dict:
    return {key: value.reshape(len(value), 2, -1).flip(1).flatten(1) for key, value in state.items()}
