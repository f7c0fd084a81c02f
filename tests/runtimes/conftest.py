"""A real run to launch nodes in, for every runtime."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from accounts import Account, account
from polling import LONGEST_SECONDS, wait_until

from testbed.errors import HostError, NodeError
from testbed.host.hierarchies import find_hierarchies
from testbed.host.process import Process
from testbed.host.users import Users, find_users
from testbed.plan.written import plan_text
from testbed.run.agents import connect as connect_agents
from testbed.run.follow import run_command, running_nodes
from testbed.run.runtime import drivers
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.launch import Exit, LaunchSpec, Mount
from testbed.runtimes.agent.settings import Template
from testbed.runtimes.base import ContainerSpec, Lifeline, RuntimeDriver, Start, container_name
from testbed.runtimes.docker.driver import DockerDriver
from testbed.runtimes.docker.engine import connect
from testbed.runtimes.docker.image import check_image
from testbed.runtimes.lxc.driver import LxcDriver
from testbed.runtimes.native.driver import NativeDriver
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import HostSpec, NetworkSpec, NodeSpec, Plan

ENTRIES = Path(__file__).parent
PACKAGE_ROOT = ENTRIES.parents[1]
MOUNTED = Path("/run/testbed/entries")
"""Where the roles of the tests are in nodes that do not see the host's file system."""


DRIVERS: Mapping[str, RuntimeDriver] = drivers()
NEEDS = {
    "native": pytest.mark.namespaces,
    "docker": pytest.mark.docker,
    "lxc": pytest.mark.namespaces,
}
PODMAN = pytest.param("podman", marks=(pytest.mark.docker, pytest.mark.root))
"""The runtime docker, with Podman as its engine."""

HOSTS = pytest.param("hosts", marks=(pytest.mark.docker, pytest.mark.root, pytest.mark.nightly))
"""The runtime docker, with every other node on another host, whose pids are not this host's."""


@dataclass(frozen=True)
class Spread(DockerDriver):
    """The driver of runs over two hosts."""

    hosts: tuple[HostSpec, ...] = ()


@dataclass(frozen=True)
class ProcessThere:
    """The first process of a container on another host, where pids are others."""

    engine: str
    container: str

    def alive(self) -> bool:
        from docker.errors import NotFound

        with connect(self.engine) as client, suppress(NotFound):
            return bool(client.inspect_container(self.container)["State"]["Running"])
        return False


def host_of(node: str, hosts: Sequence[HostSpec]) -> HostSpec | None:
    """The host of a node by its number; None for a run on this one."""
    index = int(node[1:]) if node.startswith("w") else 0
    return hosts[index % len(hosts)] if hosts else None


def process_of(driver: Any, folder: RunFolder, node: str, pid: int) -> Process | ProcessThere:
    """The process of a node with a pid on its host."""
    host = host_of(node, getattr(driver, "hosts", ()))
    if host is None or host.here:
        return Process.of(pid)
    return ProcessThere(host.engine, container_name(folder.name, node))


@dataclass
class LiveRun:
    """A started run, and shortcuts for what tests do with it."""

    driver: RuntimeDriver
    folder: RunFolder
    lifeline: Lifeline
    client: AgentClient
    plan: Plan

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
            part="server" if name == "ps" else "client",
        )
        return replace(node, **changes)

    def is_here(self, node: str) -> bool:
        """Whether it is on this host."""
        host = host_of(node, self.plan.hosts)
        return host is None or host.here

    def another_client(self) -> AgentClient:
        return connect_agents(self.plan, self.folder, deadline=time.monotonic() + 5)

    def process(self, node: str, pid: int) -> Process | ProcessThere:
        """The process of a launched node."""
        return process_of(self.driver, self.folder, node, pid)

    def ended(self) -> bool:
        """Whether the agent has ended."""
        try:
            self.client.running()
        except NodeError:
            return True
        return False

    def launch(self, node: str | NodeSpec, entry: str, **options: Any) -> int:
        return self.client.launch(self.asked(node, entry, **options))

    def asked(self, node: str | NodeSpec, entry: str, **options: Any) -> LaunchSpec:
        """The request to the agent; the container exists already where the runtime makes it."""
        spec = self.node(node) if isinstance(node, str) else node
        if host := host_of(spec.name, self.plan.hosts):
            spec = replace(spec, host=host.name)
        options.setdefault("arguments", {})
        if "container" not in options:
            options["container"] = self.contain(spec, options.get("mounts", ()))
        log = self.folder.log(spec.name)
        return LaunchSpec(node=spec, network=NetworkSpec(), entry=entry, log=log, **options)

    def contain(self, node: NodeSpec, mounts: tuple[Mount, ...]) -> int | None:
        """Have the runtime create the container, where the agent does not."""
        plan = replace(self.plan, nodes=(node,))
        entries = self.folder.path / "entries" if plan.hosts else ENTRIES
        spec = ContainerSpec(node, (*mounts, Mount(entries, MOUNTED)), self.folder.log(node.name))
        return self.driver.contain(plan, self.folder, [spec]).get(node.name)

    def condition(self, name: str) -> str:
        """State of a node: running, frozen or ``ended``."""
        state = running_nodes(self.folder).get(name)
        return "ended" if state is None else state.condition

    def exec(self, name: str, *command: str) -> int:
        """Run a command in a node."""
        return run_command(self.driver, self.folder, name, command)

    def run(self, node: str | NodeSpec, entry: str, **options: Any) -> tuple[int, str]:
        """Launch a node, wait for its end, and return its status and output."""
        self.launch(node, entry, **options)
        name = node if isinstance(node, str) else node.name
        return self.wait_for_exit(name).status, self.output(name)

    def output(self, name: str) -> str:
        self.client.copy_logs()
        return self.folder.log(name).read_text()

    def wait_for_exit(self, name: str) -> Exit:
        deadline = time.monotonic() + LONGEST_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            for ended in self.client.exits(left):
                if ended.node == name:
                    return ended
        raise AssertionError(f"{name} has not ended in time")

    def wait_for_output(self, name: str, text: str) -> None:
        wait_until(lambda: text in self.output(name))


