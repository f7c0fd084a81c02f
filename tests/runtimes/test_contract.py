"""The contract of every runtime. A new one is listed in conftest.DRIVERS and tested here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import NodeError
from testbed.host.environment import BASE, agent_environment
from testbed.run.follow import running_nodes
from testbed.runtimes.agent.launch import Mount
from testbed.runtimes.agent.logs import LOG_BYTES, NOTICE, TAIL_BYTES, is_full
from testbed.runtimes.base import RuntimeDriver
from testbed.runtimes.docker.containers import HOST_LIST
from testbed.runtimes.docker.driver import DockerDriver
from testbed.runtimes.native.driver import NativeDriver
from testbed.telemetry.folder import RunFolder

VICTIM = Path(__file__).parent / "victim.py"


@pytest.fixture(scope="module")
def driver(every_driver: RuntimeDriver) -> RuntimeDriver:
    return every_driver


@pytest.mark.parametrize("mode", ["warm", "cold"])
def test_a_node_runs_its_role_and_reports_its_exit_status(live: Any, mode: str) -> None:
    name = {"warm": "w100", "cold": "w101"}[mode]
    status, output = live.run(name, "entries:finish", arguments={"status": "3"}, mode=mode)
    assert (status, output) == (3, "finishing\n")
    assert name not in live.client.running()


def test_the_pid_of_a_node_is_valid_in_this_process(live: Any) -> None:
    pid = live.launch("w102", "entries:wait")
    assert Path(f"/proc/{pid}/comm").read_text() == "w102\n"
    # w100 has ended, and w99 was never launched.
    read = live.client.private_bytes(["w100", "w102", "w99"])
    assert read.keys() == {"w102"}
    assert read["w102"] > 100_000
    # A node that has ended and was reaped has no pid.
    ended = live.launch("w115", "entries:finish", arguments={"status": "0"})
    assert ended is None or ended > 1


def test_errors_of_a_role_are_logged(live: Any) -> None:
    status, output = live.run("w103", "entries:reject")
    assert (status, output) == (8, "w0: the push was refused. Ask why.\n")
    status, output = live.run("w104", "entries:crash", arguments={"missing": "y"})
    assert status == 1
    assert output.startswith("Traceback")
    assert output.endswith("KeyError: 'y'\n")
    status, output = live.run("w105", "entries:absent")
    assert (status, output) == (5, "entry point entries:absent: entries has no absent.\n")


def test_signals_reach_a_role(live: Any) -> None:
    for name, entry, number, status in (
        ("w106", "entries:wait", signal.SIGTERM, 128 + 15),  # without a handler
        ("w107", "entries:end_on_request", signal.SIGTERM, 7),
        ("w108", "entries:wait", signal.SIGKILL, -9),
    ):
        live.launch(name, entry)
        live.wait_for_output(name, "waiting")
        live.client.signal(name, number)
        assert live.wait_for_exit(name).status == status


def test_an_exit_is_reported_to_all_waiting_clients(live: Any) -> None:
    live.launch("w116", "entries:wait")
    live.wait_for_output("w116", "waiting")
    with live.another_client() as other:
        while other.exits(0.5):  # of earlier tests
            pass
        with live.another_client() as gone:
            gone.exits()  # sends the request without waiting for the answer
        assert other.exits() == []
        live.client.signal("w116", signal.SIGKILL)
        assert [(one.node, one.status) for one in other.exits(20.0)] == [("w116", -9)]
        assert live.wait_for_exit("w116").status == -9
        assert other.exits() == []


def test_a_frozen_node_makes_no_progress_until_it_is_thawed(live: Any) -> None:
    pid = live.launch("w109", "entries:end_on_request")
    live.wait_for_output("w109", "waiting")
    live.client.freeze("w109")
    (state,) = (one for one in live.client.nodes() if one.node == "w109")
    assert (state.condition, state.pid) == ("frozen", pid)
    assert live.client.frozen() == ["w109"]
    live.client.freeze("w109")
    live.client.signal("w109", signal.SIGTERM)
    assert "w109" in live.client.running()
    with pytest.raises(NodeError, match="w109 is frozen: nothing can be run in it"):
        live.exec("w109", "true")
    live.client.thaw("w109")
    assert live.wait_for_exit("w109").status == 7
    assert live.condition("w109") == "ended"
    with pytest.raises(NodeError, match="w109 has ended: nothing can be run in it"):
        live.exec("w109", "true")


def test_a_thawed_node_is_told_how_long_it_was_frozen(live: Any) -> None:
    """In all: it is frozen twice, for a tenth of a second."""
    live.launch("w127", "entries:wait")
    told, least = live.folder.slow / "w127.stood", 0.0
    for _ in range(2):
        live.client.freeze("w127", told)
        frozen = time.monotonic()
        time.sleep(0.1)
        least += time.monotonic() - frozen
        live.client.thaw("w127")
        assert float(live.client.begin_written({told: 0})(True)[told]) >= least
    live.client.signal("w127", signal.SIGKILL)


def test_a_node_killed_while_frozen_ends(live: Any) -> None:
    live.launch("w110", "entries:wait")
    live.client.freeze("w110")
    live.client.signal("w110", signal.SIGKILL, thaw=True)
    assert live.wait_for_exit("w110").status == -signal.SIGKILL


@pytest.fixture
def one_uid(driver: Any, users: Any) -> bool:
    """Whether all nodes have the user's own uid."""
    return users.kind == "one" and isinstance(driver, NativeDriver)


