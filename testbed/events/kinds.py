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
    """An event that another version of testbed wrote: it is kept, and nobody acts on it."""

    name: str
    fields: Mapping[str, Any]  # everything else in its line but time and source


# Events of the controller.


@dataclass(frozen=True)
class RuntimeChosen(Event):
    """What `runtime: auto` came to."""

    name: Annotated[str, "the runtime that was taken"]
    why: Annotated[str, "why that one"]


@dataclass(frozen=True)
class StateChanged(Event):
    """The run came to another state."""

    state: Annotated[State, "as in `run.json`"]
    reason: Annotated[str, "why it ended"] = ""
    exit_code: Annotated[int | None, "of the error that it failed with"] = None


@dataclass(frozen=True)
class Phase(Event):
    """The controller turns to something that takes a while."""

    text: Annotated[str, "what, as the command line shows it"]


@dataclass(frozen=True)
class Launched(Event):
    """A node's process was started."""

    node: Annotated[str, "its name"]
    pid: Annotated[int | None, "as the host sees it; null if it has ended since"]


@dataclass(frozen=True)
class BroughtUp(Event):
    """All nodes run and have joined."""

    seconds: Annotated[float, "real seconds since the command was given"]


@dataclass(frozen=True)
class TornDown(Event):
    """Nothing of the run is left on the host."""

    seconds: Annotated[float, "real seconds that it took"]


@dataclass(frozen=True)
class LinksRead(Event):
    """The qdiscs were read back."""

    checked: Annotated[int, "how many links were compared"]
    differences: Annotated[tuple[str, ...], "what differs from the plan"] = ()
    left_out: Annotated[tuple[str, ...], "what was not applied, as the kernel lacks netem"] = ()
    unseeded: Annotated[int, "how many links draw without the scenario's seed"] = 0


@dataclass(frozen=True)
class RateMeasured(Event):
    """A link's rate was measured."""

    link: Annotated[str, "whose, and the direction"]
    configured_bits_per_second: Annotated[float, "as the plan has it"]
    measured_bits_per_second: Annotated[
        float | None, "what came out; null if the host could not send that fast"
    ]


@dataclass(frozen=True)
class RoundTripMeasured(Event):
    """A link's median round trip was measured."""

    link: Annotated[str, "whose"]
    configured_seconds: Annotated[float, "what the delays add up to"]
    measured_seconds: Annotated[float, "what came out"]
    error_seconds: Annotated[float, "standard error of it, where the delays vary"] = 0.0


@dataclass(frozen=True)
class MessagesTimed(Event):
    """17 KB were sent through a link and a word back, and the other way round."""

    link: Annotated[str, "whose"]
    up_seconds: Annotated[float | None, "with the 17 KB on the way up"]
    down_seconds: Annotated[float | None, "with the 17 KB on the way down"]


@dataclass(frozen=True)
class LinkChanged(Event):
    """Links were changed while the run went on."""

    action: Annotated[
        str, "`set`; `recorded`, by a recording; `reset` by a command, or `expired`: by itself"
    ]
    nodes: Annotated[tuple[str, ...], "whose"]
    up: Annotated[
        Mapping[str, Any] | None,
        "what the nodes send through now; null where that differs, or was not changed",
    ]
    down: Annotated[Mapping[str, Any] | None, "what they receive through now; likewise"]
    planned: Annotated[float, "when it was to happen, seconds since 1970"]
    actual: Annotated[float, "when the last of the links had changed"]
    failure: Annotated[str, "what went wrong; empty for nothing"] = ""


@dataclass(frozen=True)
class Exited(Event):
    """A node's process ended."""

    node: Annotated[str, "its name"]
    status: Annotated[int, "its exit status; a negative one is a signal"]
    planned: Annotated[bool, "whether it was to end then"] = False
    how: Annotated[str, "how it ended, in a sentence; of an end that is told"] = ""
    ends_run: Annotated[bool, "whether the run cannot go on without it"] = False
    restarted: Annotated[bool, "whether it is started again; the server, from a checkpoint"] = False


