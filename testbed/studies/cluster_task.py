"""Executes one run of a sweep on a node of a Ray cluster, and returns its folder.

It runs as in a local sweep, in a process of its own, in a temporary folder of the node.
"""

from __future__ import annotations

import atexit
import io
import os
import shutil
import signal
import socket
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from testbed.datasets import Prepared, user_cache
from testbed.datasets.prepared import prepare_once
from testbed.errors import HostError, TestbedError
from testbed.host.process import has_ended
from testbed.run.prepare import Request
from testbed.run.simulated import SimulationResources
from testbed.runtimes.ray_cluster import PACKAGE, lacks
from testbed.scenario import load
from testbed.scenario.own_code import COPIES
from testbed.studies.run_processes import RunProcess, RunStarter, StudyRunRequest, run_processes
from testbed.telemetry.wall import WALL

POLL_SECONDS = 0.1
"""Ray cancels a task between two Python instructions: it would not interrupt a blocking call."""


@dataclass(frozen=True)
class ClusterRun:
    """What a node needs to execute one run, apart from the data set."""

    scenario: str  # YAML; the user's own files are referred to by the names of their copies
    files: Mapping[str, bytes]  # the user's own files, by name
    data: str  # name of the prepared data set
    name: str  # name of the run
    argv: tuple[str, ...]  # the command line, for the record
    processes: int  # number of processes that compute gradients
    resumed: bytes  # the archived folder of the run that it resumes; empty if it starts
    releases: Mapping[str, str]  # see ``releases``


@dataclass(frozen=True)
class ClusterResult:
    """How a run has ended on a node."""

    status: int  # exit status of its process; negative for a signal
    said: str  # what it printed to standard error
    folder: bytes  # the archived run folder; empty if there is none
    host: str  # name of the node's host


def carry_out(asked: ClusterRun, data: Prepared) -> ClusterResult:
    """Execute a run on this node, and return its folder; leave nothing but the data set behind."""
    # By this signal Ray cancels a task. Nodes started in the background of a shell ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    host = socket.gethostname()
    if lacking := lacks(asked.releases):
        return ClusterResult(HostError.exit_code, f"{host}: {lacking}", b"", host)
    with tempfile.TemporaryDirectory(prefix="testbed-") as scratch:
        place = Path(scratch)
        folder = place / "runs" / asked.name
        try:
            status, said = _execute(_request(asked, data, place))
        except TestbedError as error:
            return ClusterResult(error.exit_code, str(error), b"", host)
        return ClusterResult(status, said, archived(folder) if folder.is_dir() else b"", host)


def _request(asked: ClusterRun, data: Prepared, place: Path) -> StudyRunRequest:
    """Write the files of a run below ``place``; return the request to execute it."""
    (place / COPIES).mkdir()
    for name, content in asked.files.items():
        (place / COPIES / name).write_bytes(content)
    scenario = place / "scenario.yaml"
    scenario.write_text(asked.scenario, encoding="utf-8")
    environment = {**os.environ, "XDG_STATE_HOME": str(place / "state")}
    prepared = user_cache(environment) / "prepared" / asked.data
    if asked.resumed:
        extract(asked.resumed, place / "runs" / asked.name)
    return StudyRunRequest(
        Request[Any](
            load(scenario, custom_files=place / COPIES),
            beside=place,
            runs=place / "runs",
            name=asked.name,
            argv=asked.argv,
            environment=environment,
            home=place,
            now=WALL.read(),
        ),
        cpus=(),
        resumes=bool(asked.resumed),
        simulated=SimulationResources(
            data=prepare_once(prepared, lambda: data), processes=asked.processes
        ),
    )


@dataclass
class WarmStarter:
    """The process that forks those of runs, kept for the next tasks that Ray gives this process.

    Its imports take longer than a short run. It is forked, as this package is imported here.
    """

    _starter: RunStarter | None = None
    _environment: Mapping[str, str] = field(default_factory=dict)
    _ending: ExitStack = field(default_factory=ExitStack)

    def start(self, request: StudyRunRequest, log: IO[bytes]) -> RunProcess:
        """Start the process of a run; see ``RunStarter``."""
        environment = run_environment()
        if environment != self._environment:  # this task has other GPUs
            self.end()
        kept, self._environment = self._starter is not None, environment
        try:
            if self._starter is None:
                self._starter = self._ending.enter_context(run_processes(environment, forks=True))
            return self._starter.start(request, log)
        except HostError:
            self.end()
            if not kept:
                raise
            return self.start(request, log)  # the one that was kept had been killed
        except BaseException:  # this task was cancelled, but the run may start
            self.end()
            raise

    def end(self) -> None:
        """End it with its runs."""
        self._starter = None
        self._ending.close()


def run_environment() -> dict[str, str]:
    """Return the environment of runs, which import the package that was checked: this one."""
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join(filter(None, (str(PACKAGE.parent), before)))
    return {**os.environ, "PYTHONPATH": path}


WARM = WarmStarter()
atexit.register(WARM.end)


def _execute(request: StudyRunRequest) -> tuple[int, str]:
    """Execute a run in a process of its own; return its exit status and standard error."""
    with tempfile.TemporaryFile() as log:
        process = WARM.start(request, log)
        try:
            while not has_ended(process.ended, POLL_SECONDS):
                pass
        finally:
            process.terminate()  # if this task was cancelled
            status = process.wait()
        log.seek(0)
        return status, log.read().decode(errors="replace").strip()


def archived(folder: Path) -> bytes:
    """Return a folder as a ZIP archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return packed.getvalue()


def extract(archive: bytes, folder: Path) -> None:
    """Extract a ZIP archive as a folder, which appears with all its content or not at all."""
    fresh = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        packed.extractall(fresh)
    if folder.is_dir():  # the interrupted run that was resumed
        shutil.rmtree(folder)
    fresh.rename(folder)
