"""The containers requested from the Docker engine, for the agent and for every node. Pure.

A container only provides the environment: the role is forked from the agent's template into it, and
the container's own command prints the role's log, so that ``docker logs`` shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from testbed.host.environment import BASE
from testbed.host.limits import (
    PERIOD_MICROSECONDS,
    PIDS_LIMIT,
    SERVICE_WEIGHT,
    SHARES_OF_WEIGHT_ONE,
    Limits,
)
from testbed.host.users import Users
from testbed.network.tunnel import Tunnel
from testbed.runtimes.agent.first_process import FOLDER as COPIES
from testbed.runtimes.agent.first_process import first_process
from testbed.runtimes.agent.launch import Mount
from testbed.runtimes.agent.settings import MARK, AgentSettings
from testbed.runtimes.base import HOSTNAME_BYTES, ContainerSpec, Start, container_name
from testbed.runtimes.docker.abilities import EngineLimits
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import HostSpec, NodeSpec, Plan, inodes

AGENT = "agent"
AGENT_MODULE = "testbed.runtimes.agent.contained"
LOG = "/run/testbed.log"
SHOW_LOG = ("tail", "-n", "+1", "-F", LOG)
FIRST = "/run/testbed.first"
"""Where a container of a user's image shows its first process."""

MARKED = "/run/testbed.mark"

FIRST_PROCESS = ("/usr/bin/tini", "-s", "--")
CONTROL_GROUPS = Path("/sys/fs/cgroup")
AGENT_SCRATCH = {"/tmp": "rw,nosuid,nodev,mode=1777", "/run": "rw,nosuid,nodev,mode=755"}

CAPABILITIES = (
    *("SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE", "NET_ADMIN", "NET_RAW", "SETUID", "SETGID"),
    *("SETPCAP", "KILL", "CHOWN", "FOWNER", "DAC_OVERRIDE"),
)
"""The root capabilities that the agent needs; testbed.runtimes.agent.contained says what for."""

ENVIRONMENT: Mapping[str, str] = {name: value for name, value in BASE.items() if name != "PATH"}
"""Of every container; the PATH is the image's."""

PING_GROUPS = "net.ipv4.ping_group_range"
"""Groups that may send echo requests without a capability; per network namespace."""

LOGGING = {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}}
"""Otherwise ``docker logs`` would show nothing in an engine that sends logs elsewhere."""

SECCOMP = "seccomp.json"
"""The filter of a role, for an engine that gives commands in a container a weaker one."""

LABEL = "org.edge-testbed."
RUN, FOLDER, ROLE, INDEX = (f"{LABEL}{name}" for name in ("run", "folder", "role", "index"))
CLASS, SCENARIO, NODE = (f"{LABEL}{name}" for name in ("class", "scenario", "node"))
CONTROLLER = f"{LABEL}controller"
"""The host whose controller has a container here; none if that is this host."""

HOSTS = f"{LABEL}hosts"
"""All hosts of a run over several, as JSON: they are found without the run's folder."""

HOST_LIST = TypeAdapter(tuple[HostSpec, ...])
_DEFAULT = EngineLimits()


@dataclass(frozen=True)
class Container:
    """A requested container: the node that it is for, its name, and the API's arguments."""

    whose: str
    name: str
    body: Mapping[str, Any]
    here: bool = True  # whether it is created by the engine of this host


def labels_of(plan: Plan, folder: RunFolder) -> dict[str, str]:
    """Return the labels that identify a run's containers; the run's name may not be unique."""
    hosts = {HOSTS: HOST_LIST.dump_json(plan.hosts).decode()} if plan.hosts else {}
    scenario = plan.labels.get("scenario", "")
    return {RUN: plan.run, FOLDER: str(folder.path), SCENARIO: scenario, **hosts}