StartRun = Callable[..., AbstractContextManager[LiveRun]]


@contextmanager
def live_run(
    driver: RuntimeDriver, runs: Path, name: str, *, owner: int | None = None, **start: Any
) -> Iterator[LiveRun]:
    """A new run, stopped at the end of the block; its folder may belong to another user."""
    plan = Plan(name, (), NetworkSpec(), "warm", {"run": name})
    text = ""
    if isinstance(driver, Spread):
        server = replace(LiveRun.node("ps"), host=driver.hosts[0].name)
        runtime = {"name": "docker", "hosts": {"name": "swarm"}}
        plan = replace(plan, nodes=(server,), runtime=runtime, hosts=driver.hosts)
        text = plan_text(plan)
    folder = RunFolder.create(
        runs, name, scenario="test", text="name: test\n", classes=(), now=time.time(), plan=text
    )
    if owner is not None:
        for path in (folder.path, *folder.path.rglob("*")):
            os.chown(path, owner, owner)
    entries = ENTRIES
    if plan.hosts:  # they get a copy of the run's folder
        entries = folder.path / "entries"
        shutil.copytree(ENTRIES, entries, ignore=shutil.ignore_patterns("__pycache__"))
    start.setdefault("environment", {"PYTHONPATH": f"{PACKAGE_ROOT}:{entries}:{MOUNTED}"})
    start.setdefault("reads", () if plan.hosts else (ENTRIES,))
    start.setdefault("template", Template(preload=("entries", "testbed.runtimes.agent.probe")))
    with (
        driver.start(plan, folder, Start(**start)) as lifeline,
        connect_agents(plan, folder, deadline=time.monotonic() + 10, controls=True) as client,
    ):
        yield LiveRun(driver, folder, lifeline, client, plan)


@pytest.fixture(scope="session")
def users() -> Users:
    """The source of node uids for the user who runs the tests."""
    return find_users()


@pytest.fixture
def no_cpuset() -> str:
    """Why the kernel cannot bind nodes to CPUs; empty if it can."""
    found = any("cpuset" in tree.controllers for tree in find_hierarchies())
    return "" if found else "needs a kernel with the controller cpuset (CONFIG_CPUSETS)"


@pytest.fixture(scope="module")
def driver() -> RuntimeDriver:
    """The runtime that a module tests; in test_contract.py and test_starts.py, each of them."""
    return NativeDriver()


@pytest.fixture(
    scope="module",
    params=[*(pytest.param(name, marks=NEEDS[name]) for name in DRIVERS), PODMAN, HOSTS],
)
def kind(request: pytest.FixtureRequest) -> str:
    """Every runtime in turn, Docker also with another engine and with two hosts."""
    return str(request.param)


