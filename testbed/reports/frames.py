"""A run folder in Python, and its summary; ``testbed.Run`` is this module's Run.

In a summary, which is the content of ``summary.json``, what was not measured is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from testbed.models.metrics import higher_is_better
from testbed.reports import measures
from testbed.reports.by_hand import interventions
from testbed.reports.history import RunHistory, late_faults, planned_gaps, undisturbed
from testbed.reports.hosts import busy_shares, describe_hosts, drifts
from testbed.reports.measurements import Flow, Measurements, followed, left_out, sent_beyond_pushes
from testbed.reports.reception import received
from testbed.reports.record import RunRecord, metric_columns
from testbed.reports.streams import lag, streams
from testbed.reports.verdict import judge
from testbed.reports.waiting import HostShare, host_share, missed_evaluations, slept, waiting
from testbed.scenario.checks import substitutes
from testbed.telemetry.entry import NAMES, Entry, only, plain
from testbed.telemetry.event_kinds import (
    BroughtUp,
    ClockSet,
    LinksRead,
    RateMeasured,
    RoundTripMeasured,
    TornDown,
)
from testbed.telemetry.folder import FORMAT
from testbed.telemetry.ps_events import Finished, Omitted, Produced, Rejected, Restored

if TYPE_CHECKING:
    import pandas as pd

    from testbed.models.saved import LoadedModel, Which
    from testbed.reports.record import RunRecord
    from testbed.scenario.durations import RandomDuration


class Run(RunRecord):
    """One run, read from its folder, in any state: active, finished, failed or killed.

        run = testbed.Run("quickstart-1")
        run.evaluations.plot("payload_up_bytes", "top1")
        run.updates.groupby("device_class")["staleness"].mean()

    Every table is read on first use and then cached. docs/run-folder.md describes the columns.

    Args:
        run: its name, or the path of its folder, as all commands accept it; a ``Path`` is always
            a path.
        runs: folder in which a name is looked up first.

    Raises:
        RunNotFound: there is no such run, or several elsewhere.
        TestbedError: damaged, written by a newer version of testbed, or the run of a workload.
    """

    def summarise(self) -> Mapping[str, Any]:
        """Compute the summary."""
        summary: Mapping[str, Any] = plain(summarise(self))
        return summary

    def model(self, which: Which = "best") -> LoadedModel:
        """Return the trained model with its network: ``run.model().bound.scores(images)``.

        Args:
            which: ``best`` of all evaluations during the training, or ``final``.

        Raises:
            TestbedError: there is no such model yet, or it is damaged.
            ScenarioError: the user's own model file in the run folder is invalid.
        """
        from testbed.scenario.experiment import load_model

        return load_model(self.folder.path, which)


def summarise(run: RunRecord) -> dict[str, Any]:
    """Return the summary, as far as there is data; docs/run-folder.md explains its keys."""
    events = run.entries
    history = RunHistory.of(events)
    seconds = measures.training_seconds(run.updates, events)
    going = undisturbed(run.updates, events)
    share = host_share(run.updates, run.scenario, going=going)
    measured = _measurements(run, events, history, seconds=seconds, share=share, going=going)
    verdict = judge(measured)
    late = measures.late_steps(run.updates, run.scenario)
    return {
        "format": FORMAT,
        "run": run.name,
        **_conditions(run),
        **{key: getattr(run.state, key) for key in ("state", "reason", "started", "ended")},
        "verdict": asdict(verdict),
        "real_seconds": seconds,
        "emulated_seconds": None if seconds is None else seconds * run.scenario.time_scale,
        "bring_up_seconds": _last_seconds(only(events, BroughtUp)),
        "tear_down_seconds": _last_seconds(only(events, TornDown)),
        "updates": _updates(run, seconds=seconds) | {"rejected": _rejected(events)},
        "encoding": measures.encoding(run.updates, run.scenario),
        "evaluations": len(run.evaluations),
        "missed_evaluations": missed_evaluations(run.evaluations, run.updates, run.scenario),
        "accuracy": measures.accuracy(run.evaluations, run.scenario),
        "metrics": _metrics(run),
        "loss": measures.loss(run.evaluations),
        "ingress": _direction(measured.ingress, run.updates["payload_up_bytes"].sum()),
        "egress": _direction(measured.egress, run.updates["payload_down_bytes"].sum()),
        "payload_per_second": _payload_rates(run, seconds=seconds),
        "staleness": measures.staleness(run.updates),
        "streams": streams(run.updates, run.scenario),
        "faults": dict(history.struck),
        "links": None if measured.links is None else asdict(measured.links),
        "waiting": waiting(run.updates),
        "cycle": measures.cycle(run.updates) | asdict(share),
        "lateness": {
            "late_steps": None if late.empty else int(late.sum()),
            "late_steps_ratio": measured.late_steps_ratio,
            "late_requests_ratio": measured.late_requests_ratio,
            "pace_excess_ratio": None if measured.pace is None else measured.pace.excess_ratio,
            "largest_gap_seconds": measures.largest_gap_seconds(events),
        },
        "host": _host(run, seconds=seconds),
        "hosts": describe_hosts(run, seconds=seconds),
        "restarts": _restarts(events),
        "memory": {"worker_private_bytes_median": measures.private_bytes_median(events)},
    }


def _metrics(run: RunRecord) -> dict[str, Any]:
    """Return each metric's best, final and last value by name."""
    known = run.scenario.evaluate.metrics
    return {
        name: measures.metric(run.evaluations, name, higher=higher_is_better(name, known))
        for name in metric_columns(run.evaluations)
    }


