"""The links of a simulation: the PS's, which active transfers share, and each worker's own.

A fluid model, max-min fair within each transfer's own rate. Transfers with the same cap always have
the same rate, so they form a group, and only the service received per group is stored: a change
costs O(groups), and the next transfer to end is found in O(log transfers), however many are active.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, ClassVar, NamedTuple

from testbed.simulation.event_queue import EventQueue, ScheduledEvent

Done = Callable[[float], None]


class PendingTransfer(NamedTuple):
    """The remainder of a transfer: bytes, and its callback, a method of its sender."""

    size: float
    done: partial[None]


@dataclass
class FlowGroup:
    """Transfers with the same cap.

    Attributes:
        cap: maximum bytes per second of each transfer.
        rate: current bytes per second of each transfer.
        served: bytes that a member present from the start would have received.
        ends: (value of ``served`` at which a member ends, order, callback).
    """

    cap: float
    rate: float = 0.0
    served: float = 0.0
    ends: list[tuple[float, int, Done]] = field(default_factory=list)


@dataclass
class FairLink:
    """One direction of the PS's link; ``capacity`` in bytes per second, infinite if not shaped."""

    STATE: ClassVar = ("_groups", "_settled", "_started", "_next")
    events: EventQueue
    capacity: float
    _groups: dict[float, FlowGroup] = field(default_factory=dict)
    _settled: float = 0.0
    _started: int = 0
    _next: ScheduledEvent | None = None

    def start(self, size: float, *, cap: float, done: Done) -> None:
        """Send ``size`` bytes at no more than ``cap`` bytes per second, then call ``done``.

        If neither the cap nor the PS's link limits the transfer, ``done`` is called at once.
        """
        if cap == inf and self.capacity == inf:
            done(self.events.now)
            return
        self._settle()
        group = self._groups.setdefault(cap, FlowGroup(cap))
        heapq.heappush(group.ends, (group.served + size, self._started, done))
        self._started += 1
        self._share()

    def wait(self, delay: float, done: Done, now: float) -> None:
        """Call ``done`` after the latency of a message that is fully sent."""
        self.events.at(now + delay, done)

    def withdraw(self, sender: object) -> list[PendingTransfer]:
        """Remove all transfers that will call a method of ``sender``; return what remains."""
        self._settle()
        taken: list[tuple[int, PendingTransfer]] = []
        for group in self._groups.values():
            own = [one for one in group.ends if _calls(one[2], sender)]
            if own:
                group.ends = [one for one in group.ends if not _calls(one[2], sender)]
                heapq.heapify(group.ends)
            for end, order, done in own:
                assert isinstance(done, partial)
                taken.append((order, PendingTransfer(max(0.0, end - group.served), done)))
        self._groups = {cap: group for cap, group in self._groups.items() if group.ends}
        self._share()
        return [left for _, left in sorted(taken, key=lambda pair: pair[0])]

    def _settle(self) -> None:
        """Account for the service since the last change."""
        passed = self.events.now - self._settled
        self._settled = self.events.now
        if passed > 0:
            for group in self._groups.values():
                group.served += group.rate * passed

    def _share(self) -> None:
        """Give every group its max-min fair rate and schedule the first end."""
        left, members = self.capacity, sum(len(group.ends) for group in self._groups.values())
        first = inf
        for group in sorted(self._groups.values(), key=lambda group: group.cap):
            if not group.ends:
                group.rate = group.served = 0.0
                continue
            group.rate = min(group.cap, left / members)
            left -= group.rate * len(group.ends)
            members -= len(group.ends)
            first = min(first, (group.ends[0][0] - group.served) / group.rate)
        if self._next is not None:
            self._next.cancel()
        self._next = None
        if first < inf:
            self._next = self.events.at(self.events.now + max(0.0, first), self._end)

    def _end(self, now: float) -> None:
        """End the transfers that are due now, within rounding."""
        self._settle()
        ended: list[tuple[int, Done]] = []
        for group in self._groups.values():
            slack = group.rate * 1e-9 + group.served * 1e-12 + 1e-6  # bytes; far below one
            while group.ends and group.ends[0][0] <= group.served + slack:
                _, order, done = heapq.heappop(group.ends)
                ended.append((order, done))
        self._share()
        for _, done in sorted(ended, key=lambda pair: pair[0]):
            done(now)


def _calls(done: Any, sender: object) -> bool:
    return isinstance(done, partial) and getattr(done.func, "__self__", None) is sender


Waiting = tuple[FairLink, float, Done]
"""A message: the PS's link, its bytes or its latency, and its callback."""


