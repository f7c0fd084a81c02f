"""The parameter server's checkpoints: made between two updates, written beside the training."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from testbed.events.kinds import Restored, Saved
from testbed.experiment import Experiment
from testbed.frame.evaluation import Schedule
from testbed.roles.training import Training
from testbed.telemetry.checkpoints import About, read_checkpoint, scenario_digest, write_checkpoint
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
        lost: updates on record that the one before had applied since.
    """

    about: About
    state: PlainState
    lost: int

    def restore(self, training: Training) -> None:
        """Let a new training go on from here, and say so."""
        training.restore(self.state)
        about = self.about
        training.log.write(Restored(about.version, about.time_seconds, self.lost))


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

    def newest(self, spool: Path) -> Newest | None:
        """The newest one, with the record of updates cut to it; None at the run's beginning.

        Raises:
            TestbedError: it is damaged, or another scenario's.
        """
        if not self.path.exists():
            return None
        about, state = read_checkpoint(self.path, kind=KIND, scenario=self.scenario)
        return Newest(about, state, lost=cut_spool(spool, rows=about.version))

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
