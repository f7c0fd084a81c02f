"""The roles as processes on the loopback, controlled by the tests."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from polling import LONGEST_SECONDS, wait_until

from testbed.datasets import Digits
from testbed.rpc.tokens import token_of
from testbed.scenario.experiment import Experiment, LoadedModel, load_model
from testbed.simulation.event_queue import EventQueue
from testbed.simulation.run import simulate, virtual_clock
from testbed.telemetry.entry import Entry
from testbed.telemetry.events import read_events
from testbed.telemetry.ps_events import ClientsEvaluated, Evaluated
from testbed.telemetry.record import Recorder
from testbed.telemetry.sink import Sink
from testbed.telemetry.spool import SpoolReader

PATIENCE_SECONDS = 1.0

# Runs in a process forked from one with all imports; gets the role, its arguments and the log.
ENTRY = """
import importlib, os, sys
os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
sys.exit(importlib.import_module(f"testbed.roles.{role}").main(arguments))
"""


@dataclass
class Cast:
    """The processes of one run.

    Attributes:
        folder: the run's folder.
        context: makes processes.
        processes: by node.
        device: the torch device that workers and evaluator compute on; empty for their CPU.
        patience_seconds: of all nodes but the evaluator.
    """

    folder: Path
    context: ForkServerContext
    processes: dict[str, ForkServerProcess] = field(default_factory=dict)
    device: str = ""
    patience_seconds: float = PATIENCE_SECONDS

    def __post_init__(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            self.server = f"127.0.0.1:{unused.getsockname()[1]}"

    def start(self, node: str, *, folder: Path | None = None, secret: str = "secret") -> None:
        """Start a node: ``ps``, ``evaluator`` or ``w3``."""
        arguments = {
            "node": node,
            "index": node[1:] if node.startswith("w") else "0",
            "folder": str(folder or self.folder),
            "server": self.server,
            "token": secret if node == "ps" or not secret else token_of(secret, node),
            "patience": str(LONGEST_SECONDS if node == "evaluator" else self.patience_seconds),
        }
        if self.shares_compute and node.startswith("w"):
            arguments["compute_token"] = token_of(token_of(secret, "compute"), node)
        if node != "ps":
            arguments["device"] = self.device
        role = "worker" if node.startswith("w") else node
        variables = {"role": role, "arguments": arguments, "log": str(self.log(node))}
        self.processes[node] = self.context.Process(target=exec, args=(ENTRY, variables))
        self.processes[node].start()

    @property
    def shares_compute(self) -> bool:
        """Whether a node computes the gradients of all workers."""
        return (self.folder / "compute").is_dir()

    def put_own_file(self, name: str, text: str) -> None:
        """Put a file of the user's into the run's folder."""
        (self.folder / "custom").mkdir()
        (self.folder / "custom" / name).write_text(text, encoding="utf-8")

    def start_all(self, workers: int) -> None:
        """Start all nodes; the workers once the server is ready."""
        self.start("ps")
        self.wait_for("listening")
        others = ("evaluator", "compute") if self.shares_compute else ("evaluator",)
        for node in (*others, *(f"w{index}" for index in range(workers))):
            self.start(node)

    def log(self, node: str) -> Path:
        """A node's standard error so far."""
        return self.folder / f"{node}.log"

    def events(self, *names: str) -> list[dict[str, Any]]:
        """The parameter server's events, optionally only those of these names."""
        entries = read_events(self.folder / "ps" / "events.jsonl")
        return [entry.as_dict() for entry in entries if not names or entry.name in names]

    def rows(self) -> np.ndarray[Any, Any]:
        """The applied updates."""
        return SpoolReader(self.folder / "ps" / "updates.bin").read()

    def wait_for(self, *names: str) -> None:
        """Wait until an event of each of these names was recorded."""
        self.wait_until(lambda: set(names) <= {event["event"] for event in self.events()})

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        wait_until(condition, self.story)

    def exit_status(self, node: str) -> int | None:
        """A node's exit status; it must end by itself."""
        self.processes[node].join(LONGEST_SECONDS)
        assert not self.processes[node].is_alive(), self.story()
        return self.processes[node].exitcode

    def hang_up(self, node: str) -> None:
        """Notify a node that the run has lost its controller."""
        pid = self.processes[node].pid
        assert pid is not None
        os.kill(pid, signal.SIGHUP)

    def terminate(self) -> set[int | None]:
        """Send SIGTERM to all live processes and return their exit statuses."""
        living = [process for process in self.processes.values() if process.is_alive()]
        for process in living:
            process.terminate()
        for process in living:
            process.join(LONGEST_SECONDS)
        return {process.exitcode for process in living}

    def story(self) -> str:
        """Everything known about the run, for a failed test."""
        lines = [str(event) for event in self.events()]
        for node, process in self.processes.items():
            text = self.log(node).read_text(encoding="utf-8") if self.log(node).exists() else ""
            lines.append(f"{node}: {process.exitcode} {text}")
        return "\n".join(lines)

    def kill(self) -> None:
        """Clean up."""
        for process in self.processes.values():
            process.kill()
            process.join()
            process.close()


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    """Forks processes from one that has imported torch, grpc and the roles."""
    made = multiprocessing.get_context("forkserver")
    roles = ("ps", "worker", "evaluator", "compute")
    made.set_forkserver_preload(["torch", *(f"testbed.roles.{role}" for role in roles)])
    return made


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared digits."""
    folder = tmp_path_factory.mktemp("cache")
    return Digits(name="digits").prepare(folder, environment={}, folder=folder)


Make = Callable[..., Cast]


@pytest.fixture
def make(tmp_path: Path, context: ForkServerContext, digits: Path) -> Iterator[Make]:
    """Makes a run's folder from a few lines of YAML; kills its remaining processes."""
    casts: list[Cast] = []

    def begin(**parts: str) -> Cast:
        folder = tmp_path / f"run-{len(casts)}"
        folder.mkdir()
        (folder / "data").symlink_to(digits)
        (folder / "ps").mkdir()
        if parts.get("compute", "own") != "own":
            (folder / "compute").mkdir()
        values = {
            "name": "small",
            "algorithm": "{name: adacomp, learning_rate: 0.1, ratio: 0.01}",
            "model": "digits-cnn",
            "dataset": "digits",
            "workers": "{count: 3}",
            "stop": "{updates: 60}",
            "evaluate": "{every: 20, images: 100}",
        }
        text = "".join(f"{key}: {value}\n" for key, value in (values | parts).items())
        (folder / "scenario.yaml").write_text(text, encoding="utf-8")
        casts.append(Cast(folder, context))
        return casts[-1]

    yield begin
    for cast in casts:
        cast.kill()


