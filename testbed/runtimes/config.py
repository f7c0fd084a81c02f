"""The base of the runtimes' config classes, and the two runtimes without a driver."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator

from testbed.errors import InvalidValue
from testbed.values.family import Named
from testbed.values.fields import AtOnce, Count, StrictModel, Word

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


class LocalPool(StrictModel):
    """Processes on this host, one per usable CPU, which share memory."""

    name: Literal["local"]


def _joinable(address: str) -> str:
    if address.startswith("ray://"):
        raise InvalidValue(
            "", "auto or HOST:PORT: actors answer only within the cluster (`ray job submit`)"
        )
    return address


class RayPool(StrictModel):
    """Processes on a Ray cluster, for models and numbers of workers that one machine cannot hold.

    Each has a CPU and its memory reserved by Ray, and asks for a GPU with ``device: cuda``.

    Attributes:
        address: of the cluster, of which this host is part: ``auto`` or HOST:PORT.
        processes: number of processes, each of which computes a share of the workers. By default
            one per CPU of the cluster, at most one per worker.
    """

    name: Literal["ray"]
    address: Annotated[Word, AfterValidator(_joinable)] = "auto"
    processes: Count | None = None


class Simulated(RuntimeConfig):
    """One process on a virtual clock: real gradients, modelled seconds, the same records.

    It makes no containers and has no driver here; the command line sends it to the simulation.

    Attributes:
        device: where gradients and evaluations are computed; ``cuda`` is this host's GPU, or with
            a Ray pool one of each process.
        pool: the processes that compute gradients and evaluations. The results are the same.
        vmap: number of gradients that a process computes at once, by ``torch.func.vmap``: for small
            networks on a GPU. On a CPU it is slower than one by one. With a Ray pool, a message to
            a process holds up to as many models, and its answer as many updates.
    """

    capabilities = Capabilities()

    name: Literal["simulated"]
    device: Literal["cpu", "cuda"] = "cpu"
    vmap: AtOnce = 1
    pool: Annotated[LocalPool | RayPool, Named()] = LocalPool(name="local")
