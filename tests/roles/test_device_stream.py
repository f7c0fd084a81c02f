"""A device's end of its stream: a step waits, takes what came, or gives up; no sockets, no pixels
but those that came."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Sequence
from math import inf

import numpy as np
import pytest

from testbed.datasets import Prepared
from testbed.datasets.streams import Buffer, RateMeter, Receiver, Reception, RecordFormat, Sample
from testbed.errors import RejectedError
from testbed.roles.clock import EmulatedClock
from testbed.roles.stream import DeviceStream, Receipt
from testbed.rpc.shared import assembled

FORMAT = RecordFormat((1, 1, 2), "f")
DATA = Prepared(
    np.zeros((9, 1, 1, 2), np.float32),
    np.zeros(9, np.int64),
    np.zeros((1, 1, 1, 2), np.float32),
    np.zeros(1, np.int64),
    classes=10,
    source={},
)
"""Its own pixels are all 0: those that come are not."""


class Bringing(Receiver):
    """Delivers given records, and remembers what was committed."""

    def __init__(self, *, begins_after: int = 0) -> None:
        self.begins_after = begins_after
        self.batches: deque[Sequence[bytes] | RejectedError] = deque()
        self.given = threading.Semaphore(0)
        self.came = 0
        self.committed = 0

    def give(self, *batch: bytes) -> None:
        self.batches.append(batch)
        self.given.release()

    def fail(self, error: RejectedError) -> None:
        self.batches.append(error)
        self.given.release()

    def poll(self, least: int, seconds: float) -> Sequence[bytes]:
        if not self.given.acquire(timeout=seconds):
            return ()
        batch = self.batches.popleft()
        if isinstance(batch, RejectedError):
            raise batch
        self.came += len(batch)
        return batch

    def commit(self) -> None:
        self.committed = self.came

    def close(self) -> None:
        return


def record(sequence: int) -> bytes:
    pixels = np.full((1, 1, 2), sequence, np.float32)
    return FORMAT.encode([Sample(sequence, 10 + sequence, 0.0, float(sequence), pixels)])


def stream(receiver: Receiver, *, patience: float = inf, quiet: float = inf) -> DeviceStream:
    clock = EmulatedClock(1.0)
    clock.start()
    reception = Reception(FORMAT, Buffer(), RateMeter(64.0))
    made = DeviceStream(receiver, reception, DATA, clock, batch_size=4, own=9, patience=patience)
    made.quiet = quiet
    made.connect()
    return made


def test_a_step_waits_for_its_samples_and_trains_on_their_pixels() -> None:
    receiver = Bringing()
    subject = stream(receiver)
    for sequence in (1, 2, 3):
        receiver.give(record(sequence))
    samples = subject.take(3)
    assert samples.tolist() == [11, 12, 13]
    images, labels = subject.batch(samples, 0)
    assert images[:, 0, 0, 0].tolist() == [1.0, 2.0, 3.0]
    assert labels.tolist() == [1, 2, 3]
    told = subject.take_intake()
    assert (told.stream_produced, told.stream_used, told.stream_buffered) == (3, 3, 0)
    assert subject.look(0.0).rate == told.stream_rate


def test_samples_that_arrive_during_a_step_are_reported_with_the_next() -> None:
    """As in a simulation: of three, two are taken and one is left; the others arrive later."""
    receiver = Bringing()
    receiver.give(record(1), record(2), record(3))
    subject = stream(receiver)
    subject.take(2)
    receiver.give(record(4), record(5))
    with subject._came:
        assert subject._came.wait_for(lambda: subject.reception.newest == 5, timeout=180)
    told = subject.take_intake()
    assert (told.stream_produced, told.stream_used, told.stream_buffered) == (3, 2, 1)
    subject.take(1)
    told = subject.take_intake()
    assert (told.stream_produced, told.stream_used, told.stream_buffered) == (5, 3, 2)


def test_a_step_times_out_when_no_sample_arrives() -> None:
    receiver = Bringing()
    receiver.give(record(1))
    subject = stream(receiver, patience=0.1)
    assert not len(subject.take(2))
    assert subject.take_intake().stream_buffered == 1  # it is for the next
    receiver.give(record(2))
    assert subject.take(2).tolist() == [11, 12]
    assert receiver.committed >= 1


def test_a_silence_is_reported_once_while_a_step_waits() -> None:
    """The previous process had two samples; this one gets 3, and never 4. After 6, it is silent."""
    receiver, reports = Bringing(begins_after=2), queue.Queue[Receipt]()
    receiver.give(record(3))
    subject = stream(receiver, patience=0.5, quiet=0.2)
    subject.report = reports.put
    subject.take(1)
    receiver.give(record(5), record(6))
    assert not len(subject.take(3))
    told = reports.get(timeout=180)
    assert (told.received, told.missing, told.removed) == (5, 1, 0)
    assert told.silent_seconds > 0.2
    assert not len(subject.take(3))  # the same silence
    assert reports.empty()
    receiver.give(record(7))
    assert subject.take(3).tolist() == [15, 16, 17]
    assert not len(subject.take(1))
    assert reports.get(timeout=180).received == 6
    assert subject.receipt()[:3] == (6, 1, 0)


def test_a_refusal_reaches_the_waiting_step() -> None:
    receiver = Bringing()
    subject = stream(receiver)
    receiver.fail(RejectedError("not yours"))
    with pytest.raises(RejectedError, match="not yours"):
        subject.take(1)


def test_shared_samples_have_the_pixels_of_the_sender() -> None:
    receiver = Bringing()
    receiver.give(record(1), record(2))
    subject = stream(receiver)
    own = subject.take(2)
    shared = subject.with_pixels(own[1:])
    assert shared.payload_bytes == 2 * 4
    assert shared.labels.tolist() == [2.0]
    other = np.array([7])
    subject.append(assembled(other, [(5.0, np.full((1, 1, 2), 9, np.float32))]))
    images, labels = subject.batch(np.concatenate([own, other]), 0)
    assert images[:, 0, 0, 1].tolist() == [1.0, 2.0, 9.0]
    assert labels.tolist() == [1, 2, 5]
