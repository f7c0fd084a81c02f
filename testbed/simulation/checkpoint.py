"""A simulation's checkpoint: the engine between two events, and the length of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import MethodType

from testbed.errors import DataError
from testbed.models.saved import ModelWriter
from testbed.simulation.engine import Engine
from testbed.simulation.event_queue import ScheduledEvent
from testbed.simulation.plans import EnginePlans
from testbed.telemetry.checkpoints import (
    About,
    damaged,
    read_checkpoint,
    scenario_digest,
    write_checkpoint,
)
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.parts import part_paths
from testbed.values.state import PlainState, fitting, pack, put_back, unpack

KIND = "simulation"


@dataclass(frozen=True)
class Checkpoint:
    """A point from which a simulation resumes.

    Attributes:
        about: its metadata; the note holds the length of the records.
        state: the engine's state.
    """

    about: About
    state: PlainState

    @classmethod
    def open(cls, folder: RunFolder) -> Checkpoint:
        """Open the checkpoint of a run folder, and check that the records are long enough.

        Raises:
            DataError: it is missing, it or a record is damaged, or it is another scenario's.
        """
        path = folder.checkpoint
        scenario = scenario_digest(folder.path)
        checkpoint = cls(*read_checkpoint(path, kind=KIND, scenario=scenario))
        note = checkpoint.about.note
        try:
            for file in (folder.events, folder.evaluations):
                if file.stat().st_size < int(note[file.name]):
                    raise damaged(path, f"{file.name} is shorter than the checkpoint records")
            if len(part_paths(folder.updates)) < int(note["parts"]):
                raise damaged(path, "parts of updates/ that the checkpoint records are missing")
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(path, f"{type(error).__name__}: {error}") from None
        except FileNotFoundError as error:
            raise damaged(path, f"{error.filename} is missing") from None
        return checkpoint

    def truncate_records(self, folder: RunFolder) -> None:
        """Truncate the records to the checkpoint: the rest will be recorded again."""
        note = self.about.note
        for file in (folder.events, folder.evaluations):
            with file.open("r+b") as opened:
                opened.truncate(int(note[file.name]))
        for part in reversed(part_paths(folder.updates)[int(note["parts"]) :]):
            part.unlink()
        for half_written in folder.updates.glob(".part-*.tmp"):
            half_written.unlink()

    def restore(self, engine: Engine, writer: ModelWriter, folder: RunFolder) -> None:
        """Restore a new engine and its model writer.

        Raises:
            DataError: the state is that of another scenario, or of another version of testbed.
        """
        try:
            with fitting():
                restore(engine, self.state)
                accuracy, negative_loss = self.about.note["best"]
                writer.best = (float(accuracy), float(negative_loss))
        except DataError as error:
            raise DataError(
                f"{folder.checkpoint}: the checkpoint at update {self.about.version} is damaged or "
                f"from another version of testbed: {error.message}",
                hint="Resume with the version that wrote it; nothing was changed.",
            ) from None


def saver(folder: RunFolder, writer: ModelWriter) -> Callable[[Engine], None]:
    """Return a function that saves an engine between two events, over the last checkpoint."""
    scenario = scenario_digest(folder.path)

    def save(engine: Engine) -> None:
        engine.recorder.commit()
        note = {file.name: file.stat().st_size for file in (folder.events, folder.evaluations)}
        about = About(
            *(KIND, scenario, engine.server.version, engine.events.now),
            note={**note, "parts": len(part_paths(folder.updates)), "best": writer.best},
        )
        write_checkpoint(folder.checkpoint, about, state_of(engine))

    return save


def state_of(engine: Engine) -> PlainState:
    """Return the whole state of an engine, between two events.

    Raises:
        AlgorithmError: a half holds an object that a checkpoint cannot hold; the error names it.
    """
    parts = {
        name: {one: getattr(part, one) for one in _saved_names(part)}
        for name, part in engine.parts.items()
    }
    whole = {
        "parts": parts,
        "devices": [vars(device) for device in engine.devices],
        "server": engine.server.state(),
        "workers": engine.workers.state(),
    }
    return pack(whole, engine.parts, EnginePlans(engine))


def restore(engine: Engine, packed: PlainState) -> None:
    """Restore a state into a new engine of the same scenario, before ``continue_run``.

    Raises:
        DataError: this is another scenario's state.
    """
    whole = unpack(packed, engine.parts, EnginePlans(engine))
    with fitting():
        for name, part in engine.parts.items():
            put_back(part, whole["parts"][name], _saved_names(part))
        for device, its in zip(engine.devices, whole["devices"], strict=True):
            put_back(device, its, vars(device))
        _check_plans(engine)
        engine.server.restore(whole["server"])
        engine.workers.restore(whole["workers"])


def _saved_names(part: object) -> Iterable[str]:
    """Return the attributes that a checkpoint saves: those of ``STATE``, or all."""
    names: Iterable[str] = getattr(part, "STATE", vars(part))
    return names


def _check_plans(engine: Engine) -> None:
    """Check that the event queue and the links hold only valid entries."""
    for time, order, planned in engine.events._heap:
        happens = isinstance(planned, ScheduledEvent) and (
            planned.callback is None or isinstance(planned.callback, partial | MethodType)
        )
        if not happens or not isinstance(time, int | float) or not isinstance(order, int):
            raise TypeError("the event queue holds an invalid entry")
    held = [one for device in engine.devices for one in device.deferred]
    links = (engine.uplink, engine.downlink)
    ends = [one for link in links for group in link._groups.values() for one in group.ends]
    if not all(isinstance(call, partial | MethodType) for call in (*held, *(e[2] for e in ends))):
        raise TypeError("a planned call is not callable")