@pytest.fixture
def play_both() -> Callable[..., Sequence[LoadedModel]]:
    """Plays a run of three workers live and another simulated; the final models are the same."""

    def play(live: Cast, virtual: Cast, *sinks: Sink) -> Sequence[LoadedModel]:
        live.start_all(3)
        live.wait_for("done")
        assert live.terminate() == {0}
        events = EventQueue()
        recorder = Recorder(sinks, time_scale=1.0, clock=virtual_clock(events))
        experiment = Experiment.open(virtual.folder)
        simulate(experiment, recorder, events=events, folder=virtual.folder, processes=2)
        finals = [load_model(one.folder, "final") for one in (live, virtual)]
        np.testing.assert_array_equal(finals[0].parameters, finals[1].parameters)
        assert finals[0].taken.evaluation == finals[1].taken.evaluation
        return finals

    return play


class Rounds(Sink):
    """What the workers of a simulated run have found, and the values of its evaluations."""

    def __init__(self) -> None:
        self.found: list[ClientsEvaluated] = []
        self.values: dict[int, dict[str, float | None]] = {}

    def event(self, entry: Entry) -> None:
        if isinstance(entry.event, ClientsEvaluated):
            self.found.append(entry.event)
        if isinstance(entry.event, Evaluated):
            self.values[entry.event.version] = dict(entry.event.metrics)


@pytest.fixture
def simulated() -> Rounds:
    """A sink of a simulated run."""
    return Rounds()
