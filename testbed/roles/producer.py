"""A producer: makes the samples of its devices' streams, each at the rate of its device.

What is due at a moment is counted from the beginning of the training, so that no pace drifts: a
process that was late for a while sends what it owes. It tells the parameter server once a second
how far it is.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.datasets import Prepared
from testbed.errors import TestbedError
from testbed.experiment import Experiment
from testbed.frame.worker import Shard
from testbed.roles.arguments import Arguments, connect
from testbed.roles.clock import EmulatedClock, wait
from testbed.roles.process import TerminatedError, run
from testbed.roles.transports import sending
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2
from testbed.rpc.addresses import unix_address
from testbed.rpc.client import Connection
from testbed.rpc.codec import parse
from testbed.scenario.links import producers
from testbed.streams import Arrivals, RecordFormat, Sample, Sender

TICK_SECONDS = 0.01
"""So often it is looked what is due: a record is sent at most so late, real seconds."""

TELL_SECONDS = 1.0
DEADLINE_SECONDS = 10.0


def main(arguments: Mapping[str, str], opened: Experiment | None = None) -> int:
    """Produce until SIGTERM. Returns the exit status."""
    return run(arguments.get("node", "producer"), lambda: _main(Arguments.parse(arguments), opened))


def _main(arguments: Arguments, opened: Experiment | None) -> None:
    experiment = arguments.experiment(opened)
    asyncio.run(_produce(experiment, arguments))


async def _produce(experiment: Experiment, arguments: Arguments) -> None:
    """Send what is due from the start of the training to its end, and wait for SIGTERM."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def end(error: BaseException) -> None:
        if not over.done():
            over.set_exception(error)

    loop.add_signal_handler(signal.SIGTERM, end, TerminatedError())
    feeds = feeds_of(experiment, arguments.index)
    devices = [feed.device for feed in feeds]
    clock = EmulatedClock(experiment.scenario.time_scale)
    async with sending(experiment, arguments, devices=devices, failed=end) as sender:
        production = Production(feeds, sender, clock)
        with (
            unix_address(arguments.socket) as address,
            connect(address, arguments, experiment=experiment) as connection,
        ):
            attendant = Attendant(production, connection, loop, failed=end)
            threading.Thread(target=attendant.attend, name="attendant", daemon=True).start()
            producing = asyncio.create_task(production.carry_out())
            await asyncio.gather(producing, over)


def feeds_of(experiment: Experiment, index: int) -> Sequence[Feed]:
    """The streams of the devices that producer ``index`` feeds."""
    count, arrivals = len(producers(experiment.scenario)), experiment.arrivals()
    assert arrivals is not None, "a run without streams has no producer"
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
        arrivals: when its samples are due.
        source: the device's training samples, in the order in which they come.
        sent: records that the transport has taken over.
    """

    device: int
    arrivals: Arrivals
    source: Shard
    data: Prepared
    format: RecordFormat
    sent: int = 0
    _refused: bytes | None = None  # there was no room for it: it comes first
    _made: int = 0  # records that were made of the source's samples

    def due(self, now: float) -> int:
        """How many records there are to be at a moment: of samples that all have been made."""
        return self.arrivals.count(now) // self.format.samples

    def send_due(self, sender: Sender, now: float) -> None:
        """Send what is due at a moment and was not sent, as far as there is room."""
        due, there = self.due(now), sender.acknowledged(self.device)
        if there > due:
            return  # the clock of the process that this one follows was ahead of its own
        if there > self.sent:
            self._go_on(after=there)
        while self.sent < due:
            record = self._refused or self._make(self.sent + 1)
            if not sender.send(self.device, record):
                self._refused = record
                return
            self._refused = None
            self.sent += 1

    def _go_on(self, *, after: int) -> None:
        """The stream has so many records already: those of a process that this one follows."""
        self.source.take((after - self._made) * self.format.samples)
        self.sent = self._made = after
        self._refused = None

    def _make(self, number: int) -> bytes:
        """The record of that number, from 1 on."""
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
        begun: set when the training has started, and the clock with it.
        ended: set when it has ended.
    """

    feeds: Sequence[Feed]
    sender: Sender
    clock: EmulatedClock
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def carry_out(self) -> None:
        """Send whatever becomes due, until the training has ended."""
        await self.begun.wait()
        while not await wait(self.ended, TICK_SECONDS):
            now = self.clock.now
            for feed in self.feeds:
                feed.send_due(self.sender, now)
        await self.sender.flush()

    def begin(self, now: float) -> None:
        """The training has started; the emulated time is ``now``."""
        self.clock.start(now)
        self.begun.set()

    def told(self) -> ps_pb2.ProducedRequest:
        """How far it has come, in records that the devices could have."""
        now, available = self.clock.now, self.sender.available
        counts = [(one.due(now), available(one.device)) for one in self.feeds]
        counts = [(max(due, sent), sent) for due, sent in counts]  # sent while this was counted
        return ps_pb2.ProducedRequest(
            due=sum(due for due, _ in counts),
            sent=sum(sent for _, sent in counts),
            worst_lag_ratio=max((1 - sent / due for due, sent in counts if due), default=0.0),
        )


@dataclass
class Attendant:
    """Speaks with the parameter server, in a thread beside that of the records."""

    production: Production
    connection: Connection
    loop: asyncio.AbstractEventLoop
    failed: Callable[[BaseException], None]

    def attend(self) -> None:
        """Pass on when the training starts and ends, and tell how far the producer is."""
        try:
            reply = parse(ps_pb2.ClockReply, self.connection.call(methods.CLOCK, b""))
            self.loop.call_soon_threadsafe(self.production.begin, reply.time_seconds)
            ended = False
            while not ended:
                time.sleep(TELL_SECONDS)  # the interval of the record, no wait for anything
                ended = self._tell()
            self.loop.call_soon_threadsafe(self.production.ended.set)
        except TestbedError as error:
            self.loop.call_soon_threadsafe(self.failed, error)

    def _tell(self) -> bool:
        message = self.production.told().SerializeToString()
        data = self.connection.call(methods.PRODUCED, message, deadline_seconds=DEADLINE_SECONDS)
        return bool(parse(ps_pb2.ProducedReply, data).ended)
