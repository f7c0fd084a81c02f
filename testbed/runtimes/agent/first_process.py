"""The first process of a container whose image is not testbed's, and may contain nothing at all.

The agent copies the process and its libraries from its own image into the run folder, which the
containers show: programs linked dynamically run anywhere if their loader is called with their name.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import NodeError

FOLDER = "first"
"""Of the copies, in the run's folder of control files."""

LOADER, LIBRARY = "ld.so", "libc.so.6"
PROGRAMS = ("tini", "tail")
_MAPS = Path("/proc/self/maps")


def first_process(shown: Path, log: Path) -> tuple[str, ...]:
    """Return the command that prints a log for as long as the container exists.

    Args:
        shown: where the container shows the copies.
        log: the log, in the container.
    """
    init, tail = ((*_loader(shown), str(shown / name)) for name in PROGRAMS)
    return (*init, "-s", "--", *tail, "-n", "+1", "-F", str(log))


def _loader(shown: Path) -> tuple[str, ...]:
    return (str(shown / LOADER), "--library-path", str(shown))


def copy_first_process(control: Path) -> list[Path]:
    """Copy it from this process's file system.

    Args:
        control: folder of the run's control files.

    Returns:
        The folder of the copies, then each of them: they belong to root until the caller changes
        that.

    Raises:
        NodeError: a part of it is missing here.
    """
    folder = control / FOLDER
    folder.mkdir(mode=0o755, exist_ok=True)
    made = [folder]
    for name, source in _parts():
        if source is None:
            raise NodeError(
                f"the image of the agent has no {name}, which containers of other images need.",
                hint="Build it again: testbed image build",
            )
        copy = folder / name
        shutil.copyfile(source, copy)
        copy.chmod(0o755)
        made.append(copy)
    return made


def _parts() -> Iterator[tuple[str, str | None]]:
    loaded = {Path(line.split()[-1]) for line in _MAPS.read_text().splitlines() if ".so" in line}
    yield LOADER, next((str(one) for one in loaded if one.name.startswith("ld-linux")), None)
    yield LIBRARY, next((str(one) for one in loaded if one.name == LIBRARY), None)
    for name in PROGRAMS:
        yield name, shutil.which(name)
