"""A linear support vector machine that predicts a number: 9 parameters of 8 features.

V. Vapnik: The nature of statistical learning theory, 1995. The objective is the squared
epsilon-insensitive loss with epsilon 0.05, plus 0.001 / 2 times the squared norm of the weights.
Initial weights have a normal law of standard deviation 0.01, truncated at two; the bias is 0.

SUBSTITUTE: it replaces the ADSP paper's linear SVM (AAAI 2020). The authors' code trains a dual
machine with a Gaussian kernel over the current batch, whose loss has no lower bound.
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
        from testbed.models.layers import LayeredNetwork, Linear, SquaredError

        features = prod(image_shape)
        plane = Linear("plane", features, 1, deviation=0.01, decay=DECAY, relu=False)
        return LayeredNetwork([plane], SquaredError(margin=EPSILON))

    def parameters(self, image_shape: ImageShape, classes: int) -> int:
        return dense(prod(image_shape), 1)
