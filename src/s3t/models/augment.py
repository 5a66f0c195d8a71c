"""Random crops and mirror images, for training alone (the paper's vision experiments).

What becomes of an image is a function of its own record, the stage's seed and the epoch, whatever batch it is in.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def augmented(pixels: Tensor, *, crop: int, flip: bool, seed: int, record: bytes) -> Tensor:
    """An image shifted by at most `crop` pixels each way, its edge mirrored into the gap; perhaps mirrored whole.

    Args:
        pixels: channels x height x width.
    """
    drawn = hashlib.sha256(seed.to_bytes(8, "big") + record).digest()
    height, width = pixels.shape[-2:]
    if crop:
        top, left = (int.from_bytes(drawn[at : at + 8], "big") % (2 * crop + 1) for at in (0, 8))
        padded = torch.nn.functional.pad(pixels[None], [crop] * 4, mode="reflect")[0]
        pixels = padded[:, top : top + height, left : left + width]
    if flip and drawn[16] % 2:
        pixels = pixels.flip(-1)
    return pixels
