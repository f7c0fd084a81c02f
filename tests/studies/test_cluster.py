"""Sweeps and simulations on a real Ray cluster: nodes on this machine, some of which are lost."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from polling import wait_until

from testbed.errors import NodeError
from testbed.runtimes.ray_cluster import PACKAGE, lacks, releases
from testbed.studies import load_study
from testbed.studies.cluster_task import archived, extract
from testbed.studies.progress import Failure, Progress
from testbed.telemetry.registry import Registry

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs ray: pip install 'edge-testbed[ray]'"
)

SIX = "name: own\nscenario: base.yaml\nseeds: [1, 2, 3, 4, 5, 6]\nvary: {{files: {{mine: {0}}}}}\n"
NET = (
    "from torch import nn\n\nclass Net(nn.Sequential):\n"
    "    def __init__(self, shape, classes):\n"
    "        super().__init__(nn.Flatten(), nn.Linear(64, classes))\n"
)
LONG = (
    "name: long\nscenario: base.yaml\nseeds: [1, 2]\nvary: {length: {long: stop.updates=1000000}}\n"
)


class Nodes:
    """Nodes of a cluster with one CPU each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.temporary = Path(tempfile.gettempdir())
        head = {"num_cpus": 1, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.others = [self.cluster.add_node(num_cpus=1) for _ in range(2)]
        self.address = self.cluster.address

    def executing(self) -> list[Path]:
        """The temporary folders of runs."""
        return sorted(self.temporary.glob("testbed-*"))

    def lose_one(self) -> None:
        """Kill all processes of a node at once: they leave their temporary folders behind."""
        self.cluster.remove_node(self.others.pop(), allow_graceful=False)

    def add_one(self, *, cpus: int = 1) -> None:
        """Add a node."""
        self.others.append(self.cluster.add_node(num_cpus=cpus))

    @property
    def pool(self) -> str:
        """The setting with which the actors of this cluster compute a simulation."""
        return f"runtime={{simulated: {{pool: {{ray: {{address: '{self.address}'}}}}}}}}"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    tmp_path_factory.getbasetemp()  # created now, it is not in the folder below, which is removed
    with tempfile.TemporaryDirectory(dir="/tmp") as short, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", short)  # Ray's sockets are there: their paths are limited
        patch.setattr(tempfile, "tempdir", None)
        nodes = Nodes()
        yield nodes
        nodes.cluster.shutdown()


def digests(runs: Path, names: str = "own-*") -> dict[str, str]:
    """Of everything that a run computes: its updates, evaluations and models."""
    found = {}
    for run in runs.glob(names):
        files = [run / "evaluations.csv", *(run / "updates").iterdir(), *(run / "model").iterdir()]
        for file in files:
            found[str(file.relative_to(runs))] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


@pytest.mark.slow
def test_a_lost_node_s_run_is_repeated_and_all_results_are_those_of_a_local_sweep(
    sweeps: Any, write_study: Any, nodes: Nodes
) -> None:
    (sweeps.folder / "traces").mkdir()
    (sweeps.folder / "traces/rate.csv").write_text(
        "time_seconds,bits_per_second\n0,1234567\n1,3e6\n2,0\n"
    )
    (sweeps.folder / "net.py").write_text(NET)
    settings = [
        "stop.updates=600",
        "workers.classes.fast.link.up.rate={trace: traces/rate.csv}",
        "model={custom: {file: net.py, class: Net}}",
    ]
    write_study(text=SIX.format(json.dumps(settings)))
    sweep = sweeps.start("study.yaml", "--ray", nodes.address)
    sweeps.wait_until(lambda: len(nodes.executing()) == 3)
    nodes.lose_one()
    said = sweep.communicate()[0]
    assert "6 of 6 runs exist, 0 of them not valid" in said
    assert said.count(" finished: 600 updates applied; on ") == 6
    assert len(nodes.executing()) == 1  # of the lost node
    assert "6 exist already" in sweeps("sweep", "study.yaml", "--ray", "nowhere:1")
    remote = digests(sweeps.runs)
    sweeps.runs = sweeps.folder / "local"
    sweeps("sweep", "study.yaml")
    assert remote == digests(sweeps.runs)
    assert len(remote) >= 18


@pytest.mark.slow
def test_an_interrupted_sweep_leaves_nothing_on_the_nodes(
    sweeps: Any, write_study: Any, nodes: Nodes
) -> None:
    write_study(text=LONG)
    before = nodes.executing()
    sweep = sweeps.start("study.yaml", "--ray", nodes.address)
    sweeps.wait_until(lambda: len(nodes.executing()) == len(before) + 2)
    sweep.send_signal(signal.SIGTERM)
    assert sweep.wait() == 130
    assert nodes.executing() == before
    assert list(sweeps.begun()) == []


@pytest.mark.slow
def test_what_a_cluster_cannot_do_is_refused(sweeps: Any, write_study: Any, nodes: Nodes) -> None:
    write_study(
        text="name: large\nscenario: base.yaml\nseeds: [1, 2]\n"
        "vary: {size: {large: [workers.count=1000000, workers.batch_size=1, dataset=mnist]}}\n"
    )
    said = sweeps("sweep", "study.yaml", "--ray", "127.0.0.1:9", status=3)
    assert "no Ray cluster can be joined at 127.0.0.1:9: Connection refused" in said
    said = sweeps("sweep", "study.yaml", "--ray", nodes.address, "--reuse", "1GB", status=2)
    assert "--reuse is not possible with --ray" in said
    said = sweeps("sweep", "study.yaml", "--ray", nodes.address, status=3)
    assert "large-large-s1 FAILED: no node of the Ray cluster has 1 CPUs, " in said
    assert "0 of 2 runs exist" in said


@pytest.mark.slow
def test_a_simulation_whose_actor_is_lost_has_the_results_of_the_local_pool(
    sweeps: Any, nodes: Nodes
) -> None:
    run = sweeps.runs / "one"
    three = ("--set", "workers.count=3", "--set", "stop.updates=3000")  # one on each node
    command = sweeps.start(
        *("base.yaml", "--name", "one", *three, "--set", nodes.pool),
        verb="up",
    )
    sweeps.wait_until(lambda: len(evaluations(run)) > 4)
    nodes.lose_one()
    nodes.add_one()
    said = command.communicate()[0]
    assert command.returncode == 0, said
    (event,) = [one for one in events(run) if one["event"] == "process_replaced"]
    assert event["process"] in (0, 1, 2)
    remote = digests(sweeps.runs, "one")
    sweeps.runs = sweeps.folder / "local"
    sweeps("up", "base.yaml", "--name", "one", *three)
    assert remote == digests(sweeps.runs, "one")
    assert len(remote) >= 4


@pytest.mark.slow
@pytest.mark.nightly
def test_of_the_processes_of_a_node_only_a_killed_one_is_replaced(
    sweeps: Any, nodes: Nodes
) -> None:
    count = 1 + len(nodes.others) + 2
    nodes.add_one(cpus=2)
    run = sweeps.runs / "one"
    each = ("--set", f"workers.count={count}", "--set", "stop.updates=1000")
    command = sweeps.start("base.yaml", "--name", "one", *each, "--set", nodes.pool, verb="up")
    sweeps.wait_until(lambda: len(evaluations(run)) > 4)
    killed, _ = next(some for pid in pids() if len(some := forked_by_actor(pid)) == 2)
    os.kill(killed, signal.SIGKILL)
    said = command.communicate()[0]
    nodes.lose_one()
    assert command.returncode == 0, said
    (event,) = [one for one in events(run) if one["event"] == "process_replaced"]
    assert event["reason"] == "its process was killed by signal 9"
    remote = digests(sweeps.runs, "one")
    sweeps.runs = sweeps.folder / "local"
    sweeps("up", "base.yaml", "--name", "one", *each)
    assert remote == digests(sweeps.runs, "one")


@pytest.mark.slow
def test_a_killed_process_of_this_machine_ends_a_run_of_the_cluster(
    sweeps: Any, nodes: Nodes
) -> None:
    long = ("base.yaml", "--name", "one", "--set", "stop.updates=1000000")
    command = sweeps.start(*long, "--set", nodes.pool, verb="up")
    sweeps.wait_until(lambda: len(evaluations(sweeps.runs / "one")) > 4)
    (forked,) = children(command.pid)
    os.kill(forked, signal.SIGKILL)
    said = "".join(command.communicate())
    assert command.returncode == NodeError.exit_code
    assert f"a process of the simulation (pid {forked}) ended unexpectedly, by SIGKILL" in said
    # Ray ends the actors, and they what they have forked, after the command.
    wait_until(lambda: not any(forked_by_actor(one) for one in pids()))


def pids() -> list[int]:
    return [int(one.name) for one in Path("/proc").iterdir() if one.name.isdecimal()]


def children(pid: int) -> list[int]:
    with suppress(OSError):  # it has ended
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(one) for task in tasks for one in (task / "children").read_text().split()]
    return []


