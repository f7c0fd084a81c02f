"""A real run to launch nodes in, for every runtime."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError, NodeError
from testbed.host.hierarchies import find_hierarchies
from testbed.host.users import Users, find_users
from testbed.run.follow import run_command, running_nodes
from testbed.run.runtime import drivers
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.launch import Exit, LaunchSpec, Mount
from testbed.runtimes.agent.settings import Template
from testbed.runtimes.base import ContainerSpec, Lifeline, RuntimeDriver, Start
from testbed.runtimes.docker.engine import connect
from testbed.runtimes.docker.image import check_image
from testbed.runtimes.lxc.driver import LxcDriver
from testbed.runtimes.native.driver import NativeDriver
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import NetworkSpec, NodeSpec, Plan

ENTRIES = Path(__file__).parent
PACKAGE_ROOT = ENTRIES.parents[1]
MOUNTED = Path("/run/testbed/entries")
"""Where the roles of the tests are in nodes that do not see the host's file system."""

WAIT_SECONDS = 180.0
PROJECT = ("testbed", "scenarios", "tests", "pyproject.toml")
SYSTEM_PYTHON = Path("/usr/bin/python3")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def wait_until(look: Callable[[], Any]) -> Any:
    """Poll until the result is true, and return it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.005)
    return found


DRIVERS: Mapping[str, RuntimeDriver] = drivers()
NEEDS = {
    "native": pytest.mark.namespaces,
    "docker": pytest.mark.docker,
    "lxc": pytest.mark.namespaces,
}
PODMAN = pytest.param("podman", marks=(pytest.mark.docker, pytest.mark.root))
"""The runtime docker, with Podman as its engine."""


@dataclass
class LiveRun:
    """A started run, and shortcuts for what tests do with it."""

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
            part="server" if name == "ps" else "client",
        )
        return replace(node, **changes)

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
        options.setdefault("arguments", {})
        if "container" not in options:
            options["container"] = self.contain(spec, options.get("mounts", ()))
        log = self.folder.log(spec.name)
        return LaunchSpec(node=spec, network=NetworkSpec(), entry=entry, log=log, **options)

    def contain(self, node: NodeSpec, mounts: tuple[Mount, ...]) -> int | None:
        """Have the runtime create the container, where the agent does not."""
        plan = Plan(self.folder.name, (node,), NetworkSpec(), "warm", {})
        spec = ContainerSpec(node, (*mounts, Mount(ENTRIES, MOUNTED)), self.folder.log(node.name))
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
        return self.folder.log(name).read_text()

    def wait_for_exit(self, name: str) -> Exit:
        deadline = time.monotonic() + WAIT_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            for ended in self.client.exits(left):
                if ended.node == name:
                    return ended
        raise AssertionError(f"{name} has not ended in time")

    def wait_for_output(self, name: str, text: str) -> None:
        wait_until(lambda: text in self.output(name))


StartRun = Callable[..., AbstractContextManager[LiveRun]]


@contextmanager
def live_run(driver: RuntimeDriver, runs: Path, name: str, **start: Any) -> Iterator[LiveRun]:
    """A new run, stopped at the end of the block."""
    folder = RunFolder.create(
        runs, name, scenario="test", text="name: test\n", classes=(), now=time.time()
    )
    start.setdefault("environment", {"PYTHONPATH": f"{PACKAGE_ROOT}:{ENTRIES}:{MOUNTED}"})
    start.setdefault("reads", (ENTRIES,))
    start.setdefault("template", Template(preload=("entries", "testbed.runtimes.agent.probe")))
    plan = Plan(name, (), NetworkSpec(), "warm", {"run": name})
    with driver.start(plan, folder, Start(**start)) as lifeline:
        socket_path = folder.control / "agent.sock"
        with AgentClient.connect(socket_path, deadline=time.monotonic() + 10) as client:
            yield LiveRun(driver, folder, lifeline, client)


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
    """The runtime that a module tests; in test_contract.py, each of them."""
    return NativeDriver()


@pytest.fixture(
    scope="module",
    params=[*(pytest.param(name, marks=NEEDS[name]) for name in DRIVERS), PODMAN],
)
def runtime(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every runtime in turn, and its engines; skipped where the host lacks what it needs."""
    if request.param == "docker":
        request.getfixturevalue("image")
    if request.param == "lxc":
        request.getfixturevalue("lxc")
    if request.param != "podman":
        yield str(request.param)
        return
    address = request.getfixturevalue("podman")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        yield "docker"


@pytest.fixture(scope="module")
def every_driver(runtime: str) -> RuntimeDriver:
    """The driver of that runtime."""
    return DRIVERS[runtime]


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
    from testbed.runtimes.docker.engine import connect
    from testbed.runtimes.docker.image import check_image

    with connect() as engine:
        try:
            return check_image(engine)
        except HostError as lacking:
            pytest.skip(f"needs the image: {lacking}")


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


