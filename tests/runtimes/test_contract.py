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

from testbed.errors import HostError, NodeError
from testbed.run.follow import running_nodes
from testbed.run.interrupts import Interrupted, Interrupts
from testbed.runtimes.agent.launch import Mount
from testbed.runtimes.agent.logs import LOG_BYTES, NOTICE, TAIL_BYTES, is_full
from testbed.runtimes.agent.settings import Template
from testbed.runtimes.base import RuntimeDriver, Start
from testbed.runtimes.docker.containers import HOST_LIST
from testbed.runtimes.native.driver import NativeDriver
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import NetworkSpec, Plan

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


def test_a_node_killed_while_frozen_ends(live: Any) -> None:
    live.launch("w110", "entries:wait")
    live.client.freeze("w110")
    live.client.signal("w110", signal.SIGKILL, thaw=True)
    assert live.wait_for_exit("w110").status == -signal.SIGKILL


def test_exec_runs_in_the_node_with_its_restrictions(
    driver: Any, live: Any, users: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    live.launch("w111", "entries:wait")
    script = "hostname; id -u; grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; exit 5"
    assert live.exec("w111", "sh", "-c", script) == 5
    assert capfd.readouterr().out.split() == [
        *(
            "w111",
            "0" if users.kind == "one" and isinstance(driver, NativeDriver) else "21111",
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


def test_a_failing_template_reports_why(start_run: Any) -> None:
    with (
        pytest.raises(NodeError, match=r"(?s)template: exited .*No module named 'missing_module'"),
        start_run(template=Template(preload=("missing_module",))),
    ):
        pass


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
