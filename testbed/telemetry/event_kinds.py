"""All events of a run. Their fields are the content of a line in ``events.jsonl``.

The first line of a docstring and the text of a field are also in docs/run-folder.md. A new field
needs a default: existing lines do not have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from testbed.telemetry.event import CONTROLLER, PS, ControllerEvent, Event, PsEvent

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


class Listening(PsEvent):
    """The parameter server accepts calls."""

    port: Annotated[int, "port to which workers connect"]


class Joined(PsEvent):
    """A worker joined the training."""

    node: Annotated[str, "name of the worker"]


class Left(PsEvent):
    """A worker left the training."""

    node: Annotated[str, "name of the worker"]
    reason: Annotated[
        str | None, "how the worker's process exited; null if the worker announced that it leaves"
    ] = None


class Silent(PsEvent):
    """A worker was frozen for too long; the end of the training will not wait for it."""

    node: Annotated[str, "name of the worker"]


class Crashed(PsEvent):
    """A worker crashed after a push, by a fault of the scenario, without notifying other nodes."""

    node: Annotated[str, "name of the worker"]
    sequence: Annotated[int, "number of the worker's push, from 1"]
    time_seconds: Annotated[float, "emulated time at which the push was accepted"]


class Gap(PsEvent):
    """A node did not execute for a time: it was suspended or frozen, or got no CPU time."""

    node: Annotated[str, "name of the node"]
    seconds: Annotated[float, "real duration; gaps below a second are not reported"]


class Started(PsEvent):
    """The training has started: all workers have joined."""


class Evaluated(PsEvent):
    """The model was evaluated."""

    time_seconds: Annotated[float, "when the model was copied, in emulated time"]
    version: Annotated[int, "updates in the model"]
    payload_up_bytes: Annotated[int, "payload of all pushes until the model was copied"]
    loss: Annotated[
        float | None, "objective: mean loss of the samples, plus the model's regularization"
    ]
    metrics: Annotated[
        Mapping[str, float | None],
        "values of the scenario's metrics, in the file each beside the other fields; null if it is "
        "not defined for these samples",
    ]
    images: Annotated[int, "number of test samples that were evaluated"]
    final: Annotated[bool, "whether this is the evaluation on all test samples after the end"]

    def written(self) -> Mapping[str, Any]:
        """Return the content of its line, with the metrics after the loss."""
        own = dict(vars(self))
        metrics, after = own.pop("metrics"), {name: own.pop(name) for name in ("images", "final")}
        return {**own, **metrics, **after}


class _Refusal(Event):
    node: Annotated[str | None, "the node that called; null for an unknown peer"]
    reason: Annotated[str, "why the call failed"]
    peer: Annotated[str | None, "network address of the caller"] = None
    method: Annotated[str | None, "name of the method"] = None
    code: Annotated[str | None, "gRPC status code"] = None


class Rejected(_Refusal, PsEvent):
    """A call was rejected and had no effect."""


class Incomplete(_Refusal, PsEvent):
    """A call was interrupted before it had been received completely."""


class KeysMissed(PsEvent):
    """A message omitted core keys that its receiver did not know; it was repeated with the keys."""

    node: Annotated[str, "the worker that sent or received the message"]
    direction: Annotated[str, "`up`: a push, `down`: a reply"]
    payload_bytes: Annotated[int, "payload of the first message, which is in no update's row"]


class Omitted(PsEvent):
    """Events were counted instead of recorded, because a node had caused too many of a kind."""

    node: Annotated[str | None, "the node; null for unknown peers"]
    kind: Annotated[str, "kind of the events"]
    count: Annotated[int, "number of events that were not recorded"]


class Load(PsEvent):
    """The load of the parameter server, once a second (real) during training."""

    waiting: Annotated[int, "requests waiting for a reply"]
    cpu_seconds: Annotated[float, "CPU time of the parameter server's process so far"]


class Produced(PsEvent):
    """The progress of a producer of streams, once a second (real)."""

    producer: Annotated[str, "name of the producer's node"]
    due: Annotated[int, "number of records that were due at the configured rates"]
    sent: Annotated[int, "number of records sent; with a broker, those that it has stored"]
    worst_lag_ratio: Annotated[
        float, "largest fraction of due records that were not sent, over the devices"
    ]


class Received(PsEvent):
    """What had arrived of a worker's stream: at the end, or after a long time without a sample."""

    node: Annotated[str, "name of the worker"]
    received: Annotated[int, "number of samples that had arrived"]
    missing: Annotated[int, "number of samples that did not arrive, although later ones did"]
    removed: Annotated[int, "number of these that were older than the broker's `retention`"]
    silent_seconds: Annotated[float, "emulated time since the last sample arrived"]


class Finished(PsEvent):
    """The training has ended."""

    reason: Annotated[str, "why the training ended"]
    version: Annotated[int, "updates in the model"]
    stalled: Annotated[bool, "whether it ended because no worker could push any longer"] = False


class ClientsEvaluated(PsEvent):
    """The workers of a round have evaluated the model with which the round began."""

    time_seconds: Annotated[float, "when the round's updates were applied, in emulated time"]
    version: Annotated[int, "updates in the evaluated model"]
    distribution: Annotated[
        Mapping[str, float], "`clients_mean` and the other values of the metric `clients`"
    ]
    accuracies: Annotated[Mapping[str, float], "accuracy on its held-out samples, by worker"]


class Drained(PsEvent):
    """The workers were notified of the end, or the time for this has passed."""

    untold: Annotated[tuple[str, ...], "workers that were not notified"] = ()


class Saved(PsEvent):
    """A checkpoint was written to disk."""

    version: Annotated[int, "updates in the model"]
    size_bytes: Annotated[int, "size of the file"]
    held_seconds: Annotated[float, "real time for which updates stopped while the state was copied"]
    seconds: Annotated[float, "real time to write the copy to disk, while updates continued"]


class Restored(PsEvent):
    """The parameter server was restarted from its newest checkpoint."""

    version: Annotated[int, "updates in the model"]
    time_seconds: Annotated[float, "emulated time of the checkpoint"]
    lost_updates: Annotated[int, "recorded updates that are no longer in the model"]


class Done(PsEvent):
    """The parameter server has finished: the final model was evaluated."""

    evaluated: Annotated[bool, "whether the final evaluation took place"]
    applied: Annotated[int, "number of pushes applied to the model"] = 0
    applied_bytes: Annotated[int, "payload of the applied pushes"] = 0
    repeated: Annotated[int, "number of pushes repeated after a lost connection"] = 0
    repeated_bytes: Annotated[int, "payload of the repeated pushes"] = 0
    dropped: Annotated[
        int,
        "number of pushes that were not applied, because they arrived after the end or in a round "
        "that did not complete",
    ] = 0
    dropped_bytes: Annotated[int, "payload of the dropped pushes"] = 0
    lost: Annotated[int, "pushes lost with a killed server, or computed on its lost model"] = 0
    lost_bytes: Annotated[int, "payload of the lost pushes that were repeated"] = 0
    served: Annotated[int, "number of requests that passed the queue of `ps.service`"] = 0
    served_late: Annotated[int, "number of these requests that took longer than `ps.service`"] = 0
    largest_gap_seconds: Annotated[
        float | None, "longest real time for which a node did not execute"
    ] = None


EVENTS: Mapping[str, type[Event]] = {**CONTROLLER, **PS}
