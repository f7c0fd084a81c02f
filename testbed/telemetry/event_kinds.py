"""All events of a run. Their fields are the content of a line in ``events.jsonl``.

The first line of a docstring and the text of a field are also in docs/run-folder.md. A new field
needs a default: existing lines do not have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

State = Literal["created", "starting", "training", "finished", "failed", "interrupted"]


@dataclass(frozen=True)
class Event:
    """Something that happened."""


@dataclass(frozen=True)
class Unknown(Event):
    """An event that another version of testbed wrote: it is kept, but has no effect."""

    name: str
    fields: Mapping[str, Any]  # everything else in its line but time and source


# Events of the controller.


@dataclass(frozen=True)
class RuntimeChosen(Event):
    """`runtime: auto` was resolved."""

    name: Annotated[str, "the chosen runtime"]
    why: Annotated[str, "why it was chosen"]


@dataclass(frozen=True)
class StateChanged(Event):
    """The state of the run changed."""

    state: Annotated[State, "as in `run.json`"]
    reason: Annotated[str, "why it ended"] = ""
    exit_code: Annotated[int | None, "exit code of the error that it failed with"] = None


@dataclass(frozen=True)
class Phase(Event):
    """The controller started a phase of the run."""

    text: Annotated[str, "the phase, as the command line shows it"]


@dataclass(frozen=True)
class Launched(Event):
    """A node's process was started."""

    node: Annotated[str, "its name"]
    pid: Annotated[int | None, "in the host's PID namespace; null if it has already ended"]


@dataclass(frozen=True)
class BroughtUp(Event):
    """All nodes are running and have joined."""

    seconds: Annotated[float, "real seconds since the command was started"]


@dataclass(frozen=True)
class TornDown(Event):
    """All processes and containers of the run were removed from the host."""

    seconds: Annotated[float, "real duration of the removal"]


@dataclass(frozen=True)
class LinksRead(Event):
    """The qdiscs of the links were read back from the kernel."""

    checked: Annotated[int, "number of links compared"]
    differences: Annotated[tuple[str, ...], "differences from the plan"] = ()
    left_out: Annotated[
        tuple[str, ...], "settings that were not applied because the kernel lacks netem"
    ] = ()
    unseeded: Annotated[int, "number of links with unseeded random numbers"] = 0


@dataclass(frozen=True)
class RateMeasured(Event):
    """A link's rate was measured."""

    link: Annotated[str, "the device class, and the direction"]
    configured_bits_per_second: Annotated[float, "the planned rate"]
    measured_bits_per_second: Annotated[
        float | None, "the measured rate; null if the host could not send that fast"
    ]


@dataclass(frozen=True)
class RoundTripMeasured(Event):
    """A link's median round trip was measured."""

    link: Annotated[str, "the device class"]
    configured_seconds: Annotated[float, "sum of the configured delays"]
    measured_seconds: Annotated[float, "the measured median"]
    error_seconds: Annotated[float, "its standard error, if the delays vary"] = 0.0


@dataclass(frozen=True)
class MessagesTimed(Event):
    """A transfer of 17 KB with a short reply was timed in each direction of a link."""

    link: Annotated[str, "the device class"]
    up_seconds: Annotated[float | None, "with the 17 KB sent upstream"]
    down_seconds: Annotated[float | None, "with the 17 KB sent downstream"]


@dataclass(frozen=True)
class LinkChanged(Event):
    """Links were changed during the run."""

    action: Annotated[
        str,
        "`set` or `reset` by a command; `recorded`, by a trace; `expired`, at the end of a change",
    ]
    nodes: Annotated[tuple[str, ...], "the nodes whose links were changed"]
    up: Annotated[
        Mapping[str, Any] | None,
        "new shape of the sending direction; null if the nodes differ, or it was not changed",
    ]
    down: Annotated[Mapping[str, Any] | None, "new shape of the receiving direction; null likewise"]
    planned: Annotated[float, "planned time, seconds since 1970"]
    actual: Annotated[float, "when the last link had been changed, seconds since 1970"]
    failure: Annotated[str, "why the change failed; empty if it did not"] = ""


