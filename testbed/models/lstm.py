"""Long short-term memory that predicts a number from a series; 16,961 parameters with 64 units.

    long short-term memory -> units, its last output
    dense -> 1

The objective is the mean squared error. Initial weights have normal laws of variance
1 / (inputs + units) and 1 / units, truncated at two standard deviations; biases start at 0.

SUBSTITUTE: it replaces the recurrent network of the ADSP paper (AAAI 2020), which the authors' code
trains, with little success, on series from train bogies that may not be redistributed.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from testbed.models.base import ImageShape, ModelConfig, Network, dense


class Lstm(ModelConfig):
    """Long short-term memory that predicts a number from a series, SUBSTITUTE for a paper's.

    Attributes:
        units: size of the hidden state.
    """

    predicts = "numbers"
    substitute = "lstm stands for the ADSP paper's recurrent network"

    name: Literal["lstm"]
    units: Annotated[int, Field(ge=1, le=4096, strict=True)] = 64

    def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
        from testbed.models.layers import LayeredNetwork, Linear, SquaredError
        from testbed.models.recurrence import Memory

        inputs, units = image_shape[0], self.units
        memory = Memory("lstm", inputs, units, deviation=1 / sqrt(inputs + units))
        out = Linear("dense", units, 1, deviation=1 / sqrt(units), relu=False)
        return LayeredNetwork([memory, out], SquaredError())

    def parameters(self, image_shape: ImageShape, classes: int) -> int:
        return dense(image_shape[0] + self.units, 4 * self.units) + dense(self.units, 1)
