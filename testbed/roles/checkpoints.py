"""The parameter server's checkpoints: made between two updates, written beside the training."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import DataError
from testbed.events.kinds import Restored, Saved
from testbed.experiment import Experiment
from testbed.frame.evaluation import Schedule
from testbed.roles.training import Training
from testbed.telemetry.checkpoints import (
    About,
    damaged,
    read_checkpoint,
    scenario_digest,
    write_checkpoint,
)
from testbed.telemetry.spool import cut_spool
from testbed.values.state import PlainState

KIND = "ps"
LOOK_SECONDS = 0.1
"""So often it is looked whether a checkpoint is due: the path of a push knows nothing of it."""


@dataclass(frozen=True)
class Newest:
    """The checkpoint that a parameter server goes on from.

    Attributes:
        about: what is known of it.
        state: the training's.
        path: of its file.
    """

    about: About
    state: PlainState
    path: Path

    def restore(self, training: Training, spool: Path) -> None:
        """Let a new training continue from here, cut the record of updates to it, and say so.

        Raises:
            DataError: it is another scenario's, or damaged; then nothing was changed.
        """
        about = self.about
        try:
            training.restore(self.state)
        except DataError as error:
            raise damaged(self.path, error.message.rstrip(".")) from None
        lost = cut_spool(spool, rows=about.version)  # of what the one before had applied since
        training.log.write(Restored(about.version, about.time_seconds, lost))


@dataclass(frozen=True)
class Checkpoints:
    """Those of one training, each in the place of the one before.

    Attributes:
        path: of the file.
        schedule: when one is due.
        scenario: see ``scenario_digest``.
    """

    path: Path
    schedule: Schedule
    scenario: str

    @classmethod
    def of(cls, experiment: Experiment, folder: Path) -> Checkpoints | None:
        """Those that a scenario asks for, in ``ps`` in a folder like a run's; None for none."""
        schedule = experiment.checkpoints()
        if schedule is None:
            return None
        return cls(folder / "ps" / "checkpoint.safetensors", schedule, scenario_digest(folder))

    def newest(self) -> Newest | None:
        """The newest one; None at the run's beginning.

        Raises:
            DataError: it is damaged, or another scenario's.
        """
        if not self.path.exists():
            return None
        about, state = read_checkpoint(self.path, kind=KIND, scenario=self.scenario)
        return Newest(about, state, self.path)

    async def keep(self, training: Training) -> None:
        """Make one whenever it is due, until the training has ended; it is of no use then."""
        server, clock = training.server, training.clock
        await training.started.wait()
        due = self.schedule.after(server.version, clock.now)
        while not training.ended.is_set():
            await asyncio.sleep(LOOK_SECONDS)
            version, now = server.version, clock.now
            if version >= due.version and now >= due.time and not training.ended.is_set():
                due = self.schedule.after(version, now)
                await self._make(training)
        self.path.unlink(missing_ok=True)

    async def _make(self, training: Training) -> None:
        clock, version = training.clock, training.server.version
        began = clock.steady()
        training.record.spool.flush()
        about = About(KIND, self.scenario, version, clock.now, note={})
        state = training.state()
        held = clock.steady() - began
        await asyncio.to_thread(write_checkpoint, self.path, about, state)
        size = self.path.stat().st_size
        training.log.write(Saved(version, size, held, clock.steady() - began))
