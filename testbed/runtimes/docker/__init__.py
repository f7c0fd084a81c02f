"""Runs as Docker containers: the image, the engine, and the driver that uses both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from testbed.runtimes.config import Capabilities, ContainerRuntime
from testbed.values.fields import Image

if TYPE_CHECKING:
    from testbed.runtimes.base import RuntimeDriver


class Docker(ContainerRuntime):
    """Containers of the Docker engine of this machine.

    Attributes:
        image: what they are made from; by default the image of this very package, which
            `testbed image build` makes.
    """

    # Memory: a shim, and the container's first process.
    capabilities = Capabilities(engine=True, gpus=True, images=True, container_bytes=8_000_000)

    name: Literal["docker"]
    image: Image | None = None

    def driver(self) -> RuntimeDriver:
        """Return the driver; see ContainerRuntime."""
        from testbed.runtimes.docker.driver import DockerDriver

        return DockerDriver(image=self.image)
