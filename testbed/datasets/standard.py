"""Per-image standardisation, as the AdaComp paper's authors do it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 1000


def standardised(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Each image as (x - mean) / max(std, 1 / sqrt(pixels)), with the mean and std of its own.

    Args:
        images: raw pixels, shape (n, channels, height, width), or (n, height, width) if grey.

    Returns:
        Shape (n, channels, height, width); the channels of an image have one mean and std.
    """
    if images.ndim == 3:
        images = images[:, None]
    out = np.empty(images.shape, np.float32)
    smallest = 1 / np.sqrt(images[0].size)
    for start in range(0, len(images), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        raw = images[part].astype(np.float64)
        mean = raw.mean(axis=(1, 2, 3), keepdims=True)
        deviation = raw.std(axis=(1, 2, 3), keepdims=True)
        out[part] = (raw - mean) / np.maximum(deviation, smallest)
    return out
