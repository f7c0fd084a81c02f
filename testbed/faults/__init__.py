"""The faults that a scenario can plan.

Here: one file per kind of fault with its YAML fields, its draw of workers and times, and what it
asks of an actuator. Not here: the actuators themselves, which act on containers and links (``run``)
or on virtual devices (``simulation``). README.md says how to add a kind.
"""

from typing import Annotated

from pydantic import Field

from testbed.faults.crash import Crash, Crashes
from testbed.faults.freeze import Freeze
from testbed.faults.join import Join
from testbed.faults.kill import Kill
from testbed.faults.leave import Leave
from testbed.faults.link import ChangedLink
from testbed.faults.partition import NetworkPartition
from testbed.faults.slow import Slow
from testbed.values.family import Named

Fault = Annotated[
    Annotated[
        Crash | Freeze | Kill | Leave | Join | NetworkPartition | ChangedLink | Slow,
        Field(discriminator="name"),
    ],
    Named(),
]

__all__ = [
    "ChangedLink",
    "Crash",
    "Crashes",
    "Fault",
    "Freeze",
    "Join",
    "Kill",
    "Leave",
    "NetworkPartition",
    "Slow",
]
