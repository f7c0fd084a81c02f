"""Completes the folder of a run whose controller died, from what the parameter server wrote."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from testbed.events.entry import FROM_PS, Entry
from testbed.events.kinds import Evaluated, Restored
from testbed.events.rows import EVALUATIONS, UPDATE, Rows
from testbed.telemetry.events import EventLog, read_events
from testbed.telemetry.files import LineReader
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.parts import PartWriter, count_rows
from testbed.telemetry.spool import SpoolReader
from testbed.telemetry.tables import CsvTable, drop_torn_line, evaluation_row


@dataclass(frozen=True)
class Recovered:
    """How much was added to a run folder: rows of its tables, and lines of events.jsonl."""

    updates: int = 0
    evaluations: int = 0
    events: int = 0

    def __bool__(self) -> bool:
        return bool(self.updates or self.evaluations or self.events)


def recover(folder: RunFolder, *, time_scale: float) -> Recovered:
    """Add what the parameter server recorded and the controller did not live to write down.

    Does nothing while a process of the run's control lives, nor where nothing is missing. Each of
    the parameter server's records is a sequence of which the folder holds the beginning, so what is
    missing is found by counting.

    Raises:
        TestbedError: a file of the folder is damaged; names it.
    """
    with folder.locked() as mine:
        if not mine:
            return Recovered()
        for half_written in folder.updates.glob(".part-*.tmp"):
            half_written.unlink()
        return Recovered(
            updates=_recover_updates(folder),
            evaluations=_recover_evaluations(folder, time_scale=time_scale),
            events=_recover_events(folder),
        )


def spooled_rows(folder: RunFolder) -> Rows:
    """All updates in the parameter server's spool; none where there is none that we may read."""
    if not os.access(folder.spool, os.R_OK):
        return np.empty(0, UPDATE)
    return SpoolReader(folder.spool).read()


def _recover_updates(folder: RunFolder) -> int:
    missing = spooled_rows(folder)[count_rows(folder.updates) :]
    writer = PartWriter(folder.updates)
    writer.add(missing, now=0.0)
    writer.close()
    return len(missing)


def _recover_evaluations(folder: RunFolder, *, time_scale: float) -> int:
    drop_torn_line(folder.evaluations)
    rows = max(0, len(LineReader(folder.evaluations).read()) - 1)
    missing = _standing(read_events(folder.ps_events))[rows:]
    with closing(CsvTable(folder.evaluations, tuple(EVALUATIONS))) as table:
        for event in missing:
            table.append(evaluation_row(event, time_scale=time_scale))
    return len(missing)


def _standing(entries: Sequence[Entry]) -> list[Evaluated]:
    """The evaluations of models that were not lost with a parameter server."""
    standing: list[Evaluated] = []
    for entry in entries:
        match entry.event:
            case Evaluated() as event:
                standing.append(event)
            case Restored(version):
                standing = [one for one in standing if one.version <= version]
    return standing


def _recover_events(folder: RunFolder) -> int:
    drop_torn_line(folder.events)
    copied = sum(entry.source == FROM_PS for entry in read_events(folder.events))
    missing = read_events(folder.ps_events)[copied:]
    with closing(EventLog(folder.events)) as log:
        for entry in missing:
            log.append(replace(entry, source=FROM_PS))
    return len(missing)
