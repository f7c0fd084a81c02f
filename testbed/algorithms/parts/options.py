"""Options that several algorithms have."""

from typing import Annotated

from pydantic import AfterValidator, Field

from testbed.errors import Unfit
from testbed.values.units import Duration


def _lasting(value: Duration) -> Duration:
    if not 0 < value <= 10_000 * 3600:
        raise Unfit(str(value), "a duration above zero and at most 10000h")
    return value


LearningRate = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
Momentum = Annotated[float, Field(ge=0, lt=1, strict=True)]
Decay = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
Ratio = Annotated[float, Field(gt=0, le=1, strict=True)]
Portion = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Steps = Annotated[int, Field(ge=1, le=10**9, strict=True)]
Count = Annotated[int, Field(ge=1, le=10**6, strict=True)]
CommitRate = Annotated[float, Field(gt=0, le=10**6)]
Loss = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
Lasting = Annotated[Duration, AfterValidator(_lasting)]
"""Emulated time, above zero."""
