"""What the samples of a data set are: what a model gets, and what it predicts."""

from __future__ import annotations

from typing import Literal

Inputs = Literal["images", "tokens"]
"""Images (channels, height, width), or rows of tokens (length,)."""

Targets = Literal["labels", "numbers", "tokens"]
"""A label or a number for each sample, or a token for each position of a sample."""

NOT_COUNTED = -100
"""The target at a position that is no part of the objective, such as padding; torch's default."""


def inputs_of(shape: tuple[int, ...]) -> Inputs:
    """Return what samples of this shape are."""
    return "tokens" if len(shape) == 1 else "images"
