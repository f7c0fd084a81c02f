"""One simulated run from its request to its end: prepare, simulate, conclude.

With code of the user's own it is simulated in a process beside this one, which sees how that ends.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import TestbedError, UserCodeError
from testbed.experiment import Experiment
from testbed.host.apart import LOADING_SECONDS, Opened, beside
from testbed.run.audience import Audience, concluded
from testbed.run.down import BY_DOWN, asked_to_end
from testbed.run.interrupts import SIGNALS, Interrupts
from testbed.run.prepare import RunRequest, known_size, prepare_data, prepare_simulation
from testbed.scenario.own_code import own_files
from testbed.simulation.agenda import Agenda
from testbed.simulation.outline import require_memory
from testbed.simulation.run import cpus, log_trace, record_simulation
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import available_bytes


def up_simulated(
    request: RunRequest, audience: Audience, *, loading_seconds: float = LOADING_SECONDS
) -> bool:
    """Simulate a run into a folder of its own; returns whether what it measured is valid.

    The user's own files are to be read within ``loading_seconds``.

    Raises:
        TestbedError: it could not be begun, or failed; then its folder says so too.
        KeyboardInterrupt: it was interrupted; likewise.
    """
    files, count = own_files(request.scenario), request.scenario.workers.count
    with Interrupts() as interrupts, interrupts.allowed():
        data = prepare_data(request)
        size = known_size(request.scenario, data)
        if size is not None:
            require_memory(count, size, processes=cpus(), available=available_bytes())
        folder = prepare_simulation(request)
        with concluded(folder, audience, now=request.now, contained=False) as valid:
            if files:
                with _failure_told(folder, now=request.now):
                    beside(
                        lambda opened: _simulate(request, folder, data, audience, opened),
                        whose=files,
                        within_seconds=loading_seconds,
                    )
            else:
                _simulate(request, folder, data, audience, lambda: None)
    return valid()


def _simulate(
    request: RunRequest, folder: RunFolder, data: Path, audience: Audience, opened: Opened
) -> None:
    """Simulate, and say in the folder how it ended; ``opened`` is called when it can begin."""
    audience.phase(f"run {folder.name} (simulated)")
    try:
        with _as_before(own_files(request.scenario)):
            experiment = Experiment.open(folder.path, data=data)
    except TestbedError as error:
        log_trace(error, folder)
        folder.move("failed", now=request.now, reason=error.message, exit_code=error.exit_code)
        raise
    opened()
    try:
        record_simulation(
            experiment,
            folder,
            agenda=Agenda(),
            sinks=[audience.sink],
            interrupted=lambda: BY_DOWN if asked_to_end(folder) else "interrupted",
        )
    finally:
        audience.sink.close()


@contextmanager
def _as_before(files: str) -> Iterator[None]:
    """Inside, the user's files are read; what they change of this process is undone or refused.

    Raises:
        UserCodeError: threads were left, and the processes of a simulation are forked without them.
    """
    threads, process = set(threading.enumerate()), os.getpid()
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    if os.getpid() != process:
        os._exit(0)  # a copy that this code has forked: one simulation is enough
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if left := [one.name for one in threading.enumerate() if one not in threads]:
        raise UserCodeError(
            f"{files}: this code leaves a thread running, {left[0]}.",
            hint="The processes of a simulation are forked, and have no such thread: end it.",
        )


@contextmanager
def _failure_told(folder: RunFolder, *, now: float) -> Iterator[None]:
    """Inside, a process that ended without a word has its end told in the run's folder."""
    try:
        yield
    except UserCodeError as error:
        if folder.state().reason != error.message:
            folder.move("failed", now=now, reason=error.message, exit_code=error.exit_code)
        raise
