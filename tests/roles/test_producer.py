"""A producer's pace, on a clock advanced by hand: exactly the due records, in order."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from testbed.algorithms.frame.worker import Shard
from testbed.datasets import Prepared
from testbed.datasets.streams import Arrivals, RecordFormat, Sender, Steady
from testbed.roles.clock import EmulatedClock
from testbed.roles.producer import Feed, Production

FORMAT = RecordFormat((1, 1, 1), "f")
DATA = Prepared(
    np.arange(4, dtype=np.float32).reshape(4, 1, 1, 1),
    np.array([3, 2, 1, 0]),
    np.zeros((1, 1, 1, 1), np.float32),
    np.zeros(1, np.int64),
    classes=4,
    source={},
)


class Kept(Sender):
    """Accepts as many records as it has room for."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.records: list[bytes] = []
        self.there = 0
        self.unwritten = 0

    def send(self, device: int, record: bytes) -> bool:
        if len(self.records) == self.room:
            return False
        self.records.append(record)
        return True

    def acknowledged(self, device: int) -> int:
        return self.there

    def available(self, device: int) -> int:
        return max(self.there, len(self.records) - self.unwritten)

    async def flush(self) -> None:
        return


def feed(rate: float) -> Feed:
    shard = Shard(np.arange(4), np.random.default_rng(1))
    arrivals = Arrivals(rate, Steady(name="steady"))
    return Feed(0, arrivals, shard, data=DATA, format=FORMAT)


def test_due_records_are_counted_from_the_start() -> None:
    """Ten per second: 3 after 0.35 s, and after sleeping for a second all 13 by 1.35 s."""
    subject, sender = feed(10.0), Kept(100)
    for now, expected in ((0.0, 0), (0.05, 0), (0.35, 3), (0.39, 3), (1.35, 13)):
        subject.send_due(sender, now)
        assert len(sender.records) == expected
    records = [sample for data in sender.records for sample in FORMAT.decode(data)]
    assert [one.sequence for one in records] == list(range(1, 14))
    assert [one.made for one in records] == pytest.approx([k / 10 for k in range(1, 14)])
    order = Shard(np.arange(4), np.random.default_rng(1)).take(13).tolist()
    assert [one.sample for one in records] == order  # as in the simulation
    assert all(one.label == 3 - one.sample for one in records)
    assert all(one.pixels.item() == one.sample for one in records)


def test_a_record_without_room_is_sent_first_later() -> None:
    subject, sender = feed(10.0), Kept(2)
    subject.send_due(sender, 0.5)
    assert subject.sent == 2
    sender.room = 100
    subject.send_due(sender, 0.6)
    assert [sample.sequence for one in sender.records for sample in FORMAT.decode(one)] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]


def test_a_producer_continues_after_the_records_of_a_previous_process() -> None:
    """12 exist by 1.0 s: none is due for that long. Then 13 to 15, in the same order."""
    subject, sender = feed(10.0), Kept(100)
    subject.send_due(sender, 0.2)
    sender.there = 12
    for now, expected in ((1.0, 2), (1.2, 2), (1.5, 5)):
        subject.send_due(sender, now)
        assert len(sender.records) == expected
    records = [sample for data in sender.records for sample in FORMAT.decode(data)]
    assert [one.sequence for one in records] == [1, 2, 13, 14, 15]
    order = Shard(np.arange(4), np.random.default_rng(1)).take(15).tolist()
    assert [one.sample for one in records] == [order[0], order[1], *order[12:]]


def test_a_lot_is_sent_when_its_last_sample_is_due() -> None:
    """Lots of three, ten samples a second: two lots by 0.65 s, the third at 0.9 s."""
    lots = RecordFormat((1, 1, 1), "f", samples=3)
    shard = Shard(np.arange(4), np.random.default_rng(1))
    arrivals = Arrivals(10.0, Steady(name="steady"), lot=3)
    subject, sender = Feed(0, arrivals, shard, data=DATA, format=lots), Kept(2)
    for now, expected in ((0.29, 0), (0.3, 1), (0.65, 2), (0.9, 2)):
        subject.send_due(sender, now)
        assert len(sender.records) == expected
    assert (subject.due(0.9), subject.sent) == (3, 2)  # there was no room for it
    sender.there, sender.room = 4, 100  # but another process has sent it, and the one after
    subject.send_due(sender, 1.5)
    samples = [sample for data in sender.records for sample in lots.decode(data)]
    assert [one.sequence for one in samples] == [1, 2, 3, 4, 5, 6, 13, 14, 15]
    assert [one.made for one in samples] == pytest.approx([one.sequence / 10 for one in samples])
    order = Shard(np.arange(4), np.random.default_rng(1)).take(15).tolist()
    assert [one.sample for one in samples] == [order[one.sequence - 1] for one in samples]


def test_a_producer_reports_its_progress() -> None:
    """At 2.0 s 20 are due; there was room for 15: a quarter is unsent."""
    time = 0.0
    clock = EmulatedClock(1.0, steady=lambda: time)
    production = Production([feed(10.0)], Kept(15), clock)
    production.begin(0.0)
    time = 2.0
    production.feeds[0].send_due(production.sender, clock.now)
    told = production.progress()
    assert (told.due, told.sent, told.worst_lag_ratio) == (20, 15, 0.25)


def test_records_not_written_by_the_broker_are_not_counted_as_sent() -> None:
    """All 20 due records were accepted; 8 of them are still in transit."""
    time = 0.0
    clock = EmulatedClock(1.0, steady=lambda: time)
    sender = Kept(100)
    production = Production([feed(10.0)], sender, clock)
    production.begin(0.0)
    time, sender.unwritten = 2.0, 8
    production.feeds[0].send_due(sender, clock.now)
    told = production.progress()
    assert (told.due, told.sent, told.worst_lag_ratio) == (20, 12, 0.4)


def test_a_producer_sends_only_during_the_training() -> None:
    async def live() -> int:
        sender = Kept(100)
        production = Production([feed(1000.0)], sender, EmulatedClock(1.0))
        producing = asyncio.create_task(production.carry_out())
        await asyncio.sleep(0)
        assert not sender.records
        production.ended.set()
        production.begin(10.0)
        await producing
        return len(sender.records)

    assert asyncio.run(live()) == 0
