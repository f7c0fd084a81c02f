"""A worker's own link, in one direction, where faults or a trace may change it under way.

It finds its transfers again, which a link that never changes need not do. During a partition what
is under way stops where it is. What would arrive then is lost, and takes its latency again then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf

from testbed.simulation.links import Bucket, Done, FairLink, Underway

Waiting = tuple[FairLink, float, Done]
"""A message: the PS's link, its bytes or its latency, and what to call."""


@dataclass
class ChangingBucket(Bucket):
    """A token bucket whose rate may change, and which a partition may cut off.

    Attributes:
        connected: whether anything passes.
        planned: rate and depth as the scenario has them.
    """

    connected: bool = True
    planned: tuple[float, float] = field(init=False)
    _stopped: list[Underway] = field(default_factory=list)
    _unsent: list[Waiting] = field(default_factory=list)
    _unheard: list[Waiting] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.planned = self.rate, self.burst

    def send(self, size: float, *, link: FairLink, done: Done) -> None:
        """See Bucket; during a partition it is sent afterwards."""
        if not self.connected:
            self._unsent.append((link, size, done))
            return
        if self.rate == inf:
            link.start(size, cap=inf, done=partial(self._all_sent, done))
            return
        at_once = self._take(size, link.agenda.now)
        sent = partial(self._burst_sent, size - at_once, link, done)
        if at_once == size:
            sent = partial(self._all_at_once, done)
        link.start(at_once, cap=inf, done=sent)

    def carry(self, size: float, delay: float, *, link: FairLink, done: Done) -> None:
        """See Bucket."""
        super().carry(size, delay, link=link, done=partial(self._arrive, link, delay, done))

    def change(self, rate: float, burst: float, *, link: FairLink) -> None:
        """Have another rate and depth from now on, for what is left of a transfer too."""
        under_way = link.withdraw(self)
        if self.rate == inf:
            self._tokens = burst
        else:
            self._take(0.0, link.agenda.now)  # those so far came at the old rate
        self.rate, self.burst, self._settled = rate, burst, link.agenda.now
        self._tokens = 0.0 if under_way else min(self._tokens, burst)
        self._go_on(under_way, link)

    def cut(self, *, link: FairLink) -> None:
        """Let nothing pass."""
        self.connected = False
        self._stopped = link.withdraw(self)

    def mend(self, *, link: FairLink) -> None:
        """Let everything pass again, what has waited first."""
        stopped, unheard, unsent = self._stopped, self._unheard, self._unsent
        self.connected, self._stopped, self._unheard, self._unsent = True, [], [], []
        self._go_on(stopped, link)
        for at, delay, done in unheard:
            at.wait(delay, partial(self._arrive, at, delay, done), link.agenda.now)
        for at, size, done in unsent:
            self.send(size, link=at, done=done)

    def _go_on(self, under_way: list[Underway], link: FairLink) -> None:
        for left in under_way:
            beyond_burst = left.done.func == self._all_sent
            link.start(left.size, cap=self.rate if beyond_burst else inf, done=left.done)

    def _arrive(self, link: FairLink, delay: float, done: Done, now: float) -> None:
        if self.connected:
            done(now)
        else:
            self._unheard.append((link, delay, done))

    def _all_at_once(self, done: Done, now: float) -> None:
        done(now)
