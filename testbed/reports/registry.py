"""Registry of measures: all numbers of a run that a study, a table or a comparison can name.

To add a measure, add one line to MEASURES: its name, column heading, unit and the function that
computes it. Every metric of an evaluation has measures by its name: ``final_macro_f1``,
``best_macro_f1(10)``, ``time_to_macro_f1(0.8,10)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Any, Literal

from testbed.models.metrics import ACCURACY, samples_of, title_of, unit_of
from testbed.reports.measures import damping, final, moving_average, scheduled, values
from testbed.reports.stability import loss_period, verge_period
from testbed.reports.streams import (
    floats_per_worker,
    fullest,
    of_streams,
    rates,
    rounds,
    shared_bytes,
    total,
)
from testbed.reports.table import describe_bytes
from testbed.reports.waiting import (
    EVALUATIONS,
    heterogeneity,
    implicit_momentum_of,
    missed_evaluations,
    settling_time,
    workers_times,
)
from testbed.telemetry.entry import METRIC

if TYPE_CHECKING:
    import pandas as pd

    from testbed.reports.frames import Run

UNITS: Mapping[str, Callable[[float], str]] = {
    "": "{:.4g}".format,
    "B": describe_bytes,
    "B/s": lambda value: f"{describe_bytes(value)}/s",
    "count": "{:,.0f}".format,
    "s": "{:,.1f} s".format,
    "share": "{:.2%}".format,
    "images": "{:.2%}".format,
}
"""Format of a value, by unit."""

Argument = Literal["accuracy", "value", "loss", "first", "window", "node"]


@dataclass(frozen=True)
class Definition:
    """The definition of a measure.

    Attributes:
        title: its column heading.
        unit: one of UNITS.
        of: computes it from a run, or from its evaluations; None and NaN mean not measured,
            infinity means never reached. Arguments are passed by name.
        parameters: the arguments in brackets; a window and a node are optional.
        evaluations: whether ``of`` receives only the table of evaluations that were due during
            the training (``scheduled``).
        metric: the metric that it is about; then ``of`` receives ``higher``, whether a higher
            value of it is better, too.
        column: of the evaluations, if the value is that of the first evaluation that fulfils a
            condition: what was not reached is known to be greater than its last value.
    """

    title: str
    unit: str
    of: Callable[..., float | None]
    parameters: tuple[Argument, ...] = ()
    evaluations: bool = False
    metric: str = ""
    column: str = ""


def _pickled(run: Run, count: int | None = None) -> float:
    """Return the pickle9 bytes of the first ``count`` updates (None: all); NaN if none."""
    pickled = run.updates["pickle9_bytes"].iloc[:count]
    return float(pickled.sum()) if pickled.any() else nan


def _pickled_to(metric: str) -> Callable[..., float]:
    def pickled(run: Run, **goal: Any) -> float:
        due = scheduled(run.evaluations, run.scenario)
        found = _reached("version", metric)(due, **goal)
        return _pickled(run, int(found)) if isfinite(found) else found

    return pickled


def _sigma_ratio(run: Run) -> float:
    """Return the mean divisor of the learning rate over the mean staleness; NaN if that is 0."""
    staleness = float(run.updates["staleness"].mean())
    return float(run.updates["sigma_mean"].mean()) / staleness if staleness else nan


def _final(metric: str) -> Definition:
    title, unit = f"final {_titled(metric)}, all {samples_of(metric)}", unit_of(metric)

    def of(run: Run, higher: bool) -> float | None:
        return final(run.evaluations, metric)

    return Definition(title, unit, of, metric=metric)


def _titled(metric: str) -> str:
    return "accuracy" if metric == ACCURACY else title_of(metric)


def _updates(column: str, how: Literal["max", "mean", "sum"]) -> Callable[[Run], float]:
    """Return a function that aggregates a column of the updates."""
    return lambda run: float(getattr(run.updates[column], how)())


def _rate(column: str) -> Callable[[Run], float]:
    """Return a function for a column's sum per emulated second, up to the last update."""
    return lambda run: float(run.updates[column].sum() / run.updates["time_seconds"].max())


def _per_round(column: str, how: Literal["max", "sum"]) -> Callable[[Run], float]:
    return lambda run: _updates(column, how)(run) / rounds(run)


def _workers(column: str) -> Callable[[Run], float]:
    """Return a function for the mean over the workers."""
    return lambda run: workers_times(run.updates)[column].mean()