@pytest.fixture(scope="module", params=["warm", "cold"])
def seen(live: Any, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Entries that a node finds in its container."""
    name = {"warm": "w7", "cold": "w8"}[request.param]
    status, output = live.run(
        name,
        "testbed.runtimes.agent.probe:main",
        arguments={"token": "secret"},
        mode=request.param,
        environment={"EXTRA": "1"},
    )
    assert status == 0, output
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.fixture
def live_in(driver: RuntimeDriver) -> Iterator[Callable[..., AbstractContextManager[LiveRun]]]:
    """Starts a run in a folder below a parent that the test chooses; removed afterwards."""
    with ExitStack() as cleanup:

        def start(where: Path, **options: Any) -> AbstractContextManager[LiveRun]:
            name = f"test-{os.getpid()}-{time.monotonic_ns()}"
            cleanup.callback(shutil.rmtree, where / name, ignore_errors=True)
            return live_run(driver, where, name, **options)

        yield start


@dataclass(frozen=True)
class Account:
    """An ordinary user.

    Attributes:
        name: its name.
        home: its home folder, with a copy of the project in it.
    """

    name: str
    home: Path

    @property
    def python(self) -> str:
        """The user's Python interpreter."""
        return str(self.home / ".venv/bin/python")

    def command(self, *words: str) -> list[str]:
        """The prefix with which root runs a command as this user, without root's environment."""
        become = ["setpriv", f"--reuid={self.name}", f"--regid={self.name}", "--init-groups"]
        clean = ["env", "-i", f"HOME={self.home}", f"USER={self.name}", "PATH=/usr/bin:/bin"]
        return [*become, *clean, "LANG=C.UTF-8", *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command as this user in its home."""
        return subprocess.run(
            self.command(*words), cwd=self.home, capture_output=True, text=True, check=False
        )


def missing() -> str:
    """Why no such user can be created; empty if one can."""
    if lacking := [tool for tool in ("useradd", "userdel", "setpriv") if not shutil.which(tool)]:
        return f"needs {', '.join(lacking)}"
    show = "import sys; print('{0.major}.{0.minor}'.format(sys.version_info))"
    found = subprocess.run([SYSTEM_PYTHON, "-c", show], capture_output=True, text=True, check=False)
    if found.stdout.strip() != VERSION:
        return f"needs {SYSTEM_PYTHON} to be Python {VERSION}, whose packages the test lends to it"
    packages = Path(sysconfig.get_path("purelib"))
    closed = [str(folder) for folder in packages.parents if not folder.stat().st_mode & 0o001]
    return f"needs {packages} to be open to everybody: chmod o+x {closed[0]}" if closed else ""


def missing_ranges() -> str:
    """Why a user gets no subordinate uids; empty if it gets them."""
    lacking = [tool for tool in ("newuidmap", "newgidmap") if not shutil.which(tool)]
    return f"needs {' and '.join(lacking)} (Debian, Ubuntu: apt install uidmap)" if lacking else ""


@contextmanager
def account(*, ranges: bool) -> Iterator[Account]:
    """A user, with or without subordinate uids; removed afterwards with all its files.

    Its interpreter is the system's, in a separate environment that shares the packages of the
    environment running the tests: installing them again would take minutes.
    """
    if reason := missing() or (missing_ranges() if ranges else ""):
        pytest.skip(reason)
    where = Path(tempfile.mkdtemp(prefix="home-", dir="/var/tmp"))
    name = f"tb{os.getpid() % 100000}{'r' if ranges else 'o'}"
    where.chmod(0o755)
    made = Account(name, where / name)
    # A system account gets no subordinate uids.
    kind = ["--user-group"] if ranges else ["--system", "--user-group"]
    subprocess.run(["useradd", *kind, "--create-home", "--home-dir", made.home, name], check=True)
    try:
        _furnish(made)
        yield made
    finally:
        subprocess.run(["userdel", "--remove", name], capture_output=True, check=True)
        shutil.rmtree(where)


def _furnish(made: Account) -> None:
    made.home.chmod(0o700)
    for name in PROJECT:
        source, target = PACKAGE_ROOT / name, made.home / name
        if source.is_dir():
            shutil.copytree(source, target)  # including compiled files
        else:
            shutil.copy(source, target)
    subprocess.run(["chown", "-R", f"{made.name}:{made.name}", made.home], check=True)
    venv = made.run(str(SYSTEM_PYTHON), "-m", "venv", "--without-pip", ".venv")
    assert venv.returncode == 0, venv.stderr
    lent = made.home / f".venv/lib/python{VERSION}/site-packages/lent.pth"
    lent.write_text(f"{made.home}\n{sysconfig.get_path('purelib')}\n")


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
    up = subprocess.run((tool, "up", "2", *images), check=True, capture_output=True, text=True)
    yield [line.split()[1] for line in up.stdout.splitlines()]
    subprocess.run((tool, "down"), check=True, capture_output=True)
