"""Modules as networks."""

from __future__ import annotations

import numpy as np
import pytest
from torch import Tensor, nn

from testbed.models.modules import ModuleNetwork


class Seen(nn.Module):
    """Scores an image by its pixels, and records the memory layout of the images."""

    def __init__(self, strides: list[tuple[int, ...]], pixels: int) -> None:
        super().__init__()
        self.strides = strides
        self.score = nn.Linear(pixels, 2)

    def forward(self, images: Tensor) -> Tensor:
        self.strides.append(images.stride())
        return self.score(images.flatten(1))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("channels", "strides"), [(1, (12, 1, 4, 1)), (3, (36, 1, 12, 3))])
def test_images_are_channels_last(channels: int, strides: tuple[int, ...]) -> None:
    """3x4 pixels. A single channel has the same layout in both orders; layers use the strides."""
    seen: list[tuple[int, ...]] = []
    network = ModuleNetwork(lambda: Seen(seen, channels * 12))
    bound = network.bind(network.initial(np.random.default_rng(0)))
    images = np.arange(2 * channels * 12, dtype=np.float32).reshape(2, channels, 3, 4)
    bound.loss_and_gradient(images, np.array([0, 1]))
    bound.scores(images)
    assert seen == [strides, strides]
