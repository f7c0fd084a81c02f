"""Metrics of an evaluation, beside the loss.

    top1, top5          share of images whose label is among the 1 or 5 highest scores; the default
    top_k               the same for any k
    accuracy_per_class  a value for each label
    macro_f1            mean of the labels' F1 scores
    auroc               area under the ROC curve, one label against the others, mean
    calibration_error   expected calibration error
    perplexity          exponential of the mean cross-entropy
    mae, rmse           mean absolute, root mean squared error of predicted numbers
    clients             distribution of the accuracy over the workers' held-out samples
    custom              a class in the user's file

A new metric is a file here and an entry in ``AnyMetric``; ``base.py`` defines the contract.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, get_args

from testbed.models.metrics.base import Metric as Metric
from testbed.models.metrics.base import MetricConfig as MetricConfig
from testbed.models.metrics.classes import AccuracyPerClass, MacroF1
from testbed.models.metrics.clients import Clients
from testbed.models.metrics.custom import CustomMetric
from testbed.models.metrics.errors import MeanAbsoluteError, RootMeanSquaredError
from testbed.models.metrics.probabilities import Auroc, CalibrationError, Perplexity
from testbed.models.metrics.top_k import Top1, Top5, TopK
from testbed.values.family import Named

AnyMetric = (
    Top1
    | Top5
    | TopK
    | AccuracyPerClass
    | MacroF1
    | Auroc
    | CalibrationError
    | Perplexity
    | MeanAbsoluteError
    | RootMeanSquaredError
    | Clients
    | CustomMetric
)
EvaluationMetric = Annotated[AnyMetric, Named()]

DEFAULTS: tuple[AnyMetric, ...] = (Top1(name="top1"), Top5(name="top5"))
"""The metrics of a scenario that names none."""

ACCURACY = "top1"
"""What `accuracy` means in `stop`, faults, measures and figures."""


def besides_defaults(names: Iterable[str]) -> list[str]:
    """Return the names of values that a scenario does not have by default."""
    default = {name for one in DEFAULTS for name in one.names(0)}
    return [name for name in names if name not in default]


def title_of(name: str) -> str:
    """Return what text calls a value; a user's own has only its name."""
    kind = _kind_of(name)
    return name if kind is None else kind.title(name)


def unit_of(name: str) -> Literal["images", "share", ""]:
    """Return the unit of a value, as its kind of metric has it."""
    kind = _kind_of(name)
    return "" if kind is None else kind.UNIT


def samples_of(name: str) -> str:
    """Return what a value is measured on."""
    return (_kind_of(name) or MetricConfig).SAMPLES


def group_of(name: str) -> str:
    """Return the group of a value in trackers of experiments."""
    return (_kind_of(name) or MetricConfig).GROUP


def higher_is_better(name: str, metrics: Sequence[MetricConfig]) -> bool:
    """Return whether a higher value is better, of one of these metrics."""
    return all(one.prefers_higher(name) for one in metrics if one.has(name))


def values_of(
    metrics: Mapping[str, float | None], loss: float | None
) -> Mapping[str, float | None]:
    """Return all values of an evaluation by the names that a scenario uses."""
    return {**metrics, "accuracy": metrics.get(ACCURACY), "loss": loss}


def _kind_of(name: str) -> type[MetricConfig] | None:
    kinds: tuple[type[MetricConfig], ...] = get_args(AnyMetric)
    return next((kind for kind in kinds if re.fullmatch(kind.NAMES, name)), None)