def test_a_node_has_its_own_uid_and_no_privileges(seen: dict[str, Any], one_uid: bool) -> None:
    uid = "0" if one_uid else str(21000 + int(seen["hostname"][1:]))
    assert seen["status"]["Uid"] == seen["status"]["Gid"] == [uid] * 4
    assert one_uid or seen["status"]["Groups"] == []
    assert seen["status"]["NoNewPrivs"] == ["1"]
    assert seen["capabilities"] == dict.fromkeys(
        ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0
    )


def test_a_node_cannot_create_a_namespace(seen: dict[str, Any]) -> None:
    kinds = ("user", "mnt", "net", "pid")
    assert seen["new namespaces"] == dict.fromkeys(kinds, "PermissionError")
    assert seen["status"]["Seccomp"] == ["2"]


@pytest.mark.parametrize("mode", ["warm", "cold"])
def test_a_node_cannot_regain_privileges(driver: Any, live: Any, users: Any, mode: str) -> None:
    name = {"warm": "w9", "cold": "w10"}[mode]
    status, output = live.run(name, "entries:try_to_rise", mode=mode)
    assert status == 0, output
    found = json.loads(output)
    limited = users.namespace and isinstance(driver, NativeDriver)
    assert found.pop("limit") == "0" or not limited
    assert found.pop("new privileges") == "EINVAL"  # it can only be set
    assert found.pop("after grep") == found.pop("after python") == ["0000000000000000"]
    for path in [path for path in found if path.startswith("/proc/sys")]:
        assert found.pop(path).startswith("reads "), path
    assert set(found.values()) <= {"EPERM", "EINVAL"}, found


def test_a_node_has_only_the_standard_descriptors_and_one_thread(seen: dict[str, Any]) -> None:
    log = seen["descriptors"]["1"]
    assert log.startswith("pipe:")
    assert seen["descriptors"] == {"0": "/dev/null", "1": log, "2": log}
    assert seen["threads"] == 1


def test_the_environment_of_a_node_is_explicit(driver: Any, seen: dict[str, Any]) -> None:
    roots = {"PYTHONPATH": seen["environment"]["PYTHONPATH"]}
    own, of_engine = agent_environment(roots), set[str]()
    if isinstance(driver, DockerDriver):
        own, of_engine = {**BASE, **roots}, {"PATH", "TERM", "container"}
    differing = seen["environment"].items() ^ {**own, "EXTRA": "1"}.items()
    assert {name for name, _ in differing} <= of_engine
    assert seen["arguments"] == {"token": "secret"}
    assert "secret" not in str(seen["environment"])


