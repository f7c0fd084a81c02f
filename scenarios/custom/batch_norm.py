"""A model with batch normalisation, from a function."""

from __future__ import annotations

from math import prod

from torch import nn


def network(image_shape: tuple[int, ...], classes: int, *, width: int) -> nn.Module:
    """Return two layers; the first is normalised by the batch."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(image_shape), width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Linear(width, classes),
    )
