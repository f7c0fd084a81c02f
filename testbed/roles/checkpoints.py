"""The parameter server's checkpoints: taken between two updates, written in the background."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from testbed.algorithms.frame.stop import Schedule
from testbed.errors import DataError
from testbed.roles.training import Training
from testbed.scenario.experiment import Experiment
from testbed.telemetry.checkpoints import (
    About,
    damaged,
    read_checkpoint,
    scenario_digest,
    write_checkpoint,
)
from testbed.telemetry.ps_events import Restored, Saved
from testbed.telemetry.spool import cut_spool

KIND = "ps"
LOOK_SECONDS = 0.1
"""Interval at which the schedule is checked, so that no push has to check it."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a training, all in the same file: each replaces the previous one.

    Attributes:
        path: path of the file.
        schedule: when to save a checkpoint.
        scenario: digest of the scenario, by ``scenario_digest``.
    """

    path: Path
    schedule: Schedule
    scenario: str

    @classmethod
    def of(cls, experiment: Experiment, folder: Path) -> Checkpoints | None:
        """Return a scenario's checkpoints, in ``folder / "ps"``; None if they are disabled."""
        schedule = experiment.checkpoints()
        if schedule is None:
            return None
        return cls(folder / "ps" / "checkpoint.safetensors", schedule, scenario_digest(folder))

    def resume(self, training: Training, spool: Path) -> None:
        """Restore a new training from the newest checkpoint, if there is one.

        The record of updates is truncated to match, and the event is logged.

        Raises:
            DataError: it belongs to another scenario or is damaged; then nothing was changed.
        """
        if not self.path.exists():
            return
        about, state = read_checkpoint(self.path, kind=KIND, scenario=self.scenario)
        try:
            training.restore(state)
        except DataError as error:
            raise damaged(self.path, error.message.rstrip(".")) from None
        lost = cut_spool(spool, rows=about.version)  # updates applied since by the previous server
        training.log.write(Restored(about.version, about.time_seconds, lost))

    async def keep(self, training: Training) -> None:
        """Save checkpoints on schedule until the training has ended."""
        server, clock = training.server, training.clock
        await training.started.wait()
        due = self.schedule.after(server.version, clock.now)
        while not training.ended.is_set():
            await asyncio.sleep(LOOK_SECONDS)
            version, now = server.version, clock.now
            if version >= due.version and now >= due.time and not training.ended.is_set():
                due = self.schedule.after(version, now)
                await self._make(training)

    def remove(self) -> None:
        """Remove the file, which a finished training does not need."""
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
