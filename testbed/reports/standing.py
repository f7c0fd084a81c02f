"""Live status of a run: its classes, workers and server, while it is active or afterwards.

All data is read from the run folder, so that no node of the run is queried and slowed down.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from testbed.errors import DataError
from testbed.models.metrics import ACCURACY
from testbed.reports.history import TIMES, RunHistory, Tally
from testbed.telemetry.entry import Entry, only
from testbed.telemetry.event_kinds import ClockSet, RateMeasured
from testbed.telemetry.events import EventReader
from testbed.telemetry.files import LineReader
from testbed.telemetry.folder import ENDED, RunState
from testbed.telemetry.parts import part_paths
from testbed.telemetry.ps_events import Evaluated, Finished, Rejected, Restored, Started
from testbed.telemetry.recovery import read_updates
from testbed.telemetry.spool import SpoolReader

if TYPE_CHECKING:
    from testbed.reports.frames import Run


@dataclass(frozen=True)
class WorkerStanding:
    """Status of one worker; seconds are emulated, shares in [0, 1], None without an update."""

    node: str
    device_class: str
    state: str  # running, frozen, crashed, killed, left, lost, silent, or absent until it joins
    updates: int
    age_seconds: float | None  # since its last push was applied
    cycle_seconds: float | None  # between two of its pushes, mean
    staleness: int | None  # of its last update
    staleness_mean: float | None
    compute_ratio: float | None
    think_ratio: float | None
    transfer_ratio: float | None
    blocked_ratio: float | None
    late_steps: int


@dataclass(frozen=True)
class ClassStanding:
    """Status of a device class; its link as configured, and the measured rates (bit/s)."""

    name: str
    workers: int
    running: int
    updates: int
    updates_per_second: float  # over the last ten seconds, or the last round if that took longer
    staleness_mean: float | None
    compute_ratio: float | None
    think_ratio: float | None
    transfer_ratio: float | None
    blocked_ratio: float | None
    link: Mapping[str, Mapping[str, Any]]  # ``up`` and ``down``: ``configured``, ``measured``


@dataclass(frozen=True)
class Standing:
    """Status of a whole run; ``server`` has the last reading of the PS's link and the host."""

    run: str
    state: str
    reason: str
    alive: bool
    time_seconds: float  # emulated, since the training started
    updates: int
    updates_per_second: float
    done_ratio: float | None  # progress in [0, 1]; None without a stop rule
    eta_seconds: float | None  # real seconds to the end; None if unknown
    accuracy: float | None
    metrics: Mapping[str, float | None]  # of the last evaluation, by name
    loss: float | None
    rejected: int
    faults: Mapping[str, int]  # number of workers that a fault stopped or removed, by fault
    server: Mapping[str, float | None]
    classes: Sequence[ClassStanding]
    workers: Sequence[WorkerStanding]


