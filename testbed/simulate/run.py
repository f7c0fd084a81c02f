"""A scenario simulated from beginning to end, into the same run folder as a live one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from testbed.compress.payload import Vector
from testbed.errors import RunNotFound, TestbedError
from testbed.experiment import Experiment
from testbed.models import Evaluation
from testbed.seeds import stream
from testbed.simulate.agenda import Agenda
from testbed.simulate.device import Device, Laboratory
from testbed.simulate.engine import Engine, Examination, Seat
from testbed.simulate.links import Bucket, FairLink
from testbed.simulate.model import capacity, paths
from testbed.simulate.pool import Pool
from testbed.telemetry.breakage import UNREAD, breakage, deletion
from testbed.telemetry.folder import RunFolder, State
from testbed.telemetry.record import Clock, Recorder
from testbed.telemetry.spool import Rows
from testbed.telemetry.status import Gauge, Observer
from testbed.units import Duration

SHOW_SECONDS = 0.2


def virtual_clock(agenda: Agenda, *, time_scale: float = 1.0) -> Clock:
    """The clocks of a recording on virtual time, so that records repeat to the bit.

    What a live run would call real seconds, since its start or since 1970, are here the emulated
    ones by the time scale.
    """
    return Clock(
        wall=lambda: agenda.now / time_scale,
        steady=lambda: agenda.now / time_scale,
    )


@dataclass
class Diary:
    """The engine's journal: the run's records, and now and then a line for whoever watches.

    Attributes:
        recorder: writes the run folder.
        observer: is told how it goes.
        gauge: adds up what is shown.
        agenda: the virtual clock.
        clock: real monotonic seconds.
        time_scale: emulated seconds per second of the records' clocks.
    """

    recorder: Recorder
    observer: Observer
    gauge: Gauge
    agenda: Agenda
    clock: Callable[[], float]
    time_scale: float

    def __post_init__(self) -> None:
        self._began = self._shown = self.clock()

    def updates(self, rows: Rows) -> None:
        """See Journal."""
        rows["wall_seconds"] = rows["time_seconds"] / self.time_scale
        self.recorder.updates(rows)
        self.gauge.add_updates(rows, self.clock() - self._began)

    def evaluated(
        self, evaluation: Evaluation, *, now: float, version: int, payload: int, final: bool
    ) -> None:
        """See Journal."""
        event = {
            **self._now(now),
            **{"event": "evaluated", "time_seconds": now},
            **{"version": version, "loss": evaluation.loss, "top1": evaluation.top1},
            **{"top5": evaluation.top5, "images": evaluation.images, "final": final},
            "payload_up_bytes": payload,
        }
        self.recorder.from_ps(event)
        self.gauge.add_evaluation(event)

    def rejected(self, worker: int, reason: str, *, now: float) -> None:
        """See Journal."""
        node = f"w{worker}"
        event = {"event": "rejected", "node": node, "reason": reason}
        self.recorder.from_ps({**self._now(now), **event})
        self.observer.notice(f"{node}: rejected: {reason}")

    def started(self) -> None:
        """The training begins."""
        self.recorder.from_ps({**self._now(0.0), "event": "started"})

    def finished(self, reason: str, version: int) -> None:
        """The training has ended."""
        ending = {"event": "finished", "reason": reason, "version": version}
        self.recorder.from_ps({**self._now(self.agenda.now), **ending})

    def _now(self, now: float) -> dict[str, Any]:
        return {"time": now / self.time_scale, "elapsed_seconds": now / self.time_scale}

    def show(self) -> None:
        """Tell the observer, if some time has passed since it was last told."""
        real = self.clock()
        if real - self._shown >= SHOW_SECONDS:
            self._shown = real
            self.observer.status(self.gauge.status(real - self._began, emulated=self.agenda.now))


def record_simulation(
    experiment: Experiment, folder: RunFolder, *, agenda: Agenda, observer: Observer
) -> None:
    """Simulate an experiment into a run's folder, and say there how it ended, whatever happens.

    Raises:
        NodeError: the run failed: every worker's push was refused, say.
        HostError: its folder was deleted, or is full.
    """
    folder.lock.touch()
    time_scale = experiment.scenario.time_scale
    clock = virtual_clock(agenda, time_scale=time_scale)
    with folder.locked(), Recorder(folder, time_scale=time_scale, clock=clock) as recorder:
        try:
            recorder.state("training")
            reason = simulate(experiment, recorder, agenda=agenda, observer=observer)
            recorder.state("finished", reason=reason)
        except RunNotFound:
            raise deletion(folder.path) from None
        except TestbedError as error:
            _break_off(recorder, "failed", error.message, exit_code=error.exit_code)
            raise
        except BrokenPipeError:
            _break_off(recorder, "interrupted", UNREAD)
            raise
        except OSError as error:
            failure = breakage(folder, error)
            _break_off(recorder, "failed", failure.message, exit_code=failure.exit_code)
            raise failure from None
        except KeyboardInterrupt:
            _break_off(recorder, "interrupted", "interrupted")
            raise


def _break_off(
    recorder: Recorder, state: State, reason: str, *, exit_code: int | None = None
) -> None:
    """Say in the folder how the run was broken off, where it can still be written to."""
    with suppress(OSError, RunNotFound):
        recorder.state(state, reason=reason, exit_code=exit_code)


def simulate(
    experiment: Experiment,
    recorder: Recorder,
    *,
    agenda: Agenda,
    observer: Observer,
    processes: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Run an experiment on a virtual clock.

    Args:
        experiment: what is run.
        recorder: writes the run folder; its clocks are those of ``virtual_clock``.
        agenda: the virtual clock, at zero.
        observer: is told how it goes.
        processes: how many compute gradients; by default one per core that may be used.
        clock: real monotonic seconds, for what is shown only.

    Returns:
        Why the run ended.
    """
    scenario = experiment.scenario
    gauge = Gauge(scenario.stop.updates, scenario.stop.time)
    diary = Diary(recorder, observer, gauge, agenda, clock, scenario.time_scale)
    count = processes or len(os.sched_getaffinity(0))
    size = experiment.network.layout.size
    with Pool(
        lambda number, vector: furnish(experiment, number, vector, processes=count),
        workers=scenario.workers.count,
        size=size,
        processes=count,
    ) as pool:
        engine = Engine(
            server=experiment.server(),
            pool=pool,
            seats=[seat(experiment, index) for index in range(scenario.workers.count)],
            agenda=agenda,
            uplink=FairLink(agenda, capacity(scenario.ps.link.down)),
            downlink=FairLink(agenda, capacity(scenario.ps.link.up)),
            turns=experiment.turns(),
            examination=examination(experiment),
            journal=diary,
        )
        diary.started()
        engine.run()
        diary.finished(engine.server.finished, engine.server.version)
    return engine.server.finished


