"""The events of the controller, and all by name. Their fields are a line in ``events.jsonl``.

The first line of a docstring and the text of a field are also in docs/run-folder.md. A new field
needs a default: existing lines do not have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from testbed.telemetry.event import CONTROLLER, ControllerEvent, Event
from testbed.telemetry.ps_events import PS_EVENTS

State = Literal["created", "starting", "training", "running", "finished", "failed", "interrupted"]


class RuntimeChosen(ControllerEvent, name="runtime"):
    """`runtime: auto` was resolved."""

    name: Annotated[str, "the chosen runtime"]
    why: Annotated[str, "why it was chosen"]


class StateChanged(ControllerEvent, name="state"):
    """The state of the run changed."""

    state: Annotated[State, "the new state, as in `run.json`"]
    reason: Annotated[str, "why the run ended"] = ""
    exit_code: Annotated[int | None, "exit code of the error, if the run failed"] = None


class Phase(ControllerEvent):
    """The controller started a phase of the run."""

    text: Annotated[str, "the phase, as the command line shows it"]


class Launched(ControllerEvent):
    """A node's process was started."""

    node: Annotated[str, "name of the node"]
    pid: Annotated[int | None, "in the host's PID namespace; null if it has already exited"]


class BroughtUp(ControllerEvent):
    """All nodes are running and have joined."""

    seconds: Annotated[float, "real seconds since the start of the command"]


class TornDown(ControllerEvent):
    """All processes and containers of the run were removed from the host."""

    seconds: Annotated[float, "real duration of the removal"]


class LinksRead(ControllerEvent, name="links"):
    """The qdiscs of the links were read back from the kernel."""

    checked: Annotated[int, "number of links compared"]
    differences: Annotated[tuple[str, ...], "differences from the plan"] = ()
    left_out: Annotated[
        tuple[str, ...], "settings that were not applied because the kernel lacks netem"
    ] = ()
    unseeded: Annotated[int, "number of links whose random numbers the kernel cannot seed"] = 0


class RateMeasured(ControllerEvent, name="rate"):
    """A link's rate was measured."""

    link: Annotated[str, "the device class or the link between switches, and the direction"]
    configured_bits_per_second: Annotated[float, "the planned rate"]
    measured_bits_per_second: Annotated[
        float | None, "the measured rate; null if the host could not send that fast"
    ]


class RoundTripMeasured(ControllerEvent, name="round_trip"):
    """A link's median round trip was measured."""

    link: Annotated[str, "the device class or the link between switches"]
    configured_seconds: Annotated[float, "sum of the configured delays"]
    measured_seconds: Annotated[float, "the measured median"]
    error_seconds: Annotated[float, "standard error of the median, if the delays vary"] = 0.0


class MessagesTimed(ControllerEvent):
    """A transfer of 17 KB with a short reply was timed in each direction of a link."""

    link: Annotated[str, "the device class or the link between switches"]
    up_seconds: Annotated[float | None, "duration with the 17 KB sent upstream"]
    down_seconds: Annotated[float | None, "duration with the 17 KB sent downstream"]


class LinkChanged(ControllerEvent):
    """Links were changed during the run."""

    action: Annotated[
        str,
        "`set`, `reset`: by a command or fault; `recorded`: by a trace; `expired`: at its end",
    ]
    nodes: Annotated[tuple[str, ...], "the nodes whose links were changed"]
    up: Annotated[
        Mapping[str, Any] | None,
        "new shape of the sending direction; null if unchanged, or if it differs between nodes",
    ]
    down: Annotated[Mapping[str, Any] | None, "the same for the receiving direction"]
    planned: Annotated[float, "planned time, in seconds since 1970"]
    actual: Annotated[float, "when the last of the links was changed, in seconds since 1970"]
    failure: Annotated[str, "why the change failed; empty if it did not"] = ""
    by_hand: Annotated[bool, "whether `testbed net` changed them"] = False


class LimitsChanged(ControllerEvent):
    """The limits of a node's container were changed from outside the run."""

    node: Annotated[str, "name of the node"]
    changes: Annotated[tuple[str, ...], "files of its control groups, with both values"]


