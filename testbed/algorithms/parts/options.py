"""Option types that several algorithms share."""

from typing import Annotated

from pydantic import Field

from testbed.values.fields import (
    BelowOne,
    NonNegative,
    Portion,
    PositiveDuration,
    PositiveNumber,
    Share,
)

__all__ = ["BelowOne", "Portion", "PositiveDuration", "Share"]

LearningRate = PositiveNumber
Loss = PositiveNumber
Momentum = BelowOne
Decay = NonNegative
Steps = Annotated[int, Field(ge=1, le=10**9, strict=True)]
Count = Annotated[int, Field(ge=1, le=10**6, strict=True)]
CommitRate = Annotated[float, Field(gt=0, le=10**6)]
