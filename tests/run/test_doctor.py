"""The doctor's checks, one by one, on made-up hosts."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import HostError
from testbed.host.users import Users
from testbed.plan.budget import budget
from testbed.plan.make import plan
from testbed.run.doctor import host
from testbed.run.doctor.host import ExaminedRun
from testbed.run.doctor.hosts import check_placement, judge
from testbed.run.doctor.nodes import check_nodes
from testbed.runtimes.docker import Docker
from testbed.runtimes.docker import doctor as docker
from testbed.runtimes.docker.swarm import SwarmHost
from testbed.scenario import load_text
from testbed.values.topology import Gpu, HostSpec, NodeSpec
from testbed.values.units import Size


@pytest.fixture
def case(tmp_path: Path) -> ExaminedRun:
    return ExaminedRun(
        workers=100, runs=tmp_path / "runs", environment={}, cache=tmp_path / "cache"
    )


@pytest.mark.parametrize(
    ("release", "level"),
    [("5.11.9", "missing"), ("4.19.0-6-amd64", "missing"), ("5.12", "ok"), ("6.8.0-31", "ok")],
)
def test_the_kernel_must_know_mount_setattr(release: str, level: str) -> None:
    assert host.check_kernel(release).level == level


def test_missing_capabilities_of_root_are_named(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx\nCapEff:\t000001ffffffffff\n")
    assert host.check_capabilities(status, root=True).level == "ok"
    status.write_text("Name:\tx\nCapEff:\t00000000a80425fb\n")  # Docker's default
    found = host.check_capabilities(status, root=True)
    assert found.level == "missing"
    assert found.found == "root lacks CAP_NET_ADMIN, CAP_SYS_PTRACE, CAP_SYS_ADMIN"
    assert host.check_capabilities(status, root=False).level == "ok"


def test_nodes_that_share_one_uid_can_be_told_apart() -> None:
    assert host.describe_users(Users("range")).level == "ok"
    found = host.describe_users(Users("one"))
    assert (found.level, found.check) == ("warning", "namespaces")
    assert "sudo apt-get install uidmap" in found.fix


def test_the_address_space(tmp_path: Path) -> None:
    overcommit = tmp_path / "sys/vm/overcommit_memory"
    overcommit.parent.mkdir(parents=True)
    overcommit.write_text("0\n")
    assert host.check_address_space(limit_bytes=-1, proc=tmp_path).level == "ok"
    assert host.check_address_space(limit_bytes=2**30, proc=tmp_path).level == "missing"
    found = host.check_address_space(limit_bytes=7 * 2**30, proc=tmp_path)
    assert (found.level, found.found) == ("ok", "limited to 7.0 GiB")  # `up` takes it
    overcommit.write_text("2\n")
    assert host.check_address_space(limit_bytes=-1, proc=tmp_path).level == "warning"


def test_open_files_are_counted_by_the_workers(case: ExaminedRun) -> None:
    """100 workers, the parameter server and the evaluator: 64 + 3 * 102 files."""
    assert host.check_files(case, limit=370).level == "ok"
    assert host.check_files(case, limit=-1).found == "no limit"
    short = host.check_files(case, limit=369)
    assert short.level == "missing"
    assert short.fix.endswith("ulimit -n 370")


def test_the_soft_limit_of_open_files_is_ignored_as_the_agent_raises_it(case: ExaminedRun) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        assert host.check_files(case).level == "ok"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_processes_are_counted_by_the_workers(case: ExaminedRun, tmp_path: Path) -> None:
    folder = tmp_path / "sys/kernel"
    folder.mkdir(parents=True)
    (folder / "threads-max").write_text("100000")
    (folder / "pid_max").write_text("1000")
    found = host.check_processes(case, proc=tmp_path)
    assert found.level == "missing"
    assert found.found == "kernel.pid_max is 1,000, expected 1,800 for 100 workers"
    assert found.fix == "Raise it: sysctl -w kernel.pid_max=1800"


def test_inotify_is_only_a_warning(tmp_path: Path) -> None:
    assert host.check_inotify(proc=tmp_path).level == "warning"


def test_memory_and_cpus(case: ExaminedRun) -> None:
    assert case.memory_bytes == 250_000_000 + 102 * 20_000_000
    assert host.check_memory(case, available=2_290_000_000).level == "ok"
    assert host.check_memory(case, available=2_289_999_999).level == "missing"
    assert host.check_cpus(case, cpus=1).level == "ok"


def test_a_folder_of_runs_that_is_not_there_yet(case: ExaminedRun, tmp_path: Path) -> None:
    assert str(tmp_path) in host.check_disk(case).found
    assert list(tmp_path.iterdir()) == []


def test_data_that_is_named_but_not_there(case: ExaminedRun, tmp_path: Path) -> None:
    assert host.check_data(case).level == "ok"
    named = ExaminedRun(1, tmp_path, {"TESTBED_DATA": str(tmp_path / "nowhere")}, tmp_path)
    assert host.check_data(named).level == "missing"


def test_missing_kafka_is_reported_if_a_scenario_needs_it(case: ExaminedRun) -> None:
    without = replace(case, environment={"PATH": "/nowhere"})
    assert host.check_kafka(without).level == "ok"
    text = """\