@dataclass(frozen=True)
class Exited(Event):
    """A node's process ended."""

    node: Annotated[str, "its name"]
    status: Annotated[int, "its exit status; negative for a signal"]
    planned: Annotated[bool, "whether the exit was planned"] = False
    how: Annotated[str, "description of the exit, if it is shown to the user"] = ""
    ends_run: Annotated[bool, "whether the run cannot continue without it"] = False
    restarted: Annotated[bool, "whether it is restarted; the server, from a checkpoint"] = False


@dataclass(frozen=True)
class Resumed(Event):
    """An interrupted simulation resumed from its checkpoint."""

    version: Annotated[int, "updates in the model"]
    time_seconds: Annotated[float, "emulated time of the checkpoint"]


@dataclass(frozen=True)
class ClockSet(Event):
    """The host's wall clock was set, or the host slept; this does not affect the run's times."""

    seconds: Annotated[float, "by how much the clock moved; negative for backwards"]


@dataclass(frozen=True)
class LogFull(Event):
    """A node printed more than its log can hold: the rest is dropped."""

    node: Annotated[str, "its name"]
    limit_bytes: Annotated[int, "size of the output that was kept"]


@dataclass(frozen=True)
class FaultApplied(Event):
    """A fault of the scenario, of a trace or of `testbed fault` started or ended."""

    kind: Annotated[str, "kind of the fault, as in the scenario"]
    begins: Annotated[bool, "true at its start, false at its end"]
    nodes: Annotated[tuple[str, ...], "the affected nodes; empty if the run ended first"]
    planned_seconds: Annotated[float, "planned time, emulated"]
    actual_seconds: Annotated[float, "actual time, emulated"]
    place: Annotated[
        int | None, "its index in `faults`, from 0; null for a manual fault, or one of a trace"
    ] = None
    passed_over: Annotated[
        tuple[str, ...],
        "targets that were skipped because they had crashed or were absent by a trace; if the "
        "targets are drawn at random, also those that had left, or were under another fault",
    ] = ()
    recorded: Annotated[bool, "whether it comes from the trace of `workers.availability`"] = False


@dataclass(frozen=True)
class MemoryRead(Event):
    """The private memory of each worker was read; the last such event of a run counts."""

    private_bytes: Annotated[Mapping[str, int], "by worker"]


@dataclass(frozen=True)
class LinksCarried(Event):
    """The traffic that nodes have sent through their links was read at the end of the training."""

    up_bytes: Annotated[Mapping[str, int], "by node that is still running, in Ethernet bytes"]


# Events of the parameter server (PS).


@dataclass(frozen=True)
class Listening(Event):
    """The parameter server accepts calls."""

    port: Annotated[int, "its port for workers"]


@dataclass(frozen=True)
class Joined(Event):
    """A worker joined the training."""

    node: Annotated[str, "its name"]


@dataclass(frozen=True)
class Left(Event):
    """A worker left the training."""

    node: Annotated[str, "its name"]
    reason: Annotated[
        str | None, "how its process ended; null if the worker itself announced that it leaves"
    ] = None


@dataclass(frozen=True)
class Silent(Event):
    """A worker has been frozen for too long: the end of the training does not wait for it."""

    node: Annotated[str, "its name"]


@dataclass(frozen=True)
class Crashed(Event):
    """A worker crashed after a push, by a fault of the scenario, without notifying other nodes."""

    node: Annotated[str, "its name"]
    sequence: Annotated[int, "number of that push"]
    time_seconds: Annotated[float, "when the push was accepted, emulated"]


@dataclass(frozen=True)
class Gap(Event):
    """A node did not execute for a time: it was stopped or frozen, or got no CPU."""

    node: Annotated[str, "its name"]
    seconds: Annotated[float, "real duration; gaps below a second are not reported"]


@dataclass(frozen=True)
class Started(Event):
    """The training has started: all workers have joined."""


@dataclass(frozen=True)
class Evaluated(Event):
    """The model was evaluated."""

    time_seconds: Annotated[float, "when the model was copied, emulated"]
    version: Annotated[int, "updates in the model"]
    payload_up_bytes: Annotated[int, "payload of all pushes up to then"]
    loss: Annotated[
        float | None, "the objective: mean loss of the images, plus the model's penalty"
    ]
    top1: Annotated[
        float | None,
        "share of images whose class was predicted first; null if the targets are numbers",
    ]
    top5: Annotated[
        float | None,
        "share of images whose class was among the first five predictions; null likewise",
    ]
    images: Annotated[int, "number of test images"]
    final: Annotated[bool, "whether this is the evaluation on all test images after the end"]


