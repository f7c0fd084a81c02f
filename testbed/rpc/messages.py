"""What is said between the parameter server and its peers, as data; ``codec`` has it as bytes."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.algorithms.base import Reply, Update
from testbed.compress.payload import Dense


@dataclass(frozen=True)
class Timing:
    """A worker's cycle that ends with a push, in emulated seconds.

    Attributes:
        compute: training, padded to the device class's speed.
        late: by which steps took longer than that speed.
        think: waiting between training and pushing.
        transfer: the call that brought the model, without ``blocked``.
        blocked: for which the server held that call's reply back.
    """

    compute: float = 0.0
    late: float = 0.0
    think: float = 0.0
    transfer: float = 0.0
    blocked: float = 0.0


@dataclass(frozen=True, eq=False)
class Push:
    """What an Exchange brings.

    Attributes:
        worker: whose push.
        sequence: 1 for its first; a repeat keeps its number.
        fingerprint: of the layout of the worker's model.
        update: its arrays are views of the message.
        timing: see Timing.
        attempt: 0, then one more whenever the call is repeated.
        payload_bytes: values and indices.
    """

    worker: int
    sequence: int
    fingerprint: int
    update: Update
    timing: Timing
    attempt: int = 0
    payload_bytes: int = 0


@dataclass(frozen=True, eq=False)
class Delivery:
    """What a Pull or an Exchange is answered with.

    Attributes:
        reply: the model, its arrays views of the message; None if the training has ended.
        time: emulated seconds since the training started.
        blocked: emulated seconds for which the reply was held back.
        payload_bytes: values and indices.
    """

    reply: Reply | None
    time: float = 0.0
    blocked: float = 0.0
    payload_bytes: int = 0


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A copy of the model.

    Attributes:
        version: updates applied to it.
        time: emulated seconds since the training started.
        final: whether the training has ended.
        model: all its entries.
    """

    version: int
    time: float
    final: bool
    model: Dense