name: streamed
algorithm: ddl
model: digits-cnn
dataset: digits
workers: {count: 2}
streams: {rates: {constant: {per_second: 20}}, transport: kafka}
stop: {updates: 1}
"""
    needed = host.check_kafka(replace(without, plan=plan(load_text(text), "r1")))
    assert needed.level == "missing"
    assert "TESTBED_KAFKA is not set" in needed.found
    assert "kafka.apache.org/downloads" in needed.fix


def test_the_interpreter_and_its_packages() -> None:
    assert host.check_python().level == "ok"
    assert host.check_packages().level in ("ok", "warning")


@dataclass
class Driver:
    """Refuses nodes for a reason, or accepts them; remembers their GPUs."""

    refusal: str = ""
    dealt: list[str] = field(default_factory=list)

    def check(self, nodes: Iterable[NodeSpec]) -> Mapping[str, str]:
        self.dealt = [gpu.uuid for node in nodes for gpu in node.dealt]
        if self.refusal:
            raise HostError(self.refusal, hint="Fix it.")
        return {}


GPU = Gpu(0, "GPU-aa", "Any", Size(24e9), 0)
ASKED = """\
name: asked
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 4, classes: {all: {gpus: 0.25}}}
programs: {load: {command: [iperf3], folders: [FOLDER]}}
stop: {updates: 1}
"""


def check_asked(case: ExaminedRun, driver: Any, *found: Gpu, **options: Any) -> list[list[str]]:
    findings = check_nodes(case, driver, find_gpus=lambda: found, **options)
    return [[one.check, one.level, one.found] for one in findings]


def test_what_nodes_ask_of_the_host_is_checked_as_before_a_run(
    case: ExaminedRun, tmp_path: Path
) -> None:
    assert check_asked(case, Driver()) == []  # without a scenario
    asked = replace(case, plan=plan(load_text(ASKED.replace("FOLDER", str(tmp_path))), "r1"))
    driver = Driver()
    fine = ["nodes", "ok", "their limits, CPUs and files are available"]
    assert check_asked(asked, driver, GPU) == [["GPUs", "ok", "GPU 0 for 4 nodes"], fine]
    assert driver.dealt == ["GPU-aa"] * 4
    none, cpus = check_asked(asked, Driver("w3: cpuset 7"))
    assert none[:2] == ["GPUs", "missing"]
    assert "this host has no NVIDIA GPU" in none[2]
    assert cpus == ["nodes", "missing", "w3: cpuset 7"]
    # The image, for one, has a check of its own.
    assert len(check_asked(asked, Driver("no image"), GPU, reported={"no image"})) == 1
    gone = replace(case, plan=plan(load_text(ASKED.replace("FOLDER", "/no/where")), "r1"))
    assert ["nodes", "missing", "/no/where: no such folder on this host"] in check_asked(
        gone, driver, GPU
    )


ABLE = dict.fromkeys(("MemoryLimit", "SwapLimit", "CpuCfsQuota", "CPUSet", "PidsLimit"), True)


def test_an_unusable_engine_is_the_only_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://elsewhere")
    (found,) = docker.examine_engine("", workers=100, gpu=False, broker=False)
    assert (found.check, found.level) == ("engine", "missing")
    assert "ssh://elsewhere" in found.found


def test_limits_that_an_engine_cannot_enforce() -> None:
    assert docker.check_engine_limits(ABLE).level == "ok"
    found = docker.check_engine_limits(ABLE | {"MemoryLimit": False, "CPUSet": False})
    assert found.level == "warning"
    assert found.found.startswith("the engine cannot limit memory, cpuset: ")


def test_the_control_groups_of_an_engine() -> None:
    found = docker.check_group_driver({"CgroupDriver": "systemd", "CgroupVersion": "2"})
    assert (found.level, found.found) == ("ok", "version 2, driver systemd")
    assert docker.check_group_driver({"CgroupDriver": "none"}).level == "missing"


def test_where_an_engine_keeps_containers(tmp_path: Path) -> None:
    found = docker.check_data_root({"DockerRootDir": str(tmp_path)}, 100)
    assert (found.level, str(tmp_path) in found.found) == ("ok", True)
    assert docker.check_data_root({"DockerRootDir": str(tmp_path)}, 10**9).level == "missing"
    gone = docker.check_data_root({"DockerRootDir": str(tmp_path / "gone")}, 100)
    assert gone.level == "warning"


def test_lost_frames_name_port_hosts_and_direction() -> None:
    hosts = [HostSpec(name, f"10.0.0.{n}", "") for n, name in enumerate("abc", start=1)]
    both = ["large", "small"]
    arrived: dict[str, dict[str, list[str]]] = {
        "a": {"b": both, "c": both},
        "b": {"a": [], "c": ["small"]},
        "c": {"a": both, "b": both},
    }
    lost, small = judge(hosts, arrived)
    assert (lost.level, lost.found) == (
        "missing",
        "from a (10.0.0.1) to b (10.0.0.2): none arrives at UDP port 4789",
    )
    assert lost.fix.startswith("Allow UDP port 4789 from 10.0.0.1 in the firewall of b")
    assert "from c (10.0.0.3) to b (10.0.0.2): packets of 1,450 bytes are lost" in small.found
    (fine,) = judge(hosts[::2], arrived)
    assert (fine.level, fine.found) == (
        "ok",
        "arrive each way between each two of 2 hosts, up to 1,450 bytes",
    )


PLACED = """\
name: placed
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 4, classes: {slow: {}}}
runtime: {docker: {hosts: {swarm: {placement: {slow: rack=a}}}}}
stop: {updates: 1}
"""


def test_a_placement_that_no_host_fits_is_missing(case: ExaminedRun) -> None:
    scenario = load_text(PLACED)
    made = plan(scenario, "r1")
    asked = replace(case, plan=made, budget=budget(scenario, made, 1000))
    runtime = scenario.runtime
    assert isinstance(runtime, Docker)
    assert runtime.swarm is not None

    def found(*hosts: SwarmHost, of: ExaminedRun = asked) -> list[tuple[str, str]]:
        assert runtime.swarm is not None
        return [(one.level, one.found) for one in check_placement(hosts, of, runtime.swarm)]

    bare = SwarmHost(
        **{"name": "a", "identity": "1", "address": "10.0.0.1", "engine": "", "labels": {}},
        **{"cpus": 2, "memory_bytes": 10**12, "architecture": "x86_64", "version": "28"},
        **{"availability": "active", "state": "ready", "here": True},
    )
    other = replace(bare, name="b", here=False, engine="ssh://b", labels={"rack": "a"})
    assert found(bare, other) == []
    assert found(bare, of=case) == []  # without a scenario
    assert found(bare) == [
        ("missing", "placement of class slow: no host of the Swarm has the label rack=a.")
    ]
    ((_, left_out),) = found(bare, replace(other, left_out="it is drained"))
    assert "the host b, which has the label rack=a, is left out: it is drained" in left_out
    ((_, small),) = found(bare, replace(other, memory_bytes=1))
    assert small.startswith("host b: its nodes need about ")
