"""One simulated run from its request to its end: prepare, simulate, conclude.

With user code, it is simulated in a child process, and this process watches how that ends.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from testbed.errors import NodeError, TestbedError, UserCodeError
from testbed.host.isolation import LOADING_SECONDS, Opened, run_in_child
from testbed.host.terminal import diverted
from testbed.plan.selection import SIMULATION
from testbed.run.data import known_size, prepare_data, prepare_own_data, with_model_cost
from testbed.run.down import BY_DOWN, asked_to_end
from testbed.run.interrupts import SIGNALS, Interrupts
from testbed.run.prepare import Request, RunRequest, prepare_simulation
from testbed.run.up import RunListener, concluded, up
from testbed.runtimes.agent.logs import Log
from testbed.scenario import Scenario, load
from testbed.scenario.experiment import Experiment
from testbed.scenario.own_code import own_files
from testbed.scenario.run_file import of_run
from testbed.simulation.actors import joined
from testbed.simulation.checkpoint import Checkpoint
from testbed.simulation.event_queue import EventQueue
from testbed.simulation.gradients import Reuse
from testbed.simulation.outline import ray_pool
from testbed.simulation.run import log_trace, record_simulation, require_processes
from testbed.telemetry.folder import ENDED, RunFolder
from testbed.telemetry.wall import WALL
from testbed.values.user_code import one_process


@dataclass(frozen=True)
class SimulationResources:
    """What a simulated run uses beside its scenario; none of it changes its results.

    Attributes:
        data: folder of the prepared data set; None: it is prepared first.
        processes: number of processes that compute gradients; by default one per usable core.
        reuse: where to find other runs' gradients and store this run's; None to disable.
    """

    data: Path | None = None
    processes: int | None = None
    reuse: Reuse | None = None


USUAL = SimulationResources()


def carry_out(
    request: Request[Any],
    listener: RunListener,
    *,
    resources: SimulationResources = USUAL,
    **contained: Any,
) -> bool:
    """Carry out a run of any kind; return whether its measurements are valid.

    Args:
        request: the user's.
        listener: see ``up``.
        resources: what a simulated run uses.
        contained: the options of ``up``, for a run with containers.

    Raises:
        TestbedError: it could not be started, or failed; then its folder says so too.
        KeyboardInterrupt: it was interrupted; likewise.
    """
    if request.scenario.simulated:
        return up_simulated(request, listener, resources=resources)
    return up(request, listener, **contained)


def up_simulated(
    request: RunRequest,
    listener: RunListener,
    *,
    loading_seconds: float = LOADING_SECONDS,
    resources: SimulationResources = USUAL,
) -> bool:
    """Simulate a run into a folder of its own; return whether its measurements are valid.

    The user's own files must be read within ``loading_seconds``.

    Raises:
        TestbedError: it could not be started, or failed; then its folder says so too.
        KeyboardInterrupt: it was interrupted; likewise.
    """
    with Interrupts() as interrupts, interrupts.allowed():
        data = prepare_data(request, resources.data)
        request = with_model_cost(request, data)
        size = known_size(request.scenario, data)
        files = own_files(request.scenario)
        with nullcontext() if files else pool_ready(request.scenario):
            if size is not None and not (files and ray_pool(request.scenario)):
                require_processes(request.scenario, size, given=resources.processes)
            folder = prepare_simulation(request)
            one = _Simulation(folder, data, listener, now=request.now, resources=resources)
            with concluded(one.folder, listener, now=request.now, contained=False) as valid:
                one.carry_out(files, within_seconds=loading_seconds)
    return valid()


def resume(
    folder: RunFolder,
    listener: RunListener,
    *,
    environment: Mapping[str, str],
    resources: SimulationResources = USUAL,
) -> bool:
    """Continue an interrupted simulated run from its checkpoint; see ``up_simulated``.

    Raises:
        TestbedError: it has finished, is running, was not simulated, or has no checkpoint of
            its scenario; nothing was changed.
    """
    scenario, now = resumable(folder), WALL.read()
    with Interrupts() as interrupts, interrupts.allowed():
        data = resources.data or prepare_own_data(scenario, folder, environment)
        files = own_files(scenario)
        with nullcontext() if files else pool_ready(scenario):
            one = _Simulation(folder, data, listener, now=now, resumes=True, resources=resources)
            with concluded(folder, listener, now=now, contained=False) as valid:
                one.carry_out(files)
    return valid()


def pool_ready(scenario: Scenario) -> AbstractContextManager[None]:
    """Join the Ray cluster of a scenario, if it has one.

    With user code, the child process does so: a forked process cannot use its parent's connection.
    """
    pool = ray_pool(scenario)
    return joined(pool) if pool else nullcontext()


def resumable(folder: RunFolder) -> Scenario:
    """Return the scenario of a run that can continue from its checkpoint.

    Raises:
        TestbedError: it cannot continue; says why, and what to do.
    """
    state, name = folder.state().state, folder.name
    with of_run(folder.scenario):
        scenario = load(folder.scenario, custom_files=folder.custom)
    if state == "finished":
        raise NodeError(f"{name} has finished: there is nothing to resume.")
    if not scenario.simulated:
        raise NodeError(
            f"{name} is not a simulation: its containers have ended and cannot be resumed.",
            hint=f"`testbed up {folder.scenario} --name NAME` repeats it from the start. In an "
            "active run, a parameter server that dies is restarted automatically.",
        )
    if folder.alive():
        raise NodeError(
            f"{name} is still running.", hint=f"`testbed wait {name}` waits until it ends."
        )
    Checkpoint.open(folder)
    return scenario


@dataclass(frozen=True)
class _Simulation:
    """One run that has its folder."""

    folder: RunFolder
    data: Path  # folder of the prepared data set
    listener: RunListener
    _: KW_ONLY
    now: float  # seconds since 1970
    resumes: bool = False  # whether it continues from its checkpoint
    resources: SimulationResources = USUAL

    def carry_out(self, files: str, *, within_seconds: float = LOADING_SECONDS) -> None:
        """Simulate the run; in a child process if it has ``files`` of the user's own.

        They must be read within ``within_seconds`` real seconds.
        """
        if not files:
            self._simulate(files, lambda: None)
            return
        self.folder.logs.mkdir(exist_ok=True)
        log, writer = Log.open(self.folder.log(SIMULATION))
        with closing(log), os.fdopen(writer, "wb"):
            try:
                run_in_child(
                    lambda opened: self._simulate_own(files, opened, writer),
                    label=files,
                    printed=log,
                    within_seconds=within_seconds,
                )
            except TestbedError as error:
                if self.folder.state().state not in ENDED:  # the child did not report it
                    self._fail(error)
                raise

    def _simulate_own(self, files: str, opened: Opened, writer: int) -> None:
        """Simulate with the user's own files; their output goes into a log, as in a live run."""
        with diverted(writer) as shown:
            self.listener.sink.show_on(shown)
            self._simulate(files, opened)

    def _simulate(self, files: str, opened: Opened) -> None:
        """Simulate, and record the outcome; ``opened`` is called once the simulation can begin."""
        folder, listener = self.folder, self.listener
        listener.phase(f"run {folder.name} (simulated){', resumed' if self.resumes else ''}")
        with ExitStack() as ending:
            try:
                with _as_before(files):
                    experiment = Experiment.open(folder.path, data=self.data)
                opened()
                if files:
                    ending.enter_context(pool_ready(experiment.scenario))
            except TestbedError as error:
                log_trace(error, folder)
                if not self.resumes:
                    self._fail(error)
                raise
            if files:
                ending.callback(listener.sink.close)  # this process's copy; the caller has its own
            record_simulation(
                experiment,
                folder,
                events=EventQueue(),
                sinks=[listener.sink],
                interrupted=lambda: BY_DOWN if asked_to_end(folder) else "interrupted",
                resumes=self.resumes,
                processes=self.resources.processes,
                reuse=self.resources.reuse,
            )

    def _fail(self, error: TestbedError) -> None:
        code = error.exit_code
        self.folder.move("failed", now=self.now, reason=error.message, exit_code=code)


@contextmanager
def _as_before(files: str) -> Iterator[None]:
    """Inside, the user's files are read; their changes to this process are undone or rejected."""
    threads = set(threading.enumerate())
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    with one_process():
        yield
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if left := [one.name for one in threading.enumerate() if one not in threads]:
        raise UserCodeError(
            f"{files}: this code left a thread running: {left[0]}.",
            hint="The processes of a simulation are forked, and threads do not survive a fork: "
            "end the thread before returning.",
        )
