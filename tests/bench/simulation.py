"""CPU time of a simulated run by part, and the memory that 10,000 workers need.

    python tests/bench/simulation.py [updates, default 5000]

The first part is AdaComp's paper-size scenario: 200 workers, the paper's CNN, c = 0.01, on noise of
MNIST's shape. Everything but gradients (with the images they are of, as live), evaluations, the
algorithm's two halves and the frame (which checks every push, draws every batch and says what comes
next, live and simulated alike) is the simulator's own machinery: clock, links, records, models
copied and sent between processes, and the stopwatches. The second part has 10,000 workers with the
digits model.
"""

from __future__ import annotations

import mmap
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from testbed.algorithms import configured
from testbed.algorithms.frame.actions import Action, Loop
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.worker import Worker
from testbed.datasets import Prepared
from testbed.models import BoundModel
from testbed.payloads import Vector
from testbed.scenario import dump, load, load_text
from testbed.scenario.experiment import Experiment
from testbed.scenario.override import Override
from testbed.scenario.schema import Scenario
from testbed.simulation.event_queue import EventQueue
from testbed.simulation.run import simulate, virtual_clock
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.record import Recorder

PAPER = Path(__file__).parents[2] / "scenarios/adacomp/simulated.yaml"
CROWD = """
name: crowd
runtime: simulated
algorithm: adacomp
model: digits-cnn
dataset: digits
ps: {link: {down: {rate: 1gbit, delay: 10ms}}}
workers:
  count: 10000
  think: {mean: 10s}
  classes: {device: {speed: 50ms, link: {up: {rate: 1mbit}, down: {rate: 8mbit}}}}
stop: {updates: 20000}
evaluate: {every: 10000, images: 1000}
"""
PARTS = ("gradients", "evaluations", "worker half", "server half", "frame")
SLOTS = 4096
BEGINNING = 1000
"""Updates that are not counted."""


class Stopwatch:
    """CPU seconds of the watched calls, in this process and its forked children."""

    def __init__(self) -> None:
        self._slots = memoryview(mmap.mmap(-1, 8 * SLOTS)).cast("d")

    @property
    def seconds(self) -> float:
        """In all processes together."""
        return sum(self._slots)

    def watch(self, subject: Any, *methods: str) -> None:
        """Count these methods of an object from now on."""
        for name in methods:
            setattr(subject, name, self.counted(getattr(subject, name)))

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, counted."""
        slots, thread_time, getpid = self._slots, time.thread_time, os.getpid  # called often

        def counted(*args: Any, **named: Any) -> Any:
            begun = thread_time()
            result = call(*args, **named)
            slots[getpid() % SLOTS] += thread_time() - begun
            return result

        return counted


class WatchedLoop:
    """A worker's loop of the frame, counted."""

    def __init__(self, loop: Loop, watch: Stopwatch) -> None:
        self._next = watch.counted(loop.__next__)
        self.send = watch.counted(loop.send)

    def __next__(self) -> Action:
        action: Action = self._next()
        return action


class Watched(Experiment):
    """An experiment whose gradients, evaluations and algorithm are counted."""

    def __init__(self, scenario: Scenario, data: Prepared, folder: Path) -> None:
        network = scenario.model.build(data.image_shape, data.classes, folder=folder)
        algorithm = configured(scenario.algorithm, folder)
        super().__init__(scenario, algorithm, data, network, folder)
        watches = {name: Stopwatch() for name in PARTS}
        object.__setattr__(self, "watches", watches)
        bind = network.bind

        def watched(parameters: Vector, *, device: str | None = None) -> BoundModel:
            bound = bind(parameters, device=device)
            watches["gradients"].watch(bound, "loss_and_gradient")
            watches["evaluations"].watch(bound, "evaluate")
            return bound

        object.__setattr__(network, "bind", watched)

    watches: dict[str, Stopwatch]

    def server(self) -> Server:
        server = super().server()
        self.watches["server half"].watch(server.half, "push", "pull")
        self.watches["frame"].watch(server, "push", "pull")
        return server

    def worker(self, index: int, **named: Any) -> Worker:
        worker = super().worker(index, **named)
        loop, watch = worker.loop, self.watches["frame"]
        self.watches["worker half"].watch(worker.half, "receive", "step")
        object.__setattr__(worker, "loop", lambda: WatchedLoop(loop(), watch))
        return worker


