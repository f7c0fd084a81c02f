"""The faults that a scenario can plan.

Here: the kinds of faults with their YAML fields, the draw of workers, and the times. Not here: the
actuators, which act on containers and links (``run``) or on virtual devices (``simulation``).
README.md says how to add a kind.
"""

from typing import Annotated

from testbed.faults.crash import Crash, Crashes
from testbed.faults.kinds import (
    ChangedLink,
    Freeze,
    Join,
    Kill,
    Leave,
    NetworkPartition,
    Slow,
    SlowNode,
)
from testbed.values.family import Named

Fault = Annotated[
    Crash | Freeze | Kill | Leave | Join | NetworkPartition | ChangedLink | Slow, Named()
]

AnyFault = Fault | SlowNode
"""A fault of a training or of a workload."""

__all__ = [
    "AnyFault",
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
    "SlowNode",
]
