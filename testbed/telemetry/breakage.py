"""What is told of a run whose folder cannot be read or written any more."""

from __future__ import annotations

from pathlib import Path
from shutil import disk_usage

from testbed.errors import HostError
from testbed.telemetry.folder import RunFolder, is_gone

FULL_BYTES = 65_536
MEND = "Make room, or choose another place with --runs."
UNREAD = "nobody reads what it prints any more"


def breakage(folder: RunFolder, error: OSError) -> HostError:
    """The error of a run that cannot go on, from what the operating system said.

    A folder that is being deleted loses its parts one after the other, so what is met first may
    be any of them, and its ``run.json`` may still be there.
    """
    if isinstance(error, FileNotFoundError):
        missing = Path(error.filename or "")
        inside = missing if missing.is_relative_to(folder.path) else None
        if gone := find_gone(folder) or inside:
            return deletion(gone)
    place = error.filename or folder.path
    return HostError(f"the run cannot go on: {place}: {error.strerror}.", hint=MEND)


def find_gone(folder: RunFolder) -> Path | None:
    """What was deleted of a run that goes on: its folder, or the first part of it; None if none."""
    if is_gone(folder.run_file):
        return folder.path
    return next(filter(is_gone, folder.parts), None)


def deletion(path: Path) -> HostError:
    """The error of a run that went on while this was deleted."""
    return HostError(
        f"{path} was deleted while the run went on; it has been ended.",
        hint="Its records are lost. Let `testbed down` end a run before you delete it.",
    )


def shortage(folder: RunFolder) -> str:
    """How little room there is where the folder lies; empty where there is enough."""
    try:
        free = disk_usage(folder.path).free
    except FileNotFoundError:  # deleted just now
        return ""
    return f"{folder.path} has {free:,} bytes" if free <= FULL_BYTES else ""