def _conditions(run: RunRecord) -> dict[str, Any]:
    """Return the configuration of the run."""
    scenario = run.scenario
    own = {name: one.think for name, one in scenario.workers.classes.items() if one.think}
    return {
        "scenario": scenario.name,
        "runtime": scenario.runtime.name,
        "algorithm": scenario.algorithm.model_dump(mode="json", by_alias=True),
        "model": scenario.model.name,
        "buffers": getattr(scenario.model, "buffers", None),
        "dataset": scenario.dataset.name,
        "substitutes": list(substitutes(scenario)),
        "workers": scenario.workers.count,
        "think": _law(scenario.workers.think),
        "think_by_class": {name: _law(think) for name, think in own.items()},
        "time_scale": scenario.time_scale,
    }


def _law(think: RandomDuration | None) -> dict[str, Any] | None:
    if think is None:
        return None
    return {"law": str(think.law), "mean_seconds": float(think.mean)}


def _updates(run: RunRecord, *, seconds: float | None) -> dict[str, Any]:
    """Return totals and rates; a rate is per emulated second unless its name says otherwise."""
    total = len(run.updates)
    rate = total / seconds if seconds else None
    by_class = run.updates["device_class"].value_counts(sort=False)
    return {
        "total": total,
        "per_second": None if rate is None else rate / run.scenario.time_scale,
        "per_real_second": rate,
        "by_class": {str(name): int(count) for name, count in by_class.items()},
    }


def _rejected(events: Sequence[Entry]) -> int:
    """Count refused calls of nodes; a call without a valid token is not from a node."""
    own = sum(event.code != measures.UNAUTHENTICATED for event in only(events, Rejected))
    omitted = [one for one in only(events, Omitted) if one.kind == NAMES[Rejected]]
    return own + sum(event.count for event in omitted)


def _direction(flow: Flow, payload_bytes: float) -> dict[str, Any]:
    expected = flow.expected_wire_bytes
    difference = None
    if expected is not None and flow.wire_bytes:
        difference = (flow.wire_bytes - expected) / flow.wire_bytes
    return {
        "payload_bytes": int(payload_bytes),
        "tcp_bytes": flow.tcp_bytes,
        "wire_bytes": flow.wire_bytes,
        "retransmitted_bytes": flow.retransmitted_bytes,
        "reconciliation": {"expected_wire_bytes": expected, "difference_ratio": difference},
    }