class StandingReader:
    """Follows a run folder; every call of ``look`` reads what was added since the previous one.

    Raises:
        DataError: ``run.json`` and ``scenario.yaml`` are not of the same run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._classes = run.state.classes
        if unknown := {*self._classes} - run.scenario.workers.classes.keys():
            raise DataError(
                f"{run.folder.run_file}: classes: found {', '.join(sorted(unknown))}, expected "
                f"those of {run.folder.scenario.name}: {', '.join(run.scenario.workers.classes)}.",
                hint="One of the two files was edited, or has another origin.",
            )
        self._entries: list[Entry] = []
        self._history = RunHistory()
        self._events = EventReader(run.folder.events)
        self._traffic = LineReader(run.folder.traffic)
        self._readings: list[dict[str, float]] = []
        self._header: list[str] = []
        self._parts = -1
        self._start_over()

    def _start_over(self) -> None:
        self._tally = Tally(len(self._classes))
        self._spool = SpoolReader(self._run.folder.spool, workers=len(self._classes) or None)

    def look(self, now: float) -> Standing:
        """Return the status of the run at ``now``, seconds since 1970.

        Raises:
            TestbedError: a file of the run is damaged; names the file.
        """
        folder = self._run.folder
        state, alive = folder.state(), folder.alive()
        new = self._events.read()
        self._entries += new
        for entry in new:
            self._history.take(entry.event)
        self._read_traffic()
        if any(isinstance(entry.event, Restored) for entry in new):
            self._start_over()  # updates were lost: count those in the model again
        self._read_updates(goes_on=state.state not in ENDED)
        states = [self._history.state(f"w{index}") for index in range(len(self._classes))]
        goes_on = alive and state.state not in ENDED
        time = self._time(now, goes_on=goes_on)
        rate = self._tally.pace(time, range(len(self._classes)))
        updates, pace = int(self._tally.updates.sum()), self._emulated_pace(time, now, state)
        left = self._run.scenario.stop.seconds_left(
            updates, time, updates_per_second=rate * pace, pace=pace
        )
        workers = [self._worker(index, states[index], time) for index in range(len(self._classes))]
        last = next(reversed(only(self._entries, Evaluated)), None)
        return Standing(
            run=folder.name,
            state=state.state,
            reason=state.reason,
            alive=alive,
            time_seconds=time,
            updates=updates,
            updates_per_second=rate,
            done_ratio=self._run.scenario.stop.progress(updates, time),
            eta_seconds=left if goes_on else None,
            accuracy=None if last is None else last.metrics.get(ACCURACY),
            metrics={} if last is None else last.metrics,
            loss=None if last is None else last.loss,
            rejected=len(only(self._entries, Rejected)),
            faults={kind: states.count(kind) for kind in sorted({*states} - {"running", "absent"})},
            server=self._server(),
            classes=[self._class(name, workers, time) for name in dict.fromkeys(self._classes)],
            workers=workers,
        )

    def _read_updates(self, *, goes_on: bool) -> None:
        folder = self._run.folder
        if goes_on and folder.spool.exists():
            while len(rows := self._spool.read()):
                self._tally.add(rows)
        elif (parts := len(part_paths(folder.updates))) != self._parts or not goes_on:
            self._parts = parts
            self._tally = Tally(len(self._classes))
            self._tally.add(read_updates(folder))

    def _read_traffic(self) -> None:
        """Keep the last two readings, to compute rates from."""
        lines = [line.decode() for line in self._traffic.read()]
        if lines and not self._header:
            self._header = next(csv.reader(lines[:1]))
            lines = lines[1:]
        fresh = [
            {name: float(text) for name, text in zip(self._header, row, strict=False) if text}
            for row in csv.reader(lines[-2:])
        ]
        self._readings = [*self._readings, *fresh][-2:]

    def _time(self, now: float, *, goes_on: bool) -> float:
        """Return emulated seconds since the start: up to now if it is active, else to the end."""
        scale = self._run.scenario.time_scale
        latest = float(self._tally.last.max(initial=0.0))
        started = [entry.time for entry in self._entries if isinstance(entry.event, Started)]
        for entry in self._entries:
            if isinstance(entry.event, Finished) and entry.elapsed_seconds is not None:
                return max(latest, entry.elapsed_seconds * scale)
        if goes_on and started and not self._run.scenario.simulated:
            set_by = sum(one.seconds for one in only(self._entries, ClockSet))
            return max(latest, (now - set_by - started[-1]) * scale)
        return latest

    def _emulated_pace(self, time: float, now: float, state: RunState) -> float:
        """Return emulated seconds per real second; for a simulation, the mean since its start."""
        if not self._run.scenario.simulated:
            return self._run.scenario.time_scale
        passed = now - datetime.fromisoformat(state.started or state.created).timestamp()
        return time / passed if passed > 0 else 0.0

    def _worker(self, index: int, state: str, time: float) -> WorkerStanding:
        tally, updates = self._tally, int(self._tally.updates[index])
        cycle = None
        if updates > 1:
            cycle = float(tally.last[index] - tally.first[index]) / (updates - 1)
        return WorkerStanding(
            f"w{index}",
            self._classes[index],
            state,
            updates,
            age_seconds=time - float(tally.last[index]) if updates else None,
            cycle_seconds=cycle,
            staleness=int(tally.latest["staleness"][index]) if updates else None,
            staleness_mean=float(tally.staleness_sum[index]) / updates if updates else None,
            **self._shares([index]),
            late_steps=int(tally.late[index]),
        )

    def _shares(self, workers: Sequence[int]) -> dict[str, Any]:
        seconds = self._tally.seconds[list(workers)].sum(axis=0)
        total = float(seconds.sum())
        names = [name.replace("_seconds", "_ratio") for name in TIMES]
        shares = seconds / total if total else [None] * len(names)
        return {
            name: None if share is None else float(share)
            for name, share in zip(names, shares, strict=True)
        }

    def _class(self, name: str, workers: Sequence[WorkerStanding], time: float) -> ClassStanding:
        members = [index for index, one in enumerate(self._classes) if one == name]
        updates = int(self._tally.updates[members].sum())
        staleness = int(self._tally.staleness_sum[members].sum())
        return ClassStanding(
            name,
            workers=len(members),
            running=sum(workers[index].state == "running" for index in members),
            updates=updates,
            updates_per_second=self._tally.pace(time, members),
            staleness_mean=staleness / updates if updates else None,
            **self._shares(members),
            link={direction: self._link(name, direction) for direction in ("up", "down")},
        )

    def _link(self, name: str, direction: str) -> dict[str, Any]:
        member = self._run.scenario.workers.classes[name]
        shape = getattr(member.link, direction).model_dump(mode="json", exclude_none=True)
        rates = {
            one.link: one.measured_bits_per_second for one in only(self._entries, RateMeasured)
        }
        measured = rates.get(f"class {name} {direction}")
        return {"configured": shape, "measured_bits_per_second": measured}

    def _server(self) -> dict[str, float | None]:
        """Return the last reading: rates into and out of the server, its sockets, the host."""
        payload: dict[str, float | None] = {
            "payload_in_bytes": float(self._tally.payload["up"].sum()),
            "payload_out_bytes": float(self._tally.payload["down"].sum()),
        }
        if not self._readings:
            return payload
        before, last = self._readings[0], self._readings[-1]
        names = ("sockets", "retransmitted_in_bytes", "retransmitted_out_bytes")
        found = {name: last.get(name) for name in (*names, "host_busy_ratio")}
        found["host_available_bytes"] = last.get("host_available_bytes")
        for name, column in (("in", "rx"), ("out", "tx")):
            found[f"wire_{name}_bytes"] = last.get(f"wire_{column}_bytes")
            found[f"wire_{name}_bytes_per_second"] = _rate(before, last, f"wire_{column}_bytes")
        return payload | found


def _rate(before: Mapping[str, float], last: Mapping[str, float], column: str) -> float | None:
    """Return the rate between two readings, per emulated second; None if one is missing."""
    if not {column, "time_seconds"} <= before.keys() & last.keys():
        return None
    seconds = last["time_seconds"] - before["time_seconds"]
    return (last[column] - before[column]) / seconds if seconds > 0 else None
