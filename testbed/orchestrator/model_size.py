"""How many parameters a model will have, without building it: that would import torch.

A test compares these with the networks that are built.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from testbed.models import AdaCompCnn, DigitsCnn, Mlp
from testbed.scenario.schema import Scenario

IMAGES = {"digits": ((1, 8, 8), 10), "mnist": ((1, 28, 28), 10)}
"""Shape of an image and number of classes of each data set that is known beforehand."""


def count_parameters(scenario: Scenario) -> int | None:
    """Parameters of the scenario's model, or None where only the user's own code knows."""
    if scenario.dataset.name not in IMAGES:
        return None
    shape, classes = IMAGES[scenario.dataset.name]
    channels, height, width = shape
    match scenario.model:
        case AdaCompCnn():
            features = 32 * (height // 4) * (width // 4)
            convolutions = _convolution(channels, 32) + _convolution(32, 32)
            return convolutions + _dense(features, 128, classes)
        case DigitsCnn():
            features = 16 * (height // 2) * (width // 2)
            return _convolution(channels, 16) + _dense(features, 64, classes)
        case Mlp(hidden=hidden):
            return _dense(prod(shape), *hidden, classes)
        case _:
            return None


def _convolution(inputs: int, outputs: int) -> int:
    """A 3x3 convolution with biases."""
    return (9 * inputs + 1) * outputs


def _dense(*widths: int) -> int:
    """Dense layers with biases, from one width to the next."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))
