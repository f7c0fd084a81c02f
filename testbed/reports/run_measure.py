"""One number of a run, as a study, a table or a comparison names it: ``updates_to(0.97,10)``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite, isinf, nan
from reprlib import repr as shortened
from typing import TYPE_CHECKING, ClassVar, Self

from testbed.errors import Unfit
from testbed.reports.measures import final, moving_average
from testbed.reports.missed import missed_evaluations
from testbed.reports.stability import loss_period, verge_period
from testbed.reports.streams import OF_STREAMS
from testbed.reports.table import NOTHING, describe_bytes
from testbed.reports.waiting import (
    convergence_steps,
    convergence_time,
    heterogeneity,
    implicit_momentum_of,
    settling_time,
    time_to_loss,
    workers_times,
)
from testbed.values.written import Written

if TYPE_CHECKING:
    import pandas as pd

    from testbed.reports.frames import Run


def _pickled(run: Run, count: int | None) -> float:
    """Bytes of the first ``count`` updates (None: of all) as pickle9; NaN in older folders."""
    pickled = run.updates["pickle9_bytes"].iloc[:count]
    return float(pickled.sum()) if pickled.any() else nan


def _sigma_ratio(updates: pd.DataFrame) -> float:
    """Mean of what the learning rate was divided by, over the mean staleness; NaN without any."""
    staleness = float(updates["staleness"].mean())
    return float(updates["sigma_mean"].mean()) / staleness if staleness else nan


Whole = Callable[["Run"], float | None]

_WHOLE_RUN: Mapping[str, Whole] = {
    "final_accuracy": lambda run: final(run.evaluations, "top1"),
    "final_loss": lambda run: final(run.evaluations, "loss"),
    "updates": lambda run: len(run.updates),
    "ingress": lambda run: run.updates["payload_up_bytes"].sum(),
    "pickle9": lambda run: _pickled(run, None),
    "update_bytes": lambda run: run.updates["payload_up_bytes"].mean(),
    "pickle9_update_bytes": lambda run: _pickled(run, None) / len(run.updates),
    "egress": lambda run: run.updates["payload_down_bytes"].sum(),
    "time": lambda run: run.updates["time_seconds"].max(),
    "staleness": lambda run: run.updates["staleness"].mean(),
    "missed_evaluations": lambda run: missed_evaluations(
        run.evaluations, run.updates, run.scenario
    ),
    "crashes": lambda run: run.summary.get("faults", {}).get("crash", 0),
    "sigma": lambda run: run.updates["sigma_mean"].mean(),
    "sigma_ratio": lambda run: _sigma_ratio(run.updates),
    "damping": lambda run: (1 / run.updates["staleness"].clip(lower=1)).mean(),
    "steps": lambda run: run.updates["steps"].sum(),
    "waiting": lambda run: workers_times(run.updates)["waiting_ratio"].mean(),
    "computation": lambda run: workers_times(run.updates)["computation_seconds"].mean(),
    "communication": lambda run: workers_times(run.updates)["communication_seconds"].mean(),
    "blocked": lambda run: workers_times(run.updates)["blocked_seconds"].mean(),
    "heterogeneity": lambda run: heterogeneity(workers_times(run.updates)),
    "implicit_momentum": lambda run: implicit_momentum_of(
        run.updates, check_period=getattr(run.scenario.algorithm, "check_period", None)
    ),
    "ingress_rate": lambda run: _rate(run, "payload_up_bytes"),
    "egress_rate": lambda run: _rate(run, "payload_down_bytes"),
    "final_top5": lambda run: final(run.evaluations, "top5"),
    **OF_STREAMS,
}
_BEST = ("best_accuracy", "best_top5", "lowest_loss")
_COLUMNS = {
    "updates_to": "version",
    "ingress_to": "payload_up_bytes",
    "pickle9_to": "version",  # of which it is the sum over the updates
    "time_to": "time_seconds",
    "steps_to": "steps",
    "time_to_top5": "time_seconds",
}
"""What is read where an accuracy is first reached."""

_TO_LOSS: Mapping[str, Callable[..., float]] = {
    "convergence_time": convergence_time,
    "convergence_steps": convergence_steps,
    "settling_time": settling_time,
    "time_to_loss": time_to_loss,
}
"""What is known of a loss that is to be reached."""

_SWING: Mapping[str, Callable[[Run, int], float]] = {
    "loss_period": lambda run, first: loss_period(run.evaluations, first=first),
    "verge_period": lambda run, first: verge_period(run.updates, first=first),
}
"""What is known of a loss that swings, from an update on."""

_SECONDS = (
    *("time", "time_to", "time_to_top5", "round_seconds"),
    *("computation", "communication", "blocked"),
    *("convergence_time", "settling_time", "time_to_loss"),
)
_COUNTS = (
    *("updates", "updates_to", "steps", "steps_to", "convergence_steps", *_SWING),
    *("produced", "buffered", "buffered_most", "truncated", "floats"),
)

_WORDS = {
    "final_accuracy": "final accuracy, all test images",
    "final_loss": "final loss, all test images",
    "ingress": "ingress",
    "pickle9": "ingress as pickle9",
    "egress": "egress",
    "time": "emulated time",
    "damping": "mean of 1/max(1, staleness)",
    "staleness": "mean staleness",
    "missed_evaluations": "missed evaluations",
    "final_top5": "final top-5 accuracy, all test images",
    "best_top5": "best top-5 accuracy",
    "time_to_top5": "emulated time to a top-5 accuracy of",
    "produced": "samples that came",
    "buffered": "samples that wait in the end",
    "buffered_most": "samples in the fullest buffer, before a step",
    "truncated": "samples discarded",
    "stream_rate": "mean rate of the streams",
    "stream_rate_deviation": "standard deviation of the rates",
    "round_seconds": "a round",
    "round_samples": "samples of a round",
    "shared_bytes": "samples shared in a round, a byte a pixel",
    "cnc": "CNC",
    "floats": "values sent by a worker",
    "sigma": "mean sigma of the values sent",
    "sigma_ratio": "mean sigma over mean staleness",
    "update_bytes": "payload of an update",
    "pickle9_update_bytes": "payload of an update as pickle9",
    "best_accuracy": "best accuracy",
    "lowest_loss": "lowest loss",
    "updates_to": "updates to",
    "ingress_to": "ingress to",
    "pickle9_to": "ingress as pickle9 to",
    "time_to": "emulated time to",
    "steps_to": "training steps to",
    "steps": "training steps",
    "waiting": "waiting, share of a worker's time",
    "computation": "computation of a worker",
    "communication": "communication of a worker",
    "blocked": "blocked time of a worker",
    "implicit_momentum": "implicit momentum",
    "ingress_rate": "ingress a second",
    "egress_rate": "egress a second",
    "convergence_time": "convergence: tenth evaluation with a loss below",
    "convergence_steps": "training steps to the tenth evaluation with a loss below",
    "settling_time": "convergence: variance of ten losses below 1e-5 near",
    "time_to_loss": "emulated time to a loss below",
    "loss_period": "updates between two maxima of the loss, from update",
    "verge_period": "the same on the verge of instability, from update",
}
_BYTES = (
    *("ingress", "egress", "ingress_to", "pickle9", "pickle9_to"),
    *("ingress_rate", "egress_rate", "update_bytes", "pickle9_update_bytes", "shared_bytes"),
)
_NUMBER = r"\s*[0-9]*\.?[0-9]+\s*"
_MEASURE = re.compile(
    rf"\s*(?:({'|'.join(_WHOLE_RUN)})"
    rf"|({'|'.join(_BEST)})(?:\((\s*[0-9]+\s*)\))?"
    rf"|({'|'.join(_COLUMNS)})\(({_NUMBER})(?:,(\s*[0-9]+\s*))?\)"
    rf"|({'|'.join(_TO_LOSS)})\(({_NUMBER})\)"
    rf"|({'|'.join(_SWING)})\((\s*[0-9]+\s*)\))\s*"
)


@dataclass(frozen=True)
class Measure(Written):
    """One number of a run.

    Attributes:
        name: what is measured.
        accuracy: of ``updates_to``, ``ingress_to``, ``time_to`` and ``steps_to``: the top-1 share
            to be reached; of ``time_to_top5`` the top-5 share.
        window: so many evaluations in a row are averaged before they are looked at.
        loss: of ``convergence_time``, ``convergence_steps``, ``settling_time`` and
            ``time_to_loss``: that to be reached.
        first: of ``loss_period`` and ``verge_period``: the update from which on is looked.
    """

    WANTED: ClassVar[str] = (
        f"a measure: {', '.join((*_WHOLE_RUN, *_BEST))}, best_accuracy(10), "
        "updates_to(0.9), ingress_to(0.9), time_to(0.9), time_to_top5(0.9) or steps_to(0.9), "
        "updates_to(0.9,10), "
        "convergence_time(0.5), convergence_steps(0.5), settling_time(0.5) or time_to_loss(0.5), "
        "loss_period(1000) or verge_period(1000)"
    )
    PATTERN: ClassVar[str] = f"^{_MEASURE.pattern}$"
    DESCRIPTION: ClassVar[str] = f"One number of a run: {WANTED.removeprefix('a measure: ')}."

    name: str
    accuracy: float | None = None
    window: int = 1
    loss: float | None = None
    first: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a measure.

        Raises:
            Unfit: there is no such measure, or an argument is none.
        """
        found = _MEASURE.fullmatch(text)
        if found is None:
            raise Unfit(shortened(text), cls.WANTED)
        whole, best, best_window, to, accuracy, window, to_loss, loss, swing, first = found.groups()
        if swing is not None:
            return cls(swing, first=int(first))
        if to_loss is not None:
            if not float(loss) > 0:
                raise Unfit(shortened(text), "a loss above 0, like convergence_time(0.5)")
            return cls(to_loss, loss=float(loss))
        if accuracy is not None and not 0 < float(accuracy) <= 1:
            raise Unfit(shortened(text), "an accuracy above 0 and at most 1, like updates_to(0.9)")
        count = int(best_window or window or 1)
        if not 1 <= count <= 1000:
            raise Unfit(shortened(text), "1 to 1,000 evaluations to average")
        return cls(whole or best or to, None if accuracy is None else float(accuracy), count)

    def __str__(self) -> str:
        given = [one for one in (self.accuracy, self.loss, self.first) if one is not None]
        parts = [f"{one:.10g}" for one in given]
        if self.window > 1:
            parts.append(str(self.window))
        return f"{self.name}({','.join(parts)})" if parts else self.name

    @property
    def title(self) -> str:
        """What a column of it is headed with."""
        words = _WORDS.get(self.name, self.name)
        reached = "" if self.accuracy is None else f" {100 * self.accuracy:g} %"
        if self.loss is not None:
            reached = f" {self.loss:g}"
        if self.first is not None:
            reached = f" {self.first:,}"
        averaged = f", mean of {self.window}" if self.window > 1 else ""
        return f"{words}{reached}{averaged}"

    def of(self, run: Run) -> float:
        """The number; NaN where nothing was measured, infinity for what was never reached."""
        if self.name in _WHOLE_RUN:
            value = _WHOLE_RUN[self.name](run)
            return nan if value is None else float(value)
        if self.first is not None:
            return _SWING[self.name](run, self.first)
        found = self._of_evaluations(run.evaluations)
        return _pickled(run, int(found)) if self.name == "pickle9_to" and isfinite(found) else found

    def of_evaluations(self, evaluations: pd.DataFrame) -> float:
        """The number, if evaluations alone tell it; NaN if they do not."""
        told = self.name in (*_BEST, *_COLUMNS, *_TO_LOSS) and self.name != "pickle9_to"
        return self._of_evaluations(evaluations) if told else nan

    def _of_evaluations(self, evaluations: pd.DataFrame) -> float:
        """The number, or what is read where the accuracy is first reached."""
        during = evaluations[~evaluations["final"]]
        if during.empty:
            return nan
        if self.name in _TO_LOSS:
            return _TO_LOSS[self.name](evaluations, loss=self.loss)
        if self.name == "lowest_loss":
            return float(moving_average(during["loss"], window=self.window).min())
        shares = during["top5" if self.name.endswith("top5") else "top1"]
        accuracies = moving_average(shares, window=self.window)
        if self.accuracy is None or shares.isna().all():  # as where targets are numbers
            return float(accuracies.max())
        reached = during[_COLUMNS[self.name]][accuracies >= self.accuracy]
        return inf if reached.empty else float(reached.iloc[0])

    @property
    def is_encoded(self) -> bool:
        """Whether it is an amount of bytes that depends on the encoding of the pushes."""
        return self.name in ("ingress", "ingress_to", "update_bytes")

    @property
    def is_share(self) -> bool:
        """Whether it is a share of test images."""
        return self.name in ("final_accuracy", "best_accuracy", "final_top5", "best_top5")

    def show(self, value: float) -> str:
        """A value in the form and unit that suit it."""
        if not isfinite(value):
            return "never" if isinf(value) else NOTHING
        match self.name:
            case "final_accuracy" | "best_accuracy" | "final_top5" | "best_top5" | "waiting":
                return f"{value:.2%}"
            case name if name in _BYTES:
                return describe_bytes(value) + ("/s" if self.name.endswith("_rate") else "")
            case name if name in _SECONDS:
                return f"{value:,.1f} s"
            case name if name in _COUNTS:
                return f"{value:,.0f}"
            case _:
                return f"{value:.4g}"


def _rate(run: Run, column: str) -> float:
    """Payload bytes an emulated second, up to the last update."""
    return float(run.updates[column].sum() / run.updates["time_seconds"].max())


SIDE_BY_SIDE = tuple(
    Measure(name)
    for name in (
        *("final_accuracy", "best_accuracy", "final_loss", "updates", "time", "ingress", "egress"),
        *("staleness", "damping", "steps", "waiting"),
    )
)
"""What several runs are shown beside each other with."""
