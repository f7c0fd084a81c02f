"""A network of one's own, whose width stands in the scenario."""

from __future__ import annotations

from torch import Tensor, nn


class Net(nn.Module):
    """One hidden layer.

    Args:
        image_shape: channels, height, width.
        classes: number of labels.
        width: neurons of the hidden layer.
    """

    def __init__(self, image_shape: tuple[int, int, int], classes: int, *, width: int = 32) -> None:
        super().__init__()
        channels, height, across = image_shape
        self.hidden = nn.Linear(channels * height * across, width)
        self.score = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Scores (b, classes) of images (b, channels, height, width)."""
        scores: Tensor = self.score(self.hidden(images.flatten(1)).relu())
        return scores