def test_the_limits_of_a_node_are_explicit(driver: Any, seen: dict[str, Any], users: Any) -> None:
    # Nodes that share a uid count together; the plan of these runs sets no limit.
    kind = users.kind if isinstance(driver, NativeDriver) else "root"
    processes = {"root": 2048, "range": 512, "one": 1024}[kind]
    assert seen["limits"] == {
        "RLIMIT_CORE": [0, 0],
        "RLIMIT_NOFILE": [4096, 4096],
        "RLIMIT_NPROC": [processes, processes],
        "RLIMIT_STACK": [8388608, 8388608],
    }


def test_exec_runs_in_the_node_with_its_restrictions(
    live: Any, one_uid: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    live.launch("w111", "entries:wait")
    script = "hostname; id -u; grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; exit 5"
    assert live.exec("w111", "sh", "-c", script) == 5
    assert capfd.readouterr().out.split() == [
        *(
            "w111",
            "0" if one_uid else "21111",
            "CapBnd:",
            "0000000000000000",
            "NoNewPrivs:",
            "1",
            "Seccomp:",
            "2",
        ),
    ]
    assert live.exec("w111", "unshare", "-U", "true") != 0
    assert live.exec("w111", "no-such-command") == 127
    assert live.exec("w111", "sh", "-c", "kill -9 $$") == 128 + 9


def test_a_node_cannot_access_its_other_processes(live: Any) -> None:
    status, output = live.run("w117", "entries:try_to_reach")
    assert status == 0, output
    assert json.loads(output) == dict.fromkeys(("ptrace", "read", "write", "pidfd_getfd"), "EPERM")


def test_a_node_can_ping(live: Any) -> None:
    # 0: an echo reply.
    assert live.run("w118", "entries:ping", arguments={"address": "127.0.0.1"}) == (0, "0\n")


def test_the_number_of_processes_is_limited(live: Any) -> None:
    status, output = live.run("w119", "entries:multiply")
    assert status == 0, output
    # Its own limit, or with one uid and no control groups the limit of all the run's nodes.
    assert 100 < int(output) <= 2048
    assert live.run("w120", "entries:finish", arguments={"status": "0"})[0] == 0


def test_a_log_is_limited_and_says_so(live: Any) -> None:
    status, _ = live.run("w121", "entries:flood", arguments={"bytes": str(LOG_BYTES + 2**20)})
    assert status == 0
    log = live.folder.log("w121").read_bytes()
    end = LOG_BYTES + len(NOTICE)
    assert (len(log), log[LOG_BYTES:end]) == (end + TAIL_BYTES, NOTICE)
    assert is_full(live.folder.log("w121"))


def test_a_failed_launch_names_the_node_and_leaves_nothing_behind(driver: Any, live: Any) -> None:
    missing = Mount(Path("/does/not/exist"), Path("/run/testbed/data"))
    with pytest.raises(NodeError, match=r"w112: .*No such file.*/does/not/exist"):
        live.launch("w112", "entries:wait", mounts=(missing,))
    assert "w112" not in live.client.running()
    # and the name is free again
    assert live.run("w112", "entries:finish", arguments={"status": "0"})[0] == 0


def test_a_node_can_be_launched_again_only_after_its_end(live: Any) -> None:
    live.launch("w113", "entries:wait")
    with pytest.raises(NodeError, match="w113 is already running"):
        live.launch("w113", "entries:wait")
    live.client.signal("w113", signal.SIGKILL)
    live.wait_for_exit("w113")
    live.driver.discard(live.folder, ["w113"])
    live.launch("w113", "entries:wait")
    assert "w113" in live.client.running()


def test_an_unknown_node_is_an_error(driver: Any, live: Any) -> None:
    for ask in (live.client.thaw, live.client.freeze):
        with pytest.raises(NodeError, match="w998 was never launched"):
            ask("w998")


def test_stop_ends_everything_and_can_be_repeated(driver: Any, start_run: Any) -> None:
    with start_run() as run:
        names = ("w0", "w1", "w2")
        processes = [run.process(name, run.launch(name, "entries:wait")) for name in names]
        run.client.freeze("w1")
        assert run.folder.name in driver.find()
        assert _conditions(run.folder) == {"w0": "running", "w1": "frozen", "w2": "running"}
        run.lifeline.stop()
        assert not any(process.alive() for process in processes)
        assert run.ended()
        assert run.folder.name not in driver.find()
        assert running_nodes(run.folder) == {}
        with pytest.raises(NodeError, match="the agent has ended"):
            run.client.running()
        run.lifeline.stop()
        run.lifeline.close()
        driver.stop(run.folder)
    assert not run.folder.alive()


def test_another_process_can_stop_a_run_with_a_live_controller(
    driver: Any, start_run: Any, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    with start_run() as run, ThreadPoolExecutor(1) as elsewhere:
        run.launch("w0", "entries:wait")
        stopping = elsewhere.submit(driver.stop, run.folder)
        eventually(run.ended)
        assert not stopping.done()  # it waits until this process has let go of the run
        run.lifeline.close()
        stopping.result(timeout=180)
        assert run.folder.name not in driver.find()


def test_two_concurrent_runs_are_isolated(driver: Any, live: Any, start_run: Any) -> None:
    with start_run() as other:
        mine = live.launch("w115", "entries:wait")
        pid = other.launch("w115", "entries:wait")
        theirs = other.process("w115", pid)
        assert mine != pid
        assert other.client.running() == ["w115"]
    assert not theirs.alive()
    assert "w115" in live.client.running()
    assert not live.ended()


@pytest.fixture
def victim(
    driver: Any, runtime: str, tmp_path: Path
) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], RunFolder]]]:
    """Starts a run of four nodes in a separate controller, to be killed."""
    started: list[tuple[subprocess.Popen[bytes], RunFolder]] = []

    def start(*options: str) -> tuple[subprocess.Popen[bytes], RunFolder]:
        name = f"victim-{os.getpid()}-{time.monotonic_ns()}"
        command = [sys.executable, str(VICTIM), runtime, str(tmp_path), name, *options]
        hosts = HOST_LIST.dump_json(getattr(driver, "hosts", ())).decode()
        environment = {**os.environ, "VICTIM_HOSTS": hosts}
        controller = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        started.append((controller, RunFolder(tmp_path / name)))
        assert controller.stdout is not None
        assert controller.stdout.readline() == b"up\n"
        return started[-1]

    yield start
    for controller, folder in started:
        controller.kill()
        controller.wait()
        assert controller.stdout is not None
        controller.stdout.close()
        driver.stop(folder)


def test_a_run_ends_when_its_controller_is_killed(
    driver: Any, victim: Any, processes_of: Any, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    controller, folder = victim()
    processes = processes_of(folder)
    assert len(processes) == 4
    controller.kill()
    eventually(lambda: not folder.alive())
    eventually(lambda: not any(process.alive() for process in processes))
    assert running_nodes(folder) == {}
    driver.stop(folder)
    assert folder.name not in driver.find()
    driver.stop(folder)


def test_a_detached_run_outlives_its_controller_until_it_is_stopped(
    driver: Any, victim: Any, processes_of: Any
) -> None:
    controller, folder = victim("detached")
    before = running_nodes(folder)
    assert _conditions(folder) == dict.fromkeys(before, "running") | {"w1": "frozen"}
    controller.kill()
    controller.wait()
    assert running_nodes(folder) == before
    assert len(before) == 4
    assert folder.alive()
    processes = processes_of(folder)
    driver.stop(folder)
    assert not any(process.alive() for process in processes)
    assert not folder.alive()
    assert folder.name not in driver.find()


def _conditions(folder: RunFolder) -> dict[str, str]:
    return {name: state.condition for name, state in running_nodes(folder).items()}
