"""The connection to this machine's Docker engine, and what an engine cannot provide to a run."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from testbed.errors import HostError
from testbed.host.environment import BASE
from testbed.host.hierarchies import check_present, find_hierarchies
from testbed.host.limits import Limits, settings
from testbed.runtimes.docker.faults import engine_faults
from testbed.values.topology import NodeSpec

if TYPE_CHECKING:
    from docker import APIClient

DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
SCHEME = "unix://"
NATIVE = "use `runtime: native`"

THREADS = 8
"""Concurrent requests: the engine does the work of creating containers, and more are no faster."""

CALL_SECONDS = 120.0
"""The engine answers in a fraction of a second, or in tens of seconds on a slow disk."""

PROBE_SECONDS = 10.0
"""An engine that does not return its version within this time hangs."""

INSTALL = "Install one (sudo apt-get install docker.io, or https://docs.docker.com/engine/install)"

ENFORCED_BY = {"cpu": "CpuCfsQuota", "memory": "MemoryLimit", "cpuset": "CPUSet"}
"""Limits of a node, and the field of ``docker info`` that says whether the kernel enforces it."""

GPU_RUNTIME = "nvidia"
REMOVE = "or remove it from the scenario"


def connect(address: str | None = None, *, patience_seconds: float = PROBE_SECONDS) -> APIClient:
    """Return a client of the engine for up to THREADS threads. The caller must close it.

    Args:
        address: of its socket, ``unix://...``; by default DOCKER_HOST, or the usual one.
        patience_seconds: how long it may take to identify itself.

    Raises:
        HostError: no engine answers there, or that one cannot host runs; says what to do.
    """
    from docker import APIClient

    path = socket_path(address)
    _reach(path)
    with engine_faults("connecting"):
        engine = APIClient(
            base_url=f"{SCHEME}{path}",
            version="auto",
            timeout=patience_seconds,
            max_pool_size=THREADS,
        )
    try:
        refuse(describe(engine))
        engine.timeout = CALL_SECONDS
    except BaseException:
        engine.close()
        raise
    return engine


def socket_path(address: str | None = None) -> str:
    """Return the path of an engine's socket; the address as for ``connect``.

    Raises:
        HostError: it is not a unix socket.
    """
    address = address or os.environ.get("DOCKER_HOST") or DEFAULT_ADDRESS
    if not address.startswith(SCHEME):
        raise HostError(
            f"DOCKER_HOST is {address}, expected an engine of this machine, at unix://...",
            hint=f"Unset it (unset DOCKER_HOST), or {NATIVE}.",
        )
    return address.removeprefix(SCHEME)


def describe(engine: APIClient) -> Mapping[str, Any]:
    """Return the output of ``docker info``."""
    with engine_faults("asking what it is"):
        info: Mapping[str, Any] = engine.info()
    return info


def refuse(info: Mapping[str, Any]) -> None:
    """Reject engines whose containers this machine's agent could not enter. Pure.

    Raises:
        HostError: it is one of these; names what to use instead.
    """
    options = {option.partition(",")[0] for option in info.get("SecurityOptions") or ()}
    rootful = "select the system's engine, or"
    if "Docker Desktop" in str(info.get("OperatingSystem", "")):
        raise HostError(
            "Docker Desktop runs containers in a virtual machine, which the agent cannot enter.",
            hint=f"Install Docker Engine (`docker context use default`), or {NATIVE}.",
        )
    if "name=rootless" in options:
        raise HostError(
            "A rootless Docker engine cannot give links to its containers.",
            hint=f"Unset DOCKER_HOST to {rootful} {NATIVE}.",
        )
    if "name=userns" in options:
        raise HostError(
            "This Docker engine remaps users, and the agent cannot enter its containers.",
            hint=f"Remove userns-remap from /etc/docker/daemon.json, or {NATIVE}.",
        )
    if info.get("OSType", "linux") != "linux":
        raise HostError(
            f"This Docker engine runs {info['OSType']} containers.", hint="Use `runtime: native`."
        )


def check_abilities(nodes: Iterable[NodeSpec], info: Mapping[str, Any]) -> None:
    """Reject nodes that need what this engine, with this ``docker info``, cannot provide.

    Raises:
        HostError: a node has a limit that is not enforced, CPUs that do not exist, or GPUs in an
            engine without a runtime for them; names it, and the fix.
    """
    for node in nodes:
        whose = f"{node.name} (class {node.device_class})" if node.device_class else node.name
        for limit, told in ENFORCED_BY.items():
            wanted = getattr(node, limit)
            if wanted is not None and not info.get(told, False):
                raise HostError(
                    f"{whose}: {limit} {wanted} is a limit, which the kernel of this Docker "
                    "engine cannot enforce.",
                    hint=f"`docker info` ends with what the kernel lacks: enable it, {REMOVE}.",
                )
        settings(Limits.of(node), "cpu", 1)  # rejects what no kernel can enforce
        if node.cpuset is not None:
            check_present(whose, node.cpuset, find_hierarchies())
        if node.gpus and GPU_RUNTIME not in info.get("Runtimes", {}):
            raise HostError(
                f"{whose}: gpus {node.gpus}, but this Docker engine has no runtime {GPU_RUNTIME}.",
                hint=f"Install the NVIDIA Container Toolkit, {REMOVE}.",
            )


def want_gpus(nodes: Iterable[NodeSpec]) -> bool:
    """Return whether any node has a GPU; then all have the image that can use one."""
    return any(node.gpus for node in nodes)


def start_or_install(path: str | None = None) -> str:
    """Return how to get an engine on this machine, whose programs are searched for in ``path``."""
    where = BASE["PATH"] if path is None else path
    installed = any(shutil.which(name, path=where) for name in ("dockerd", "docker"))
    return "Start it (sudo systemctl start docker)" if installed else INSTALL


def _reach(path: str) -> None:
    """Find out why no engine answers, which the client would not report."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(path)
        except PermissionError:
            raise HostError(
                f"{path}: permission denied.",
                hint='Add the user to the docker group (sudo usermod -aG docker "$USER", and log '
                f"in again), or {NATIVE}.",
            ) from None
        except OSError as error:
            absent = error.errno in (errno.ENOENT, errno.ECONNREFUSED)
            cure = start_or_install() if absent else "See `docker version`"
            raise HostError(
                f"No Docker engine answers at {path}: {error.strerror or error}.",
                hint=f"{cure}, or {NATIVE}.",
            ) from None
