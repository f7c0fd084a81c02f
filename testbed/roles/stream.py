"""A live device's stream: a thread receives records, and steps take their samples."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import Samples, Stream
from testbed.algorithms.frame.record import Intake
from testbed.datasets import Prepared
from testbed.datasets.streams import Receiver, Reception
from testbed.errors import NodeError, TestbedError
from testbed.roles.clock import EmulatedClock
from testbed.rpc.shared import SharedSamples, assembled

LINGER_SECONDS = 0.05
"""While no step waits for samples, records are received in batches, at this interval in real or
emulated seconds, whichever is longer."""

MANY = 1_000_000
"""Number of records to poll for while no step waits: more than arrive before a poll's timeout."""


class Receipt(NamedTuple):
    """What a device has received of its stream, in samples; see ReceivedRequest of the contract."""

    received: int
    missing: int
    removed: int
    silent_seconds: float


@dataclass
class DeviceStream:
    """The samples of one device, from their arrival to the step that uses them.

    Attributes:
        receiver: receives records.
        reception: checks, counts and stores the records.
        data: the device's training data; only its format and transform are used.
        batch_size: batch size of the scenario.
        own: number of training samples from which the stream draws.
        patience: emulated seconds without a sample after which a step stops waiting.
        quiet: emulated seconds without a sample after which the stream counts as silent.
        report: called in a thread, once per silence, if a step waits in it.
    """

    receiver: Receiver
    reception: Reception
    data: Prepared
    clock: EmulatedClock
    batch_size: int
    own: int
    patience: float = inf
    quiet: float = inf
    report: Callable[[Receipt], object] = lambda receipt: None
    _came: threading.Condition = field(default_factory=threading.Condition)
    _wanted: int = 0  # records that a step waits for
    _failed: TestbedError | None = None
    _at_hand: dict[int, tuple[float, NDArray[Any]]] = field(default_factory=dict)  # by number
    _intake: Intake = field(default_factory=Intake)  # when samples were last taken
    _waited: float = 0.0  # since the intake was last reported, emulated
    _lag: float = 0.0  # of the oldest sample that was last taken
    _begun: float = inf  # when this process first waited for samples, emulated
    _reported: float = -inf  # the last arrival before the silence that was reported last

    def connect(self) -> None:
        """Check that the sender responds, then receive records in the background.

        Raises:
            NodeError, RejectedError: the sender does not respond, or refuses.
        """
        records = self.receiver.poll(0, 0.0)
        self.reception.newest = self.receiver.begins_after * self.reception.format.samples
        self._take_in(records)
        threading.Thread(target=self._follow, name="stream", daemon=True).start()

    def look(self, now: float) -> Stream:
        """Return the stream's state for a worker half."""
        with self._came:
            rate, waiting = self.reception.meter.rate, self.reception.buffer.waiting
        return Stream(self.batch_size, own=self.own, rate=rate, buffered=waiting)

    def take(self, count: int) -> Samples:
        """Take the oldest ``count`` samples, once they have arrived; none if the wait timed out.

        Raises:
            RejectedError: the sender refuses this device.
        """
        begun = self.clock.now
        self._begun = min(self._begun, begun)
        with self._came:
            arrived = self._await(count, begun)
            self._waited += self.clock.now - begun
            if not arrived:
                self.reception.give_up()
                self._intake = self._look()
                return np.empty(0, np.int64)
            taken = self.reception.take(count)
            self._intake = self._look()
        self._lag = max(0.0, self.clock.now - taken[0].made)
        self._at_hand = {one.sample: (one.label, one.pixels) for one in taken}
        return np.array([one.sample for one in taken], np.int64)

    def append(self, shared: SharedSamples) -> None:
        """Add samples of other devices, to train on with the device's own."""
        kind, shape = self.data.train_images.dtype, self.data.image_shape
        images = shared.pixels.view(kind).reshape(-1, *shape)
        labels = shared.labels.tolist()
        self._at_hand |= zip(shared.samples.tolist(), zip(labels, images, strict=True), strict=True)

    def with_pixels(self, samples: Samples) -> SharedSamples:
        """Return samples with their pixels, to share with other devices."""
        return assembled(samples, (self._at_hand[sample] for sample in samples.tolist()))

    def batch(self, samples: Samples, draw: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return images and labels of samples, as ``Prepared.batch`` does."""
        labels, pixels = zip(*(self._at_hand[one] for one in samples.tolist()), strict=True)
        images: Any = np.stack(pixels)
        if self.data.transform is not None:
            images = self.data.transform(images, np.random.default_rng(draw))
        return images, np.array(labels, self.data.train_labels.dtype)

    def take_intake(self) -> Intake:
        """Return the report for an update: the stream's state when its step had its samples."""
        waited, self._waited = self._waited, 0.0
        return self._intake._replace(stream_wait_seconds=waited, stream_lag_seconds=self._lag)

    def receipt(self) -> Receipt:
        """Return what has arrived until now."""
        with self._came:
            return self._receipt()

    def _receipt(self) -> Receipt:
        one, now = self.reception, self.clock.now
        silent = max(0.0, now - max(one.heard, self._begun))
        return Receipt(one.newest - one.missing, one.missing, one.removed, silent)

    def _look(self) -> Intake:
        one, buffer = self.reception, self.reception.buffer
        return Intake(
            stream_rate=one.meter.rate,
            stream_produced=buffer.produced,
            stream_used=buffer.used,
            stream_buffered=buffer.waiting,
            stream_truncated=buffer.truncated,
            stream_duplicates=buffer.duplicates,
            stream_latency_seconds=one.latency,
            stream_refused=one.refused,
            stream_missing=one.missing,
        )

    def _await(self, count: int, begun: float) -> bool:
        """Wait for ``count`` samples; return whether they have arrived."""
        self.reception.wait()
        while lacking := self.reception.lacking(count):
            if self._failed is not None:
                raise self._failed
            self._wanted = ceil(lacking / self.reception.format.samples)
            silent = max(begun, self.reception.heard) + self.patience - self.clock.now
            if silent <= 0:
                break
            left = min(silent, self._until_silent())
            self._came.wait(None if left == inf else self.clock.real(left))
        self._wanted = 0
        return not lacking

    def _until_silent(self) -> float:
        """Return the seconds until the stream counts as silent, emulated; if it does, report it."""
        heard = max(self.reception.heard, self._begun)
        if heard == self._reported:
            return inf
        left = heard + self.quiet - self.clock.now
        if left >= 0:
            return left
        self._reported = heard
        threading.Thread(target=self.report, args=(self._receipt(),), daemon=True).start()
        return inf

    def _follow(self) -> None:
        """Receive while this process lives."""
        linger = max(LINGER_SECONDS, self.clock.real(LINGER_SECONDS))
        while True:
            try:
                with self._came:
                    wanted = self._wanted or MANY
                self._receive(wanted, linger)
            except NodeError:
                continue  # the sender may come back; until then the stream is silent
            except TestbedError as error:
                with self._came:
                    self._failed = error
                    self._came.notify()
                return

    def _receive(self, least: int, seconds: float) -> None:
        """Receive records, and only then commit them."""
        self._take_in(self.receiver.poll(least, seconds))

    def _take_in(self, records: Sequence[bytes]) -> None:
        now = self.clock.now
        with self._came:
            for record in records:
                self.reception.receive(record, now)
            if records:
                self._came.notify()
        self.receiver.commit()
