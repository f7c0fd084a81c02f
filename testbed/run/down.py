"""Ends runs from outside, whatever started them and however they ended."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError, TestbedError
from testbed.run.runtime import is_simulated
from testbed.runtimes.base import RuntimeDriver
from testbed.runtimes.lock import POLL_SECONDS, end_holder, is_controlled
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import State
from testbed.telemetry.events import follow_ps_events
from testbed.telemetry.folder import ENDED, RunFolder
from testbed.telemetry.ps_events import Done, Finished
from testbed.telemetry.registry import Registry, list_runs
from testbed.telemetry.untrusted import SpoiledError

BY_DOWN = "stopped by `testbed down`"
SIMULATION_SECONDS = 30.0
REPORT_SECONDS = 30.0
"""How long to wait for a controller to write the report of a run of which nothing is left."""
REQUEST = "down"
"""File in ``control/`` while a run is being ended, so that its controller sees no failure."""


@dataclass(frozen=True)
class Ended:
    """A run after ``down``."""

    run: str
    folder: Path | None  # its folder, or None if only its name was found on the host
    acted: bool  # whether there was anything to end
    hosts: tuple[str, ...] = ()  # the other hosts on which something was removed
    failure: TestbedError | None = None  # why it could not be ended; None if nothing of it is left
    unasked: TestbedError | None = None  # why the engine of an ended run could not be queried


def end_run(folder: RunFolder, driver: RuntimeDriver, *, clock: Callable[[], float]) -> Ended:
    """End a run, and record that in its folder if it had not ended by itself."""
    return _ended(folder, lambda: _end(folder, driver, clock))


def end_all(
    runs: Path,
    registry: Registry,
    *,
    drivers: Mapping[str, RuntimeDriver],
    runtime_of: Callable[[RunFolder], str],
    clock: Callable[[], float],
) -> list[Ended]:
    """End every known run, and remove remains of others on this host.

    A running run that is not known here belongs to another user and is skipped. If a runtime's
    engine does not answer, the runs of other runtimes are still ended.

    The drivers are those of every runtime, by the name that ``runtime_of`` returns for a run.
    """
    listed = [RunFolder(path) for path in list_runs(runs, registry)]
    known = {folder.name for folder in listed}
    folders = [folder for folder in listed if folder.is_yours()]
    ended: list[Ended] = []
    whose: dict[str, list[RunFolder]] = defaultdict(list)
    for folder in folders:
        try:
            whose[runtime_of(folder)].append(folder)
        except TestbedError as failure:  # its plan cannot be read
            ended.append(Ended(folder.name, folder.path, acted=False, failure=failure))
    for name, driver in drivers.items():
        mine = whose[name]
        try:
            driver.find()
        except HostError as unreachable:
            ended += [_unreached(folder, unreachable) for folder in mine]
            continue
        ended += [end_run(folder, driver, clock=clock) for folder in mine]
        orphans = [folder for folder in driver.find_orphans() if folder not in listed]
        ended += [_clear(folder, driver, orphan=True) for folder in orphans]
        handled = known | {folder.name for folder in orphans}
        others = [RunFolder((runs / run).absolute()) for run in driver.find() if run not in handled]
        ended += [_clear(folder, driver, orphan=False) for folder in others]
    return ended


def asked_to_end(folder: RunFolder) -> bool:
    """Return whether `testbed down` is ending this run."""
    return (folder.control / REQUEST).exists()


def _ended(
    folder: RunFolder, end: Callable[[], tuple[bool, tuple[str, ...]]], *, exists: bool = True
) -> Ended:
    """Return the outcome: a run that cannot be ended does not prevent others from being ended."""
    path = folder.path if exists else None
    try:
        acted, hosts = end()
        return Ended(folder.name, path, acted=acted, hosts=hosts)
    except TestbedError as failure:
        return Ended(folder.name, path, acted=False, failure=failure)


def _end(
    folder: RunFolder, driver: RuntimeDriver, clock: Callable[[], float]
) -> tuple[bool, tuple[str, ...]]:
    folder.check_owner()
    acted, hosts = _stop(folder, driver)
    deadline = time.monotonic() + REPORT_SECONDS
    while is_controlled(folder) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)  # a lock cannot be waited for with a timeout
    if folder.state().state in ENDED:  # an attached controller has recorded it by now
        return acted, hosts
    reason = own_end(folder)
    state: State = "interrupted" if reason is None else "finished"
    folder.move(state, now=clock(), reason=BY_DOWN if reason is None else reason)
    return True, hosts


def own_end(folder: RunFolder) -> str | None:
    """Return why the training had ended before, if it did, last evaluation included; else None.

    Its controller may have died before: to finish, a run needs only the parameter server.
    """
    try:
        said = follow_ps_events(folder.ps_events).read()
    except SpoiledError:  # files that a node put there prove nothing
        return None
    return only(said, Finished)[-1].reason if only(said, Done) else None


def _unreached(folder: RunFolder, unreachable: HostError) -> Ended:
    """Return the outcome without an engine; an ended run has most likely left nothing."""
    try:
        over = folder.state().state in ENDED and not folder.alive()
    except TestbedError as failure:
        return Ended(folder.name, folder.path, acted=False, failure=failure)
    if over:
        return Ended(folder.name, folder.path, acted=False, unasked=unreachable)
    return Ended(folder.name, folder.path, acted=False, failure=unreachable)


def _stop(folder: RunFolder, driver: RuntimeDriver) -> tuple[bool, tuple[str, ...]]:
    """Stop a run; return whether it existed, and the other hosts that had something of it.

    A run of the same name may be running elsewhere.
    """
    simulated = is_simulated(folder)
    request = folder.control / REQUEST
    heard = folder.alive()
    # The search reads the command line of each process, which takes a while for 1,000 nodes.
    was_there = not simulated and (heard or folder.name in driver.find())
    if heard:
        request.touch()
    try:
        if simulated:
            return end_holder(folder, within_seconds=SIMULATION_SECONDS), ()
        hosts = driver.stop(folder)
    finally:
        if heard:
            request.unlink(missing_ok=True)
    return bool(hosts) or (was_there and folder.name not in driver.find()), hosts


def _clear(folder: RunFolder, driver: RuntimeDriver, *, orphan: bool) -> Ended:
    """Remove what a run that is not listed has left.

    An orphan has no controller any more; any other may be a running run of another user, and is
    skipped.
    """

    def clear() -> tuple[bool, tuple[str, ...]]:
        hosts = driver.stop(folder)
        return orphan or folder.name not in driver.find(), hosts

    return _ended(folder, clear, exists=False)
