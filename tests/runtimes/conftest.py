"""A real run to launch nodes in, for every runtime."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from testbed.agent.client import AgentClient
from testbed.agent.launch import Exit, Launch
from testbed.runtimes.base import Lifeline, RuntimeDriver, Start, Template
from testbed.runtimes.native import NativeDriver
from testbed.telemetry.folder import RunFolder
from testbed.topology import NetworkSpec, NodeSpec, Plan

DRIVERS: Mapping[str, Callable[[], RuntimeDriver]] = {"native": NativeDriver}
ENTRIES = Path(__file__).parent
PACKAGE_ROOT = ENTRIES.parents[1]
WAIT_SECONDS = 20.0


def wait_until(look: Callable[[], Any]) -> Any:
    """Look again and again until there is something to see."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, "nothing to see in time"
        time.sleep(0.005)
    return found


@dataclass
class LiveRun:
    """A started run, and short ways to do what tests do with one."""

    driver: RuntimeDriver
    folder: RunFolder
    lifeline: Lifeline
    client: AgentClient

    @staticmethod
    def node(name: str, **changes: Any) -> NodeSpec:
        """A node without link and limits."""
        index = int(name[1:]) if name.startswith("w") else 0
        node = NodeSpec(
            name=name,
            role="ps" if name == "ps" else "worker",
            index=index,
            device_class="default",
            link=None,
            cpu=None,
            memory=None,
            cpu_weight=1,
            uid=21000 + index,
        )
        return replace(node, **changes)

    def launch(self, node: str | NodeSpec, entry: str, **options: Any) -> int:
        spec = self.node(node) if isinstance(node, str) else node
        options.setdefault("arguments", {})
        log = self.folder.log(spec.name)
        return self.client.launch(
            Launch(node=spec, network=NetworkSpec(), entry=entry, log=log, **options)
        )

    def run(self, node: str | NodeSpec, entry: str, **options: Any) -> tuple[int, str]:
        """Launch a node, wait for its end; its status and what it printed."""
        self.launch(node, entry, **options)
        name = node if isinstance(node, str) else node.name
        return self.wait_for_exit(name).status, self.output(name)

    def output(self, name: str) -> str:
        return self.driver.logs(self.folder, name).decode()

    def wait_for_exit(self, name: str) -> Exit:
        def look() -> Exit | None:
            return next((one for one in self.client.exits() if one.node == name), None)

        found: Exit = wait_until(look)
        return found

    def wait_for_output(self, name: str, text: str) -> None:
        wait_until(lambda: text in self.output(name))


StartRun = Callable[..., AbstractContextManager[LiveRun]]


@contextmanager
def live_run(driver: RuntimeDriver, runs: Path, name: str, **start: Any) -> Iterator[LiveRun]:
    """A run of its own, stopped at the end of the body."""
    folder = RunFolder.create(
        runs, name, scenario="test", text="name: test\n", classes=(), now=time.time()
    )
    start.setdefault("environment", {"PYTHONPATH": f"{PACKAGE_ROOT}:{ENTRIES}"})
    start.setdefault("template", Template(preload=("entries", "testbed.agent.probe")))
    plan = Plan(name, (), NetworkSpec(), "warm", {"run": name})
    with driver.start(plan, folder, Start(**start)) as lifeline:
        socket_path = folder.control / "agent.sock"
        with AgentClient.connect(socket_path, deadline=time.monotonic() + 10) as client:
            yield LiveRun(driver, folder, lifeline, client)


@pytest.fixture(scope="module", params=list(DRIVERS))
def driver(request: pytest.FixtureRequest) -> RuntimeDriver:
    return DRIVERS[request.param]()


@pytest.fixture
def start_run(driver: RuntimeDriver, tmp_path: Path) -> StartRun:
    def start(**options: Any) -> AbstractContextManager[LiveRun]:
        return live_run(driver, tmp_path, f"test-{tmp_path.name}"[:60], **options)

    return start


@pytest.fixture(scope="module")
def live(driver: RuntimeDriver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRun]:
    """A run that all tests of a module share; each uses nodes of its own."""
    runs = tmp_path_factory.mktemp("runs")
    with live_run(driver, runs, f"shared-{runs.parent.name}-{runs.name}") as run:
        yield run


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], Any]:
    return wait_until


@pytest.fixture
def live_in(driver: RuntimeDriver) -> Iterator[Callable[..., AbstractContextManager[LiveRun]]]:
    """Starts a run whose folder lies in a folder of the test's choice; removed afterwards."""
    with ExitStack() as cleanup:

        def start(where: Path, **options: Any) -> AbstractContextManager[LiveRun]:
            name = f"test-{os.getpid()}-{time.monotonic_ns()}"
            cleanup.callback(shutil.rmtree, where / name, ignore_errors=True)
            return live_run(driver, where, name, **options)

        yield start
