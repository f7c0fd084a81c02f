"""Manual faults: request files in the run's ``control``, which its controller polls.

``fault-NAME.json`` is a request, ``fault-NAME.done`` the reply: an objection, or empty. So
the controller applies, undoes and records all faults, and the requesting process may exit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

from pydantic import ValidationError

from testbed.errors import InvalidValue, NodeError, Problem, ScenarioError
from testbed.faults import AnyFault, Freeze, NetworkPartition, Slow
from testbed.faults.base import PassingFault, Trigger
from testbed.faults.timeline import Timeline
from testbed.plan.selection import select
from testbed.plan.written import read_plan
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Exited, FaultApplied
from testbed.telemetry.events import read_events
from testbed.telemetry.files import write_atomically
from testbed.telemetry.folder import RunFolder
from testbed.values.fields import StrictModel
from testbed.values.units import Duration

Verb = Literal["freeze", "thaw", "partition", "slow"]
LONGEST_PARTITION_SECONDS = 10.0
"""Real seconds. A run without planned partitions closes a connection that was silent for twice as
long, and after a partition TCP takes as long again until it retransmits."""

ANSWER_SECONDS = 15.0
LOOK_SECONDS = 0.05


class Asked(StrictModel):
    """A request.

    Attributes:
        seconds: for how long, emulated; None until the end of the run.
        factor: by which the length of steps is multiplied.
        file: the request's name.
    """

    verb: Verb
    nodes: tuple[str, ...]
    seconds: float | None = None
    factor: float = 1.0
    file: str = ""

    def fault(self, now: float) -> PassingFault:
        """Return the fault that it begins now, or, for ``thaw``, ends."""
        at, lasts = Trigger(time=Duration(now)), self.seconds and Duration(self.seconds)
        match self.verb:
            case "partition":
                return NetworkPartition(name="partition", at=at, **{"for": lasts})
            case "slow":
                return Slow(name="slow", at=at, factor=self.factor, **{"for": lasts})
            case _:
                return Freeze(name="freeze", at=at, **{"for": lasts})


def ask(
    folder: RunFolder,
    verb: Verb,
    selectors: Sequence[str],
    *,
    duration: str | None = None,
    factor: float = 1.0,
) -> tuple[str, ...]:
    """Ask the controller of a run to apply a fault to workers, and wait until it has.

    Args:
        folder: the run's.
        verb: what to do.
        selectors: of the workers: w3, a pattern, class=NAME.
        duration: for how long, in emulated time; None until the end of the run.
        factor: by which the length of steps is multiplied.

    Returns:
        The names of the workers.

    Raises:
        ScenarioError: no such worker exists, or the duration is none, or too long for a partition.
        NodeError: no controller is running, or it objects to the request.
    """
    nodes = _selected(folder, selectors)
    if verb == "slow":
        _check_limits(nodes, folder)
    seconds = None if duration is None else duration_of(duration)
    if verb == "partition" and seconds is not None and duration is not None:
        _check_partition(duration, seconds, folder)
    file = folder.control / f"fault-{token_hex(8)}.json"
    asked_for = Asked(verb=verb, nodes=nodes, seconds=seconds, factor=factor)
    write_atomically(file, asked_for.model_dump_json())
    deadline, done = time.monotonic() + ANSWER_SECONDS, file.with_suffix(".done")
    try:
        while not done.exists():
            if time.monotonic() > deadline or not folder.alive():
                raise NodeError(
                    f"{folder.name} did not accept the request: no controller is running its "
                    "training.",
                    hint="`testbed ps` lists the active runs.",
                )
            time.sleep(LOOK_SECONDS)
        if against := done.read_text(encoding="utf-8"):
            raise NodeError(f"{folder.name}: {against}.")
    finally:
        for one in (file, done):
            one.unlink(missing_ok=True)
    return nodes


def asked(folder: RunFolder) -> Iterator[Asked]:
    """Yield the requests that are not answered yet. Remove malformed ones."""
    for file in sorted(folder.control.glob("fault-*.json")):
        with suppress(FileNotFoundError):  # withdrawn meanwhile
            try:
                found = Asked.model_validate_json(file.read_text(encoding="utf-8"))
                found.fault(0.0)  # refuses what no fault can have
            except (ValidationError, UnicodeDecodeError):
                file.unlink()
                continue
            yield found.model_copy(update={"file": file.name})


def answer(folder: RunFolder, request: Asked, against: str) -> None:
    """Report that a request is done, or the objection to it."""
    file: Path = folder.control / request.file
    write_atomically(file.with_suffix(".done"), against)
    file.unlink(missing_ok=True)


def _selected(folder: RunFolder, selectors: Sequence[str]) -> tuple[str, ...]:
    """Return the workers of a run that match any selector."""
    plan = read_plan(folder)
    names, workers = select(selectors, plan), {node.name for node in plan.devices}
    if others := [name for name in names if name not in workers]:
        raise ScenarioError([Problem("selector", 0, "", ", ".join(others), "workers, like w3")])
    return names


def duration_of(text: str) -> float:
    """Parse ``--for`` into emulated seconds: a duration as in scenarios, or ``2m`` for two minutes.

    Raises:
        ScenarioError: it is not a duration above zero.
    """
    try:
        seconds = float(Duration.parse(re.sub(r"(?<=\d)\s*m$", "min", text.strip())))
    except InvalidValue as error:
        raise ScenarioError([Problem("--for", 0, "", error.found, error.expected)]) from None
    if not seconds > 0:
        raise ScenarioError([Problem("--for", 0, "", text, "a duration above zero, like 30s")])
    return seconds


def _check_limits(nodes: Sequence[str], folder: RunFolder) -> None:
    """Refuse to slow down nodes of a workload that have no CPU limit, which is divided."""
    plan = read_plan(folder)
    found = [plan.node(name) for name in nodes]
    if free := [one.name for one in found if one.part == "peer" and one.cpu is None]:
        expected = "nodes with a `cpu` limit, which is divided by the factor"
        raise ScenarioError([Problem("selector", 0, "", ", ".join(free), expected)])


def _check_partition(text: str, seconds: float, folder: RunFolder) -> None:
    """Refuse a partition that connections may not survive."""
    time_scale = read_plan(folder).time_scale
    if seconds > LONGEST_PARTITION_SECONDS * time_scale:
        most = Duration(LONGEST_PARTITION_SECONDS * time_scale)
        expected = f"at most {most}: connections do not survive a longer unplanned one"
        raise ScenarioError([Problem("--for", 0, "", text, expected)])


def frozen_by_faults(folder: RunFolder) -> tuple[str, ...]:
    """Return the workers of a run that faults have frozen, and that have not thawed or ended."""
    still: dict[str, None] = {}
    for entry in read_events(folder.events):
        match entry.event:
            case FaultApplied("freeze", True, nodes):
                still.update(dict.fromkeys(nodes))
            case FaultApplied("freeze", False, nodes):
                for node in nodes:
                    still.pop(node, None)
            case Exited(node):
                still.pop(node, None)
    workers = {node.name for node in read_plan(folder).devices}
    return tuple(node for node in still if node in workers)


def listed(folder: RunFolder) -> list[dict[str, Any]]:
    """Return every applied fault, in order, then the planned faults that are not applied yet.

    Each has the fields of its event, and ``planned``: its moment as text.
    """
    timeline, faults = _planned(folder)
    rows: list[dict[str, Any]] = []
    for event in only(read_events(folder.events), FaultApplied):
        by_hand = event.place is None and not event.recorded
        planned = "by hand" if by_hand else f"{event.planned_seconds:.3f} s"
        rows.append({**vars(event), "planned": planned})
    come = {row["place"] for row in rows}
    for place, fault in enumerate(faults):
        if place not in come:
            nodes = timeline.named(timeline.targets[place])
            at = fault.moment
            rows.append(
                {"kind": fault.name, "begins": True, "nodes": nodes, "planned_seconds": None}
                | {"actual_seconds": None, "place": place, "passed_over": (), "planned": at}
            )
    return rows


def _planned(folder: RunFolder) -> tuple[Timeline, Sequence[AnyFault]]:
    """Return the faults of a run's scenario, and their timeline."""
    # Imported only here: requests and links need no scenario, and should not take longer for it.
    from testbed.scenario import load
    from testbed.scenario.experiment import timeline_of
    from testbed.scenario.load_workload import is_workload_file, load_workload
    from testbed.scenario.run_file import of_run
    from testbed.scenario.workload_names import workload_timeline

    if is_workload_file(folder.scenario):
        with of_run(folder.scenario):
            workload = load_workload(folder.scenario)
        return workload_timeline(workload), workload.faults
    with of_run(folder.scenario):
        scenario = load(folder.scenario, custom_files=folder.custom)
    return timeline_of(scenario, folder.path), scenario.faults
