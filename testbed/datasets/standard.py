"""Transforms of images: standardisation per image, and random distortion."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 1000


def standardised(
    images: NDArray[np.uint8] | NDArray[np.float32],
) -> NDArray[np.float32]:
    """Standardise each image as (x - mean) / max(std, 1 / sqrt(pixels)), with its own mean and std.

    This is the method of the AdaComp paper's authors.

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


def distorted(images: NDArray[np.uint8], rng: np.random.Generator | None) -> NDArray[np.float32]:
    """Flip, brighten and contrast raw images at random, then standardise them.

    For each image, as in TensorFlow's CIFAR-10 tutorial: it is flipped from left to right with a
    probability of 1/2, U(-63, 63) is added to all of its pixels, and the distance of each pixel to
    the mean of its channel is multiplied by U(0.2, 1.8).

    Args:
        images: shape (b, channels, height, width).
        rng: generator of the draws; None to disable the distortion.
    """
    if rng is None:
        return standardised(images)
    count = len(images)
    flipped = rng.random(count) < 0.5
    added = rng.uniform(-63, 63, count).astype(np.float32)
    factors = rng.uniform(0.2, 1.8, count).astype(np.float32)
    pixels = images.astype(np.float32)
    pixels[flipped] = pixels[flipped, :, :, ::-1]
    pixels += added[:, None, None, None]
    means = pixels.mean(axis=(2, 3), keepdims=True)
    return standardised((pixels - means) * factors[:, None, None, None] + means)
