"""Simulates a scenario from start to end, into the same kind of run folder as a live run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from testbed.algorithms.frame.worker import Worker
from testbed.datasets.streams import Arrivals
from testbed.errors import RunNotFound, TestbedError
from testbed.models import BoundModel, Network
from testbed.models.compute import open_device
from testbed.models.saved import ModelWriter
from testbed.payloads import Vector, zeros
from testbed.runtimes import Simulated
from testbed.runtimes.lock import holding_lock
from testbed.scenario.durations import Codec
from testbed.scenario.experiment import Experiment
from testbed.scenario.schema import Scenario
from testbed.scenario.traces import followings, own_copy
from testbed.simulation.checkpoint import Checkpoint, saver
from testbed.simulation.device import DeviceModel
from testbed.simulation.engine import Engine
from testbed.simulation.event_queue import EventQueue
from testbed.simulation.gradients import Gradients, Reuse
from testbed.simulation.keys import KeyedLinks
from testbed.simulation.links import FairLink
from testbed.simulation.model import capacity, paths
from testbed.simulation.outline import require_memory
from testbed.simulation.pool import Pool
from testbed.simulation.streams import SimulatedStream
from testbed.simulation.worker import Learner, SimulatedWorker
from testbed.telemetry.event_kinds import Finished, Joined, Resumed, Started, State, StateChanged
from testbed.telemetry.folder import OUTPUT_CLOSED, RunFolder, deletion_error, folder_error
from testbed.telemetry.host import available_bytes
from testbed.telemetry.record import Clock, FolderSink, Recorder
from testbed.telemetry.sink import Sink
from testbed.telemetry.wall import WALL
from testbed.values.seeds import stream
from testbed.values.user_code import own_failures, own_trace

SLACK = 32
"""Extra numbers per row, besides a key and a value per parameter: sizes, signature, alignment."""


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
            first = FolderSink(folder, time_scale=time_scale, wall=WALL)  # run.json has real time
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
    scenario, writer = experiment.scenario, experiment.model_writer(folder)
    count = processes or cpus()
    size = experiment.network.worker_layout.size
    require_memory(scenario.workers.count, size, processes=count, available=available_bytes())
    with Pool(
        lambda number, vector: build(experiment, number, vector, processes=count, reuse=reuse),
        workers=scenario.workers.count,
        size=2 * size + SLACK if experiment.algorithm.SENDS_KEYS else size,
        processes=count,
        own_files=experiment.own_files,
    ) as pool:
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


def cpus() -> int:
    """Return the number of cores that this process may use, each for one gradient process."""
    return len(os.sched_getaffinity(0))


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


def build(
    experiment: Experiment,
    number: int,
    parameters: Vector,
    *,
    processes: int,
    reuse: Reuse | None = None,
) -> tuple[Mapping[int, SimulatedWorker], Learner]:
    """Build the workers of one pool process, and their learner, bound to ``parameters``."""
    import torch

    torch.set_num_threads(1)
    network, device = experiment.network, compute_device(experiment.scenario)
    vector = parameters[: network.worker_layout.size]
    bound = network.bind(vector, device=device)
    gradients = reuse and _reused(experiment, reuse, processes)
    timeout = experiment.scenario.evaluate.timeout
    seed = experiment.evaluation_seed
    learner = Learner(
        *(experiment.data, vector, bound, gradients, timeout, seed),
        metrics=experiment.metrics,
        held_out=experiment.held_out,
        sent=_sent(network, device) if network.local.size else None,
    )
    simulated, arrivals = {}, experiment.arrivals()
    for index in range(number, experiment.scenario.workers.count, processes):
        create = partial(experiment.worker, index)
        worker = create()
        simulated[index] = SimulatedWorker(
            *(index, worker, _draw_step(experiment, index)),
            create=create,
            client=experiment.client(index),
            each_sample=experiment.each_sample(index),
            stream=None if arrivals is None else _stream(experiment, worker, arrivals[index]),
            sample_bytes=experiment.sample_bytes,
        )
    return simulated, learner


def _sent(network: Network, device: str | None) -> tuple[Vector, BoundModel]:
    """Bind the network without what workers keep, to evaluate the parameter server's model."""
    vector = zeros(network.layout.size)
    return vector, network.bind(vector, device=device)


def compute_device(scenario: Scenario) -> str | None:
    """Return the torch device of this process; None for its CPU.

    Raises:
        HostError: CUDA is not available.
    """
    runtime = scenario.runtime
    if not isinstance(runtime, Simulated) or runtime.device == "cpu":
        return None
    hint = "Set it to cpu, or start from a process that has not initialised CUDA."
    return open_device(runtime.device, whose="runtime.device", hint=hint)


def _reused(experiment: Experiment, reuse: Reuse, processes: int) -> Gradients | None:
    """Return other runs' gradients; None with a GPU or user code, whose results may differ.

    They have no losses: None as well for an algorithm that takes these.

    Network, parameters and batch identify a gradient. With user code, it may also depend on the
    random draws of its step.
    """
    unfit = experiment.own_files or experiment.algorithm.takes_losses()
    if unfit or compute_device(experiment.scenario) is not None:
        return None
    model, layout = experiment.scenario.model, experiment.network.layout
    return reuse.open(f"{model!r} {layout!r}", processes=processes)


def _stream(experiment: Experiment, worker: Worker, arrivals: Arrivals) -> SimulatedStream:
    """Return the stream that delivers the samples of a worker's shard."""
    settings = experiment.scenario.streams
    assert settings is not None, "a scenario with arrivals has streams"
    assert worker.source is not None, "a new worker has a source of samples"
    return SimulatedStream(
        arrivals,
        settings.policy.buffer(),
        worker.source,
        batch_size=experiment.scenario.workers.batch_size,
        patience=settings.patience,
    )


def device_model(experiment: Experiment, index: int) -> DeviceModel:
    """Build the model of one worker's device from the scenario."""
    scenario = experiment.scenario
    own = experiment.devices[index].link
    up, down = paths(own, scenario.ps.link, time_scale=scenario.time_scale)
    return DeviceModel(
        step_seconds=_draw_step(experiment, index)(),
        up=up,
        down=down,
        draw_think=experiment.think(index),
        rng=stream(scenario.seed, f"w{index}", "link"),
        keys=KeyedLinks() if experiment.algorithm.SENDS_KEYS else None,
    )


def _draw_step(experiment: Experiment, index: int) -> Callable[[], float]:
    step = experiment.step(index)
    assert step is not None, "a checked scenario for a simulation has step times"
    return step
