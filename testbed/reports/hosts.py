"""The other hosts of a run over several: their load, clocks and lateness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.errors import DataError
from testbed.reports import measures
from testbed.reports.measurements import ClockDrift
from testbed.telemetry.files import read_json
from testbed.telemetry.folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd

    from testbed.reports.record import RunRecord


def drifts(hosts: pd.DataFrame) -> list[ClockDrift]:
    """Return how far the clock of each host has moved, from the rows of ``hosts.csv``.

    That is from its most exact measurement to the one that shows the most for certain.
    """
    found = []
    for name, rows in hosts.groupby("host", sort=False):
        offsets, errors = rows["clock_offset_seconds"], rows["clock_error_seconds"]
        first = int(errors.to_numpy().argmin())
        moved = (offsets - offsets.iloc[first]).abs()
        last = int((moved - errors).to_numpy().argmax())
        error = float(errors.iloc[first] + errors.iloc[last])
        found.append(ClockDrift(str(name), float(moved.iloc[last]), error))
    return found


def busy_shares(hosts: pd.DataFrame, seconds: float | None) -> dict[str, float]:
    """Return the share of the training during which each host was over 90 % busy, if known."""
    shares = {
        str(name): measures.busyness(rows, seconds)["share_above_limit"]
        for name, rows in hosts.groupby("host", sort=False)
    }
    return {name: share for name, share in shares.items() if share is not None}


def describe_hosts(run: RunRecord, *, seconds: float | None) -> Mapping[str, Any] | None:
    """Return what the summary says of each host with workers or a row; None for a run on one host.

    The controller's host has no row in ``hosts.csv``: the summary's ``host`` is about it.

    Args:
        run: a training.
        seconds: its length.
    """
    if not (host_of := _host_of_workers(run.folder)):
        return None
    drift = {one.host: one for one in drifts(run.hosts)}
    described = {}
    for name in dict.fromkeys((*host_of.values(), *run.hosts["host"])):
        rows = run.hosts[run.hosts["host"] == name]
        moved, available = drift.get(name), rows["host_available_bytes"].dropna()
        mine = [worker for worker, host in host_of.items() if host == name]
        updates = run.updates[run.updates["worker"].isin(mine)]
        described[name] = {
            "workers": len(mine),
            "late_steps_ratio": measures.number(measures.late_steps(updates, run.scenario).mean()),
            "busy_ratio": measures.busyness(rows, seconds)["mean"],
            "pressure_ratio": measures.pressure(rows, seconds),
            "available_bytes_min": int(available.min()) if len(available) else None,
            "clock_drift_seconds": None if moved is None else moved.seconds,
            "clock_error_seconds": None if moved is None else moved.error_seconds,
        }
    return described


def _host_of_workers(folder: RunFolder) -> dict[int, str]:
    """Return the host of every worker by index; none if the run has no other hosts."""
    plan = read_json(folder.plan) or {}
    if not plan.get("hosts"):
        return {}
    try:
        nodes: Sequence[Mapping[str, Any]] = plan["nodes"]
        return {int(n["index"]): str(n["host"]) for n in nodes if n["part"] == "client"}
    except (TypeError, ValueError, KeyError) as error:
        raise DataError(
            f"{folder.plan}: its nodes are no list of nodes with index, host and part ({error}).",
            hint="Delete it: the plan is then computed from scenario.yaml in the same folder.",
        ) from None
