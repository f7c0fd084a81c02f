"""The process that forks those of a sweep's runs: itself forked, or a fresh interpreter."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pandas  # noqa: F401 - here once, or in the process that is forked
import pyarrow.parquet  # noqa: F401
import pytest
import torch  # noqa: F401

from testbed import Run
from testbed.errors import HostError
from testbed.run.prepare import Request
from testbed.run.simulated import SimulationResources
from testbed.scenario import Override, load
from testbed.studies.run_processes import StudyRunRequest, run_processes


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


def test_a_run_of_a_forked_process_has_its_log_and_its_status(
    tmp_path: Path, write_study: Any
) -> None:
    write_study()
    asked = Request[Any](
        load(tmp_path / "base.yaml", overrides=[Override.parse("stop.updates=4")]),
        beside=tmp_path,
        runs=tmp_path / "runs",
        name="r",
        argv=(),
        environment={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        home=tmp_path,
        now=0,
    )
    run = StudyRunRequest(asked, (), resumes=False, simulated=SimulationResources(processes=1))
    with run_processes(os.environ, forks=True) as starter, tempfile.TemporaryFile() as log:
        first = starter.start(run, log)
        assert first.wait() == 0
        second = starter.start(run, log)  # its folder exists
        assert second.wait() == 2
        log.seek(0)
        assert "found r, expected a name that no run uses" in log.read().decode()
    assert Run(tmp_path / "runs/r").summary["updates"]["total"] == 4


def children(pid: int) -> set[int]:
    return {int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
