"""Runs as LXC containers: their configuration, their records on this host, and the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from testbed.runtimes.config import Capabilities, ContainerRuntime

if TYPE_CHECKING:
    from testbed.runtimes.base import RuntimeDriver


class Lxc(ContainerRuntime):
    """LXC containers with the host's programs, read-only; needs root and the package lxc."""

    # Memory: a monitor, and the container's first processes.
    capabilities = Capabilities(gpus=True, container_bytes=2_000_000)

    name: Literal["lxc"]

    def driver(self) -> RuntimeDriver:
        """Return the driver; see ContainerRuntime."""
        from testbed.runtimes.lxc.driver import LxcDriver

        return LxcDriver()
