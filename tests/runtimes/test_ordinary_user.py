"""An ordinary user whose home is closed to others can use every feature there.

Some runtime tests are repeated as this user, with and without subordinate uids; all of them in
`make nightly`. The user's interpreter is the system's, in a separate environment that
shares the packages of the one that runs the tests: installing them again would take minutes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from testbed.host.users import MODES

pytestmark = [pytest.mark.root, pytest.mark.slow]
QUICK = ("--set", "stop.updates=40", "--workers", "3")
UNSHAPED = ("--set", "workers.classes={device: {}}")
"""Links that need not be measured before the run, which takes four seconds."""

QUICKSTART = "scenarios/quickstart.yaml"
FILES = (
    *("test_contract.py", "test_starts.py", "test_death.py"),
    *("native/test_driver.py", "native/test_reach.py"),
)
SMOKE = (
    "test_contract.py::test_exec_runs_in_the_node_with_its_restrictions[native]",
    "test_contract.py::test_a_frozen_node_makes_no_progress_until_it_is_thawed[native]",
    "test_contract.py::test_a_run_ends_when_its_controller_is_killed[native]",
    "test_contract.py::test_exec_runs_in_the_node_with_its_restrictions[lxc]",
    "test_contract.py::test_a_run_ends_when_its_controller_is_killed[lxc]",
    "test_contract.py::test_a_node_has_its_own_uid_and_no_privileges[native-warm]",
    "test_contract.py::test_a_node_has_its_own_uid_and_no_privileges[native-cold]",
    "native/test_driver.py::test_a_node_sees_no_private_files_of_the_user",
    "native/test_driver.py::test_a_node_opens_a_device_that_is_mounted_at_its_own_path",
    "native/test_reach.py::test_a_node_reaches_no_agent_of_a_later_run_in_a_visible_folder",
    "native/test_driver.py::test_linked_nodes_reach_each_other_and_their_bytes_are_counted",
)
"""What a user's own namespaces, instead of root's, may break first."""


@pytest.fixture(scope="module")
def account_with(new_account: Any) -> Iterator[Callable[[str], Any]]:
    """Makes each of the two users once, as its first run takes seconds more than others."""
    with ExitStack() as cleanup:
        yield cache(lambda uids: cleanup.enter_context(new_account(ranges=uids == "range")))


@pytest.fixture(params=["range", "one"])
def user(request: pytest.FixtureRequest, account_with: Callable[[str], Any]) -> Any:
    return account_with(request.param)


def test_the_uids_are_those_the_account_allows(user: Any) -> None:
    found = user.run(user.python, "-m", "testbed.host.user_namespace")
    kind = "range" if user.name.endswith("r") else "one"
    assert json.loads(found.stdout) == {"users": kind}, found.stderr


def test_a_plan_shows_the_requests_of_its_run(user: Any) -> None:
    planned = user.run(user.python, "-m", "testbed", "plan", QUICKSTART, "--json")
    start = json.loads(planned.stdout)["requests"][0]["body"]
    kind = "range" if user.name.endswith("r") else "one"
    assert start["users"] == {"kind": kind}
    nodes = 14
    assert start["processes"] == (512 if kind == "range" else 2 * 512 + 64 * nodes)
    hidden = {str(user.home), str(user.home / "runs")} if kind == "one" else set()
    assert hidden <= set(start["private"])


@pytest.mark.parametrize(
    ("user", "setting"),
    [
        ("range", "launch=warm"),
        ("one", "launch=cold"),
        ("one", "compute=shared"),
        pytest.param("range", "launch=cold", marks=pytest.mark.nightly),
        pytest.param("range", "compute=shared", marks=pytest.mark.nightly),
        pytest.param("one", "launch=warm", marks=pytest.mark.nightly),
    ],
    indirect=["user"],
)
def test_the_quickstart_runs_and_the_user_owns_its_folder(user: Any, setting: str) -> None:
    name = f"quick-{setting.partition('=')[2]}"
    links = () if setting == "launch=warm" else UNSHAPED
    up = user.run(
        *(user.python, "-m", "testbed", "up", QUICKSTART, "--name", name),
        *("--set", setting, *QUICK, *links),
    )
    assert up.returncode in (0, 6), up.stdout + up.stderr  # 6: this host was too busy
    folder = user.home / "runs" / name
    assert json.loads((folder / "run.json").read_text())["state"] == "finished"
    kind = "range" if user.name.endswith("r") else "one"
    assert json.loads((folder / "environment.json").read_text())["uid_mode"] == MODES[kind]
    assert _processes_of(user) == ""
    removed = user.run("rm", "-r", str(folder))
    assert removed.returncode == 0, removed.stderr


with_a_range_nightly = pytest.mark.parametrize(
    "user", ["one", pytest.param("range", marks=pytest.mark.nightly)], indirect=True
)
WORKLOAD = """\
name: pair
workload:
  server:
    command:
      - python3
      - -c
      - |
        import socket
        peer, _ = socket.create_server(("", 7000)).accept()
        count = 0
        while data := peer.recv(65536):
            count += len(data)
        open("count", "w").write(str(count))
    ports: {data: 7000}
  client:
    command:
      - python3
      - -uc
      - |
        import socket, time
        peer = socket.create_connection(("server", 7000))
        for block in range(20):
            peer.sendall(bytes(100_000))
            print("block", block)
            time.sleep(0.2)
    link: {up: {rate: 20mbit}}
    after: {server: {listens: data}}
    metrics: {block: {regex: "block (.+)"}}
