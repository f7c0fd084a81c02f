"""Per-image standardisation, as the AdaComp paper's authors do it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 1000


def standardised(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Each image as (x - mean) / max(std, 1 / sqrt(pixels)), with the mean and std of its own.

    Raw pixels of shape (n, height, width) become grey images of shape (n, 1, height, width).
    """
    count, height, width = images.shape
    out = np.empty((count, 1, height, width), np.float32)
    smallest = 1 / np.sqrt(height * width)
    for start in range(0, count, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        raw = images[part, None].astype(np.float64)
        mean = raw.mean(axis=(1, 2, 3), keepdims=True)
        deviation = raw.std(axis=(1, 2, 3), keepdims=True)
        out[part] = (raw - mean) / np.maximum(deviation, smallest)
    return out
