"""Errors of a run folder that can no longer be read or written."""

from __future__ import annotations

from pathlib import Path
from shutil import disk_usage

from testbed.errors import HostError
from testbed.telemetry.folder import RunFolder, is_gone

FULL_BYTES = 65_536
FREE_SPACE = "Free disk space, or choose another folder with --runs."
OUTPUT_CLOSED = "the reader of its output is gone"


def folder_error(folder: RunFolder, error: OSError) -> HostError:
    """Return the error of a run that cannot continue, from an error of the operating system.

    A folder that is being deleted loses its parts one by one, so any of them may be missing
    first, and its ``run.json`` may still exist.
    """
    if isinstance(error, FileNotFoundError):
        missing = Path(error.filename or "")
        inside = missing if missing.is_relative_to(folder.path) else None
        if gone := find_deleted(folder) or inside:
            return deletion_error(gone)
    place = error.filename or folder.path
    return HostError(f"the run cannot continue: {place}: {error.strerror}.", hint=FREE_SPACE)


def find_deleted(folder: RunFolder) -> Path | None:
    """Return the deleted path of an active run: its folder, or its first missing part, or None."""
    if is_gone(folder.run_file):
        return folder.path
    return next(filter(is_gone, folder.parts), None)


def deletion_error(path: Path) -> HostError:
    """Return the error of a run whose files were deleted while it was active."""
    return HostError(
        f"{path} was deleted while the run was active; the run was stopped.",
        hint="Its records are lost. Stop a run with `testbed down` before you delete its folder.",
    )


def low_disk_space(folder: RunFolder) -> str:
    """Return how little disk space is left for the folder; empty if there is enough."""
    try:
        free = disk_usage(folder.path).free
    except FileNotFoundError:  # deleted just now
        return ""
    return f"{folder.path} has {free:,} bytes" if free <= FULL_BYTES else ""
