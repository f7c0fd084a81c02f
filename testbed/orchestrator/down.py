"""Ends runs from outside, whoever started them and however that ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError
from testbed.runtimes.base import RuntimeDriver
from testbed.telemetry.folder import ENDED, RunFolder
from testbed.telemetry.registry import Registry, list_runs

BY_DOWN = "ended by `testbed down`"
REQUEST = "down"
"""File in ``control/`` while a run is being ended: its controller is to take it for no failure."""


@dataclass(frozen=True)
class Ended:
    """A run after ``down``.

    Attributes:
        run: its name.
        folder: its folder, or None where only its name was found on the host.
        acted: whether there was anything to end.
        failure: why it could not be ended; None if nothing of it is left.
    """

    run: str
    folder: Path | None
    acted: bool
    failure: TestbedError | None = None


def end_runs(
    folders: Iterable[RunFolder], driver: RuntimeDriver, *, clock: Callable[[], float]
) -> list[Ended]:
    """End these runs, and say so in the folder of each that had not come to an end by itself.

    One that cannot be ended does not keep the next from being ended; its failure is in the list.
    """
    return [_end(folder, driver, clock=clock) for folder in folders]


def end_all(
    runs: Path, registry: Registry, *, driver: RuntimeDriver, clock: Callable[[], float]
) -> list[Ended]:
    """End every run that is known, and remove what others have left on this host.

    A run that is not known here and goes on is somebody else's, and is left alone.
    """
    folders = [RunFolder(path) for path in list_runs(runs, registry)]
    ended = end_runs(folders, driver, clock=clock)
    known = {folder.name for folder in folders}
    return ended + [_clear(name, runs, driver) for name in driver.find() if name not in known]


def asked_to_end(folder: RunFolder) -> bool:
    """Whether `testbed down` is ending this run."""
    return (folder.control / REQUEST).exists()


def _end(folder: RunFolder, driver: RuntimeDriver, *, clock: Callable[[], float]) -> Ended:
    try:
        acted = _stop(folder, driver)
        if folder.state().state not in ENDED:  # an attached controller has written it by now
            folder.move("interrupted", now=clock(), reason=BY_DOWN)
            acted = True
    except TestbedError as failure:
        return Ended(folder.name, folder.path, acted=False, failure=failure)
    return Ended(folder.name, folder.path, acted=acted)


def _stop(folder: RunFolder, driver: RuntimeDriver) -> bool:
    """Returns whether there was anything; under the same name another run may go on elsewhere."""
    was_there = folder.name in driver.find()
    with _requested(folder):
        driver.stop(folder)
    return was_there and folder.name not in driver.find()


def _clear(name: str, runs: Path, driver: RuntimeDriver) -> Ended:
    """Remove what a run without a folder has left."""
    try:
        driver.stop(RunFolder((runs / name).absolute()))
    except TestbedError as failure:
        return Ended(name, None, acted=False, failure=failure)
    return Ended(name, None, acted=name not in driver.find())


@contextmanager
def _requested(folder: RunFolder) -> Iterator[None]:
    request = folder.control / REQUEST
    if not folder.alive():  # nobody is there to be told
        yield
        return
    request.touch()
    try:
        yield
    finally:
        request.unlink(missing_ok=True)
