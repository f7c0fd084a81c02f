"""The process that forks those of a sweep's runs."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError
from testbed.run.prepare import Request
from testbed.run.simulated import SimulationResources
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


def children(pid: int) -> set[int]:
    return {int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