@pytest.fixture(scope="module")
def runtime(kind: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The runtime of that kind; skipped where the host lacks what it needs."""
    if kind in ("docker", "hosts"):
        request.getfixturevalue("image")
    if kind == "lxc":
        request.getfixturevalue("lxc")
    if kind not in ("podman", "hosts"):
        yield kind
        return
    address = request.getfixturevalue("podman") if kind == "podman" else swarm_of(request)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        yield "docker"


@pytest.fixture(scope="module")
def every_driver(kind: str, runtime: str, request: pytest.FixtureRequest) -> RuntimeDriver:
    """The driver of that runtime."""
    if kind != "hosts":
        return DRIVERS[runtime]
    here = HostSpec("here", "10.88.0.1", "", here=True)
    there = HostSpec("there", "10.88.0.2", swarm_of(request)[1], controller=here.name)
    return Spread(hosts=(here, there))


def swarm_of(request: pytest.FixtureRequest) -> list[str]:
    """The addresses of two engines, which are started only for those who need them."""
    engines: list[str] = request.getfixturevalue("swarm")
    return engines


@pytest.fixture(scope="session")
def lxc() -> LxcDriver:
    """The driver of LXC containers; tests that need it are skipped without LXC."""
    driver = LxcDriver()
    try:
        driver.check(())
    except HostError as lacking:
        pytest.skip(f"needs LXC: {lacking}")
    return driver


@pytest.fixture(scope="session")
def image() -> str:
    """The image of the Docker nodes; tests that need it are skipped without one."""
    with connect() as engine:
        try:
            return check_image(engine)
        except HostError as lacking:
            pytest.skip(f"needs the image: {lacking}")


@pytest.fixture
def processes_of(driver: RuntimeDriver) -> Callable[[RunFolder], list[Process | ProcessThere]]:
    """Returns the processes of the running nodes of a run."""

    def found(folder: RunFolder) -> list[Process | ProcessThere]:
        states = running_nodes(folder).values()
        return [process_of(driver, folder, one.node, one.pid or 0) for one in states]

    return found


@pytest.fixture
def start_run(driver: RuntimeDriver, tmp_path: Path) -> StartRun:
    def start(**options: Any) -> AbstractContextManager[LiveRun]:
        return live_run(driver, tmp_path, f"test-{tmp_path.name}"[:60], **options)

    return start


@pytest.fixture(scope="module")
def live(driver: RuntimeDriver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRun]:
    """A run shared by all tests of a module; each test uses its own nodes."""
    runs = tmp_path_factory.mktemp("runs")
    with live_run(driver, runs, f"shared-{runs.parent.name}-{runs.name}") as run:
        yield run


@pytest.fixture(scope="module")
def seen_by(live: Any) -> Callable[[str], dict[str, Any]]:
    """What a node launched in a mode finds in its container."""

    @cache
    def look(mode: str) -> dict[str, Any]:
        name = {"warm": "w7", "cold": "w8"}[mode]
        secret, extra = {"arguments": {"token": "secret"}}, {"environment": {"EXTRA": "1"}}
        entry = "testbed.runtimes.agent.probe:main"
        status, output = live.run(name, entry, mode=mode, **secret, **extra)
        assert status == 0, output
        found: dict[str, Any] = json.loads(output)
        return found

    return look


@pytest.fixture(params=["warm", "cold"])
def seen(seen_by: Callable[[str], dict[str, Any]], request: pytest.FixtureRequest) -> Any:
    """That in each mode; not by parameters of the module, whose run would then start twice."""
    return seen_by(request.param)


@pytest.fixture
def live_in(driver: RuntimeDriver) -> Iterator[Callable[..., AbstractContextManager[LiveRun]]]:
    """Starts a run in a folder below a parent that the test chooses; removed afterwards."""
    with ExitStack() as cleanup:

        def start(where: Path, **options: Any) -> AbstractContextManager[LiveRun]:
            name = f"test-{os.getpid()}-{time.monotonic_ns()}"
            cleanup.callback(shutil.rmtree, where / name, ignore_errors=True)
            return live_run(driver, where, name, **options)

        yield start


@pytest.fixture(scope="session")
def new_account() -> Callable[..., AbstractContextManager[Account]]:
    """Makes an ordinary user; skips the test where none can be made."""
    return account


@pytest.fixture(scope="session")
def swarm() -> Iterator[list[str]]:
    """Addresses of two engines that are a Swarm, the manager's first; see SWARM_HOSTS in .ci/run.

    They have the image of this package if this host's engine has it.
    """
    tool = os.environ.get("SWARM_HOSTS")
    if not tool:
        pytest.skip("needs a command that starts several engines: SWARM_HOSTS")
    images = []
    with suppress(HostError), connect() as engine:
        images.append(check_image(engine))
    try:
        up = subprocess.run(
            (tool, "up", "2", *images), check=True, stdout=subprocess.PIPE, text=True
        )
        yield [line.split()[1] for line in up.stdout.splitlines()]
    finally:
        subprocess.run((tool, "down"), check=True, capture_output=True)