def forked_by_actor(pid: int) -> list[int]:
    """What an actor of this module has forked; none for any other process."""
    with suppress(OSError):
        if Path(f"/proc/{pid}/cmdline").read_text().startswith("ray::NodeProcess"):
            return children(pid)
    return []


def evaluations(run: Path) -> list[str]:
    file = run / "evaluations.csv"
    return file.read_text().splitlines() if file.exists() else []


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_the_user_s_own_code_is_computed_by_actors(sweeps: Any, nodes: Nodes) -> None:
    (sweeps.folder / "net.py").write_text(NET)
    own = ("base.yaml", "--name", "one", "--set", "model={custom: {file: net.py, class: Net}}")
    sweeps("up", *own, "--set", nodes.pool)
    remote = digests(sweeps.runs, "one")
    sweeps.runs = sweeps.folder / "local"
    sweeps("up", *own)
    assert remote == digests(sweeps.runs, "one")


@pytest.mark.slow
def test_replies_without_values_reach_actors(sweeps: Any, nodes: Nodes) -> None:
    """SSP sends no model where a worker's is new enough."""
    ssp = ("base.yaml", "--name", "one", "--set", "algorithm={ssp: {learning_rate: 0.1, slack: 3}}")
    sweeps("up", *ssp, "--set", "workers.count=3", "--set", nodes.pool)
    remote = digests(sweeps.runs, "one")
    sweeps.runs = sweeps.folder / "local"
    sweeps("up", *ssp, "--set", "workers.count=3")
    assert remote == digests(sweeps.runs, "one")


