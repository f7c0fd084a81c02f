"""Messages between the parameter server and its peers as dataclasses; ``codec`` encodes them."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.algorithms.base import Reply, Update
from testbed.algorithms.frame.effects import NO_STANDING, StandingOrders
from testbed.algorithms.frame.record import Intake, Timing
from testbed.payloads import Dense
from testbed.rpc.shared import SharedSamples


@dataclass(frozen=True, eq=False)
class PushMessage:
    """The content of an Exchange request; the update's arrays are views of the message.

    Attributes:
        sequence: 1 for a worker's first push; a repeat keeps its number.
        fingerprint: fingerprint of the worker's model layout.
        attempt: 0, incremented whenever the call is repeated.
        gap_seconds: longest pause of the worker's process since its previous push, real.
        payload_bytes: size of the payload's arrays as encoded.
        saturated: number of values that the encoding clipped to its range.
        intake: the state of the worker's stream, sent with an update.
        shared: the update's shared samples, with their pixels.
        wants_keys: whether it repeats a push because the reply left out unknown core keys.
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
    """The reply to a Pull or an Exchange.

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
    """A copy of the whole model; final if the training has ended."""

    version: int
    time: float
    final: bool
    model: Dense
