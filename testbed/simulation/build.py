"""Builds the workers that one process of the pool computes, and what they compute with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from testbed.algorithms.frame.worker import Worker
from testbed.datasets.streams import Arrivals
from testbed.models import BoundModel, Network
from testbed.models.compute import open_device
from testbed.payloads import Vector, zeros
from testbed.runtimes import Simulated
from testbed.scenario.experiment import Experiment
from testbed.scenario.schema import Scenario
from testbed.simulation.gradients import Gradients, Reuse
from testbed.simulation.learner import Learner
from testbed.simulation.outline import gradients_at_once
from testbed.simulation.streams import SimulatedStream
from testbed.simulation.worker import SimulatedWorker


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
    at_once = gradients_at_once(experiment.scenario)
    compute = experiment.compute(vector, device=device, at_once=at_once)
    gradients = reuse and _reused(experiment, reuse, processes)
    timeout = experiment.scenario.evaluate.timeout
    seed = experiment.evaluation_seed
    learner = Learner(
        *(experiment.data, compute, gradients, timeout, seed),
        metrics=experiment.metrics,
        held_out=experiment.held_out,
        sent=_sent(network, device) if network.local.size else None,
    )
    simulated, arrivals = {}, experiment.arrivals()
    for index in range(number, experiment.scenario.workers.count, processes):
        create = partial(experiment.worker, index)
        worker = create()
        simulated[index] = SimulatedWorker(
            *(index, worker, draw_step(experiment, index)),
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
    """Return other runs' gradients; None with a GPU, vmap or user code: results may differ.

    They have no losses: None as well for an algorithm that takes these.

    Network, parameters and batch identify a gradient. With user code, it may also depend on the
    random draws of its step.
    """
    unfit = experiment.own_files or experiment.algorithm.takes_losses()
    unfit = unfit or gradients_at_once(experiment.scenario) > 1
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


def draw_step(experiment: Experiment, index: int) -> Callable[[], float]:
    """Return a sampler of a worker's emulated step times."""
    step = experiment.step(index)
    assert step is not None, "a checked scenario for a simulation has step times"
    return step
