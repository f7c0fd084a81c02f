"""Whichever process is killed, at any moment, nothing remains that was not there before."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError, NodeError
from testbed.host.cgroups import RunGroups, find_runs
from testbed.host.hierarchies import find_delegated, find_hierarchies
from testbed.host.process import name_of
from testbed.host.users import Users
from testbed.run.follow import running_nodes
from testbed.runtimes.agent.settings import AGENT_MODULE, AgentSettings, Template
from testbed.runtimes.base import Start
from testbed.runtimes.native.driver import NativeDriver
from testbed.runtimes.native.lifeline import read_record
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import NetworkSpec, Plan

pytestmark = pytest.mark.namespaces
CONTROLLER = Path(__file__).parent / "controller.py"
ROUNDS = int(os.environ.get("SOAK_ROUNDS", "10"))
KINDS = ("ipc", "mnt", "net", "pid", "user", "uts")
Eventually = Callable[[Callable[[], Any]], Any]


@dataclass
class Controller:
    """A controller in its own process."""

    process: subprocess.Popen[bytes]
    folder: RunFolder
    eventually: Eventually
    held: ExitStack = field(default_factory=ExitStack)

    def wait_until_up(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"up\n", self.log()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        path = self.folder.log("agent")
        return path.read_text() if path.exists() else ""

    def members(self) -> list[int]:
        """Processes whose command line or control group names the run, or in a namespace with one.

        That is a user namespace: the run of an ordinary user has its own.
        """
        needle = self.folder.name.encode()
        named = [pid for pid in _pids() if needle in _read(pid, "cmdline") + _read(pid, "cgroup")]
        runs = {_user_namespace(pid) for pid in named} - {_user_namespace("self"), ""}
        return [pid for pid in _pids() if pid in named or _user_namespace(pid) in runs]

    def namespaces(self) -> set[str]:
        """The members' namespaces that this process is not in.

        They are held open so that the kernel does not reuse their numbers for a concurrent run.
        """
        found: set[str] = set()
        for pid in self.members():
            found |= _namespaces(pid, self.held)
        return found - _namespaces("self")

    def assert_nothing_is_left(self, namespaces: set[str], *, own_stop: bool) -> None:
        if own_stop:
            NativeDriver().stop(self.folder)
        else:
            self.eventually(lambda: not self.folder.alive())
        assert self.members() == []
        assert not namespaces & {name for pid in _pids() for name in _namespaces(pid)}
        assert self.folder.name not in NativeDriver().find()
        for tree in find_hierarchies() if os.geteuid() == 0 else find_delegated():
            assert not (tree.root / "testbed" / self.folder.name).exists()
        assert self.folder.name not in Path("/proc/self/mountinfo").read_text()
        assert not self.folder.alive()


def _pids() -> list[int]:
    """All processes except zombies."""
    found = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in found if b") Z " not in _read(pid, "stat")]


def _read(pid: int, name: str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def _namespaces(pid: int | str, held: ExitStack | None = None) -> set[str]:
    found = set()
    for kind in KINDS:
        link = f"/proc/{pid}/ns/{kind}"
        with suppress(OSError):
            if held is not None:
                held.callback(os.close, os.open(link, os.O_RDONLY | os.O_CLOEXEC))
            found.add(os.readlink(link))  # noqa: PTH115 - not a path
    return found


def has_groups() -> bool:
    return bool(find_hierarchies() if os.geteuid() == 0 else find_delegated())


def _user_namespace(pid: int | str) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/user")  # noqa: PTH115 - not a path
    return ""


@pytest.fixture
def control(tmp_path: Path, eventually: Eventually) -> Iterator[Callable[..., Controller]]:
    started: list[Controller] = []

    def start(step: str, *options: str) -> Controller:
        name = f"death-{os.getpid()}-{time.monotonic_ns()}"
        command = [sys.executable, str(CONTROLLER), str(tmp_path), name, step, *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(Controller(process, RunFolder(tmp_path / name), eventually))
        return started[-1]

    yield start
    for controller in started:
        controller.kill()
        assert controller.process.stdout is not None
        controller.process.stdout.close()
        controller.held.close()
        NativeDriver().stop(controller.folder)


@pytest.mark.parametrize("step", ["spawned", "recorded", "ready", "half launched"])
@pytest.mark.parametrize("own_stop", [True, False], ids=["down", "by itself"])
def test_the_controller_kills_itself_at_a_step(
    control: Callable[..., Controller], step: str, own_stop: bool
) -> None:
    controller = control(step)
    assert controller.process.wait() == -signal.SIGKILL
    controller.assert_nothing_is_left(controller.namespaces(), own_stop=own_stop)


@pytest.mark.parametrize("hundredths", [0, 2, 5, 10, 15, 20, 25, 30])
def test_the_controller_is_killed_while_the_agent_comes_up(
    control: Callable[..., Controller], hundredths: int
) -> None:
    """The agent ends then, not once it is ready: it never answers at its socket."""
    controller = control(f"after {hundredths / 100}")
    assert controller.process.wait() == -signal.SIGKILL
    controller.assert_nothing_is_left(controller.namespaces(), own_stop=False)
    assert hundredths > 10 or not controller.folder.agent_socket.exists()


@pytest.mark.parametrize("own_stop", [True, False], ids=["down", "by itself"])
def test_the_controller_is_killed_with_a_frozen_worker(
    control: Callable[..., Controller], users: Any, own_stop: bool
) -> None:
    controller = control("up")
    controller.wait_until_up()
    namespaces = controller.namespaces()
    assert len(namespaces) == 5 * (1 + 4) + users.namespace
    controller.kill()
    controller.assert_nothing_is_left(namespaces, own_stop=own_stop)


def test_the_agent_is_killed(control: Callable[..., Controller]) -> None:
    controller = control("up")
    controller.wait_until_up()
    namespaces = controller.namespaces()
    agent = read_record(controller.folder)
    assert agent is not None
    agent.kill()
    controller.kill()
    controller.assert_nothing_is_left(namespaces, own_stop=True)


def test_a_run_with_a_deleted_folder_can_still_be_stopped(
    control: Callable[..., Controller],
) -> None:
    controller = control("up", "detached")
    controller.wait_until_up()
    namespaces = controller.namespaces()
    shutil.rmtree(controller.folder.path)
    controller.kill()
    assert controller.folder.name in NativeDriver().find()
    controller.assert_nothing_is_left(namespaces, own_stop=True)


def test_a_stop_waits_for_a_run_with_a_deleted_folder_that_is_ending(
    control: Callable[..., Controller],
) -> None:
    controller = control("up", "detached")
    controller.wait_until_up()
    namespaces = controller.namespaces()
    agent = read_record(controller.folder)
    assert agent is not None
    shutil.rmtree(controller.folder.path)
    controller.kill()
    agent.kill()
    controller.assert_nothing_is_left(namespaces, own_stop=True)


def test_an_unresponsive_controller_is_reported_with_how_to_end_it(
    control: Callable[..., Controller],
) -> None:
    controller = control("up")
    controller.wait_until_up()
    namespaces = controller.namespaces()
    pid = controller.process.pid
    controller.process.send_signal(signal.SIGSTOP)
    with pytest.raises(NodeError) as stuck:
        NativeDriver(stop_seconds=3.0).stop(controller.folder)
    assert stuck.value.message == (
        f"{controller.folder.name} has not ended after 3 s. Still running: "
        f"process {pid} ({name_of(pid)}), "
        "which started it and holds its lock."
    )
    assert stuck.value.hint == f"`kill -9 {pid}`, then `testbed down {controller.folder.name}`."
    controller.kill()
    controller.assert_nothing_is_left(namespaces, own_stop=True)


def test_a_run_of_the_same_name_in_another_folder_is_untouched(
    control: Callable[..., Controller], tmp_path: Path
) -> None:
    controller = control("up", "detached")
    controller.wait_until_up()
    before = running_nodes(controller.folder)
    (tmp_path / "elsewhere").mkdir()
    namesake = RunFolder.create(
        tmp_path / "elsewhere",
        controller.folder.name,
        scenario="test",
        text="name: test\n",
        classes=(),
        now=time.time(),
    )
    plan = Plan(namesake.name, (), NetworkSpec(), "warm", {})
    if has_groups():  # only these show the run's name on the host
        with pytest.raises(HostError, match="exists: a run of that name is active"):
            NativeDriver().start(plan, namesake, Start())
    NativeDriver().stop(namesake)
    assert running_nodes(namesake) == {}
    assert len(before) == 4
    assert running_nodes(controller.folder) == before


@pytest.mark.skipif(not has_groups(), reason="needs control groups")
def test_the_groups_of_a_run_whose_agent_is_starting_are_untouched(tmp_path: Path) -> None:
    """It has made them, and is not in them yet."""
    starting, unknown = (RunFolder(tmp_path / one / f"starting-{os.getpid()}") for one in "ab")
    trees = find_hierarchies() if os.geteuid() == 0 else find_delegated()
    settings = AgentSettings(starting.path, Template(), Users("root"), trees)
    waiting = "import sys; sys.stdin.read()"
    command = [sys.executable, "-c", waiting, AGENT_MODULE, settings.to_json()]
    groups = RunGroups(starting.name, trees)
    with subprocess.Popen(command, stdin=subprocess.PIPE) as agent:
        assert agent.stdin is not None
        groups.create()
        NativeDriver().stop(unknown)
        assert starting.name in find_runs(trees)
        agent.stdin.close()
    NativeDriver().stop(unknown)
    assert starting.name not in find_runs(trees)


@pytest.mark.slow
def test_the_controller_is_killed_at_random_moments(control: Callable[..., Controller]) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, {ROUNDS} rounds")
    rng = random.Random(seed)
    for number in range(ROUNDS):
        detached = number % 2 == 1
        controller = control("up", *["detached"] * detached)
        time.sleep(rng.uniform(0.1, 1.2))
        controller.kill()
        own_stop = detached or rng.random() < 0.5  # a detached run does not end by itself
        controller.assert_nothing_is_left(controller.namespaces(), own_stop=own_stop)
