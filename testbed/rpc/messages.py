"""What is said between the parameter server and its peers, as data; ``codec`` has it as bytes."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.algorithms.base import Reply, Update
from testbed.frame.effects import NO_STANDING, StandingOrders
from testbed.frame.record import Intake, Timing
from testbed.payloads import Dense
from testbed.rpc.shared import SharedSamples


@dataclass(frozen=True, eq=False)
class PushMessage:
    """What an Exchange brings; the update's arrays are views of the message.

    Attributes:
        sequence: 1 for a worker's first; a repeat keeps its number.
        fingerprint: of the layout of the worker's model.
        attempt: 0, then one more whenever the call is repeated.
        gap_seconds: the longest that the worker's process stood still since its push before, real.
        payload_bytes: of the payload's arrays, as they were encoded.
        saturated: values that the encoding has brought back into its range.
        intake: what became of the worker's stream, beside an update.
        shared: the update's shared samples, with their pixels.
        wants_keys: whether it repeats a push whose reply left out core keys that were not known.
    """

    worker: int
    sequence: int
    fingerprint: int
    update: Update
    timing: Timing
    attempt: int = 0
    payload_bytes: int = 0
    gap_seconds: float = 0.0
    saturated: int = 0
    intake: Intake | None = None
    shared: SharedSamples | None = None
    wants_keys: bool = False


@dataclass(frozen=True, eq=False)
class Delivery:
    """What a Pull or an Exchange is answered with.

    Attributes:
        reply: the model, its arrays views of the message; None if the training has ended.
        time: emulated seconds since the training started.
        blocked: emulated seconds for which the reply was held back.
        shared: the reply's shared samples, with their pixels.
    """

    reply: Reply | None
    time: float = 0.0
    blocked: float = 0.0
    standing: StandingOrders = NO_STANDING
    shared: SharedSamples | None = None


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A copy of the model, all its entries; final if the training has ended."""

    version: int
    time: float
    final: bool
    model: Dense
