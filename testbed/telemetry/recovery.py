"""Completes the folder of a run whose controller died, from the parameter server's files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.errors import DataError
from testbed.telemetry.entry import FROM_PS, Entry
from testbed.telemetry.events import EventLog, follow_ps_events, read_events
from testbed.telemetry.files import CsvTable, LineReader, drop_torn_line, evaluation_row
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.parts import DamagedPartError, PartWriter, part_path, part_paths, read_parts
from testbed.telemetry.ps_events import Evaluated, Finished, Restored
from testbed.telemetry.rows import Rows, joined
from testbed.telemetry.spool import SpoolReader


@dataclass(frozen=True)
class Recovered:
    """What was added to a run folder: rows of its tables, and lines of events.jsonl."""

    updates: int = 0
    evaluations: int = 0
    events: int = 0

    def __bool__(self) -> bool:
        return bool(self.updates or self.evaluations or self.events)


def recover(folder: RunFolder, *, time_scale: float) -> Recovered:
    """Add what the parameter server recorded and the dead controller did not.

    Does nothing while a control process of the run is alive, or if nothing is missing. The folder
    holds a prefix of each of the parameter server's records, so counting finds what is
    missing.

    Raises:
        TestbedError: a file of the folder is damaged; names it.
    """
    with folder.locked(shared=True) as free, folder.alone() as alone:
        if not free or not alone:
            return Recovered()
        for half_written in folder.updates.glob(".part-*.tmp"):
            half_written.unlink()
        return Recovered(
            updates=_recover_updates(folder),
            evaluations=_recover_evaluations(folder, time_scale=time_scale),
            events=_recover_events(folder),
        )


def check_updates(folder: RunFolder, entries: Sequence[Entry], *, found: int) -> None:
    """Check that a finished run has the updates that its events name.

    Raises:
        DataError: rows are missing.
    """
    events = (entry.event for entry in reversed(entries))
    applied = next((one.version for one in events if isinstance(one, Finished | Restored)), 0)
    if found < applied:
        missing = part_path(folder.updates, len(part_paths(folder.updates)))
        raise DataError(
            f"{missing} is missing: found {found} updates, expected {applied}, as in "
            f"{folder.events.name}.",
            hint="Restore it. Nothing was computed from the other files.",
        )


def check_evaluations(folder: RunFolder, entries: Sequence[Entry], *, found: int) -> None:
    """Check that a finished run has the evaluations that its events name.

    Raises:
        DataError: rows are missing.
    """
    expected = len(_standing(entries))
    if found < expected:
        raise DataError(
            f"{folder.evaluations}: found {found} evaluations, expected {expected}, as in "
            f"{folder.events.name}.",
            hint="The file is damaged: restore it. Nothing was computed from it.",
        )


def spooled_rows(folder: RunFolder, *, after: int = 0, over: bool) -> Iterator[Rows]:
    """Yield the updates in the parameter server's spool after the first ``after``, in chunks.

    Nothing if there is no readable spool. ``over``: see ``SpoolReader``.

    Raises:
        SpoiledError: the file in the parameter server's folder is not its record.
    """
    if not os.access(folder.spool, os.R_OK):
        return
    workers = len(folder.state().classes) or None
    reader = SpoolReader(folder.spool, workers=workers, over=over)
    while len(rows := reader.read()):
        if after < len(rows):
            yield rows[after:]
        after = max(0, after - len(rows))


def read_updates(folder: RunFolder) -> Rows:
    """Read all updates of a run, shape (n,).

    What is missing or damaged in the controller's record is read from the parameter server's.

    Raises:
        TestbedError: a part is damaged, and the parameter server's record does not replace it.
    """
    sound, spooled, _ = _both_records(folder, over=not folder.alive())
    return joined([*sound, *spooled])


def _recover_updates(folder: RunFolder) -> int:
    """Add missing updates; rewrite all from a damaged part on, if the spool has them."""
    _, spooled, damage = _both_records(folder, over=True)
    if not spooled:
        return 0
    folder.updates.mkdir(exist_ok=True)
    for part in damage.later() if damage else ():
        part.unlink()
    writer = PartWriter(folder.updates)
    for rows in spooled:
        writer.add(rows, now=0.0)
    writer.close()
    return sum(map(len, spooled))


def _both_records(
    folder: RunFolder, *, over: bool
) -> tuple[list[Rows], list[Rows], DamagedPartError | None]:
    """Return the rows of all parts before the first damaged one, those after, and the damage."""
    sound, damage = _sound_parts(folder.updates)
    spooled = [*spooled_rows(folder, after=sum(map(len, sound)), over=over)]
    if damage is not None and sum(map(len, spooled)) < damage.least_rows():
        raise damage
    return sound, spooled, damage


def _sound_parts(folder: Path) -> tuple[list[Rows], DamagedPartError | None]:
    """Return the rows of all parts before the first damaged one, and its error."""
    sound = []
    try:
        for rows in read_parts(folder):
            sound.append(rows)  # keep what was read before an error
    except DamagedPartError as damage:
        return sound, damage
    return sound, None


def _recover_evaluations(folder: RunFolder, *, time_scale: float) -> int:
    drop_torn_line(folder.evaluations)
    rows = _count_rows(folder.evaluations)
    missing = _standing(follow_ps_events(folder.ps_events).read())[rows:]
    with closing(CsvTable(folder.evaluations)) as table:
        for event in missing:
            table.append(evaluation_row(event, time_scale=time_scale))
    return len(missing)


def _count_rows(table: Path) -> int:
    """Count the complete lines of a CSV file after its header; 0 if there is no file."""
    return max(0, len(LineReader(table).read()) - 1)


def _standing(entries: Sequence[Entry]) -> list[Evaluated]:
    """Return the evaluations of models that were not lost with a parameter server."""
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
    missing = follow_ps_events(folder.ps_events).read()[copied:]
    with closing(EventLog(folder.events)) as log:
        for entry in missing:
            log.append(replace(entry, source=FROM_PS))
    return len(missing)
