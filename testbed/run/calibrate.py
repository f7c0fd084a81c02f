"""Measures what this machine computes with a model, and how fast its memory is."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from testbed.errors import HostError
from testbed.host.isolation import Opened, run_isolated
from testbed.models import CustomModel, ImageShape, ModelConfig
from testbed.models.base import BoundModel, Images, Network, Targets
from testbed.models.cost import count_flops, noise
from testbed.scenario.durations import ModelCost, ProfileTime
from testbed.scenario.profiles import DeviceProfile
from testbed.telemetry.host import parse_cpu_model
from testbed.values.user_code import UserCode

WARM_UP_STEPS = 3
COPIED_BYTES = 2**26
"""Size of an array that no cache holds."""

COPIES = 10
Clock = Callable[[], float]


@dataclass(frozen=True)
class Subject:
    """What is measured: a model, on samples of a shape."""

    name: str  # of the model
    model: ModelConfig
    image_shape: ImageShape
    classes: int
    beside: Path  # folder of the scenario, with the user's own file
    batch: int = 32
    seconds: float = 5.0  # how long steps are measured
    threads: int = 1


@dataclass(frozen=True)
class Calibration:
    """A measured machine: its profile, and the seconds of a step that was measured for it."""

    profile: DeviceProfile
    step_seconds: float
    cost: ModelCost

    def predicted(self, batch: int) -> float:
        """Return the seconds of a step that a scenario with this profile has."""
        speed = ProfileTime(
            profile="",
            gflops=self.profile.gflops,
            memory_gb_per_second=self.profile.memory_gb_per_second,
            cost=self.cost,
        )
        pace = speed.pace()
        assert pace is not None, "speed and cost are given"
        return pace.mean(batch)


def cpu_name() -> str:
    """Return the name of this machine's CPU, or at least its architecture."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:  # not Linux
        text = ""
    return parse_cpu_model(text) or platform.machine()


def calibrate(subject: Subject, *, date: str, machine: str) -> Calibration:
    """Measure this machine, in a separate process.

    Args:
        subject: what to measure.
        date: of the measurement.
        machine: its name, for the profile.

    Raises:
        ScenarioError: the model cannot be built for such samples, or its cost not be counted.
        UserFileError, UserCodeError: the user's own code failed.
        HostError: the machine is too busy, or its clock too coarse, for a measurement.
    """
    label = subject.model.file if isinstance(subject.model, CustomModel) else subject.name
    work = partial(_measured, subject)
    step, memory, flops, parameters = run_isolated(work, label=label)
    cost = ModelCost(flops=flops, parameters=parameters)
    base = ProfileTime(profile="", gflops=1.0, memory_gb_per_second=memory / 1e9, cost=cost).pace()
    assert base is not None, "speed and cost are given"
    computing = step - base.base_seconds
    if computing <= 0:
        hint = "Measure a larger --batch, or a larger model."
        raise HostError(f"{label}: a step is too short to be measured.", hint=hint)
    shape = "x".join(map(str, subject.image_shape))
    profile = DeviceProfile(
        gflops=float(f"{flops * subject.batch / computing / 1e9:.4g}"),
        memory_gb_per_second=float(f"{memory / 1e9:.4g}"),
        source=f"testbed calibrate {subject.name}, on {machine}",
        date=date,
        note=f"a step with {subject.batch} samples of {shape} took {step * 1e3:.4g} ms with "
        f"{subject.threads} threads; memory by copying",
    )
    return Calibration(profile, step, cost)


def _measured(subject: Subject, opened: Opened) -> tuple[float, float, float, int]:
    """Return the seconds of a step, the bytes per second of memory, and the model's cost."""
    import torch

    torch.set_num_threads(subject.threads)
    own, shape = subject.model, (subject.image_shape, subject.classes)
    if isinstance(own, CustomModel):
        network = own.build_of(UserCode(subject.beside / own.file, own.class_name, ""), *shape)
    else:
        network = own.build(*shape, folder=subject.beside)
    opened()
    flops = count_flops(network, *shape)
    step = step_seconds(network, subject, clock=time.perf_counter)
    # A copy is longer than a time slice: on a busy machine, it always includes waiting for a CPU.
    memory = memory_bytes_per_second(time.thread_time)
    return step, memory, flops, network.layout.size


def step_seconds(network: Network, subject: Subject, *, clock: Clock) -> float:
    """Return the median seconds of a training step with the subject's batch."""
    count = max(subject.batch, network.least_samples)
    bound = network.bind(network.initial(np.random.default_rng(0)))
    images, targets = noise(
        subject.image_shape, subject.classes, count=count, tokens=network.tokens
    )
    for _ in range(WARM_UP_STEPS):
        bound.loss_and_gradient(images, targets)
    times: list[float] = []
    end = clock() + subject.seconds
    while not times or clock() < end:
        times.append(_timed(bound, images, targets, clock))
    return median(times)


def _timed(bound: BoundModel, images: Images, targets: Targets, clock: Clock) -> float:
    begin = clock()
    bound.loss_and_gradient(images, targets)
    return clock() - begin


def memory_bytes_per_second(clock: Clock) -> float:
    """Return the bytes read and written per second by copying, the best of several."""
    source = np.ones(COPIED_BYTES // 4, np.float32)
    target = np.empty_like(source)
    np.copyto(target, source)  # before, its pages do not exist
    best = np.inf
    for _ in range(COPIES):
        begin = clock()
        np.copyto(target, source)
        best = min(best, clock() - begin)
    return float(2 * COPIED_BYTES / best)