class Exited(ControllerEvent):
    """A node's process ended."""

    node: Annotated[str, "name of the node"]
    status: Annotated[int, "exit status; for a signal, its negative number"]
    planned: Annotated[bool, "whether the exit was planned"] = False
    how: Annotated[str, "description of the exit, if the user is told about it"] = ""
    ends_run: Annotated[bool, "whether the run ends because of the exit"] = False
    restarted: Annotated[bool, "whether the node is restarted; the PS, from a checkpoint"] = False
    container_ended: Annotated[
        bool, "whether its container was stopped, killed or removed from outside the run"
    ] = False
    host_lost: Annotated[
        bool, "whether it is its host that was lost, which is noticed up to 30 s later"
    ] = False


class LogFull(ControllerEvent):
    """A node printed more than its log can hold: the rest is dropped."""

    node: Annotated[str, "name of the node"]
    limit_bytes: Annotated[int, "bytes of output that were kept"]


class ClockSet(ControllerEvent):
    """The host's wall clock was set, or the host slept; this does not affect the run's times."""

    seconds: Annotated[float, "by how much the clock moved; negative for backwards"]


class FaultApplied(ControllerEvent, name="fault"):
    """A fault of the scenario, of a trace or of `testbed fault` started or ended."""

    kind: Annotated[str, "kind of the fault, as in the scenario"]
    begins: Annotated[bool, "true at its start, false at its end"]
    nodes: Annotated[tuple[str, ...], "the affected nodes; empty if the run ended first"]
    planned_seconds: Annotated[float, "planned time, in emulated seconds"]
    actual_seconds: Annotated[float, "actual time, in emulated seconds"]
    place: Annotated[
        int | None, "index in the scenario's `faults`, from 0; null for a manual or recorded fault"
    ] = None
    passed_over: Annotated[
        tuple[str, ...],
        "targets that were skipped because they had crashed or were absent according to a trace; "
        "if drawn at random, also those that had left or were affected by another fault",
    ] = ()
    recorded: Annotated[bool, "whether the fault is of an `availability`"] = False


class Resumed(ControllerEvent):
    """An interrupted simulation resumed from its checkpoint."""

    version: Annotated[int, "updates in the model"]
    time_seconds: Annotated[float, "emulated time of the checkpoint"]


class ComputedOneByOne(ControllerEvent):
    """Gradients are computed one by one, although a `vmap` asks for several at once."""

    reason: Annotated[str, "why the network cannot do that"]


class ProcessReplaced(ControllerEvent):
    """A process of a simulation on a Ray cluster was lost and replaced; results are unaffected."""

    process: Annotated[int, "number of the process"]
    lost_host: Annotated[str, "host of the lost process"]
    host: Annotated[str, "host of its replacement"]
    repeated: Annotated[int, "number of messages it carried out again"]
    reason: Annotated[str, "what Ray reports"]


class MemoryRead(ControllerEvent, name="memory"):
    """The private memory of each worker was read; the last such event of a run counts."""

    private_bytes: Annotated[Mapping[str, int], "bytes by worker"]


class LinksCarried(ControllerEvent, name="carried"):
    """The traffic that nodes have sent through their links was read at the end of the training."""

    up_bytes: Annotated[Mapping[str, int], "Ethernet bytes, by node still running"]


class WorkloadBegun(ControllerEvent):
    """The first nodes of a workload are about to start: its clock starts."""


class WorkloadEnded(ControllerEvent):
    """A workload has ended well; nodes that still run are ended."""

    reason: Annotated[str, "why it has ended"]


class MetricUnread(ControllerEvent):
    """A metric that a program of a workload serves could not be read, for a new reason."""

    node: Annotated[str, "name of the node"]
    metric: Annotated[str, "name of the metric"]
    reason: Annotated[str, "what its endpoint did instead of serving it"]


EVENTS: Mapping[str, type[Event]] = {**CONTROLLER, **PS_EVENTS}
"""All events, by name."""
