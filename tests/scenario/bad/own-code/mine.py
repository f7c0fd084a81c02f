from typing import Annotated

from pydantic import Field

from testbed.algorithms.base import AlgorithmConfig, ServerHalf, WorkerHalf
from testbed.values.units import Duration


class Mine(AlgorithmConfig):
    rate: float
    every: Duration = Duration(1)
    steps: Annotated[int, Field(ge=1)] = 3

    def halves(self):
        return WorkerHalf, ServerHalf


class Net:
    def __init__(self, image_shape, classes, *, width=3, depth=1):
        pass


def load(noise):
    pass
