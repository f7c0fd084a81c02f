"""A run that cannot be started, in every runtime."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError, NodeError
from testbed.run.interrupts import Interrupted, Interrupts
from testbed.runtimes.agent.settings import Template
from testbed.runtimes.base import RuntimeDriver, Start
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import NetworkSpec, Plan


@pytest.fixture(scope="module")
def driver(every_driver: RuntimeDriver) -> RuntimeDriver:
    return every_driver


def test_a_run_cannot_be_started_twice(driver: Any, start_run: Any) -> None:
    with start_run() as run:
        with pytest.raises(NodeError, match=r"is in use.*testbed down"):
            driver.start(run.plan, run.folder, Start())
        assert run.client.running() == []


def test_a_start_that_is_interrupted_leaves_nothing(driver: Any, tmp_path: Path) -> None:
    folder = RunFolder.create(
        tmp_path, f"interrupted-{os.getpid()}", scenario="s", text="", classes=(), now=0.0
    )
    plan = Plan(folder.name, (), NetworkSpec(), "warm", {})
    with Interrupts() as interrupts, pytest.raises(Interrupted):
        os.kill(os.getpid(), signal.SIGINT)  # takes effect once it is allowed
        driver.start(plan, folder, Start(waiting=interrupts.allowed))
    assert folder.name not in driver.find()
    assert not folder.alive()


def test_a_read_only_folder_is_an_error_in_one_line(driver: Any, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "missing" / "run")
    with pytest.raises(HostError, match="No such file or directory; the agent cannot be started"):
        driver.start(Plan("run", (), NetworkSpec(), "warm", {}), folder, Start())


def test_a_failing_template_reports_why(start_run: Any) -> None:
    with (
        pytest.raises(NodeError, match=r"(?s)template: exited .*No module named 'missing_module'"),
        start_run(template=Template(preload=("missing_module",))),
    ):
        pass