@dataclass(frozen=True)
class Resumed(Event):
    """A simulation that was broken off goes on from its checkpoint."""

    version: Annotated[int, "updates in the model"]
    time_seconds: Annotated[float, "when that was, emulated"]


@dataclass(frozen=True)
class ClockSet(Event):
    """The host's wall clock was set, or the host slept; no moment of the run is by it."""

    seconds: Annotated[float, "how far it moved; negative: back"]


@dataclass(frozen=True)
class LogFull(Event):
    """A node has printed more than its log holds: the rest is left out."""

    node: Annotated[str, "its name"]
    limit_bytes: Annotated[int, "how much of its output is there"]


@dataclass(frozen=True)
class FaultApplied(Event):
    """A fault of the scenario, of a recording or of `testbed fault` came, or its time was over."""

    kind: Annotated[str, "which, as in the scenario"]
    begins: Annotated[bool, "whether it came; false: it was undone"]
    nodes: Annotated[tuple[str, ...], "whom it struck; nobody if the run's end came first"]
    planned_seconds: Annotated[float, "when that was to be, emulated"]
    actual_seconds: Annotated[float, "when it was done, emulated"]
    place: Annotated[
        int | None, "its place in `faults`, from 0 on; null of one by hand, or of a recording"
    ] = None
    passed_over: Annotated[
        tuple[str, ...],
        "whom it did not strike, as they had crashed, or were away by a recording; of a fault that "
        "draws whom it strikes, also who was gone, or held by another fault",
    ] = ()
    recorded: Annotated[bool, "whether the recording of `workers.availability` has it"] = False


@dataclass(frozen=True)
class MemoryRead(Event):
    """Memory that each worker has to itself; the last such event of a run counts."""

    private_bytes: Annotated[Mapping[str, int], "by worker"]


@dataclass(frozen=True)
class LinksCarried(Event):
    """What has left nodes through their links by the training's end."""

    up_bytes: Annotated[Mapping[str, int], "by node that still runs, in Ethernet bytes"]


# Events of the parameter server (PS).


@dataclass(frozen=True)
class Listening(Event):
    """The parameter server takes calls."""

    port: Annotated[int, "for workers"]


@dataclass(frozen=True)
class Joined(Event):
    """A worker takes part."""

    node: Annotated[str, "its name"]


@dataclass(frozen=True)
class Left(Event):
    """A worker takes no part any more."""

    node: Annotated[str, "its name"]
    reason: Annotated[
        str | None, "how its process ended; null if it said itself that it leaves"
    ] = None


@dataclass(frozen=True)
class Silent(Event):
    """A worker has stood still for so long that nobody reckons with it any more."""

    node: Annotated[str, "its name"]


@dataclass(frozen=True)
class Crashed(Event):
    """A push was a worker's last, by a fault of the scenario; nobody was told."""

    node: Annotated[str, "its name"]
    sequence: Annotated[int, "number of that push"]
    time_seconds: Annotated[float, "when it was taken, emulated"]


@dataclass(frozen=True)
class Gap(Event):
    """A node's own time stood still: it was stopped or frozen, or got no CPU."""

    node: Annotated[str, "its name"]
    seconds: Annotated[float, "for how long, real; less than a second is not told"]


@dataclass(frozen=True)
class Started(Event):
    """The training has started: all workers have joined."""


@dataclass(frozen=True)
class Evaluated(Event):
    """The model was evaluated."""

    time_seconds: Annotated[float, "when the model was taken, emulated"]
    version: Annotated[int, "updates in the model"]
    payload_up_bytes: Annotated[int, "payload of all pushes until then"]
    loss: Annotated[float | None, "what is minimised: of the images, and the model's penalty"]
    top1: Annotated[
        float | None, "share of images whose class was the first; none where targets are numbers"
    ]
    top5: Annotated[float | None, "share of images whose class was among the first five; likewise"]
    images: Annotated[int, "test images used"]
    final: Annotated[bool, "whether this is the evaluation on all test images after the end"]


