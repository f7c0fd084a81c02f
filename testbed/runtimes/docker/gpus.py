"""How an engine of this machine gives GPUs to containers: three ways, of which one is enough.

hook     NVIDIA's container toolkit is installed: a device request, as of ``docker run --gpus``
cdi      the engine reads specifications of devices (CDI), and one describes the GPUs
runtime  NVIDIA's runtime is registered: it starts the container, which names its GPUs
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from testbed.errors import HostError
from testbed.host.environment import BASE
from testbed.values.topology import Gpu, NodeSpec

HOOK = "nvidia-container-runtime-hook"
RUNTIME = "nvidia"
KIND = "nvidia.com/gpu"
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
CDI_SUFFIXES = {".json", ".yaml", ".yml"}
LEAST_PODMAN = 5
"""Podman 4 ignores requests for devices that come by Docker's API."""

REMOVE = "or remove gpus from the scenario"
INSTALL = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit"
GENERATE = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"


@dataclass(frozen=True)
class GpuAccess:
    """How an engine gives GPUs to containers.

    Attributes:
        way: one of the three.
        names: of CDI, by UUID or index of a GPU; empty otherwise.
    """

    way: Literal["hook", "cdi", "runtime"] = "hook"
    names: frozenset[str] = field(default_factory=frozenset)

    def host(self, gpus: Sequence[Gpu]) -> dict[str, Any]:
        """Return what a container with these GPUs has in its HostConfig."""
        if not gpus:
            return {"DeviceRequests": []}
        if self.way == "runtime":
            return {"DeviceRequests": [], "Runtime": RUNTIME}
        if self.way == "cdi":
            devices = [f"{KIND}={self.name(gpu)}" for gpu in gpus]
            return {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": devices}]}
        ids = [gpu.uuid for gpu in gpus]
        return {"DeviceRequests": [{"DeviceIDs": ids, "Capabilities": [["gpu"]]}]}

    def environment(self, gpus: Sequence[Gpu]) -> dict[str, str | None]:
        """Return the variables of a container with these GPUs; None for one that it must lack."""
        if not gpus:
            return {}
        chosen: dict[str, str | None] = {"CUDA_VISIBLE_DEVICES": None}
        if self.way == "runtime":
            chosen["NVIDIA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus)
            chosen["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
        return chosen

    def name(self, gpu: Gpu) -> str | None:
        """Return the name that CDI has for a GPU; None without one."""
        return next((name for name in (gpu.uuid, str(gpu.index)) if name in self.names), None)


def find_access(
    info: Mapping[str, Any],
    *,
    podman: bool,
    path: str = BASE["PATH"],
    folders: Sequence[str] = CDI_FOLDERS,
) -> GpuAccess | None:
    """Return how an engine with this ``docker info`` gives GPUs to containers; None if it cannot.

    Args:
        info: a Docker engine that reads CDI names the folders in it.
        podman: whether it is Podman, which has CDI only.
        path: where Docker looks for the toolkit's hook.
        folders: where Podman looks for specifications.
    """
    if not podman and shutil.which(HOOK, path=path) is not None:
        return GpuAccess()
    if names := cdi_names(folders if podman else info.get("CDISpecDirs") or ()):
        return GpuAccess("cdi", names)
    if not podman and RUNTIME in info.get("Runtimes", {}):
        return GpuAccess("runtime")
    return None


def cdi_names(folders: Sequence[str]) -> frozenset[str]:
    """Return the names of the GPUs in the specifications in some folders.

    Raises:
        HostError: one of them cannot be read; names it.
    """
    names: set[str] = set()
    for file in sorted(file for folder in folders for file in Path(folder).glob("*.*")):
        if file.suffix in CDI_SUFFIXES:
            try:
                found = yaml.safe_load(file.read_text(encoding="utf-8"))  # JSON is YAML
                if found["kind"] == KIND:
                    names |= {str(device["name"]) for device in found["devices"]}
            except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
                raise HostError(f"{file}: not a specification of devices: {error}.") from None
    return frozenset(names)


def check_access(node: NodeSpec, whose: str, info: Mapping[str, Any], *, podman: bool) -> None:
    """Reject a node with GPUs that an engine with this ``docker info`` cannot give it.

    Raises:
        HostError: says what is missing, and how to get it.
    """
    asked = f"{whose}: gpus {node.gpus:g}"
    version = str(info.get("ServerVersion", ""))
    if podman and int(version.partition(".")[0] or 0) < LEAST_PODMAN:
        raise HostError(
            f"{asked}, but Podman {version} ignores requests for GPUs by Docker's API.",
            hint=f"Use Podman {LEAST_PODMAN} or newer, or `runtime: native`, {REMOVE}.",
        )
    access = find_access(info, podman=podman)
    if access is None and podman:
        raise HostError(
            f"{asked}, but no specification in {' or '.join(CDI_FOLDERS)} describes a GPU.",
            hint=f"Install NVIDIA's container toolkit, then: {GENERATE}; {REMOVE}.",
        )
    if access is None:
        raise HostError(
            f"{asked}, but this Docker engine cannot give GPUs to containers: {HOOK} is not "
            f"installed, CDI describes no GPU, and no runtime {RUNTIME} is registered.",
            hint=f"Install NVIDIA's container toolkit ({INSTALL}), {REMOVE}.",
        )
    for gpu in node.dealt if access.way == "cdi" else ():
        if access.name(gpu) is None:
            raise HostError(
                f"{asked}, but CDI has no device {KIND}={gpu.index}: it has "
                f"{', '.join(sorted(access.names))}.",
                hint=f"Describe this host's GPUs again: {GENERATE}",
            )
