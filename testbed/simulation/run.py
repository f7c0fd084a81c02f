"""Simulates a scenario from start to end, into the same kind of run folder as a live run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path

from testbed.errors import RunNotFound, TestbedError, unforeseen
from testbed.host.requirements import usable_cpus
from testbed.models.saved import ModelWriter
from testbed.runtimes import Simulated
from testbed.runtimes.lock import holding_lock
from testbed.runtimes.ray_processes import OTHERS
from testbed.scenario.durations import Codec
from testbed.scenario.experiment import Experiment
from testbed.scenario.schema import Scenario
from testbed.scenario.traces import followings, own_copy
from testbed.simulation.actors import Actors, count_actors, require_room
from testbed.simulation.build import build, draw_step
from testbed.simulation.channels import Start, forked
from testbed.simulation.checkpoint import Checkpoint, saver
from testbed.simulation.device import DeviceModel
from testbed.simulation.engine import Engine
from testbed.simulation.event_queue import EventQueue
from testbed.simulation.gradients import Reuse
from testbed.simulation.keys import KeyedLinks
from testbed.simulation.links import FairLink
from testbed.simulation.model import capacity, paths
from testbed.simulation.outline import gradients_at_once, ray_pool, require_memory
from testbed.simulation.pool import Pool
from testbed.telemetry.event_kinds import ComputedOneByOne, Resumed, State, StateChanged
from testbed.telemetry.folder import OUTPUT_CLOSED, RunFolder, deletion_error, folder_error
from testbed.telemetry.host import available_bytes
from testbed.telemetry.ps_events import Finished, Joined, Started
from testbed.telemetry.record import Clock, FolderSink, Recorder
from testbed.telemetry.sink import Sink
from testbed.telemetry.wall import WALL
from testbed.values.seeds import stream
from testbed.values.user_code import own_failures, own_trace

SLACK = 32
"""Extra numbers per row, besides a key and a value per parameter: sizes, signature, alignment."""

PART_ROWS = 400
"""Minimum number of rows of a part of the record: in virtual time, five seconds pass quickly."""


def virtual_clock(events: EventQueue, *, time_scale: float = 1.0) -> Clock:
    """Return recording clocks that run on virtual time, so that records are bit-identical.

    Instead of real seconds, since the start or since 1970, they show emulated seconds divided by
    the time scale.
    """
    return Clock(
        wall=lambda: events.now / time_scale,
        steady=lambda: events.now / time_scale,
        offset=lambda: 0.0,
    )


def record_simulation(
    experiment: Experiment,
    folder: RunFolder,
    *,
    events: EventQueue,
    sinks: Sequence[Sink] = (),
    interrupted: Callable[[], str] = lambda: "interrupted",
    resumes: bool = False,
    processes: int | None = None,
    reuse: Reuse | None = None,
) -> None:
    """Simulate an experiment into a run folder, and always record there how it ended.

    Args:
        experiment: the experiment to run.
        folder: the run folder.
        events: the virtual clock, at zero.
        sinks: additional event sinks.
        interrupted: returns the reason if the run is interrupted.
        resumes: whether to resume from the checkpoint in the folder.
        processes: number of processes that compute gradients; by default one per usable core.
        reuse: where to find other runs' gradients and write this run's; None to disable.

    Raises:
        DataError: the checkpoint to resume from is missing or damaged; nothing was changed.
        NodeError: the run failed, for example because every worker's push was refused.
        HostError: the run folder was deleted, or the disk is full.
    """
    time_scale = experiment.scenario.time_scale
    clock = virtual_clock(events, time_scale=time_scale)
    with (
        holding_lock(folder),
        Recorder((), time_scale=time_scale, clock=clock) as recorder,
        _recording_failure(recorder, folder, interrupted),
    ):
        checkpoint = Checkpoint.open(folder) if resumes else None

        def record() -> None:
            """Start recording; the folder is untouched until the whole checkpoint has been read."""
            if checkpoint is not None:
                checkpoint.truncate_records(folder)
                folder.reopen()
            first = FolderSink(
                folder,
                time_scale=time_scale,
                wall=WALL,  # run.json has real time
                part_rows=PART_ROWS,
            )
            for sink in (first, *sinks):
                recorder.add(sink)

        if checkpoint is None:
            record()
            recorder.event(StateChanged("training"))
        reason = simulate(
            *(experiment, recorder),
            events=events,
            folder=folder.path,
            checkpoint=checkpoint,
            restored=record,
            processes=processes,
            reuse=reuse,
        )
        recorder.event(StateChanged("finished", reason))
        folder.checkpoint.unlink(missing_ok=True)


@contextmanager
def _recording_failure(
    recorder: Recorder, folder: RunFolder, interrupted: Callable[[], str]
) -> Iterator[None]:
    """Record in the folder how the code inside the context failed or was interrupted.

    Raises:
        HostError: the run folder was deleted, or the disk is full.
    """
    try:
        yield
    except RunNotFound:
        raise deletion_error(folder.path) from None
    except TestbedError as error:
        log_trace(error, folder)
        _record_failure(recorder, "failed", error.message, exit_code=error.exit_code)
        raise
    except BrokenPipeError:
        _record_failure(recorder, "interrupted", OUTPUT_CLOSED)
        raise
    except OSError as error:
        failure = folder_error(folder, error)
        _record_failure(recorder, "failed", failure.message, exit_code=failure.exit_code)
        raise failure from None
    except KeyboardInterrupt:
        _record_failure(recorder, "interrupted", interrupted())
        raise
    except Exception as error:  # noqa: BLE001 - own code may cause any
        bug = unforeseen(error)
        _record_failure(recorder, "failed", bug.message, exit_code=bug.exit_code)
        raise bug from None


def log_trace(error: TestbedError, folder: RunFolder) -> None:
    """Write the traceback of the user's own code, if there is one, to the node's log."""
    trace = own_trace(error)
    if trace:
        node = getattr(error, "node", "") or "ps"
        with suppress(OSError):
            folder.log(node).write_text(f"{trace}{node}: {error}\n", encoding="utf-8")


def _record_failure(
    recorder: Recorder, state: State, reason: str, *, exit_code: int | None = None
) -> None:
    """Record in the folder how the run ended early, if the folder is still writable."""
    with suppress(OSError, RunNotFound):
        recorder.event(StateChanged(state, reason, exit_code))


def simulate(
    experiment: Experiment,
    recorder: Recorder,
    *,
    events: EventQueue,
    folder: Path,
    processes: int | None = None,
    checkpoint: Checkpoint | None = None,
    restored: Callable[[], None] = lambda: None,
    reuse: Reuse | None = None,
) -> str:
    """Run an experiment on a virtual clock; return why it ended.

    Args:
        experiment: the experiment to run.
        recorder: receives everything; its clocks are those of ``virtual_clock``.
        events: the virtual clock, at zero.
        folder: the run folder, where the best and the final model are saved.
        processes: see ``record_simulation``.
        checkpoint: the checkpoint to resume from; None to start from the beginning.
        restored: called once the checkpoint has been read whole, before anything is recorded.
        reuse: see ``record_simulation``.
    """
    writer = experiment.model_writer(folder)
    scenario, size = experiment.scenario, experiment.network.worker_layout.size
    count = require_processes(scenario, size, given=processes)
    size = 2 * size + SLACK if experiment.algorithm.SENDS_KEYS else size
    workers = scenario.workers.count
    # torch.func would, in each process: two seconds. With a GPU, only they may use CUDA.
    runtime = scenario.runtime
    if isinstance(runtime, Simulated) and runtime.device == "cpu" and runtime.vmap > 1:
        import_module("torch._dynamo")
    compute = partial(build, experiment, processes=count, reuse=reuse)
    start: Start = forked(compute, workers=workers, own_files=experiment.own_files)
    if ray_pool(scenario):
        replaced = recorder.event
        start = Actors(
            experiment, processes=count, size=size, replaced=replaced, forked=start
        ).start
    together = gradients_at_once(scenario)
    with Pool(start, workers=workers, size=size, processes=count, together=together) as pool:
        OTHERS.forget()  # those on nodes without a process of this pool
        engine = _engine(
            experiment, pool, recorder=recorder, events=events, writer=writer, folder=folder
        )
        engine.save = saver(RunFolder(folder), writer)
        with own_failures("ps"):
            if checkpoint is None:
                absent = engine.timeline.population.absent
                for worker in range(scenario.workers.count):
                    if worker not in absent:
                        recorder.event(Joined(f"w{worker}"))
                if together > 1 and (why := pool.one_by_one()):
                    recorder.event(ComputedOneByOne(why))
                recorder.event(Started())
                engine.begin()
            else:
                checkpoint.restore(engine, writer, RunFolder(folder))
                restored()
                recorder.resume(0.0)
                recorder.event(Resumed(engine.server.version, events.now))
            engine.continue_run()
        recorder.event(
            Finished(engine.server.finished, engine.server.version, stalled=engine.server.stalled)
        )
    return engine.server.finished


def require_processes(scenario: Scenario, parameters: int, *, given: int | None = None) -> int:
    """Return how many processes compute gradients; refuse a simulation that needs too much memory.

    Args:
        scenario: the scenario; its cluster must have been joined.
        parameters: number of the model's parameters.
        given: see ``record_simulation``.

    Raises:
        HostError: this host has not enough memory.
        ScenarioError: the cluster has not enough CPUs or memory.
    """
    workers, pool = scenario.workers.count, ray_pool(scenario)
    count = count_actors(pool, workers) if pool else given or usable_cpus()
    here = 0 if pool else count
    at_once = gradients_at_once(scenario)
    require_memory(
        workers, parameters, processes=here, available=available_bytes(), at_once=at_once
    )
    if pool:
        require_room(scenario, parameters, processes=count)
    return count


def _engine(
    experiment: Experiment,
    pool: Pool,
    *,
    recorder: Recorder,
    events: EventQueue,
    writer: ModelWriter,
    folder: Path,
) -> Engine:
    """Create the engine in its initial state; ``writer`` saves the best and the final model."""
    scenario = experiment.scenario
    return Engine(
        server=experiment.server(),
        workers=pool,
        devices=[device_model(experiment, index) for index in range(scenario.workers.count)],
        events=events,
        uplink=FairLink(events, capacity(scenario.ps.link.down)),
        downlink=FairLink(events, capacity(scenario.ps.link.up)),
        queue=experiment.service_queue(),
        schedule=experiment.schedule(),
        images=experiment.test_samples(),
        sample_bytes=experiment.sample_bytes,
        recorder=recorder,
        timeline=experiment.timeline(),
        codec=scenario.codec or Codec(),
        followings=followings(scenario, partial(own_copy, folder)),
        keep=writer.take,
        checkpoints=experiment.checkpoints(),
    )


def device_model(experiment: Experiment, index: int) -> DeviceModel:
    """Build the model of one worker's device from the scenario."""
    scenario = experiment.scenario
    own = experiment.devices[index].link
    up, down = paths(own, scenario.ps.link, time_scale=scenario.time_scale)
    return DeviceModel(
        step_seconds=draw_step(experiment, index)(),
        up=up,
        down=down,
        draw_think=experiment.think(index),
        rng=stream(scenario.seed, f"w{index}", "link"),
        keys=KeyedLinks() if experiment.algorithm.SENDS_KEYS else None,
    )
