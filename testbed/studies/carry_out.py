"""Executes one run of a sweep in a separate process: ``python -m testbed.studies.carry_out``.

The request is a pickled ``StudyRunRequest`` on standard input. The process exits when its parent
does.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from testbed.errors import TestbedError
from testbed.host import syscalls
from testbed.host.process import end_command_with
from testbed.run.prepare import Request
from testbed.run.simulated import SimulationResources, carry_out, resume
from testbed.run.up import RunListener
from testbed.telemetry.folder import RunFolder

ENTRY = "testbed.studies.carry_out"
INTERRUPTED = 130


@dataclass(frozen=True)
class StudyRunRequest:
    """Request to execute one run."""

    request: Request[Any]
    cpus: tuple[int, ...]  # CPUs that it may use; none if it may use all
    resumes: bool  # whether it resumes from its checkpoint
    simulated: SimulationResources  # what a simulated run uses
    sweep: int = field(default_factory=os.getpid)  # pid of the parent process


def start(
    request: StudyRunRequest, log: IO[bytes], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start the process that executes a request; ``log`` receives its standard error."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", ENTRY],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=log,
        env=environment,
    )
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError), process.stdin as pipe:  # the process says why it ended
            pipe.write(pickle.dumps(request))
    except BaseException:
        process.terminate()
        process.wait()
        raise
    return process


def main() -> int:
    """Execute the request on standard input; return the exit status of ``testbed up``."""
    asked: StudyRunRequest = pickle.load(sys.stdin.buffer)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != asked.sweep:  # the sweep exited before PDEATHSIG was set
        return INTERRUPTED
    if asked.cpus:
        os.sched_setaffinity(0, asked.cpus)
    request = asked.request
    try:
        if asked.resumes:
            folder = RunFolder(request.runs / str(request.name))
            valid = resume(folder, RunListener(), environment=os.environ, resources=asked.simulated)
        else:
            valid = carry_out(request, RunListener(), resources=asked.simulated)
        return 0 if valid else 6
    except TestbedError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    end_command_with(main)
