"""Requests to the engine, compared in full, without an engine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.host.environment import BASE
from testbed.host.limits import max_memory
from testbed.runtimes.agent.launch import Mount
from testbed.runtimes.agent.settings import AgentSettings, Template
from testbed.runtimes.base import ContainerSpec, Request, Start
from testbed.runtimes.docker.abilities import EngineLimits
from testbed.runtimes.docker.containers import agent_container, node_container
from testbed.runtimes.docker.driver import DockerDriver
from testbed.telemetry.folder import RunFolder
from testbed.values.cpu_sets import CpuSet
from testbed.values.fields import with_tag
from testbed.values.topology import Gpu, NetworkSpec, NodeSpec, Plan
from testbed.values.units import Size

IMAGE = "edge-testbed:1-abc"
FOLDER = RunFolder(Path("/runs/mnist"))
PS = NodeSpec("ps", "ps", 0, "", None, None, None, 10, 20000)
WORKER = NodeSpec("w3", "worker", 3, "slow", None, 0.5, Size.parse("256MiB"), 1, 20004)
LABELS = {"run": "mnist", "scenario": "adacomp-mnist"}
PLAN = Plan("mnist", (PS, WORKER), NetworkSpec(), "warm", LABELS)
ENVIRONMENT = [f"{name}={value}" for name, value in BASE.items() if name != "PATH"]

GPUS = tuple(Gpu(n, uuid, "Any", Size(24e9), n) for n, uuid in enumerate(("GPU-aa", "GPU-bb")))


def test_a_container_of_a_users_image_shows_its_first_process() -> None:
    node = replace(WORKER, image="redis:7")
    asked = node_container(ContainerSpec(node, (), FOLDER.log("w3")), PLAN, FOLDER, image="redis:7")
    first = "/run/testbed.first"
    loader = [f"{first}/ld.so", "--library-path", first]
    tail = ["-n", "+1", "-F", "/run/testbed.log"]
    assert asked.body["Entrypoint"] == [
        *(*loader, f"{first}/tini", "-s", "--", *loader, f"{first}/tail", *tail)
    ]
    assert (asked.body["Cmd"], asked.body["Env"]) == ([], [])  # the environment is the image's
    assert asked.body["Healthcheck"] == {"Test": ["NONE"]}
    assert {
        "Type": "bind",
        "Source": "/runs/mnist/control/first",
        "Target": first,
        "ReadOnly": True,
    } in asked.body["HostConfig"]["Mounts"]


@pytest.mark.parametrize("image", ["nodes", "redis:7"])
def test_the_agent_copies_a_first_process_for_images_of_users(image: str) -> None:
    plan = replace(PLAN, nodes=(PS, replace(WORKER, image=image)))
    asked = agent_container(plan, FOLDER, Start(), image=IMAGE)
    settings = AgentSettings.from_json(asked.body["Cmd"][-1])
    assert settings.images is (image != "nodes")


def test_images_without_a_tag_get_the_engines() -> None:
    names = ("redis", "redis:7", "host:5000/redis", "host:5000/redis:7", "r@sha256:0", "sha256:0")
    assert [with_tag(name) for name in names] == [
        *("redis:latest", "redis:7", "host:5000/redis:latest", "host:5000/redis:7"),
        *("r@sha256:0", "sha256:0"),
    ]


def test_the_container_of_a_node() -> None:
    mounts = (
        Mount(Path("/runs/mnist/scenario.yaml"), Path("/run/testbed/scenario.yaml")),
        Mount(Path("/runs/mnist/ps"), Path("/run/testbed/ps"), writable=True),
    )
    spec = ContainerSpec(replace(WORKER, cpuset=CpuSet("0-1")), mounts, FOLDER.log("w3"))
    asked = node_container(spec, PLAN, FOLDER, image=IMAGE)
    assert (asked.whose, asked.name) == ("w3", "testbed-mnist-w3")
    assert json.loads(json.dumps(asked.body)) == {
        "Image": IMAGE,
        "Entrypoint": ["/usr/bin/tini", "-s", "--"],
        "Cmd": ["tail", "-n", "+1", "-F", "/run/testbed.log"],
        "Hostname": "w3",
        "User": "20004:20004",
        "Env": ENVIRONMENT,
        "WorkingDir": "/",
        "Labels": {
            "org.edge-testbed.run": "mnist",
            "org.edge-testbed.folder": "/runs/mnist",
            "org.edge-testbed.scenario": "adacomp-mnist",
            "org.edge-testbed.node": "w3",
            "org.edge-testbed.role": "worker",
            "org.edge-testbed.index": "3",
            "org.edge-testbed.class": "slow",
        },
        "HostConfig": {
            "NetworkMode": "none",
            "IpcMode": "private",
            "CapDrop": ["ALL"],
            "Privileged": False,
            "ReadonlyRootfs": True,
            "RestartPolicy": {"Name": "no"},
            "Init": False,
            "AutoRemove": False,
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}},
            "CpuShares": 1024,
            "PidsLimit": 512,
            "CpuPeriod": 100_000,
            "CpuQuota": 50_000,
            "CpusetCpus": "0-1",
            "Memory": 256 * 2**20,
            "MemorySwap": 256 * 2**20,
            "SecurityOpt": ["no-new-privileges"],
            "Tmpfs": {"/tmp": "rw,nosuid,nodev,size=16777216,nr_inodes=16384,mode=1777"},
            "ShmSize": 16777216,
            "Sysctls": {"net.ipv4.ping_group_range": "20004 20004"},
            "Mounts": [
                {
                    "Type": "bind",
                    "Source": "/runs/mnist/scenario.yaml",
                    "Target": "/run/testbed/scenario.yaml",
                    "ReadOnly": True,
                },
                {
                    "Type": "bind",
                    "Source": "/runs/mnist/ps",
                    "Target": "/run/testbed/ps",
                    "ReadOnly": False,
                },
                {
                    "Type": "bind",
                    "Source": "/runs/mnist/logs/w3.log",
                    "Target": "/run/testbed.log",
                    "ReadOnly": True,
                },
                {
                    "Type": "bind",
                    "Source": "/runs/mnist/control/mark",
                    "Target": "/run/testbed.mark",
                    "ReadOnly": True,
                },
            ],
            "DeviceRequests": [],
        },
    }


def test_the_containers_of_a_node_without_limits_and_of_one_with_gpus() -> None:
    host = node_container(ContainerSpec(PS, (), FOLDER.log("ps")), PLAN, FOLDER, image=IMAGE).body[
        "HostConfig"
    ]
    assert host["CpuShares"] == 10_240
    assert not {"CpuQuota", "CpusetCpus"} & host.keys()
    assert host["Memory"] == host["MemorySwap"] == max_memory()  # half of the host's
    spec = ContainerSpec(replace(WORKER, gpus=2, dealt=GPUS), (), FOLDER.log("w3"))
    body = node_container(spec, PLAN, FOLDER, image=IMAGE).body
    asked = {"DeviceIDs": ["GPU-aa", "GPU-bb"], "Capabilities": [["gpu"]]}  # these and no others
    assert body["HostConfig"]["DeviceRequests"] == [asked]
    assert not [text for text in body["Env"] if text.startswith("CUDA_VISIBLE_DEVICES")]


def test_the_container_of_a_node_in_podman() -> None:
    ulimits = [{"Name": "nofile", "Soft": 4096, "Hard": 4096}]
    limits = EngineLimits({"Ulimits": ulimits}, inodes=False, filtered=False)
    spec = ContainerSpec(WORKER, (), FOLDER.log("w3"))
    host = node_container(spec, PLAN, FOLDER, image=IMAGE, limits=limits).body["HostConfig"]
    assert host["Tmpfs"] == {"/tmp": "rw,nosuid,nodev,size=16777216,mode=1777"}
    assert host["Ulimits"] == ulimits
    profile = "seccomp=/runs/mnist/control/seccomp.json"
    assert host["SecurityOpt"] == ["no-new-privileges", profile]


def test_the_container_of_the_agent() -> None:
    start = Start(
        template=Template(preload=("torch",)),
        environment={"LANG": "C"},
        reads=(Path("/data/mnist"),),
    )
    asked = agent_container(PLAN, FOLDER, start, image=IMAGE)
    assert asked.name == "testbed-mnist-agent"
    body = json.loads(json.dumps(asked.body))
    assert body["Cmd"][:4] == ["python", "-P", "-m", "testbed.runtimes.agent.contained"]
    settings = json.loads(body["Cmd"][4])
    assert (settings["folder"], settings["users"]["kind"]) == ("/runs/mnist", "root")
    assert settings["template"]["preload"] == ["torch"]
    assert "LANG=C" in body["Env"]
    assert body["Labels"]["org.edge-testbed.role"] == "agent"
    host = body["HostConfig"]
    assert (host["PidMode"], host["NetworkMode"], host["CgroupnsMode"]) == ("host", "none", "host")
    assert (host["CapDrop"], host["Privileged"], host["ReadonlyRootfs"]) == (["ALL"], False, True)
    assert host["CapAdd"] == [
        *("SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE", "NET_ADMIN", "NET_RAW", "SETUID", "SETGID"),
        *("SETPCAP", "KILL", "CHOWN", "FOWNER", "DAC_OVERRIDE"),
    ]
    assert [(mount["Target"], mount["ReadOnly"]) for mount in host["Mounts"]] == [
        *(("/runs/mnist", False), ("/sys/fs/cgroup", False), ("/data/mnist", True)),
    ]
    assert all(mount["Source"] == mount["Target"] for mount in host["Mounts"])


def requests(plan: Plan, *, image: str | None = None) -> tuple[Request, ...]:
    specs = [ContainerSpec(node, (), FOLDER.log(node.name)) for node in plan.nodes]
    return DockerDriver(image=image).requests(plan, FOLDER, Start(), specs)


def test_requests_list_the_containers_to_create() -> None:
    agent, ps, worker = requests(PLAN, image=IMAGE)
    assert [one.to for one in (agent, ps, worker)] == ["engine"] * 3
    names = [one.name for one in (agent, ps, worker)]
    assert names == ["create the agent", "create ps", "create w3"]
    assert agent.body == agent_container(PLAN, FOLDER, Start(), image=IMAGE).body
    spec = ContainerSpec(WORKER, (), FOLDER.log("w3"))
    assert worker.body == node_container(spec, PLAN, FOLDER, image=IMAGE).body


def test_requests_name_the_image_of_this_package() -> None:
    assert requests(PLAN)[0].body["Image"].startswith("edge-testbed:")
    with_gpu = replace(PLAN, nodes=(PS, replace(WORKER, gpus=1)))
    assert requests(with_gpu)[0].body["Image"].endswith("-gpu")


@pytest.mark.parametrize("count", [1, 200])
def test_names_are_unique_and_name_run_and_node(count: int) -> None:
    nodes = [replace(WORKER, name=f"w{index}", index=index) for index in range(count)]
    specs = [ContainerSpec(node, (), FOLDER.log(node.name)) for node in nodes]
    names = {node_container(spec, PLAN, FOLDER, image=IMAGE).name for spec in specs}
    assert len(names) == count