def noise(shape: tuple[int, int, int], *, images: int) -> Prepared:
    """A data set of this many blank training images."""
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal((n, *shape), dtype=np.float32) for n in (images, 10_000)]
    labels = [rng.integers(0, 10, n) for n in (images, 10_000)]
    return Prepared(drawn[0], labels[0], drawn[1], labels[1], classes=10, source={})


def measure(scenario: Scenario, data: Prepared) -> tuple[str, dict[str, float]]:
    """Simulate a scenario; the reason for its end, and its real and CPU seconds."""
    begun, cpu, events = time.monotonic(), cpu_seconds(), EventQueue()
    with tempfile.TemporaryDirectory() as runs:
        classes = ["device"] * scenario.workers.count
        folder = RunFolder.create(
            Path(runs), "bench", scenario="bench", text=dump(scenario), classes=classes, now=0.0
        )
        experiment = Watched(scenario, data, folder.path)
        batch = experiment.watches["gradients"].counted(Prepared.batch)
        with (
            patch.object(Prepared, "batch", batch),
            Recorder.into(folder, time_scale=1.0, clock=virtual_clock(events)) as recorder,
        ):
            reason = simulate(experiment, recorder, events=events, folder=folder.path)
    taken = {"real": time.monotonic() - begun, "cpu": cpu_seconds() - cpu}
    taken |= {name: watch.seconds for name, watch in experiment.watches.items()}
    taken["frame"] -= taken["server half"] + taken["worker half"]
    taken["machinery"] = taken["cpu"] - sum(taken[name] for name in PARTS)
    return reason, taken


def print_shares(scenario: Scenario, data: Prepared) -> None:
    """Simulate, and print what the CPU time of an update went into once the run has begun.

    The number of gradients computed ahead before a run of a few updates ends is random,
    so a shorter run, not an empty one, is subtracted from the whole. It is made
    twice, as the first run of a process pays for shared setup.
    """
    updates = (scenario.stop.updates or 0) - BEGINNING
    short = replaced(scenario, f"stop.updates={BEGINNING}")
    _, begin = [measure(short, data) for _ in range(2)][-1]
    reason, whole = measure(scenario, data)
    taken = {name: seconds - begin[name] for name, seconds in whole.items()}
    real, cpu = taken.pop("real"), taken.pop("cpu")
    print(f"{scenario.workers.count} workers, {scenario.model.name}: {reason}")
    print(f"{updates / real:.0f} updates/s, {cpu / updates * 1e3:.2f} ms of CPU each:")
    for name, seconds in taken.items():
        print(f"    {name:12} {seconds / updates * 1e3:6.3f} ms  {seconds / cpu:6.1%}")


def replaced(scenario: Scenario, *settings: str) -> Scenario:
    """The scenario with other values."""
    return load_text(dump(scenario), overrides=[Override.parse(text) for text in settings])


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def print_memory(processes: int) -> None:
    """Peak memory of the processes; shared pages count in each of them."""
    peaks = [
        resource.getrusage(who).ru_maxrss * 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    total = peaks[0] + processes * peaks[1]
    print(
        f"peak RSS: the clock {peaks[0] / 1e9:.2f} GB, {processes} others at most "
        f"{peaks[1] / 1e9:.2f} GB each; {total / 1e9:.2f} GB with what they share counted in each"
    )


def main(updates: int) -> None:
    """Measure both."""
    import torch

    torch.set_num_threads(1)
    paper = load(str(PAPER), overrides=[])
    # Noise cannot be learned: at the scenario's learning rate the model would diverge.
    paper = replaced(paper, f"stop.updates={updates}", "algorithm.learning_rate=0.001")
    print_shares(paper, noise((1, 28, 28), images=60_000))
    child = os.fork()  # so that its memory is its own
    if child == 0:
        reason, taken = measure(load_text(CROWD), noise((1, 8, 8), images=100_000))
        print(f"10,000 workers, digits-cnn: {reason} in {taken['real']:.0f} s")
        print_memory(len(os.sched_getaffinity(0)))
        os._exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
