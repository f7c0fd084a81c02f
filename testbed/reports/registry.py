"""Registry of measures: all numbers of a run that a study, a table or a comparison can name.

To add a measure, add one line to MEASURES: its name, column heading, unit and the function that
computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Any, Literal

from testbed.reports.measures import damping, final, moving_average
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

Argument = Literal["accuracy", "loss", "first", "window"]

TO: tuple[Argument, ...] = ("accuracy", "window")


@dataclass(frozen=True)
class Definition:
    """The definition of a measure.

    Attributes:
        title: its column heading.
        unit: one of UNITS.
        of: computes it from a run, or from its evaluations; None and NaN mean not measured,
            infinity means never reached. Arguments are passed by name.
        parameters: the arguments in brackets; a window is optional.
        evaluations: whether ``of`` receives only the table of evaluations.
    """

    title: str
    unit: str
    of: Callable[..., float | None]
    parameters: tuple[Argument, ...] = ()
    evaluations: bool = False


def _pickled(run: Run, count: int | None = None) -> float:
    """Return the pickle9 bytes of the first ``count`` updates (None: all); NaN in older folders."""
    pickled = run.updates["pickle9_bytes"].iloc[:count]
    return float(pickled.sum()) if pickled.any() else nan


def _pickled_to(run: Run, **reached: Any) -> float:
    found = _reached("version")(run.evaluations, **reached)
    return _pickled(run, int(found)) if isfinite(found) else found


def _sigma_ratio(run: Run) -> float:
    """Return the mean divisor of the learning rate over the mean staleness; NaN if that is 0."""
    staleness = float(run.updates["staleness"].mean())
    return float(run.updates["sigma_mean"].mean()) / staleness if staleness else nan


def _final(column: str) -> Callable[[Run], float | None]:
    return lambda run: final(run.evaluations, column)


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


def _missed(run: Run) -> float:
    return missed_evaluations(run.evaluations, run.updates, run.scenario)


def _best(column: str, pick: Literal["max", "min"] = "max") -> Callable[..., float]:
    """Return a function for the best moving average of ``column`` during the training."""

    def best(evaluations: pd.DataFrame, window: int) -> float:
        during = evaluations.loc[~evaluations["final"], column]
        return float(getattr(moving_average(during, window=window), pick)())

    return best


def _reached(column: str, share: str = "top1") -> Callable[..., float]:
    """Return a function for the value of ``column`` at the first evaluation with an accuracy.

    The function returns infinity if the accuracy is not reached, NaN if the model has none.
    """

    def reached(evaluations: pd.DataFrame, accuracy: float, window: int) -> float:
        during = evaluations[~evaluations["final"]]
        if during[share].isna().all():  # as for regression models
            return nan
        found = during.loc[moving_average(during[share], window=window) >= accuracy, column]
        return inf if found.empty else float(found.iloc[0])

    return reached


def _below(column: str, nth: int = 1) -> Callable[..., float]:
    """Return a function for ``column`` at the ``nth`` evaluation with a loss below another.

    They need not be consecutive; infinity if there are fewer.
    """

    def below(evaluations: pd.DataFrame, loss: float) -> float:
        found = evaluations.loc[~evaluations["final"] & (evaluations["loss"] < loss), column]
        return float(found.iloc[nth - 1]) if len(found) >= nth else inf

    return below


def _evaluated(
    title: str, unit: str, of: Callable[..., float], *parameters: Argument
) -> Definition:
    return Definition(title, unit, of, parameters, evaluations=True)


MEASURES: Mapping[str, Definition] = {
    "final_accuracy": Definition("final accuracy, all test images", "images", _final("top1")),
    "final_loss": Definition("final loss, all test images", "", _final("loss")),
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
    "missed_evaluations": Definition("missed evaluations", "", _missed),
    "crashes": Definition("crashes", "", lambda run: run.summary.get("faults", {}).get("crash", 0)),
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
    "final_top5": Definition("final top-5 accuracy, all test images", "images", _final("top5")),
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
    "best_accuracy": _evaluated("best accuracy", "images", _best("top1"), "window"),
    "best_top5": _evaluated("best top-5 accuracy", "images", _best("top5"), "window"),
    "lowest_loss": _evaluated("lowest loss", "", _best("loss", "min"), "window"),
    "updates_to": _evaluated("updates to", "count", _reached("version"), *TO),
    "ingress_to": _evaluated("ingress to", "B", _reached("payload_up_bytes"), *TO),
    "pickle9_to": Definition("ingress as pickle9 to", "B", _pickled_to, TO),
    "time_to": _evaluated("emulated time to", "s", _reached("time_seconds"), *TO),
    "steps_to": _evaluated("training steps to", "count", _reached("steps"), *TO),
    "time_to_top5": _evaluated(
        "emulated time to a top-5 accuracy of", "s", _reached("time_seconds", "top5"), *TO
    ),
    "convergence_time": _evaluated(
        "convergence: tenth evaluation with a loss below",
        "s",
        _below("time_seconds", EVALUATIONS),
        "loss",
    ),
    "convergence_steps": _evaluated(
        "training steps to the tenth evaluation with a loss below",
        "count",
        _below("steps", EVALUATIONS),
        "loss",
    ),
    "settling_time": _evaluated(
        "convergence: variance of ten losses below 1e-5 near", "s", settling_time, "loss"
    ),
    "time_to_loss": _evaluated(
        "emulated time to a loss below", "s", _below("time_seconds"), "loss"
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
