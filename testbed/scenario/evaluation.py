"""The field ``evaluate`` of a scenario."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from testbed.models.metrics import DEFAULTS, EvaluationMetric
from testbed.values.fields import Count, Gpus, PositiveDuration, StrictModel
from testbed.values.units import Duration


class Evaluate(StrictModel):
    """Evaluation of the model; after training, the model is also evaluated on all test images.

    Attributes:
        every: evaluation interval, in updates or in emulated time. By default a twentieth of the
            updates, steps or time in `stop`, and at most 1,000 updates.
        images: number of test images used by an evaluation during training; always the same images.
        metrics: values of the outputs that an evaluation computes beside the loss. The first one
            decides which model is saved as the best.
        gpus: number of NVIDIA GPUs of the evaluator, or its share of one. By default none.
        timeout: maximum real time of one evaluation; if it takes longer, the run fails.
    """

    every: Count | PositiveDuration | None = None
    images: Count = 2000
    metrics: Annotated[tuple[EvaluationMetric, ...], Field(strict=False)] = DEFAULTS
    gpus: Gpus = 0
    timeout: PositiveDuration = Duration(600)
