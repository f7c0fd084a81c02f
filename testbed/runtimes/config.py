"""The base of the runtimes' config classes, and the two runtimes without a driver."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from testbed.values.fields import StrictModel

if TYPE_CHECKING:
    from testbed.runtimes.base import RuntimeDriver


@dataclass(frozen=True)
class Capabilities:
    """What a runtime gives to nodes, for code that must know before a run exists.

    Attributes:
        engine: whether an engine creates the containers, which is root for every user; otherwise
            nodes have what this user may have: uids, links, control groups.
        gpus: whether a node can have GPUs.
        images: whether a container can be made from an image of the user.
        container_bytes: memory that an engine needs for each container.
    """

    engine: bool = False
    gpus: bool = False
    images: bool = False
    container_bytes: int = 0


class RuntimeConfig(StrictModel):
    """A runtime as a scenario writes it."""

    capabilities: ClassVar[Capabilities]


class ContainerRuntime(RuntimeConfig):
    """A runtime that makes containers."""

    @abstractmethod
    def driver(self) -> RuntimeDriver:
        """Return the driver, importing it and its dependencies only now."""


class Auto(RuntimeConfig):
    """Docker if its engine answers, can be used and has the image of this package; else native."""

    capabilities = Capabilities(engine=True, gpus=True, container_bytes=8_000_000)  # at most

    name: Literal["auto"]


class Simulated(RuntimeConfig):
    """One process on a virtual clock: real gradients, modelled seconds, the same records.

    It makes no containers and has no driver here; the command line sends it to the simulation.

    Attributes:
        device: where this host computes gradients and evaluations; ``cuda`` is its GPU.
    """

    capabilities = Capabilities()

    name: Literal["simulated"]
    device: Literal["cpu", "cuda"] = "cpu"