@dataclass(frozen=True)
class _Refusal(Event):
    node: Annotated[str | None, "the caller; null for an unknown peer"]
    reason: Annotated[str, "why"]
    peer: Annotated[str | None, "its address"] = None
    method: Annotated[str | None, "the called method"] = None
    code: Annotated[str | None, "gRPC status code"] = None


@dataclass(frozen=True)
class Rejected(_Refusal):
    """A call was rejected and had no effect."""


@dataclass(frozen=True)
class Incomplete(_Refusal):
    """A call was interrupted before it had been received completely."""


@dataclass(frozen=True)
class KeysMissed(Event):
    """A receiver did not know the core keys omitted from a message; it was sent again with them."""

    node: Annotated[str, "the worker that sent or received it"]
    direction: Annotated[str, "`up`: a push, `down`: a reply"]
    payload_bytes: Annotated[int, "payload of the useless message; not in the row of any update"]


@dataclass(frozen=True)
class Omitted(Event):
    """Events were only counted, because the node had caused too many of this kind."""

    node: Annotated[str | None, "the node; null for unknown peers"]
    kind: Annotated[str, "name of the events"]
    count: Annotated[int, "their number"]


@dataclass(frozen=True)
class Load(Event):
    """The load of the parameter server, once a second (real) during training."""

    waiting: Annotated[int, "requests waiting for a reply"]
    cpu_seconds: Annotated[float, "CPU time of its process"]


@dataclass(frozen=True)
class Produced(Event):
    """The progress of a producer of streams, once a second (real)."""

    producer: Annotated[str, "its node"]
    due: Annotated[int, "records due by then at the configured rates"]
    sent: Annotated[int, "records sent, and written by the broker if there is one"]
    worst_lag_ratio: Annotated[
        float, "largest share of due records that were not sent, over the devices"
    ]


@dataclass(frozen=True)
class Finished(Event):
    """The training has ended."""

    reason: Annotated[str, "why"]
    version: Annotated[int, "updates in the model"]
    stalled: Annotated[bool, "whether it ended because no worker could push any more"] = False


@dataclass(frozen=True)
class Drained(Event):
    """The workers were notified of the end, or the time for this has passed."""

    untold: Annotated[tuple[str, ...], "workers that were not notified"] = ()


@dataclass(frozen=True)
class Saved(Event):
    """A checkpoint was written to disk."""

    version: Annotated[int, "updates in the model"]
    size_bytes: Annotated[int, "size of the file"]
    held_seconds: Annotated[float, "real time without updates, while a copy of the model was made"]
    seconds: Annotated[float, "real time until it was written, while updates continued"]


@dataclass(frozen=True)
class Restored(Event):
    """The parameter server was restarted from its newest checkpoint."""

    version: Annotated[int, "updates in the model"]
    time_seconds: Annotated[float, "emulated time of the checkpoint"]
    lost_updates: Annotated[int, "recorded updates that are no longer in the model"]


@dataclass(frozen=True)
class Done(Event):
    """The parameter server has finished: the final model was evaluated."""

    evaluated: Annotated[bool, "whether the final evaluation took place"]
    applied: Annotated[int, "pushes in the model"] = 0
    applied_bytes: Annotated[int, "their payload"] = 0
    repeated: Annotated[int, "pushes sent again after a lost connection"] = 0
    repeated_bytes: Annotated[int, "their payload"] = 0
    dropped: Annotated[
        int,
        "pushes in no model, because they arrived after the end or in a round that did not "
        "complete",
    ] = 0
    dropped_bytes: Annotated[int, "their payload"] = 0
    lost: Annotated[int, "pushes lost with a server, or computed on a model lost with it"] = 0
    lost_bytes: Annotated[int, "payload of those that were sent again"] = 0
    served: Annotated[int, "requests that passed the service queue of a server with `service`"] = 0
    served_late: Annotated[int, "those that were delayed by the host in addition"] = 0
    largest_gap_seconds: Annotated[
        float | None, "longest real time during which a node did not execute"
    ] = None
