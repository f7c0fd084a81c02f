"""The process that forks those of a sweep's runs: itself forked, or a fresh interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from testbed import Run
from testbed.errors import HostError
from testbed.run.prepare import Request
from testbed.run.simulated import SimulationResources
from testbed.studies.run_processes import StudyRunRequest, run_processes

TWICE = """
import os, sys, tempfile
from pathlib import Path
from testbed.run.prepare import Request
from testbed.run.simulated import SimulationResources
from testbed.scenario import Override, load
from testbed.studies.run_processes import StudyRunRequest, run_processes

folder = Path(sys.argv[1])
asked = Request(
    load(folder / "base.yaml", overrides=[Override.parse("stop.updates=4")]),
    beside=folder,
    runs=folder / "runs",
    name="r",
    argv=(),
    environment=dict(os.environ),
    home=folder,
    now=0,
)
run = StudyRunRequest(asked, (), resumes=False, simulated=SimulationResources(processes=1))
with run_processes(os.environ, forks=True) as starter, tempfile.TemporaryFile() as log:
    assert starter.start(run, log).wait() == 0
    assert starter.start(run, log).wait() == 2  # its folder exists
    log.seek(0)
    assert "found r, expected a name that no run uses" in log.read().decode()
"""


@pytest.mark.parametrize("forks", [False, True])
def test_no_run_starts_when_the_process_that_forks_them_was_killed(
    tmp_path: Path, forks: bool
) -> None:
    asked = Request[Any](
        None,
        beside=tmp_path,
        runs=tmp_path,
        name="r",
        argv=(),
        environment={},
        home=tmp_path,
        now=0,
    )
    request = StudyRunRequest(asked, cpus=(), resumes=False, simulated=SimulationResources())
    me = os.getpid()
    before = children(me)
    with run_processes(os.environ, forks=forks) as starter, tempfile.TemporaryFile() as log:
        (parent,) = children(me) - before
        os.kill(parent, signal.SIGKILL)
        with pytest.raises(HostError, match=r"cannot start the process of a run: .* was killed"):
            starter.start(request, log)


@pytest.mark.slow  # imports PyTorch once more
def test_a_run_of_a_forked_process_has_its_log_and_its_status(
    tmp_path: Path, write_study: Any
) -> None:
    """In a process of its own: that of these tests may have called gRPC, which does not fork."""
    write_study()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    subprocess.run([sys.executable, "-c", TWICE, tmp_path], env=environment, check=True)
    assert Run(tmp_path / "runs/r").summary["updates"]["total"] == 4


def children(pid: int) -> set[int]:
    return {int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
