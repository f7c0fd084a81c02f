"""A multi-layer perceptron; 669,706 parameters with two hidden layers of 512 on 28x28 grey images.

    dense -> hidden[0], ReLU
    dense -> hidden[1], ReLU
    ...
    dense -> classes

Initial weights have a normal law of variance 2 / inputs of a unit (He et al., ICCV 2015,
arXiv:1502.01852), truncated at two standard deviations; biases start at 0.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod, sqrt
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from testbed.models.base import ImageShape, ModelConfig, Network, dense

Width = Annotated[int, Field(ge=1, le=65536, strict=True)]


class Mlp(ModelConfig):
    """A multi-layer perceptron with ReLU.

    Attributes:
        hidden: units of each hidden layer, from the input on; without any, a logistic regression.
    """

    name: Literal["mlp"]
    hidden: Annotated[tuple[Width, ...], Field(max_length=16)] = (512, 512)

    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        from testbed.models.layers import LayeredNetwork, Linear

        widths = (prod(image_shape), *self.hidden, classes)
        return LayeredNetwork(
            [
                Linear(f"dense{i}", inputs, outputs, sqrt(2 / inputs), relu=i <= len(self.hidden))
                for i, (inputs, outputs) in enumerate(pairwise(widths), start=1)
            ]
        )

    def parameters(self, image_shape: ImageShape, classes: int) -> int:
        return dense(prod(image_shape), *self.hidden, classes)
