"""Builds the inputs of an image on this host with docker/offline.sh, if no registry answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.errors import HostError
from testbed.runtimes.docker.image import BASE, KAFKA_BASE, WHEELS
from testbed.runtimes.docker.sources import CONSTRAINTS, OFFLINE, REQUIREMENTS

WORK_PREFIX = "edge-testbed-image-"
GRACE_SECONDS = 10.0
SHOWN_LINES = 12


@contextmanager
def made_here(part: str, sources: Mapping[str, bytes], *, torch_index: str) -> Iterator[Path]:
    """Yield a tar archive of BASE, WHEELS or KAFKA_BASE, which is removed afterwards.

    Args:
        part: which of them.
        sources: the image's, with the script, the requirements and the constraints.
        torch_index: an index with CPU builds of torch, used in addition to pip's if it answers.

    Raises:
        HostError: a command is missing or failed; contains its last output, and the fix.
    """
    with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # mmdebstrap may run as another user
        for file in (OFFLINE, CONSTRAINTS, REQUIREMENTS):
            (folder / Path(file).name).write_bytes(sources[file])
        process = subprocess.Popen(
            ["sh", folder / Path(OFFLINE).name, part, folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            env={**os.environ, "PYTHON": sys.executable, "TORCH_INDEX": torch_index},
            process_group=0,
        )
        with process:
            try:
                said, _ = process.communicate()
            except BaseException:
                _end(process)
                raise
        if process.returncode:
            lines = [line for line in said.splitlines() if line.strip()][-SHOWN_LINES:]
            message = "\n  ".join([f"{OFFLINE} failed making the {part}:", *lines])
            raise HostError(message, hint=_hint(part, torch_index))
        yield folder / "archive.tar"


def _hint(part: str, torch_index: str) -> str:
    if part == WHEELS:
        return f"It needs a package index with a CPU build of torch: {torch_index} or pip's own."
    assert part in (BASE, KAFKA_BASE)
    install = "sudo apt install mmdebstrap"
    if os.geteuid() != 0:
        install += " uidmap; it needs root, or user namespaces and a range in /etc/subuid"
    return f"No registry answers, so mmdebstrap has to make the {part}: {install}."


def _end(process: subprocess.Popen[str]) -> None:
    """End the script and its children; they have a short time to clean up."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