def _streamed(count: str) -> Callable[[Run], float]:
    return of_streams(lambda run: total(run, count))


def _averaged(which: str, metric: str) -> Definition:
    """Return the measure of the best or last moving average of a metric during the training."""

    def of(evaluations: pd.DataFrame, window: int, higher: bool) -> float:
        smooth = moving_average(values(evaluations, metric), window=window)
        if which == "last":
            return float(smooth.iloc[-1])
        return float(smooth.max() if higher else smooth.min())

    title = f"{which} {_titled(metric)}"
    return Definition(title, unit_of(metric), of, ("window",), evaluations=True, metric=metric)


def _lowest_loss(evaluations: pd.DataFrame, window: int) -> float:
    return float(moving_average(evaluations["loss"], window=window).min())


def _reached(column: str, metric: str) -> Callable[..., float]:
    """Return a function for the value of ``column`` at the first evaluation with a metric.

    The function returns infinity if the value is not reached, NaN if there is none.
    """

    def reached(
        evaluations: pd.DataFrame,
        window: int,
        *,
        higher: bool,
        accuracy: float = nan,
        value: float = nan,
    ) -> float:
        goal = accuracy if isfinite(accuracy) else value
        found = values(evaluations, metric)
        if found.isna().all():  # as for accuracies of regression models
            return nan
        smooth = moving_average(found, window=window)
        good = evaluations.loc[smooth >= goal if higher else smooth <= goal, column]
        return inf if good.empty else float(good.iloc[0])

    return reached


COSTS = {
    "updates": ("updates", "count", "version"),
    "ingress": ("ingress", "B", "payload_up_bytes"),
    "pickle9": ("ingress as pickle9", "B", ""),
    "time": ("emulated time", "s", "time_seconds"),
    "steps": ("training steps", "count", "steps"),
    "sent": ("bytes sent by all nodes", "B", "sent_bytes"),
}
"""What an accuracy or another metric may cost: title, unit and column of the evaluations."""


def _cost(cost: str, metric: str, goal: Argument = "value") -> Definition:
    """Return the measure of what it took to reach a value of a metric."""
    title, unit, column = COSTS[cost]
    of = _reached(column, metric) if column else _pickled_to(metric)
    if goal == "value":
        name = title_of(metric)
        to = f"{title} to {'an' if name[0] in 'aeiou' else 'a'} {name} of"
    else:
        to = f"{title} to"
    return Definition(to, unit, of, (goal, "window"), bool(column), metric, column)


OF_METRIC = rf"(final|best|last|({'|'.join(COSTS)})_to)_(?!loss\b)({METRIC})"
"""Names of measures of any metric."""


def definition_of(name: str) -> Definition | None:
    """Return a measure's definition: one of MEASURES, or one of a metric by its name."""
    if name in MEASURES:
        return MEASURES[name]
    found = re.fullmatch(OF_METRIC, name)
    if found is None:
        return None
    what, cost, metric = found.groups()
    metric = ACCURACY if metric == "accuracy" else metric
    if cost:
        return _cost(cost, metric)
    return _final(metric) if what == "final" else _averaged(what, metric)


def _below(column: str, nth: int = 1) -> Callable[..., float]:
    """Return a function for ``column`` at the ``nth`` evaluation with a loss below another.

    They need not be consecutive; infinity if there are fewer.
    """

    def below(evaluations: pd.DataFrame, loss: float) -> float:
        found = evaluations.loc[evaluations["loss"] < loss, column]
        return float(found.iloc[nth - 1]) if len(found) >= nth else inf

    return below


def _evaluated(
    title: str, unit: str, of: Callable[..., float], *parameters: Argument, column: str = ""
) -> Definition:
    return Definition(title, unit, of, parameters, evaluations=True, column=column)


