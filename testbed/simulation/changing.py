"""A worker's own link, in one direction, that faults or a trace may change during the run.

It keeps track of its transfers, which a constant link need not do. A partition stops transfers in
progress. A message that would arrive during the partition is lost, and repeats its latency after.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf

from testbed.simulation.links import Bucket, Done, FairLink, PendingTransfer

Waiting = tuple[FairLink, float, Done]
"""A message: the PS's link, its bytes or its latency, and its callback."""


@dataclass
class ChangingBucket(Bucket):
    """A token bucket whose rate may change, and which a partition may cut off.

    Attributes:
        connected: whether data passes; False during a partition.
        configured: rate and depth from the scenario.
    """

    connected: bool = True
    configured: tuple[float, float] = field(init=False)
    _stopped: list[PendingTransfer] = field(default_factory=list)
    _unsent: list[Waiting] = field(default_factory=list)
    _undelivered: list[Waiting] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.configured = self.rate, self.burst

    def send(self, size: float, *, link: FairLink, done: Done) -> None:
        """Send ``size`` bytes; during a partition, queue them until it ends."""
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

    def carry(self, size: float, delay: float, *, link: FairLink, done: Done) -> None:
        """Send a message, let its latency pass, then call ``done`` if connected."""
        super().carry(size, delay, link=link, done=partial(self._arrive, link, delay, done))

    def change(self, rate: float, burst: float, *, link: FairLink) -> None:
        """Change rate and depth from now on, for the rest of active transfers too."""
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

    def _restart(self, transfers: list[PendingTransfer], link: FairLink) -> None:
        for left in transfers:
            beyond_burst = left.done.func == self._all_sent
            link.start(left.size, cap=self.rate if beyond_burst else inf, done=left.done)

    def _arrive(self, link: FairLink, delay: float, done: Done, now: float) -> None:
        if self.connected:
            done(now)
        else:
            self._undelivered.append((link, delay, done))

    def _all_at_once(self, done: Done, now: float) -> None:
        done(now)
