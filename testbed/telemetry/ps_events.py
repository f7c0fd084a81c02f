"""The events of the parameter server; see ``event_kinds``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from testbed.telemetry.event import PS, Event, PsEvent


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

    waiting: Annotated[
        int, "requests waiting for a reply, except those of workers that crashed or are frozen"
    ]
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


PS_EVENTS: Mapping[str, type[Event]] = dict(PS)
"""Those of this file, by name."""
