"""Faults asked for by hand: files in the run's ``control``, which its controller looks for.

``fault-NAME.json`` asks, ``fault-NAME.done`` answers with what speaks against it, or nothing. So
the controller carries out, undoes and writes down all faults, and whoever asked may go.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

from pydantic import ValidationError

from testbed.errors import NodeError, Problem, ScenarioError, Unfit
from testbed.events.entry import only
from testbed.events.kinds import Exited, FaultApplied
from testbed.experiment import timeline_of
from testbed.plan.selection import select
from testbed.plan.written import read_plan
from testbed.scenario import load
from testbed.telemetry.events import read_events
from testbed.telemetry.files import write_atomically
from testbed.telemetry.folder import RunFolder
from testbed.values.fields import Part
from testbed.values.units import Duration

Verb = Literal["freeze", "thaw", "partition", "slow"]
LONGEST_PARTITION_SECONDS = 10.0
"""Real seconds. A run that plans none gives a connection up of which it hears nothing for twice as
long, and after a partition TCP takes as long again to try once more."""

ANSWER_SECONDS = 15.0
LOOK_SECONDS = 0.05


class Asked(Part):
    """What is asked for.

    Attributes:
        seconds: for how long, emulated; None is to the end.
        factor: how many times as long steps take.
        file: the request's name.
    """

    verb: Verb
    nodes: tuple[str, ...]
    seconds: float | None = None
    factor: float = 1.0
    file: str = ""


def ask(
    folder: RunFolder,
    verb: Verb,
    nodes: Sequence[str],
    *,
    seconds: float | None = None,
    factor: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Ask the controller of a run to do something to workers, and wait until it has.

    Raises:
        NodeError: nobody controls the run, or something speaks against it.
    """
    file = folder.control / f"fault-{token_hex(8)}.json"
    asked_for = Asked(verb=verb, nodes=tuple(nodes), seconds=seconds, factor=factor)
    write_atomically(file, asked_for.model_dump_json())
    deadline, done = clock() + ANSWER_SECONDS, file.with_suffix(".done")
    try:
        while not done.exists():
            if clock() > deadline or not folder.alive():
                raise NodeError(
                    f"{folder.name} did not take it: no controller looks after its training.",
                    hint="`testbed ps` lists the runs that go on.",
                )
            time.sleep(LOOK_SECONDS)
        if against := done.read_text(encoding="utf-8"):
            raise NodeError(f"{folder.name}: {against}.")
    finally:
        for one in (file, done):
            one.unlink(missing_ok=True)


def asked(folder: RunFolder) -> Iterator[Asked]:
    """What is asked for and not answered yet. What is no request is removed."""
    for file in sorted(folder.control.glob("fault-*.json")):
        with suppress(FileNotFoundError):  # taken back meanwhile
            try:
                found = Asked.model_validate_json(file.read_text(encoding="utf-8"))
            except (ValidationError, UnicodeDecodeError):
                file.unlink()
                continue
            yield found.model_copy(update={"file": file.name})


def answer(folder: RunFolder, request: Asked, against: str) -> None:
    """Say that it is done, or what speaks against it."""
    file: Path = folder.control / request.file
    write_atomically(file.with_suffix(".done"), against)
    file.unlink(missing_ok=True)


def selected(folder: RunFolder, selectors: Sequence[str]) -> tuple[str, ...]:
    """The workers of a run that any selector names.

    Raises:
        ScenarioError: there is no such node, or it is no worker.
    """
    plan = read_plan(folder)
    names, workers = select(selectors, plan), {node.name for node in plan.workers}
    if others := [name for name in names if name not in workers]:
        raise ScenarioError([Problem("selector", 0, "", ", ".join(others), "workers, like w3")])
    return names


def duration_of(text: str) -> float:
    """The emulated seconds of a ``--for``: a duration of a scenario, or ``2m`` for two minutes.

    Raises:
        ScenarioError: it is no duration, or none above zero.
    """
    try:
        seconds = float(Duration.parse(re.sub(r"(?<=\d)\s*m$", "min", text.strip())))
    except Unfit as error:
        raise ScenarioError([Problem("--for", 0, "", error.found, error.expected)]) from None
    if not seconds > 0:
        raise ScenarioError([Problem("--for", 0, "", text, "a duration above zero, like 30s")])
    return seconds


def partition_of(text: str, folder: RunFolder) -> float:
    """How long a partition by hand may last that is asked for in words, in emulated seconds.

    Raises:
        ScenarioError: it is no duration, or too long a one.
    """
    seconds, time_scale = duration_of(text), read_plan(folder).time_scale
    if seconds > LONGEST_PARTITION_SECONDS * time_scale:
        most = Duration(LONGEST_PARTITION_SECONDS * time_scale)
        expected = f"at most {most}: connections do not outlive a longer one that was not planned"
        raise ScenarioError([Problem("--for", 0, "", text, expected)])
    return seconds


def standing_still(folder: RunFolder) -> tuple[str, ...]:
    """The workers of a run that faults have frozen, and that have neither gone on nor ended."""
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
    workers = {node.name for node in read_plan(folder).workers}
    return tuple(node for node in still if node in workers)


def listed(folder: RunFolder) -> list[dict[str, Any]]:
    """Every fault that has come, in order, then those that are planned and have not come yet.

    Of each there is what its event says, and ``planned``: its moment in words.
    """
    scenario = load(folder.scenario, custom_files=folder.custom)
    rows: list[dict[str, Any]] = []
    for event in only(read_events(folder.events), FaultApplied):
        by_hand = event.place is None and not event.recorded
        planned = "by hand" if by_hand else f"{event.planned_seconds:.3f} s"
        rows.append({**vars(event), "planned": planned})
    come = {row["place"] for row in rows}
    timeline = timeline_of(scenario, folder.path)
    for place, fault in enumerate(scenario.faults):
        if place not in come:
            nodes = timeline.named(timeline.struck[place])
            at = fault.moment
            rows.append(
                {"kind": fault.name, "begins": True, "nodes": nodes, "planned_seconds": None}
                | {"actual_seconds": None, "place": place, "passed_over": (), "planned": at}
            )
    return rows