def node_container(
    spec: ContainerSpec,
    plan: Plan,
    folder: RunFolder,
    *,
    image: str,
    limits: EngineLimits = _DEFAULT,
) -> Container:
    """Return the container for a node's role."""
    node = spec.node
    first, shown = _first_process(node, folder)
    mark = Mount(folder.control / MARK, Path(MARKED))
    mounts = (*spec.mounts, Mount(spec.log, Path(LOG)), mark, *shown)
    scratch = ceil(node.scratch)
    labels = {NODE: node.name, ROLE: node.role, INDEX: str(node.index), CLASS: node.device_class}
    security = list(_HOST["SecurityOpt"])
    if not limits.filtered:
        security.append(f"seccomp={folder.control / SECCOMP}")
    size = f"size={scratch}" + (f",nr_inodes={inodes(scratch)}" if limits.inodes else "")
    body = {
        "Image": image,
        "Entrypoint": list(first),
        "Cmd": list(SHOW_LOG) if first is FIRST_PROCESS else [],
        "Hostname": node.name[:HOSTNAME_BYTES],
        "User": f"{node.uid}:{node.uid}",
        "Env": _environment(limits.gpus.environment(node.dealt)),
        "WorkingDir": "/",
        "Labels": labels_of(plan, folder) | labels,
        "HostConfig": {
            **_HOST,
            **limits.host,
            **_limits(Limits.of(node)),
            "Tmpfs": {"/tmp": f"rw,nosuid,nodev,{size},mode=1777"},
            "ShmSize": scratch,
            "SecurityOpt": security,
            "Sysctls": {PING_GROUPS: f"{node.uid} {node.uid}"},
            "Mounts": [_bind(mount) for mount in mounts],
            **limits.gpus.host(node.dealt),
        },
    }
    if node.has_users_image:  # which defines the environment, and perhaps a check, which would run
        body |= {"Env": [], "Healthcheck": {"Test": ["NONE"]}}
    return Container(node.name, container_name(plan.run, node.name), body)


def agent_container(
    plan: Plan,
    folder: RunFolder,
    start: Start,
    *,
    image: str,
    limits: EngineLimits = _DEFAULT,
    tunnel: Tunnel | None = None,
) -> Container:
    """Return the agent's container, which sees the host's processes and control groups."""
    mounts = [
        Mount(folder.path, folder.path, writable=True),
        Mount(CONTROL_GROUPS, CONTROL_GROUPS, writable=True),
        *(Mount(path, path) for path in start.reads),
    ]
    # The engine is root for every user, and creates all control groups itself.
    images = any(node.has_users_image for node in plan.nodes)
    settings = AgentSettings(
        folder.path, start.template, Users("root"), (), images=images, tunnel=tunnel
    )
    body = {
        "Image": image,
        "Entrypoint": list(FIRST_PROCESS),
        "Cmd": ["python", "-P", "-m", AGENT_MODULE, settings.to_json()],
        "Hostname": AGENT,
        "User": "0:0",
        "Env": _environment(start.environment),
        "WorkingDir": "/",
        "Labels": labels_of(plan, folder) | {NODE: AGENT, ROLE: AGENT, INDEX: "0", CLASS: ""},
        "HostConfig": {
            **_HOST,
            **limits.host,
            **_limits(Limits(cpu_weight=SERVICE_WEIGHT, pids=2 * PIDS_LIMIT)),
            "CapAdd": list(CAPABILITIES),
            "PidMode": "host",
            "CgroupnsMode": "host",
            "Tmpfs": AGENT_SCRATCH,
            "Mounts": [_bind(mount) for mount in mounts],
        },
    }
    return Container("the agent", container_name(plan.run, AGENT), body)


def _first_process(node: NodeSpec, folder: RunFolder) -> tuple[tuple[str, ...], tuple[Mount, ...]]:
    """Return a container's entrypoint, and the mounts for it."""
    if node.has_users_image:
        mount = Mount(folder.control / COPIES, Path(FIRST))
        return first_process(mount.target, Path(LOG)), (mount,)
    return (FIRST_PROCESS if node.image == "nodes" else SHOW_LOG), ()  # the other may lack tini


_HOST: Mapping[str, Any] = {
    "NetworkMode": "none",
    "IpcMode": "private",
    "CapDrop": ["ALL"],
    "Privileged": False,
    "ReadonlyRootfs": True,
    "RestartPolicy": {"Name": "no"},
    "Init": False,
    "AutoRemove": False,
    "SecurityOpt": ["no-new-privileges"],
    "LogConfig": LOGGING,
}


def _limits(limits: Limits) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "CpuShares": SHARES_OF_WEIGHT_ONE * limits.cpu_weight,
        "PidsLimit": limits.pids,
    }
    if limits.cpu is not None:
        asked["CpuPeriod"] = PERIOD_MICROSECONDS
        asked["CpuQuota"] = round(limits.cpu * PERIOD_MICROSECONDS)
    if limits.cpuset is not None:
        asked["CpusetCpus"] = limits.cpuset
    if limits.memory is not None:
        # Limit swap as well, or a node would only become slow where it should run out of memory.
        asked["Memory"] = asked["MemorySwap"] = int(limits.memory)
    return asked


def _bind(mount: Mount) -> dict[str, Any]:
    # Unlike a "Bind" of the API, it does not create a folder of root if the source is missing.
    return {
        "Type": "bind",
        "Source": str(mount.source),
        "Target": str(mount.target),
        "ReadOnly": not mount.writable,
    }


def _environment(changes: Mapping[str, str | None]) -> list[str]:
    """Return the API's format; a name whose value is None is left out."""
    merged = {**ENVIRONMENT, **changes}
    return [f"{name}={value}" for name, value in merged.items() if value is not None]
