"""A linear support vector machine that predicts a number: 9 parameters of 8 features.

V. Vapnik: The nature of statistical learning theory, 1995. What is minimised is the squared
epsilon-insensitive loss with epsilon 0.05, and 0.001 / 2 times the squared norm of the weights.
Weights start from a normal law of standard deviation 0.01, cut off at two of them, the bias at 0.

SUBSTITUTE: it stands for the ADSP paper's linear SVM (AAAI 2020). What its authors' code trains is
a dual machine with a Gaussian kernel over the batch at hand, whose loss has no lower bound.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Literal

from testbed.models.base import ImageShape, ModelConfig, Network, dense

EPSILON = 0.05
DECAY = 0.001


class LinearSvm(ModelConfig):
    """A linear support vector machine that predicts a number, SUBSTITUTE for a paper's."""

    predicts = "numbers"
    substitute = "linear-svm stands for the ADSP paper's SVM"

    name: Literal["linear-svm"]

    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        from testbed.models.layers import LayeredNetwork, Linear
        from testbed.models.objectives import SquaredError

        features = prod(image_shape)
        plane = Linear("plane", features, 1, deviation=0.01, decay=DECAY, relu=False)
        return LayeredNetwork([plane], SquaredError(margin=EPSILON))

    def parameters(self, image_shape: ImageShape, classes: int) -> int:
        return dense(prod(image_shape), 1)