MEASURES: Mapping[str, Definition] = {
    "final_accuracy": _final(ACCURACY),
    "final_loss": Definition(
        "final loss, all test samples", "", lambda run: final(run.evaluations, "loss")
    ),
    "updates": Definition("updates", "count", lambda run: len(run.updates)),
    "ingress": Definition("ingress", "B", _updates("payload_up_bytes", "sum")),
    "pickle9": Definition("ingress as pickle9", "B", _pickled),
    "update_bytes": Definition("payload of an update", "B", _updates("payload_up_bytes", "mean")),
    "pickle9_update_bytes": Definition(
        "payload of an update as pickle9", "B", lambda run: _pickled(run) / len(run.updates)
    ),
    "egress": Definition("egress", "B", _updates("payload_down_bytes", "sum")),
    "time": Definition("emulated time", "s", _updates("time_seconds", "max")),
    "staleness": Definition("mean staleness", "", _updates("staleness", "mean")),
    "missed_evaluations": Definition(
        "missed evaluations",
        "",
        lambda run: missed_evaluations(run.evaluations, run.updates, run.scenario),
    ),
    "crashes": Definition("crashes", "", lambda run: run.summary["faults"].get("crash", 0)),
    "sigma": Definition("mean sigma of the values sent", "", _updates("sigma_mean", "mean")),
    "sigma_ratio": Definition("mean sigma over mean staleness", "", _sigma_ratio),
    "damping": Definition("mean of 1/max(1, staleness)", "", lambda run: damping(run.updates)),
    "steps": Definition("training steps", "count", _updates("steps", "sum")),
    "waiting": Definition("waiting, share of a worker's time", "share", _workers("waiting_ratio")),
    "computation": Definition("computation of a worker", "s", _workers("computation_seconds")),
    "communication": Definition(
        "communication of a worker", "s", _workers("communication_seconds")
    ),
    "blocked": Definition("blocked time of a worker", "s", _workers("blocked_seconds")),
    "heterogeneity": Definition(
        "heterogeneity", "", lambda run: heterogeneity(workers_times(run.updates))
    ),
    "implicit_momentum": Definition("implicit momentum", "", implicit_momentum_of),
    "ingress_rate": Definition("ingress per second", "B/s", _rate("payload_up_bytes")),
    "egress_rate": Definition("egress per second", "B/s", _rate("payload_down_bytes")),
    "produced": Definition("samples received", "count", _streamed("produced")),
    "buffered": Definition("samples waiting at the end", "count", _streamed("buffered")),
    "truncated": Definition("samples discarded", "count", _streamed("truncated")),
    "buffered_most": Definition(
        "samples in the fullest buffer, before a step", "count", of_streams(fullest)
    ),
    "stream_rate": Definition(
        "mean rate of the streams", "", of_streams(lambda run: float(rates(run).mean()))
    ),
    "stream_rate_deviation": Definition(
        "standard deviation of the rates", "", of_streams(lambda run: float(rates(run).std(ddof=0)))
    ),
    "round_seconds": Definition("a round", "s", _per_round("time_seconds", "max")),
    "round_samples": Definition("samples of a round", "", _per_round("samples", "sum")),
    "shared_bytes": Definition(
        "samples shared in a round, one byte per pixel", "B", of_streams(shared_bytes)
    ),
    "cnc": Definition("CNC", "", of_streams(_updates("compressed", "mean"))),
    "floats": Definition(
        "values sent by a worker", "count", lambda run: floats_per_worker(run.updates)
    ),
    "best_accuracy": _averaged("best", ACCURACY),
    "last_accuracy": _averaged("last", ACCURACY),
    "last_loss": _averaged("last", "loss"),
    "lowest_loss": _evaluated("lowest loss", "", _lowest_loss, "window"),
    **{f"{cost}_to": _cost(cost, ACCURACY, "accuracy") for cost in COSTS},
    "convergence_time": _evaluated(
        "convergence: tenth evaluation with a loss below",
        "s",
        _below("time_seconds", EVALUATIONS),
        "loss",
        column="time_seconds",
    ),
    "convergence_steps": _evaluated(
        "training steps to the tenth evaluation with a loss below",
        "count",
        _below("steps", EVALUATIONS),
        "loss",
        column="steps",
    ),
    "settling_time": _evaluated(
        "convergence: variance of ten losses below 1e-5 near",
        "s",
        settling_time,
        "loss",
        column="time_seconds",
    ),
    "time_to_loss": _evaluated(
        "emulated time to a loss below",
        "s",
        _below("time_seconds"),
        "loss",
        column="time_seconds",
    ),
    "loss_period": _evaluated(
        "updates between two maxima of the loss, from update", "count", loss_period, "first"
    ),
    "verge_period": Definition(
        "the same at the stability limit, from update",
        "count",
        lambda run, first: verge_period(run.updates, first=first),
        ("first",),
    ),
}