@dataclass
class Bucket:
    """A worker's own link in one direction: a token bucket, like the kernel's tbf.

    Bytes covered by tokens pass at once, the rest at the rate; a pause refills the bucket. A fault
    or a trace may change the link. A partition stops transfers in progress; a message that would
    arrive during the partition is lost, and repeats its latency after.

    Attributes:
        rate: bytes per second; infinite if the link is not shaped.
        burst: capacity of the bucket in bytes; it starts full.
        connected: whether data passes; False during a partition.
        configured: rate and depth from the scenario, or from a trace.
    """

    rate: float
    burst: float
    connected: bool = True
    configured: tuple[float, float] = field(init=False)
    _tokens: float = field(init=False)
    _settled: float = 0.0
    _stopped: list[PendingTransfer] = field(default_factory=list)
    _unsent: list[Waiting] = field(default_factory=list)
    _undelivered: list[Waiting] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tokens, self.configured = self.burst, (self.rate, self.burst)

    def carry(self, size: float, delay: float, *, link: FairLink, done: Done) -> None:
        """Send ``size`` bytes, let the latency pass, then call ``done`` if connected."""
        # methods, not local functions: a checkpoint can name them
        arrived = partial(self._arrive, link, delay, done)
        self.send(size, link=link, done=partial(link.wait, delay, arrived) if delay else arrived)

    def send(self, size: float, *, link: FairLink, done: Done) -> None:
        """Send ``size`` bytes through this bucket and the PS's link, then call ``done``.

        During a partition they are queued until it ends.
        """
        if not self.connected:
            self._unsent.append((link, size, done))
            return
        if self.rate == inf:
            link.start(size, cap=inf, done=partial(self._all_sent, done))
            return
        at_once = self._take(size, link.events.now)
        sent = partial(self._burst_sent, size - at_once, link, done)
        if at_once == size:
            sent = partial(self._all_at_once, done)
        link.start(at_once, cap=inf, done=sent)

    def change(self, rate: float, burst: float, *, link: FairLink) -> None:
        """Change rate and depth from now on, for the rest of active transfers too."""
        if (rate, burst) == (self.rate, self.burst):
            return
        transfers = link.withdraw(self)
        if self.rate == inf:
            self._tokens = burst
        else:
            self._take(0.0, link.events.now)  # tokens so far came at the old rate
        self.rate, self.burst, self._settled = rate, burst, link.events.now
        self._tokens = 0.0 if transfers else min(self._tokens, burst)
        self._restart(transfers, link)

    def disconnect(self, *, link: FairLink) -> None:
        """Start a partition: stop all data."""
        self.connected = False
        self._stopped = link.withdraw(self)

    def reconnect(self, *, link: FairLink) -> None:
        """End the partition: resume all data, waiting messages first."""
        stopped, undelivered, unsent = self._stopped, self._undelivered, self._unsent
        self.connected, self._stopped, self._undelivered, self._unsent = True, [], [], []
        self._restart(stopped, link)
        for at, delay, done in undelivered:
            at.wait(delay, partial(self._arrive, at, delay, done), link.events.now)
        for at, size, done in unsent:
            self.send(size, link=at, done=done)

    def reset(self, *, link: FairLink) -> None:
        """Discard all messages and all faults: the worker's process has ended."""
        link.withdraw(self)
        self.connected, self._stopped, self._undelivered, self._unsent = True, [], [], []
        self.rate, self.burst = self.configured
        self._tokens, self._settled = self.burst, link.events.now

    def _restart(self, transfers: list[PendingTransfer], link: FairLink) -> None:
        for left in transfers:
            beyond_burst = left.done.func == self._all_sent
            link.start(left.size, cap=self.rate if beyond_burst else inf, done=left.done)

    def _burst_sent(self, rest: float, link: FairLink, done: Done, now: float) -> None:
        link.start(rest, cap=self.rate, done=partial(self._all_sent, done))

    def _all_sent(self, done: Done, now: float) -> None:
        self._tokens, self._settled = 0.0, now
        done(now)

    def _all_at_once(self, done: Done, now: float) -> None:
        done(now)

    def _arrive(self, link: FairLink, delay: float, done: Done, now: float) -> None:
        if self.connected:
            done(now)
        else:
            self._undelivered.append((link, delay, done))

    def _take(self, size: float, now: float) -> float:
        """Take as many tokens as the message needs and are available; return their number."""
        tokens = min(self.burst, self._tokens + self.rate * (now - self._settled))
        taken = min(tokens, size)
        self._tokens, self._settled = tokens - taken, now
        return taken