@dataclass(frozen=True)
class _Refusal(Event):
    node: Annotated[str | None, "who called; null for an unknown peer"]
    reason: Annotated[str, "why"]
    peer: Annotated[str | None, "its address"] = None
    method: Annotated[str | None, "of the contract"] = None
    code: Annotated[str | None, "gRPC's"] = None


@dataclass(frozen=True)
class Rejected(_Refusal):
    """A call was refused; nothing of it was applied."""


@dataclass(frozen=True)
class Incomplete(_Refusal):
    """A call broke off before all of it had come."""


@dataclass(frozen=True)
class KeysMissed(Event):
    """A receiver did not know the core keys that a message left out: it came again with them."""

    node: Annotated[str, "the worker that sent it, or was sent it"]
    direction: Annotated[str, "`up`: a push, `down`: a reply"]
    payload_bytes: Annotated[int, "of the message that was of no use; in no update's row"]


@dataclass(frozen=True)
class Omitted(Event):
    """Events that were only counted: the node had caused too many of their kind before."""

    node: Annotated[str | None, "whose; null for unknown peers"]
    kind: Annotated[str, "their name"]
    count: Annotated[int, "how many"]


@dataclass(frozen=True)
class Load(Event):
    """How busy the parameter server is, once a second (real) while it trains."""

    waiting: Annotated[int, "requests that wait for their reply"]
    cpu_seconds: Annotated[float, "CPU time of its process so far"]


@dataclass(frozen=True)
class Produced(Event):
    """How far a producer of streams has come, once a second (real)."""

    producer: Annotated[str, "its node"]
    due: Annotated[int, "records that were to be sent by then, by the rates asked for"]
    sent: Annotated[int, "those that were, and that the broker has written if there is one"]
    worst_lag_ratio: Annotated[float, "of the device that lacks most, the share that was not sent"]


@dataclass(frozen=True)
class Finished(Event):
    """The training has ended."""

    reason: Annotated[str, "why"]
    version: Annotated[int, "updates in the model"]
    stalled: Annotated[bool, "whether it ended because nobody was left who could push"] = False


@dataclass(frozen=True)
class Drained(Event):
    """The workers know of the end, or have had the time to ask."""

    untold: Annotated[tuple[str, ...], "those who did not"] = ()


@dataclass(frozen=True)
class Saved(Event):
    """A checkpoint is on the disk."""

    version: Annotated[int, "updates in the model"]
    size_bytes: Annotated[int, "of the file"]
    held_seconds: Annotated[float, "real seconds for which no update was taken: a copy was made"]
    seconds: Annotated[float, "until it was written, the updates going on"]


@dataclass(frozen=True)
class Restored(Event):
    """The parameter server was started again, and goes on from its newest checkpoint."""

    version: Annotated[int, "updates in the model"]
    time_seconds: Annotated[float, "when the checkpoint was made, emulated"]
    lost_updates: Annotated[int, "updates on record that are in the model no more"]


@dataclass(frozen=True)
class Done(Event):
    """The parameter server has nothing left to do: the final model is evaluated."""

    evaluated: Annotated[bool, "whether that came about"]
    applied: Annotated[int, "pushes that are in the model"] = 0
    applied_bytes: Annotated[int, "their payload"] = 0
    repeated: Annotated[int, "pushes that came again after a lost connection"] = 0
    repeated_bytes: Annotated[int, "their payload"] = 0
    dropped: Annotated[
        int,
        "pushes that are in no model, as they came after the end or in a round that did not close",
    ] = 0
    dropped_bytes: Annotated[int, "their payload"] = 0
    lost: Annotated[int, "pushes whose model, or they themselves, were lost with a server"] = 0
    lost_bytes: Annotated[int, "payload of those of them that came again"] = 0
    served: Annotated[int, "requests that took their turn at a server with a `service`"] = 0
    served_late: Annotated[int, "those of them that had to wait for the host too"] = 0
    largest_gap_seconds: Annotated[
        float | None, "the longest that a node's own time stood still, real"
    ] = None