def furnish(
    experiment: Experiment, number: int, parameters: Vector, *, processes: int
) -> tuple[Mapping[int, Device], Laboratory]:
    """The workers of one process of the pool, and what they compute with, at ``parameters``."""
    import torch

    torch.set_num_threads(1)
    laboratory = Laboratory(experiment.data, parameters, experiment.network.bind(parameters))
    devices, shards = {}, experiment.shards()
    for index in range(number, experiment.scenario.workers.count, processes):
        worker = experiment.worker(index, shards=shards)
        device = Device(index, worker, _step_seconds(experiment, index))
        device.worker.think = device.take_think
        devices[index] = device
    return devices, laboratory


def seat(experiment: Experiment, index: int) -> Seat:
    """What the modelled world says of one worker."""
    scenario = experiment.scenario
    own = experiment.device_class(index).link
    up, down = paths(own, scenario.ps.link, time_scale=scenario.time_scale)
    return Seat(
        step_seconds=_step_seconds(experiment, index),
        up=up,
        down=down,
        up_bucket=Bucket(up.rate, up.burst_bytes),
        down_bucket=Bucket(down.rate, down.burst_bytes),
        draw_think=experiment.think(index),
        rng=stream(scenario.seed, f"w{index}", "link"),
    )


def examination(experiment: Experiment) -> Examination:
    """When the simulated evaluator looks, and at what."""
    every = experiment.scenario.evaluate.every
    by_time = isinstance(every, Duration)
    return Examination(
        updates=None if by_time else int(every),
        seconds=float(every) if by_time else None,
        images=experiment.test_samples(),
    )


def _step_seconds(experiment: Experiment, index: int) -> float:
    speed = experiment.device_class(index).speed
    assert speed is not None, "the scenario's checks refuse a simulation without it"
    return float(speed)
