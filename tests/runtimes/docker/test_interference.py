"""Containers that a user kills or removes while the run needs them."""

from __future__ import annotations

import json
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from testbed.runtimes.base import ContainerSpec, Start
from testbed.runtimes.docker.driver import DockerDriver
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import NetworkSpec, Plan

pytestmark = pytest.mark.docker
STOPPED_SECONDS = 0.3


@pytest.mark.root
def test_a_node_whose_container_is_being_removed_gets_another(
    driver: Any, start_run: Any, engine: Any
) -> None:
    """Two clients remove it; the engine kills it through a process that is stopped for a while."""
    with start_run() as run, ThreadPoolExecutor(2) as pool:
        plan = Plan(run.folder.name, (), NetworkSpec(), "warm", {})
        spec = ContainerSpec(run.node("w0"), (), run.folder.log("w0"))
        pid = driver.contain(plan, run.folder, [spec])["w0"]
        shim = parent_of(pid)
        os.kill(shim, signal.SIGSTOP)
        removals = [pool.submit(driver.discard, run.folder, ["w0"]) for _ in range(2)]
        wake = threading.Timer(STOPPED_SECONDS, os.kill, (shim, signal.SIGCONT))
        wake.start()
        wait(removals, return_when=FIRST_COMPLETED)
        assert driver.contain(plan, run.folder, [spec])["w0"] != pid
        wake.join()
        for removal in removals:
            removal.result()
        name = f"testbed-{run.folder.name}-w0"
        assert engine.inspect_container(name)["State"]["Running"]


def test_limits_changed_by_another_client_are_noticed_once(
    driver: Any, start_run: Any, engine: Any
) -> None:
    with start_run() as run:
        for name in ("w0", "w1"):
            run.launch(run.node(name, cpu=0.5), "entries:wait")
        assert run.client.limit_changes() == []
        engine.update_container(f"testbed-{run.folder.name}-w1", cpu_quota=20_000)
        (changed,) = run.client.limit_changes()
        assert changed.node == "w1"
        assert changed.changes in (
            ("cpu.cfs_quota_us: 50000 -> 20000",),
            ("cpu.max: 50000 100000 -> 20000 100000",),
        )
        assert run.client.limit_changes() == []


def test_a_run_uses_the_image_it_has_recorded_after_its_name_was_given_to_another(
    driver: Any, tmp_path: Path, engine: Any, image: str
) -> None:
    name = f"edge-testbed-moved-{os.getpid()}"
    folder = RunFolder.create(tmp_path, name, scenario="s", text="", classes=(), now=0.0)
    recorded = driver.check(())
    assert recorded == {"nodes": engine.inspect_image(image)["Id"]}
    folder.environment.write_text(json.dumps({"images": recorded}))
    container = engine.create_container(image)["Id"]
    other = engine.commit(container, repository=name, tag="1")["Id"]  # of the same sources
    try:
        assert DockerDriver(f"{name}:1").check(()) == {"nodes": other}
        with DockerDriver(f"{name}:1").start(
            Plan(name, (), NetworkSpec(), "warm", {}), folder, Start()
        ):
            agent = engine.inspect_container(f"testbed-{name}-agent")
            assert agent["Image"] == recorded["nodes"] != other
    finally:
        engine.remove_container(container)
        engine.remove_image(f"{name}:1")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
