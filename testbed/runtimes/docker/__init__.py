"""Runs as Docker containers: the image, the engine, and the driver that uses both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from testbed.runtimes.config import Capabilities, ContainerRuntime
from testbed.values.family import Named
from testbed.values.fields import Image, StrictModel

if TYPE_CHECKING:
    from testbed.runtimes.base import RuntimeDriver


Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,80}(=[^=]{1,80})?$")]


SERVER = "ps"
"""What stands for the parameter server, in place of a class, in a placement."""


class Local(StrictModel):
    """This machine alone."""

    name: Literal["local"]


class Swarm(StrictModel):
    """The hosts of the Docker Swarm that this machine's engine manages.

    Attributes:
        placement: by class of workers, the label of the Swarm's nodes that they are on, such as
            ``rack=a``, or ``pi`` with any value. Other classes are on any host. That of ``ps`` is
            for the parameter server, with evaluator and producers; without one they are on this
            machine, as broker and programs always are.
        strategy: ``spread`` places a worker where there are the fewest per CPU; ``pack`` fills the
            memory of a host before it uses the next, this one first.
        on_lost: what a training does when a host is lost or drained: it continues without the
            workers there, as if each had been lost; or it fails.
    """

    name: Literal["swarm"]
    placement: dict[str, Label] = Field(default_factory=dict)
    strategy: Literal["spread", "pack"] = "spread"
    on_lost: Literal["continue", "fail"] = "continue"


class Docker(ContainerRuntime):
    """Containers of Docker engines.

    Attributes:
        image: what they are made from; by default the image of this very package, which
            `testbed image build` makes.
        hosts: where they are; by default on this machine.
    """

    # Memory: a shim, and the container's first process.
    capabilities = Capabilities(engine=True, gpus=True, images=True, container_bytes=8_000_000)

    name: Literal["docker"]
    image: Image | None = None
    hosts: Annotated[Local | Swarm, Named()] | None = None

    @property
    def swarm(self) -> Swarm | None:
        """How workers are placed on several hosts; None for this machine alone."""
        return self.hosts if isinstance(self.hosts, Swarm) else None

    def driver(self) -> RuntimeDriver:
        """Return the driver; see ContainerRuntime."""
        from testbed.runtimes.docker.driver import DockerDriver

        return DockerDriver(image=self.image)