def _payload_rates(run: RunRecord, *, seconds: float | None) -> dict[str, float | None]:
    """Return the payload bytes of the updates, and of their pulls, per emulated second."""
    emulated = seconds * run.scenario.time_scale if seconds else None
    columns = {"ingress_bytes": "payload_up_bytes", "egress_bytes": "payload_down_bytes"}
    return {
        name: float(run.updates[column].sum()) / emulated if emulated else None
        for name, column in columns.items()
    }


def _host(run: RunRecord, *, seconds: float | None) -> dict[str, Any]:
    available = run.traffic["host_available_bytes"].dropna()
    return {
        "busy_ratio": measures.busyness(run.traffic, seconds),
        "pressure_ratio": measures.pressure(run.traffic, seconds),
        "available_bytes_min": int(available.min()) if len(available) else None,
    }


def _measurements(
    run: RunRecord,
    events: Sequence[Entry],
    history: RunHistory,
    *,
    seconds: float | None,
    share: HostShare,
    going: pd.DataFrame,
) -> Measurements:
    """Return the input of the verdict; ``going``: the updates of workers not delayed by faults."""
    reading = measures.last_reading(run.traffic)
    links = only(events, LinksRead)
    looked = measures.largest_gap_seconds(events) is not None
    late = measures.late_steps(going, run.scenario)
    planned = planned_gaps(history.faults, run.scenario.time_scale)
    return Measurements(
        state=run.state.state,
        alive=run.alive,
        attended=history.attended,
        stalled=next((event.reason for event in only(events, Finished) if event.stalled), ""),
        reason=run.state.reason,
        updates=len(run.updates),
        paced=run.scenario.is_paced,
        busy_share_ratio=measures.busyness(run.traffic, seconds)["share_above_limit"],
        pressure_ratio=measures.pressure(run.traffic, seconds),
        gaps=measures.gaps(events, planned=planned) if looked else None,
        uneven_batches=measures.uneven_batches(run.updates, run.scenario),
        pace=None if run.scenario.simulated else measures.pace(going, run.scenario),
        late_steps_ratio=measures.number(late.mean()),
        latest_class="" if late.empty else str(late.groupby(level=0).mean().idxmax()),
        slowest_classes=measures.slowest_classes(run.scenario),
        late_requests_ratio=measures.late_requests_ratio(events),
        slept=None if run.scenario.simulated else slept(going, run.scenario.time_scale),
        unexplained_ratio=share.unexplained_ratio,
        differences=[what for event in links for what in event.differences] if links else None,
        rates=only(events, RateMeasured),
        round_trips=only(events, RoundTripMeasured),
        lost=history.lost(),
        removed=history.removed,
        by_hand=interventions(events),
        clock_set_seconds=[event.seconds for event in only(events, ClockSet)],
        clocks=drifts(run.hosts),
        busy_hosts=busy_shares(run.hosts, seconds),
        late_faults=late_faults(events, run.scenario.time_scale),
        lag=lag(only(events, Produced)),
        received=received(run, events, history.faults),
        links=followed(run.links, events),
        rejected=measures.rejected_pushes(events),
        left_out=left_out(run.environment, links),
        ingress=measures.flow(run.updates, reading, side="in"),
        egress=measures.flow(run.updates, reading, side="out"),
        sent_beyond=sent_beyond_pushes(run.updates, events),
    )


def _restarts(events: Sequence[Entry]) -> dict[str, int]:
    """Return how often the parameter server restarted from its checkpoint, and the lost updates."""
    restored = only(events, Restored)
    lost = sum(event.lost_updates for event in restored)
    return {"total": len(restored), "lost_updates": lost}


def _last_seconds(events: Sequence[BroughtUp | TornDown]) -> float | None:
    return events[-1].seconds if events else None
