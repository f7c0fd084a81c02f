"""Options that several algorithms have."""

from typing import Annotated

from pydantic import Field

LearningRate = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
Ratio = Annotated[float, Field(gt=0, le=1, strict=True)]
Steps = Annotated[int, Field(ge=1, le=10**9, strict=True)]
