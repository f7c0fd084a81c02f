"""Runs as LXC containers: their configuration, their records on this host, and the driver."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from testbed.runtimes.config import Capabilities, ContainerRuntime
from testbed.values.fields import Folder

if TYPE_CHECKING:
    from testbed.runtimes.base import RuntimeDriver


class Lxc(ContainerRuntime):
    """LXC containers with the host's programs, read-only; needs the package lxc.

    Attributes:
        rootfs: folder with a root file system, such as one made by mmdebstrap, whose programs the
            nodes have instead of the host's; read-only.
    """

    # Memory: a monitor, and the container's first processes.
    capabilities = Capabilities(gpus=True, container_bytes=2_000_000)

    name: Literal["lxc"]
    rootfs: Folder | None = None

    def driver(self) -> RuntimeDriver:
        """Return the driver; see ContainerRuntime."""
        from testbed.runtimes.lxc.driver import LxcDriver
        from testbed.runtimes.lxc.root_system import RootSystem

        return LxcDriver(system=None if self.rootfs is None else RootSystem(Path(self.rootfs)))
