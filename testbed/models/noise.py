"""Random batches of the shapes of a data set, for use without one."""

from __future__ import annotations

import numpy as np

from testbed.models.base import Images, ImageShape, Targets
from testbed.values.samples import inputs_of


def noise(
    image_shape: ImageShape, classes: int, *, count: int, tokens: int = 0
) -> tuple[Images, Targets]:
    """Draw images, or tokens, and targets; the same in every call.

    Args:
        image_shape: shape of a sample.
        classes: number of classes; 0 if the targets are numbers.
        count: number of samples.
        tokens: number of tokens of a target; 0 for labels and numbers.
    """
    rng = np.random.default_rng(0)
    shape = (count, *image_shape)
    if inputs_of(image_shape) == "tokens":
        images: Images = rng.integers(0, max(1, classes), shape, np.int32)
    else:
        images = rng.standard_normal(shape).astype(np.float32)
    if not classes:
        return images, rng.standard_normal(count).astype(np.float32)
    return images, rng.integers(0, classes, (count, tokens) if tokens else count)
