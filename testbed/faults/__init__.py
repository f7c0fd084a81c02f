"""The faults that a scenario can plan; README.md says how to add one."""

from typing import Annotated

from pydantic import Field

from testbed.faults.crash import Crash, Crashes
from testbed.faults.freeze import Freeze
from testbed.faults.join import Join
from testbed.faults.kill import Kill
from testbed.faults.leave import Leave
from testbed.values.family import Named

Fault = Annotated[
    Annotated[Crash | Freeze | Kill | Leave | Join, Field(discriminator="name")],
    Named(),
]

__all__ = ["Crash", "Crashes", "Fault", "Freeze", "Join", "Kill", "Leave"]