@pytest.mark.slow
def test_nodes_whose_package_has_other_code_execute_that_of_the_driver(
    sweeps: Any, write_study: Any, nodes: Nodes, tmp_path: Path
) -> None:
    write_study(text=SIX.format("stop.updates=60").replace("3, 4, 5, 6", "3"))
    copy = tmp_path / "other/testbed"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "errors.py").open("a") as file:
        file.write("\n# Other code.\n")
    for words in (("up", "base.yaml", "--set", nodes.pool), ("sweep", "study.yaml", "--ray", "")):
        command = [sys.executable, "-m", "testbed", *words[:-1], words[-1] or nodes.address]
        environment = {**sweeps.environment, "PYTHONPATH": str(copy.parent)}
        subprocess.run(command, cwd=sweeps.folder, env=environment, check=True)  # else refused


@pytest.mark.slow
def test_a_pool_that_cannot_be_is_refused_with_its_line(
    sweeps: Any, write_study: Any, nodes: Nodes
) -> None:
    scenario = sweeps.folder / "base.yaml"
    scenario.write_text(
        scenario.read_text().replace("runtime: simulated", "runtime: {simulated: {pool: ray}}")
    )
    elsewhere = nodes.pool.replace(nodes.address, "127.0.0.1:9")
    said = sweeps("up", "base.yaml", "--set", elsewhere, status=2)
    assert "runtime.pool: no Ray cluster can be joined at 127.0.0.1:9: Connection refused" in said
    many = nodes.pool.replace("address", "processes: 4, address")
    said = sweeps("up", "base.yaml", "--set", "workers.count=4", "--set", many, status=2)
    assert "runtime.pool: the Ray cluster has room for " in said
    assert " of 4 processes with a CPU, 35" in said
    for option in (("--ray", nodes.address), ("--reuse", "1GB")):
        said = sweeps("sweep", "study.yaml", *option, status=2)
        assert (
            f"base.yaml:2: runtime.pool: found ray, expected `pool: local` with {option[0]}" in said
        )
    assert list(sweeps.begun()) == []


def test_packages_that_a_node_lacks() -> None:
    assert lacks({}) == ""
    assert lacks({"no-such": "1.2"}) == (
        "the package no-such is not installed, expected no-such 1.2"
    )
    assert lacks({"click": "", "no-such": ""}).endswith("is not installed, expected no-such")
    assert lacks(releases()) == ""
    assert lacks({"edge-testbed": "0"}) == (
        "its package edge-testbed has other code than that of the driver's machine"
    )
    assert lacks({"click": "0.1+cpu"}).endswith(", expected 0.1+cpu as on the driver's machine")


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "a/b").mkdir(parents=True)
    (first / "a/b/c").write_bytes(b"1")
    second.mkdir()
    (second / "old").touch()
    extract(archived(first), second)
    assert sorted(str(path.relative_to(second)) for path in second.rglob("*")) == [
        "a",
        "a/b",
        "a/b/c",
    ]
    assert (second / "a/b/c").read_bytes() == b"1"
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second"}


def test_a_run_whose_process_was_killed_before_it_had_a_folder(
    write_study: Any, tmp_path: Path
) -> None:
    (run, _) = load_study(write_study(text=LONG)).runs
    registry = Registry.of_user({"XDG_STATE_HOME": str(tmp_path / "state")}, tmp_path)
    progress = Progress(tmp_path / "runs", registry, lambda text: None, total=2)
    claim = progress.claim(run)
    assert claim is not None
    progress.conclude(claim, status=-9, said="")
    assert progress.failed == {run: Failure("its process was killed by signal 9", 5)}
