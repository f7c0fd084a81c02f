"""Runs as containers made of namespaces and control groups, without an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from testbed.runtimes.config import Capabilities, ContainerRuntime

if TYPE_CHECKING:
    from testbed.runtimes.base import RuntimeDriver


class Native(ContainerRuntime):
    """Containers made of the kernel's namespaces and cgroups directly, without an engine."""

    capabilities = Capabilities(gpus=True)

    name: Literal["native"]

    def driver(self) -> RuntimeDriver:
        """Return the driver; see ContainerRuntime."""
        from testbed.runtimes.native.driver import NativeDriver

        return NativeDriver()
