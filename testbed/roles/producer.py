"""A producer: produces the samples of its devices' streams, each at its device's rate.

The number of samples is computed from the start of the training, so no pace drifts: a process that
was late catches up. It reports its progress to the parameter server once a second.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from testbed.algorithms.frame.worker import Shard
from testbed.datasets import Prepared
from testbed.datasets.streams import Arrivals, RecordFormat, Sample, Sender
from testbed.errors import TestbedError
from testbed.roles.arguments import Arguments, connect
from testbed.roles.clock import EmulatedClock, wait
from testbed.roles.direct import DirectSender, answering
from testbed.roles.process import TerminatedError, run
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.addresses import unix_address
from testbed.rpc.client import Connection
from testbed.rpc.wire import parse
from testbed.scenario import Scenario
from testbed.scenario.experiment import Experiment
from testbed.scenario.links import producers
from testbed.scenario.streams import Kafka

TICK_SECONDS = 0.01
"""Polling interval, and thus the maximum delay of a record, real seconds."""

REPORT_SECONDS = 1.0
DEADLINE_SECONDS = 10.0
CLOSE_SECONDS = 5.0
"""Time for a producer to close its connection to the broker."""


def main(arguments: Mapping[str, str], opened: Experiment | None = None) -> int:
    """Produce until SIGTERM. Return the exit status."""
    return run(
        arguments.get("node", "producer"),
        lambda: asyncio.run(_produce(Arguments.parse(arguments), opened)),
    )


async def _produce(arguments: Arguments, opened: Experiment | None) -> None:
    """Send records on time from the start of the training to its end, and wait for SIGTERM."""
    experiment, loop = arguments.experiment(opened), asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def end(error: BaseException) -> None:
        if not over.done():
            over.set_exception(error)

    loop.add_signal_handler(signal.SIGTERM, end, TerminatedError())
    feeds = feeds_of(experiment, arguments.index)
    devices = [feed.device for feed in feeds]
    clock = EmulatedClock(experiment.scenario.time_scale)
    async with _sending(experiment, arguments, devices=devices, failed=end) as sender:
        production = Production(feeds, sender, clock)
        with (
            unix_address(arguments.socket) as address,
            connect(address, arguments, experiment=experiment) as connection,
        ):
            report = partial(production.report, connection, loop, end)
            threading.Thread(target=report, name="reporter", daemon=True).start()
            producing = asyncio.create_task(production.carry_out())
            await asyncio.gather(producing, over)


@asynccontextmanager
async def _sending(
    experiment: Experiment,
    arguments: Arguments,
    *,
    devices: Iterable[int],
    failed: Callable[[BaseException], None],
) -> AsyncIterator[Sender]:
    """Open a producer's end for these devices; ``failed`` receives unexpected errors.

    Raises:
        HostError: this host cannot provide what it needs.
        NodeError: the broker does not exist, or the producer cannot write to it.
    """
    if arguments.topics:
        from testbed.roles.kafka import connect_sender

        loop = asyncio.get_running_loop()
        through, producer = connect_sender(
            arguments.source,
            arguments.topics,
            devices,
            failed=lambda error: loop.call_soon_threadsafe(failed, error),
            linger_seconds=linger_seconds(experiment.scenario),
        )
        try:
            yield through
        finally:
            producer.close(timeout=CLOSE_SECONDS)
        return
    sender = DirectSender(devices)
    async with answering(arguments.source, sender, token=arguments.token, failed=failed):
        yield sender


def linger_seconds(scenario: Scenario) -> float:
    """Return how long a record may wait for a batch to the broker, real seconds."""
    assert scenario.streams is not None and isinstance(scenario.streams.transport, Kafka)
    return scenario.streams.transport.linger / scenario.time_scale


def feeds_of(experiment: Experiment, index: int) -> Sequence[Feed]:
    """Return the streams of the devices that producer ``index`` feeds."""
    count, arrivals = len(producers(experiment.scenario)), experiment.arrivals()
    assert arrivals is not None, "only scenarios with streams have producers"
    shards = experiment.shards
    return [
        Feed(
            *(device, arrivals[device], experiment.order(device, shards[device])),
            data=experiment.data,
            format=experiment.records,
        )
        for device in range(index, len(shards), count)
    ]


@dataclass
class Feed:
    """One device's stream.

    Attributes:
        arrivals: arrival times of its samples.
        source: the device's training samples, in order of arrival.
        sent: number of records passed to the transport.
    """

    device: int
    arrivals: Arrivals
    source: Shard
    data: Prepared
    format: RecordFormat
    sent: int = 0
    _refused: bytes | None = None  # the transport had no room for it: send it first
    _made: int = 0  # records built from the source's samples

    def due(self, now: float) -> int:
        """Return the number of records up to ``now``; all samples of a record must have arrived."""
        return self.arrivals.count(now) // self.format.samples

    def send_due(self, sender: Sender, now: float) -> None:
        """Send the outstanding records up to ``now``, as far as there is room."""
        due, available = self.due(now), sender.acknowledged(self.device)
        if available > due:
            return  # the clock of the previous producer was ahead of this one
        if available > self.sent:
            self._skip(after=available)
        while self.sent < due:
            record = self._refused or self._make(self.sent + 1)
            if not sender.send(self.device, record):
                self._refused = record
                return
            self._refused = None
            self.sent += 1

    def _skip(self, *, after: int) -> None:
        """Continue after this many records, which a previous producer has sent."""
        self.source.take((after - self._made) * self.format.samples)
        self.sent = self._made = after
        self._refused = None

    def _make(self, number: int) -> bytes:
        """Build the record of this number, from 1."""
        self._made = number
        last = number * self.format.samples
        sequences = range(last - self.format.samples + 1, last + 1)
        samples = self.source.take(self.format.samples).tolist()
        return self.format.encode(list(map(self._sample, sequences, samples)))

    def _sample(self, sequence: int, sample: int) -> Sample:
        label, pixels = self.data.train_labels[sample], self.data.train_images[sample]
        return Sample(sequence, sample, self.arrivals.made(sequence), float(label), pixels)


@dataclass
class Production:
    """All streams of one producer.

    Attributes:
        begun: set when the training has started, together with the clock.
        ended: set when the training has ended.
    """

    feeds: Sequence[Feed]
    sender: Sender
    clock: EmulatedClock
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def carry_out(self) -> None:
        """Send records on time until the training has ended."""
        await self.begun.wait()
        while not await wait(self.ended, TICK_SECONDS):
            now = self.clock.now
            for feed in self.feeds:
                feed.send_due(self.sender, now)
        await self.sender.flush()

    def begin(self, now: float) -> None:
        """Start with the training, at emulated time ``now``."""
        self.clock.start(now)
        self.begun.set()

    def progress(self) -> ps_pb2.ProducedRequest:
        """Report the progress, in records available to the devices."""
        now, available = self.clock.now, self.sender.available
        counts = [(one.due(now), available(one.device)) for one in self.feeds]
        counts = [(max(due, sent), sent) for due, sent in counts]  # sent during this count
        return ps_pb2.ProducedRequest(
            due=sum(due for due, _ in counts),
            sent=sum(sent for _, sent in counts),
            worst_lag_ratio=max((1 - sent / due for due, sent in counts if due), default=0.0),
        )

    def report(
        self,
        connection: Connection,
        loop: asyncio.AbstractEventLoop,
        failed: Callable[[BaseException], None],
    ) -> None:
        """Signal the start and end of the training, and report the progress; runs in a thread."""
        try:
            reply = parse(ps_pb2.ClockReply, connection.call(methods.CLOCK, b""))
            loop.call_soon_threadsafe(self.begin, reply.time_seconds)
            ended = False
            while not ended:
                time.sleep(REPORT_SECONDS)  # the interval of the record, not a wait for a peer
                message = self.progress().SerializeToString()
                data = connection.call(methods.PRODUCED, message, deadline_seconds=DEADLINE_SECONDS)
                ended = bool(parse(ps_pb2.ProducedReply, data).ended)
            loop.call_soon_threadsafe(self.ended.set)
        except TestbedError as error:
            loop.call_soon_threadsafe(failed, error)
