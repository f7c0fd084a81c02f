"""What the metrics of all runs have in common: a sink that scrapes read from other threads."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from testbed.reports.metrics.declared import (
    EXPORTER_TIME,
    RUN_STATE,
    TIME,
    Metric,
    Sample,
    families,
)
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import StateChanged
from testbed.telemetry.sink import Sink


class ScrapedSink(Sink, Collector):
    """Collects the data for scrapes; one thread writes to it, any other thread may read.

    Args:
        labels: values of RUN_LABELS, for all samples of the run.
        seconds: returns the CPU time of the calling thread.
    """

    METRICS: ClassVar[Sequence[Metric]]
    """All possible metrics, in the order of a scrape."""

    def __init__(
        self, labels: Sequence[str], *, seconds: Callable[[], float] = time.thread_time
    ) -> None:
        self._labels = labels
        self._seconds = seconds
        self._lock = threading.Lock()
        self._spent = 0.0
        self._now = 0.0  # emulated
        self._state = "created"

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Add the CPU time spent inside the context to the exporter's own."""
        began = self._seconds()
        yield
        spent = self._seconds() - began
        with self._lock:  # scrapes run in other threads
            self._spent += spent

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Exclude scrapes while a record is taken."""
        with self.spending(), self._lock:
            yield

    def event(self, entry: Entry) -> None:
        """Update the state of the run; subclasses take further events."""
        if isinstance(entry.event, StateChanged):
            self._state = entry.event.state

    def time_passed(self, emulated: float) -> None:
        """Set the current emulated time."""
        self._now = emulated

    def collect(self) -> list[Family]:
        """Return all current families, in the order of METRICS."""
        found = self.families()
        return [found[metric.name] for metric in self.METRICS if metric.name in found]

    def describe(self) -> list[Family]:
        """Return all possible families, empty: a scrape may select some by name."""
        return [metric.family() for metric in self.METRICS]

    def families(self) -> dict[str, Family]:
        """Return all current families, by metric name."""
        with self._lock:
            own = (
                Sample(TIME, self._now),
                Sample(RUN_STATE, 1, (self._state,)),
                Sample(EXPORTER_TIME, self._spent),
            )
            return families((*own, *self.samples()), self._labels)

    @abstractmethod
    def samples(self) -> Iterator[Sample]:
        """Yield the current samples, besides those that every run has."""
