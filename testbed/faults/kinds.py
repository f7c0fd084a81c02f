"""What can happen to a worker, or to a node that feeds streams, besides a crash."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from testbed.errors import InvalidValue
from testbed.faults.base import FaultOfAnyNode, PassingFault, TimedFault
from testbed.values.fields import StrictModel
from testbed.values.units import Duration, Rate

SlowFactor = Annotated[float, Field(gt=1, le=1e6, strict=True)]


class Freeze(FaultOfAnyNode):
    """A node's processes are frozen; afterwards they continue where they were.

    No other node is notified. Without `for` or `until`, the run does not wait for the node.
    """

    name: Literal["freeze"]


class Kill(FaultOfAnyNode):
    """A node's process is killed; the parameter server is notified of the end of a worker.

    Producers and brokers are restarted after `for`; without `for`, at once or never, depending on
    the transport of the streams. A node of a workload is restarted after `for`, at `until`, or
    never.
    """

    name: Literal["kill"]

    @model_validator(mode="after")
    def _workers_join(self) -> Kill:
        if self.targets_workers and self.duration is not None:
            raise InvalidValue("`for` with workers", "no `for`: use `join` to bring a worker back")
        return self


class Leave(TimedFault):
    """A worker leaves the training in order: it announces that it no longer participates."""

    name: Literal["leave"]


class Join(TimedFault):
    """A worker joins. If its first join, leave or kill is a join, it is absent at the start."""

    name: Literal["join"]


class NetworkPartition(FaultOfAnyNode):
    """A node's link transfers nothing in either direction; data in transit continues afterwards.

    Neither side is notified.
    """

    name: Literal["partition"]

    @model_validator(mode="after")
    def _ends(self) -> NetworkPartition:
        if not self.ends:
            raise InvalidValue(
                "no `for`",
                "a duration, like `for: 5s`, or `until` in a workload: connections survive it",
            )
        return self


def _carries(value: Rate) -> Rate:
    if not value > 0:
        raise InvalidValue(str(value), "a rate above zero; use `partition` to block all traffic")
    return value


class LinkChange(StrictModel):
    """New values for one direction of a link; values that are not given do not change.

    Attributes:
        rate: bits per second of Ethernet frames.
        delay: one-way delay; needs netem.
    """

    rate: Annotated[Rate, AfterValidator(_carries)] | None = None
    delay: Duration | None = None


class ChangedLink(FaultOfAnyNode):
    """A node's link changes, also for data in transit.

    Attributes:
        up: the direction from the node to the switch.
        down: the direction from the switch to the node.
    """

    name: Literal["link"]
    up: LinkChange = LinkChange()
    down: LinkChange = LinkChange()

    @model_validator(mode="after")
    def _something(self) -> ChangedLink:
        if self.up == self.down == LinkChange():
            raise InvalidValue(
                "no change", "a rate or a delay of `up` or `down`, like {rate: 1mbit}"
            )
        return self


class SlowNode(FaultOfAnyNode):
    """The processes of a workload's node get less CPU time, by its control group.

    Attributes:
        factor: factor by which its `cpu` limit is divided.
    """

    name: Literal["slow"]
    factor: SlowFactor


class Slow(PassingFault):
    """A worker's steps take longer, from its next step on.

    Attributes:
        factor: factor by which the duration of a step is multiplied.
    """

    name: Literal["slow"]
    factor: SlowFactor
