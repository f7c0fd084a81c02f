"""Docker's own failures: foreign containers, manual interference, a missing engine."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError, NodeError
from testbed.host.process import Process
from testbed.run.follow import running_nodes
from testbed.runtimes.agent.launch import Exit, Mount
from testbed.runtimes.base import ContainerSpec, Start
from testbed.runtimes.docker.containers import AGENT, FOLDER, ROLE
from testbed.runtimes.docker.driver import DockerDriver
from testbed.runtimes.docker.lifecycle import containers_of, image_of_run
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import NetworkSpec, Plan

pytestmark = pytest.mark.docker
VICTIM = Path(__file__).parents[1] / "victim.py"
ROUNDS = int(os.environ.get("SOAK_ROUNDS", "8"))
SOCKET = Path("/var/run/docker.sock")
SLEEP = {"Entrypoint": ["sleep"], "Cmd": ["600"], "HostConfig": {"NetworkMode": "none"}}
Eventually = Callable[[Callable[[], Any]], Any]


@pytest.fixture
def others(engine: Any, image: str) -> Iterator[Callable[..., str]]:
    """Creates containers of another project, which are removed after the test."""
    made: list[str] = []

    def make(name: str, **changes: Any) -> str:
        labels = {"com.docker.compose.project": "other"}
        body = {"Image": image, "Labels": labels, **SLEEP, **changes}
        made.append(engine.create_container_from_config(body, name)["Id"])
        engine.start(made[-1])
        return made[-1]

    yield make
    for identity in made:
        engine.remove_container(identity, force=True)


def _plan(folder: RunFolder) -> Plan:
    return Plan(folder.name, (), NetworkSpec(), "warm", {})


def _new_folder(runs: Path, name: str) -> RunFolder:
    runs.mkdir(exist_ok=True)
    return RunFolder.create(
        runs, name, scenario="test", text="name: test\n", classes=(), now=time.time()
    )


def test_the_engine_shows_the_output_and_identity_of_a_role(
    driver: Any, start_run: Any, engine: Any, eventually: Eventually
) -> None:
    with start_run() as run:
        run.launch("w3", "entries:wait")
        name = f"testbed-{run.folder.name}-w3"
        eventually(lambda: engine.logs(name) == b"waiting\n")
        found = engine.inspect_container(name)
        assert found["Config"]["Labels"]["org.edge-testbed.index"] == "3"
        assert found["HostConfig"]["NetworkMode"] == "none"
        assert found["State"]["Running"]
        titles, *processes = (engine.top(name)[key] for key in ("Titles", "Processes"))
        assert [row[titles.index("UID")] for row in processes[0]] == ["21003"] * 3
        run.client.signal("w3", signal.SIGKILL)
        run.wait_for_exit("w3")
        eventually(lambda: not engine.inspect_container(name)["State"]["Running"])
        assert engine.logs(name) == b"waiting\n"


def test_all_containers_are_created_or_none(driver: Any, start_run: Any, engine: Any) -> None:
    with start_run() as run:
        before = [one.name for one in containers_of(engine, run.folder)]
        nodes = [run.node(f"w{index}") for index in range(12)]
        missing = (Mount(Path("/does/not/exist"), Path("/run/testbed/data")),)
        specs = [
            ContainerSpec(node, missing if node.name == "w7" else (), run.folder.log(node.name))
            for node in nodes
        ]
        with pytest.raises(NodeError, match=r"w7: No such file or directory: /does/not/exist"):
            driver.contain(_plan(run.folder), run.folder, specs)
        assert [one.name for one in containers_of(engine, run.folder)] == before


def test_probes_use_the_image_of_the_run(start_run: Any, engine: Any, image: str) -> None:
    with start_run() as run:
        spec = ContainerSpec(run.node("w0"), (), run.folder.log("w0"))
        DockerDriver(image="edge-testbed:none").contain(_plan(run.folder), run.folder, [spec])
        assert image_of_run(engine, run.folder) == image
        name = f"testbed-{run.folder.name}"
        assert engine.inspect_container(f"{name}-w0")["Config"]["Image"] == image
        engine.remove_container(f"{name}-agent", force=True)
        with pytest.raises(NodeError, match=r"the agent of .* has ended"):
            DockerDriver().contain(_plan(run.folder), run.folder, [spec])


def test_a_name_that_has_become_free_is_not_in_use(tmp_path: Path, engine: Any, image: str) -> None:
    from docker.errors import ImageNotFound

    folder = _new_folder(tmp_path, f"moving-{os.getpid()}")
    engine.tag(image, "edge-testbed-moving", "1")
    moving = DockerDriver(image="edge-testbed-moving:1")
    try:
        with moving.start(_plan(folder), folder, Start()):
            assert image_of_run(engine, folder) == "edge-testbed-moving:1"
            engine.remove_image("edge-testbed-moving:1", force=True)
            assert image_of_run(engine, folder) == engine.inspect_image(image)["Id"]
    finally:
        with suppress(ImageNotFound):
            engine.remove_image("edge-testbed-moving:1")


def test_containers_that_are_no_longer_needed_are_removed(
    driver: Any, start_run: Any, engine: Any
) -> None:
    with start_run() as run:
        specs = [
            ContainerSpec(run.node(name), (), run.folder.log(name)) for name in ("w0", "w1", "w2")
        ]
        assert sorted(driver.contain(_plan(run.folder), run.folder, specs)) == ["w0", "w1", "w2"]
        driver.discard(run.folder, ["w0", "w2", "w9"])
        left = [one.node for one in containers_of(engine, run.folder)]
        assert left == ["agent", "w1"]


def test_a_name_used_by_a_foreign_container_is_an_error(
    driver: Any, tmp_path: Path, others: Any, engine: Any
) -> None:
    folder = _new_folder(tmp_path, f"taken-{os.getpid()}")
    name = f"testbed-{folder.name}-agent"
    theirs = others(name)
    with pytest.raises(HostError, match=rf"{name} exists, .*`docker rm -f {name}`"):
        driver.start(_plan(folder), folder, Start())
    driver.stop(folder)
    assert engine.inspect_container(theirs)["State"]["Running"]
    assert not folder.alive()


def test_a_run_of_the_same_name_in_another_folder_is_untouched(
    driver: Any, start_run: Any, tmp_path: Path
) -> None:
    with start_run() as run:
        run.launch("w0", "entries:wait")
        before = running_nodes(run.folder)
        namesake = _new_folder(tmp_path / "elsewhere", run.folder.name)
        with pytest.raises(HostError, match=rf"a run of that name is in {run.folder.path}.*--name"):
            driver.start(_plan(namesake), namesake, Start())
        driver.stop(namesake)
        assert running_nodes(namesake) == {}
        assert running_nodes(run.folder) == before


def test_a_missing_image_is_an_error(tmp_path: Path) -> None:
    folder = _new_folder(tmp_path, f"bare-{os.getpid()}")
    with pytest.raises(HostError, match=r"no image edge-testbed:none.*testbed image build"):
        DockerDriver(image="edge-testbed:none").start(_plan(folder), folder, Start())
    assert not folder.alive()


def test_containers_removed_stopped_killed_or_paused_by_hand(
    driver: Any, start_run: Any, engine: Any
) -> None:
    with start_run() as run:
        for index in range(5):
            run.launch(f"w{index}", "entries:wait")
        name = f"testbed-{run.folder.name}"
        engine.pause(f"{name}-w2")
        for node, end in (
            ("w0", partial(engine.remove_container, force=True)),
            ("w1", partial(engine.stop, timeout=5)),
            ("w4", engine.kill),
        ):
            end(f"{name}-{node}")
            assert run.wait_for_exit(node) == Exit(node, -signal.SIGKILL, container_ended=True)
        assert run.client.running() == ["w2", "w3"]
        assert [(node.node, node.condition) for node in running_nodes(run.folder).values()] == [
            *(("w2", "frozen"), ("w3", "running")),
        ]
        engine.pause(f"{name}-agent")
        run.lifeline.stop()
        assert containers_of(engine, run.folder) == []
        assert run.ended()


def test_killing_the_agents_container(
    driver: Any, start_run: Any, engine: Any, eventually: Eventually
) -> None:
    with start_run() as run:
        modes = {"w0": "warm", "w1": "cold"}
        roles = [
            Process.of(run.launch(node, "entries:wait", mode=mode)) for node, mode in modes.items()
        ]
        run.wait_for_output("w1", "waiting")
        assert run.lifeline.explain() is None
        engine.kill(f"testbed-{run.folder.name}-agent")
        eventually(lambda: not any(role.alive() for role in roles))
        eventually(run.ended)
        assert "its container was stopped, killed or removed" in str(run.lifeline.explain())
        with pytest.raises(NodeError, match="the agent has ended"):
            eventually(lambda: run.lifeline.on_hangup("keep"))
        assert running_nodes(run.folder) == {}
        run.lifeline.stop()
        assert containers_of(engine, run.folder) == []


def test_a_run_without_processes_is_an_orphan(driver: Any, start_run: Any, engine: Any) -> None:
    with start_run() as run:
        agent = f"testbed-{run.folder.name}-agent"
        engine.kill(agent)
        engine.wait(agent)
        assert run.folder not in driver.find_orphans()  # its controller lives
        run.lifeline.close()
        assert run.folder in driver.find_orphans()


def test_an_agent_asked_to_stop_ends_its_roles_itself(
    driver: Any, start_run: Any, engine: Any
) -> None:
    begun = int(time.time())
    with start_run() as run:
        run.launch("w0", "entries:wait")
        run.launch("w1", "entries:end_on_request")
        engine.pause(f"testbed-{run.folder.name}-w1")
        run.lifeline.on_hangup("keep")
        run.lifeline.close()
        driver.stop(run.folder)  # from another process: the agent is not notified
    filters = {"event": ["die"], "label": [f"{FOLDER}={run.folder.path}", f"{ROLE}={AGENT}"]}
    until = int(time.time()) + 1
    died = engine.events(since=begun, until=until, filters=filters, decode=True)
    statuses = [event["Actor"]["Attributes"]["exitCode"] for event in died]
    assert statuses == ["0"]  # 137 if the engine had killed it with its roles alive


def test_a_run_with_a_deleted_folder_can_still_be_stopped(
    driver: Any, start_run: Any, engine: Any
) -> None:
    with start_run() as run:
        role = Process.of(run.launch("w0", "entries:wait"))
        run.lifeline.on_hangup("keep")
        run.lifeline.close()
        shutil.rmtree(run.folder.path)
        assert run.folder.name in driver.find()
        assert run.folder in driver.find_orphans()
        driver.stop(run.folder)
        assert run.folder not in driver.find_orphans()
        assert containers_of(engine, run.folder) == []
        assert not role.alive()


def test_an_engine_that_is_gone_can_be_asked_again(
    tmp_path: Path, start_run: Any, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, driver = tmp_path / "docker.sock", DockerDriver()
    with start_run() as run:
        run.launch("w0", "entries:wait")
        run.lifeline.close()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{address}")  # nothing is there yet
        for ask in (lambda: driver.stop(run.folder), driver.find):
            with pytest.raises(
                HostError, match=r"No Docker engine answers .*systemctl start docker"
            ):
                ask()
        address.symlink_to(SOCKET)
        driver.stop(run.folder)
        assert run.folder.name not in driver.find()


def test_a_log_without_read_permission_for_others_is_shown(
    driver: Any, start_run: Any, engine: Any, eventually: Eventually
) -> None:
    before = os.umask(0o077)
    try:
        with start_run() as run:
            run.launch("w0", "entries:wait")
            eventually(lambda: engine.logs(f"testbed-{run.folder.name}-w0") == b"waiting\n")
    finally:
        os.umask(before)


def test_a_container_that_exits_at_once_reports_why(driver: Any, start_run: Any) -> None:
    with start_run() as run:
        node = replace(run.node("w0"), memory=None, cpu=0.02)
        log = run.folder.log("w0")
        assert driver.contain(
            _plan(run.folder), run.folder, [ContainerSpec(node, (), log)]
        ).keys() == {"w0"}
        with pytest.raises(NodeError, match="w0 is already running"):
            driver.contain(_plan(run.folder), run.folder, [ContainerSpec(node, (), log)])


EXEC = (
    "import sys\n"
    "from pathlib import Path\n"
    "from testbed.run.follow import run_command\n"
    "from testbed.runtimes.docker.driver import DockerDriver\n"
    "from testbed.telemetry.folder import RunFolder\n"
    "folder = RunFolder(Path(sys.argv[1]))\n"
    "sys.exit(run_command(DockerDriver(), folder, 'w0', sys.argv[2:]))\n"
)


def test_the_streams_of_a_command_are_forwarded(driver: Any, start_run: Any) -> None:
    text = bytes(range(32, 127)) * 20_000
    with start_run() as run:
        run.launch("w0", "entries:wait")
        command = ["sh", "-c", "cat; echo done >&2; exit 3"]
        done = subprocess.run(
            [sys.executable, "-c", EXEC, str(run.folder.path), *command],
            input=text,
            capture_output=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (3, b"done\n")
    assert done.stdout == text


def test_a_command_gets_a_terminal_if_there_is_one(
    driver: Any, start_run: Any, eventually: Eventually
) -> None:
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    said = b""

    def shows(text: bytes) -> bool:
        nonlocal said
        with suppress(BlockingIOError):
            said += os.read(ours, 65536)
        return text in said

    try:
        with start_run() as run:
            run.launch("w0", "entries:wait")
            shell = ["sh", "-c", "echo begun; read line; stty size; exit 5"]
            command = [sys.executable, "-c", EXEC, str(run.folder.path), *shell]
            termios.tcsetwinsize(theirs, (33, 101))
            with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as session:
                eventually(lambda: shows(b"begun"))
                os.write(ours, b"\r")
                eventually(lambda: shows(b"33 101"))
                assert session.wait() == 5
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.nightly
def test_killing_the_controller_at_random_moments_leaves_other_containers(
    driver: DockerDriver, tmp_path: Path, others: Any, engine: Any, eventually: Eventually
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, {ROUNDS} rounds")
    rng = random.Random(seed)
    theirs = [others(f"other-{os.getpid()}-{number}") for number in range(3)]
    for number in range(ROUNDS):
        name, detached = f"victim-{os.getpid()}-{number}", number % 2 == 1
        folder = RunFolder(tmp_path / name)
        command = [sys.executable, str(VICTIM), "docker", str(tmp_path), name]
        controller = subprocess.Popen(
            [*command, *["detached"] * detached], stdout=subprocess.DEVNULL
        )
        time.sleep(rng.uniform(0.5, 5.0))
        controller.kill()
        controller.wait()
        nodes = [node.pid for node in running_nodes(folder).values() if node.pid is not None]
        if not detached and rng.random() < 0.5:
            eventually(lambda: not folder.alive())  # noqa: B023 - at once
        driver.stop(folder)
        assert containers_of(engine, folder) == [], f"round {number}"
        assert name not in driver.find()
        assert not folder.alive()
        assert not [pid for pid in nodes if name.encode() in _command_line(pid)]
        assert name not in Path("/proc/mounts").read_text()
    assert all(engine.inspect_container(one)["State"]["Running"] for one in theirs)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""
