"""The runtimes, which turn a plan into containers. ``Runtime`` is the closed list of them.

Here: one folder per runtime, and the agent that every runtime starts (``agent``), which creates
links, launches roles and reads counters. Not here: the kernel's own interfaces (``host``,
``network``), the order of a run (``run``). A new runtime is a folder and an entry in the line
``Real``.
"""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import TypeAdapter

from testbed.runtimes.config import Auto, RayPool, Simulated
from testbed.runtimes.docker import Docker
from testbed.runtimes.lxc import Lxc
from testbed.runtimes.native import Native
from testbed.values.family import Named

Real = Native | Docker | Lxc
"""The runtimes that create containers."""

Runtime = Annotated[Real | Auto | Simulated, Named()]


def names(*, gpus: bool = False) -> tuple[str, ...]:
    """Return the names of the runtimes that create containers, or only of those with GPUs."""
    kinds = (kind for kind in get_args(Real) if kind.capabilities.gpus or not gpus)
    return tuple(get_args(kind.model_fields["name"].annotation)[0] for kind in kinds)


RUNTIME: TypeAdapter[Real | Auto | Simulated] = TypeAdapter(Runtime)

__all__ = [
    "RUNTIME",
    "Auto",
    "Docker",
    "Lxc",
    "Native",
    "RayPool",
    "Real",
    "Runtime",
    "Simulated",
    "names",
]
