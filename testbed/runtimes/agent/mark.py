"""A file in the run folder that every container of the run's nodes mounts: without it, none starts.

The agent removes it when the run ends. A container that an engine has started by then mounts it,
and is found by that; one that an engine starts later, at the request of a controller that has died,
fails to mount it. So no container is left running that no launch has named. Podman may make a
folder in place of the missing file; `testbed down` removes a container that mounts it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.host.process import PROC, Process, every_pid, is_first
from testbed.runtimes.agent.settings import MARK
from testbed.telemetry.folder import RunFolder


@dataclass(frozen=True)
class Mark:
    """The file of one run.

    Attributes:
        path: of the file.
        mounted: how the kernel lists a mount of it: its device, and its path there.
    """

    path: Path
    mounted: str

    @classmethod
    def make(cls, folder: RunFolder) -> Mark:
        """Create the file of a run, whose folder is a mount of this process."""
        path = folder.control / MARK
        path.touch()
        return cls(path, f" {_source_of_mount(folder.path)}/{folder.control.name}/{MARK}")

    def remove(self) -> Iterator[Process]:
        """Remove the file; yield the first processes of the containers that mount it."""
        remove_mark(self.path)  # first: then there is no other container
        for pid in every_pid():
            with suppress(OSError):  # it has just ended, or is on a host that hides it
                if is_first(pid) and self.mounted in _mounts_of(pid):
                    yield Process.of(pid)


def remove_mark(path: Path) -> None:
    """Remove the file, or the folder that Podman has made in its place."""
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _mounts_of(pid: int | str) -> str:
    """Return the mounts of a process; their paths may be in any encoding."""
    return (PROC / str(pid) / "mountinfo").read_text(errors="surrogateescape")


def _source_of_mount(point: Path) -> str:
    """Return the device of the mount at a folder, and the path there, as the kernel lists them."""
    descriptor = os.open(point, os.O_PATH | os.O_CLOEXEC)
    try:
        words = (PROC / f"self/fdinfo/{descriptor}").read_text().split()
    finally:
        os.close(descriptor)
    mount = words[words.index("mnt_id:") + 1]
    for line in _mounts_of("self").splitlines():
        identity, _, device, path, *_ = line.split()
        if identity == mount:
            return f"{device} {path}"
    raise FileNotFoundError(point)