faults:
  - freeze: {nodes: [client], at: {log: "^block 5$"}, for: 500ms}
  - partition: {nodes: [client], at: {log: "^block 10$"}, for: 500ms}
"""


@with_a_range_nightly
def test_a_workload_runs_with_links_faults_and_measurements(user: Any) -> None:
    """2 MB from client to server, of which the switch counts the frames."""
    (user.home / "pair.yaml").write_text(WORKLOAD)
    up = user.run(user.python, "-m", "testbed", "up", "pair.yaml", "--name", "pair")
    assert up.returncode in (0, 6), up.stdout + up.stderr
    folder = user.home / "runs/pair"
    assert (folder / "homes/server/count").read_text() == "2000000"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["faults"] == {"freeze": 1, "partition": 1}
    assert summary["metrics"]["block"]["last"] == 19
    pair, client = summary["pairs"]["client"]["server"], summary["nodes"]["client"]
    assert 0 <= pair["sent_bytes"] - 2_000_000 <= 2
    # What it sends again while it is partitioned does not reach the switch.
    assert 2_000_000 < pair["frame_bytes"] <= client["up_bytes"]
    limited = ("--set", "workload.client.cpu=0.5", "--name", "limited")
    refused = user.run(user.python, "-m", "testbed", "up", "pair.yaml", *limited)
    assert refused.returncode == 3
    assert "(class client): cpu 0.5 cannot be enforced" in " ".join(refused.stderr.split())
    assert _processes_of(user) == ""


@with_a_range_nightly
def test_an_active_workload_is_inspected_and_changed(
    user: Any, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    (user.home / "still.yaml").write_text(
        "name: still\nworkload: {still: {command: [sleep, '60'], link: {up: {rate: 20mbit}}}}\n"
    )

    def testbed(*words: str) -> subprocess.CompletedProcess[str]:
        return user.run(user.python, "-m", "testbed", *words)

    up = testbed("up", "still.yaml", "--name", "still", "--detach")
    assert up.returncode == 0, up.stderr
    inside = testbed("exec", "still", "still", "--", "sh", "-c", "touch $HOME/new; hostname")
    assert inside.stdout == "still\n", inside.stderr
    assert testbed("net", "set", "still", "still", "--up", "10mbit").returncode == 0
    assert "10mbit" in testbed("net", "show", "still", "still").stdout
    assert testbed("net", "capture", "still", "still", "--seconds", "0.2").returncode == 0
    assert (user.home / "still-still.pcap").stat().st_size >= 24  # the header of the file
    assert testbed("fault", "freeze", "still", "still", "--for", "100ms").returncode == 0
    assert testbed("down", "still").returncode == 0
    assert (user.home / "runs/still/homes/still/new").exists()
    eventually(lambda: not _processes_of(user))


@with_a_range_nightly
def test_root_reaches_the_users_agent(
    user: Any, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    long = ("--set", "stop.updates=1000000", "--workers", "3", "--detach", "--name", "long")
    up = user.run(user.python, "-m", "testbed", "up", QUICKSTART, *long)
    assert up.returncode == 0, up.stderr
    command = [sys.executable, "-m", "testbed", "ps", str(user.home / "runs/long"), "--json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    down = user.run(user.python, "-m", "testbed", "down", "long")
    assert down.returncode == 0, down.stderr
    eventually(lambda: not _processes_of(user))
    conditions = {one["node"]: one["condition"] for one in json.loads(listed.stdout)}
    assert conditions["w0"] == "running", listed.stderr


def test_a_limit_that_cannot_be_enforced_is_refused_with_how_to_fix_it(user: Any) -> None:
    limited = ("--set", "workers.classes.slow.memory=500MiB", "--name", "limited")
    up = user.run(user.python, "-m", "testbed", "up", QUICKSTART, *limited)
    assert up.returncode == 3
    assert "(class slow): memory 500MiB cannot be enforced" in " ".join(up.stderr.split())
    assert "systemd-run --user --scope -p Delegate=yes" in " ".join(up.stderr.split())
    assert not (user.home / "runs/limited").exists()


LXC = ("--runtime", "lxc", "--name", "contained")


@pytest.mark.skipif(shutil.which("lxc-execute") is None, reason="needs lxc-execute")
def test_lxc_containers_need_subordinate_uids(user: Any) -> None:
    up = user.run(user.python, "-m", "testbed", "up", QUICKSTART, *LXC, *QUICK)
    folder = user.home / "runs/contained"
    if user.name.endswith("o"):
        assert up.returncode == 3
        told = " ".join(up.stderr.split())
        assert "the runtime lxc needs root, or subordinate uids of this user" in told
        assert "sudo usermod --add-subuids" in told
        assert not folder.exists()
        return
    assert up.returncode in (0, 6), up.stdout + up.stderr  # 6: this host was too busy
    assert json.loads((folder / "run.json").read_text())["state"] == "finished"
    assert _processes_of(user) == ""
    assert user.run("ls", "-A", ".local/share/lxc").stdout == ""
    assert not (user.home / ".cache/lxc").exists()
    assert user.run("rm", "-r", str(folder)).returncode == 0
    limited = ("--set", "workers.classes.slow.memory=500MiB")
    up = user.run(user.python, "-m", "testbed", "up", QUICKSTART, *LXC, *limited)
    assert up.returncode == 3
    assert "LXC containers of ordinary users have no control groups" in up.stderr
    assert not folder.exists()


def test_forbidden_namespaces_are_reported_with_what_forbids_them(user: Any) -> None:
    forbidden = Path(__file__).with_name("without_namespaces.py")
    up = user.command(user.python, "-m", "testbed", "up", QUICKSTART, "--name", "forbidden")
    done = subprocess.run(
        [sys.executable, forbidden, *up],
        cwd=user.home,
        capture_output=True,
        text=True,
        check=False,
    )
    told = " ".join(done.stderr.split())
    assert done.returncode == 3, told
    assert "user.max_user_namespaces is 0. Allow it: sudo sysctl -w" in told
    assert "or run it as root, with sudo." in told
    assert not (user.home / "runs/forbidden").exists()


@pytest.mark.parametrize(
    "tests",
    [pytest.param(SMOKE, id="some"), pytest.param(FILES, id="all", marks=pytest.mark.nightly)],
)
def test_the_runtime_tests_pass(user: Any, tests: tuple[str, ...]) -> None:
    options = ("-v", "-p", "no:cacheprovider", "-m", "namespaces and not slow")
    ranges = user.name.endswith("r")
    named = [f"tests/runtimes/{name}" for name in tests if ranges or "[lxc]" not in name]
    done = user.run(user.python, "-m", "pytest", *options, *named)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "skipped" not in done.stdout or tests is FILES, done.stdout[-5000:]
    assert all(f"{name.partition('[')[0]}" in done.stdout for name in named)
    assert _processes_of(user) == ""


@pytest.mark.nightly
def test_the_users_controller_is_killed_at_random_moments(user: Any) -> None:
    options = ("-q", "-s", "-p", "no:cacheprovider", "-k", "random_moments")
    rounds = f"SOAK_ROUNDS={os.environ.get('SOAK_ROUNDS', '10')}"
    tests = "tests/runtimes/test_death.py"
    done = user.run("env", rounds, user.python, "-m", "pytest", *options, tests)
    print(done.stdout)  # the seed
    assert done.returncode == 0, done.stdout[-5000:]
    assert "1 passed" in done.stdout
    assert _processes_of(user) == ""


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("lxc-execute") is None, reason="needs lxc-execute")
def test_controllers_and_monitors_of_lxc_are_killed_at_random_moments(
    user: Any, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    """In half of the rounds, some monitors are killed before the controller."""
    if user.name.endswith("o"):
        pytest.skip("needs subordinate uids")
    seed, kills = random.SystemRandom().randrange(10**6), 0
    print(f"seed {seed}")
    rng = random.Random(seed)
    for number in range(int(os.environ.get("SOAK_ROUNDS", "20"))):
        victim = (user.python, "tests/runtimes/victim.py", "lxc", str(user.home), f"killed{number}")
        with subprocess.Popen(user.command(*victim), cwd=user.home, stdout=subprocess.PIPE) as one:
            if number % 2:
                assert one.stdout is not None
                one.stdout.readline()  # it is up
                monitors = [pid for pid, name in _pids_of(user) if "[lxc monitor]" in name]
                for monitor in rng.sample(monitors, rng.randint(1, len(monitors))):
                    os.kill(monitor, signal.SIGKILL)
                    kills += 1
            else:
                time.sleep(rng.uniform(0.5, 4.0))
            one.kill()
        eventually(lambda: _processes_of(user) == "")
        eventually(lambda: user.run("ls", "-A", ".local/share/lxc").stdout == "")
    print(f"{kills} monitors killed")
    assert kills


def _pids_of(user: Any) -> list[tuple[int, str]]:
    lines = [line.split(None, 2) for line in _processes_of(user).splitlines()]
    return [(int(pid), command) for pid, _, command in lines]


def _processes_of(user: Any) -> str:
    listed = subprocess.run(
        ["ps", "-U", user.name, "-o", "pid,stat,args", "--no-headers"],
        capture_output=True,
        text=True,
        check=False,
    )
    living = [line for line in listed.stdout.splitlines() if not line.split()[1].startswith("Z")]
    return "\n".join(living)
