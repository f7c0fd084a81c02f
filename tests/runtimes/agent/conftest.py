"""Containers of a real engine, one with an agent in it, made without the runtime's driver."""

from __future__ import annotations

import fcntl
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from polling import LONGEST_SECONDS, wait_until

import testbed
from testbed.host.environment import BASE
from testbed.host.reports import ReportPipe
from testbed.host.sockets import short_path
from testbed.host.users import Users
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.launch import Exit, LaunchSpec
from testbed.runtimes.agent.settings import AgentSettings, Template
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import NetworkSpec, NodeSpec

LABEL = "org.edge-testbed.test"
REPOSITORY = "edge-testbed"
CAPABILITIES = (
    *("SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE", "NET_ADMIN", "NET_RAW", "SETUID", "SETGID"),
    *("SETPCAP", "KILL", "CHOWN", "FOWNER", "DAC_OVERRIDE"),
)
PACKAGE = Path(testbed.__file__).parent
PACKAGE_INSIDE = Path("/opt/testbed/package")
ENTRIES = PACKAGE.parent / "tests/runtimes"
ENTRIES_INSIDE = Path("/opt/testbed/entries")
PYTHON = "/opt/testbed/bin/python"
UID = 21000


@dataclass
class ContainedRun:
    """A run with an agent in a container, and shortcuts for what tests do with it.

    Attributes:
        engine: the engine's client.
        image: of all containers.
        folder: the run's.
        capabilities: of the agent.
        preload: what its template imports.
        session: value of LABEL on all containers.
    """

    engine: Any
    image: str
    folder: RunFolder
    session: str
    capabilities: Sequence[str] = CAPABILITIES
    preload: Sequence[str] = ("entries", "testbed.runtimes.agent.probe")
    agent: Any = None
    lifeline: socket.socket | None = None
    client: AgentClient | None = None
    containers: dict[str, Any] = field(default_factory=dict)

    def start_agent(self) -> None:
        """Create the agent's container; it waits for the lifeline."""
        template = Template(preload=tuple(self.preload))
        settings = AgentSettings(self.folder.path, template, Users("root"), ())
        environment = {**BASE, "PYTHONPATH": f"{PACKAGE_INSIDE}:{ENTRIES_INSIDE}"}
        self.agent = self._create(
            f"{self.folder.name}-agent",
            [PYTHON, "-P", "-m", "testbed.runtimes.agent.contained", settings.to_json()],
            cap_add=list(self.capabilities),
            pid_mode="host",
            cgroupns="host",
            environment=environment,
            tmpfs={"/tmp": "", "/run": ""},
            volumes=[
                *self._code(),
                f"{self.folder.path}:{self.folder.path}",
                "/sys/fs/cgroup:/sys/fs/cgroup",
            ],
        )
        self.agent.start()

    def commit(self) -> None:
        """Hand over the lock, and wait until the agent is ready."""
        self.lifeline = self.connect()
        lock = os.open(self.folder.lock, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        socket.send_fds(self.lifeline, [b"commit\n"], [lock])
        os.close(lock)
        log = self.folder.log("agent")
        reports = ReportPipe(self.lifeline.fileno(), writer="the agent", log=log)
        reports.expect("ready", deadline=time.monotonic() + LONGEST_SECONDS)
        self.client = AgentClient.connect(
            self.folder.control / "agent.sock", deadline=time.monotonic() + 1
        )

    def connect(self) -> socket.socket:
        """Connect to the agent's lifeline."""
        place = self.folder.control / "lifeline.sock"
        wait_until(place.exists)
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(place) as name:
            peer.connect(name)
        return peer

    @staticmethod
    def node(name: str, **changes: Any) -> NodeSpec:
        """A node without link and limits."""
        index = int(name[1:]) if name.startswith("w") else 0
        role, part = ("ps", "server") if name == "ps" else ("worker", "client")
        node = NodeSpec(name, role, index, "default", None, None, None, 1, UID + index, part=part)
        return replace(node, **changes)

    def contain(self, node: NodeSpec, **options: Any) -> int:
        """Create and start a node's container, and return the pid of its first process."""
        log = self.folder.log(node.name)
        log.touch()
        container = self._create(
            f"{self.folder.name}-{node.name}",
            ["tail", "-n", "+1", "-F", "/run/testbed.log"],
            hostname=node.name,
            user=f"{node.uid}:{node.uid}",
            security_opt=["no-new-privileges"],
            tmpfs={"/tmp": ""},
            volumes=[*self._code(), f"{log}:/run/testbed.log:ro"],
            **options,
        )
        self.containers[node.name] = container
        container.start()
        container.reload()
        return int(container.attrs["State"]["Pid"])

    def launch(self, node: str | NodeSpec, entry: str, **options: Any) -> int:
        """Create a node's container unless one is given, and launch a role in it."""
        spec = self.node(node) if isinstance(node, str) else node
        if "container" not in options:
            options["container"] = self.contain(spec)
        options.setdefault("arguments", {})
        log = self.folder.log(spec.name)
        assert self.client is not None
        return self.client.launch(
            LaunchSpec(node=spec, network=NetworkSpec(), entry=entry, log=log, **options)
        )

    def run(self, node: str | NodeSpec, entry: str, **options: Any) -> tuple[int, str]:
        """Launch a node, wait for its end, and return its status and output."""
        self.launch(node, entry, **options)
        name = node if isinstance(node, str) else node.name
        return self.wait_for_exit(name).status, self.output(name)

    def output(self, name: str) -> str:
        """The output of a node so far."""
        return self.folder.log(name).read_text()

    def wait_for_exit(self, name: str) -> Exit:
        """Wait for a node's end and return it."""
        client = self.client
        assert client is not None

        deadline = time.monotonic() + LONGEST_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            for ended in client.exits(left):
                if ended.node == name:
                    return ended
        raise AssertionError(f"{name} has not ended in time")

    def wait_for_output(self, name: str, text: str) -> None:
        """Wait until a node has printed something."""
        wait_until(lambda: text in self.output(name))

    def state(self, name: str) -> dict[str, Any]:
        """What the engine reports about a node's container."""
        self.containers[name].reload()
        state: dict[str, Any] = self.containers[name].attrs["State"]
        return state

    def locked(self) -> bool:
        """Whether a process holds the run's lock."""
        with self.folder.lock.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def hang_up(self) -> None:
        """Close the lifeline, as the end of the controller does."""
        if self.client is not None:
            self.client.close()
        if self.lifeline is not None:
            self.lifeline.close()

    def _create(self, name: str, command: Sequence[str], **options: Any) -> Any:
        return self.engine.containers.create(
            self.image,
            list(command),
            name=name,
            network_mode="none",
            cap_drop=["ALL"],
            read_only=True,
            labels={LABEL: self.session},
            **options,
        )

    @staticmethod
    def _code() -> list[str]:
        """The current package, whatever version the image holds, and the roles of the tests."""
        return [f"{PACKAGE}:{PACKAGE_INSIDE}/testbed:ro", f"{ENTRIES}:{ENTRIES_INSIDE}:ro"]


@pytest.fixture(scope="session")
def engine() -> Iterator[Any]:
    """A client of the engine that conftest.py has found."""
    docker = pytest.importorskip("docker", reason="needs the docker package")
    client = docker.DockerClient(base_url="unix:///var/run/docker.sock", timeout=60)
    yield client
    client.close()


@pytest.fixture(scope="session")
def image(engine: Any) -> str:
    """An image with all dependencies of the package; any version of the package will do."""
    found = [tag for one in engine.images.list(REPOSITORY) for tag in one.tags]
    if not found:
        pytest.skip("needs an image of the testbed: testbed image build")
    return str(found[0])


@pytest.fixture(scope="session")
def contained_run(
    engine: Any, image: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Any]:
    """Creates runs; removes the containers they leave behind."""

    @contextmanager
    def make(*, owner: int = 0, **options: Any) -> Iterator[ContainedRun]:
        session = uuid.uuid4().hex[:12]
        folder = RunFolder.create(
            tmp_path_factory.mktemp("runs"),
            f"testbed-{session}",
            scenario="test",
            text="name: test\n",
            classes=(),
            now=time.time(),
        )
        folder.control.chmod(0o700)
        for path in (folder.path, *folder.path.rglob("*")):
            os.chown(path, owner, owner)
        run = ContainedRun(engine, image, folder, session, **options)
        with ExitStack() as cleanup:
            cleanup.callback(remove_all, engine, session)
            cleanup.callback(run.hang_up)
            run.start_agent()
            yield run

    return make


def remove_all(engine: Any, session: str) -> None:
    """Remove every container of a run."""
    for container in engine.containers.list(all=True, filters={"label": f"{LABEL}={session}"}):
        if container.status == "paused":
            container.unpause()
        container.remove(force=True)


@pytest.fixture(scope="module")
def live(contained_run: Callable[..., Any]) -> Iterator[ContainedRun]:
    """A run shared by all tests of a module; each test uses its own nodes."""
    with contained_run() as run:
        run.commit()
        yield run
