"""Messages that the workers of a round exchange through the server before they push."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from testbed.algorithms.base import Applied, Reply, Samples, Update
from testbed.algorithms.parts.adaptive_compression import Ballot
from testbed.algorithms.parts.rounds import RoundServer
from testbed.payloads import Payload, Sparse


@dataclass
class Injection:
    """Data injection: the workers that share samples in a round, and their shared samples.

    Attributes:
        alpha: fraction of the workers that share, the config's if it ``injects``.
        sharers: the workers that share in this round.
        shared: samples shared so far, by worker; None for less than one.
    """

    alpha: float
    sharers: frozenset[int] = frozenset()
    shared: dict[int, Samples | None] = field(default_factory=dict)

    def begin(self, workers: Sequence[int], rng: Generator) -> None:
        """Draw ceil(α D) of the workers for the next round; α D is computed in decimal."""
        count = ceil(Decimal(str(self.alpha)) * len(workers))
        self.sharers = frozenset(rng.choice(workers, count, replace=False).tolist())
        self.shared = {}

    def missing(self, there: Collection[int]) -> Collection[int]:
        """Return the sharers among the workers ``there`` that have not shared yet."""
        return self.sharers & frozenset(there) - self.shared.keys()

    def others(self, worker: int) -> Samples | None:
        """Return the samples shared by other workers, in worker order; None if there are none."""
        shares = sorted(self.shared.items())
        given = [some for other, some in shares if other != worker and some is not None]
        return np.concatenate(given) if any(map(len, given)) else None


def chosen(samples: Samples, beta: float, rng: Generator) -> Samples:
    """Draw floor(β b) of a worker's b samples at random."""
    count = int(Decimal(str(beta)) * len(samples))
    return rng.choice(samples, count, replace=False)


class AgreeingServer(RoundServer[Any]):
    """A barrier before which the workers may share samples, and vote on compression.

    A worker that sends ``shares`` gets the samples of this round's sharers once all of them have
    arrived; a worker that sends a ``vote`` gets the verdict once all have voted. A verdict is final
    for the round. The reply with the model says whether the worker must share.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._injection = Injection(self.config.alpha if self.config.injects else 0.0)
        self._begin(range(self.workers))

    def _begin(self, workers: Sequence[int]) -> None:
        """Begin the next round."""
        self._injection.begin(workers, self.rng)
        self._ballot = Ballot()
        self._asked: dict[int, Literal["samples", "verdict"]] = {}

    def join(self, worker: int) -> None:
        """Let the worker start with the model, whatever it requested before."""
        super().join(worker)
        self._asked.pop(worker, None)

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """Stop waiting for the worker; its samples and vote still count."""
        self._asked.pop(worker, None)
        return super().leave(worker, now)

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Process a worker's message or gradient; a gradient's note is only for the record."""
        note = {} if update.steps else update.note
        if "shares" in note:
            self._asked[worker] = "samples"
            if note["shares"]:
                self._injection.shared[worker] = update.shared
        elif "vote" in note:
            self._asked[worker] = "verdict"
            self._ballot.votes[worker] = note["vote"] == 1
        else:
            applied = super().push(worker, update, now)
            self._asked.pop(worker, None)
            return applied
        return self._close(now)

    def check_payload(self, payload: Payload) -> None:
        """Refuse a payload that is neither dense nor sparse."""
        if not isinstance(payload, Sparse):
            super().check_payload(payload)

    def ready(self, worker: int) -> bool:
        """Return True once the answer to the worker's request is available."""
        match self._asked.get(worker):
            case "samples":
                return not self._to_share()
            case "verdict":
                return self._ballot.verdict is not None
        return super().ready(worker)

    def awaited(self) -> Collection[int]:
        """Return the workers that must still share, vote or push, whichever comes first."""
        if "samples" in self._asked.values() and (sharers := self._to_share()):
            return sharers
        if "verdict" in self._asked.values() and self._ballot.verdict is None:
            return self._to_vote()
        return super().awaited()

    def pull(self, worker: int, now: float) -> Reply:
        """Return the answer to the worker's request, or the model."""
        match self._asked.get(worker):
            case "samples":
                return Reply(Sparse.nothing(), self.version, shared=self._injection.others(worker))
            case "verdict":
                verdict = float(bool(self._ballot.verdict))
                return Reply(Sparse.nothing(), self.version, note={"compress": verdict})
        reply = super().pull(worker, now)
        if worker in self._injection.sharers:
            return Reply(reply.model, reply.version, note={"shares": 1.0})
        return reply

    def _to_share(self) -> Collection[int]:
        return self._injection.missing(self._to_vote())

    def _to_vote(self) -> Collection[int]:
        """Return the workers that have neither voted nor pushed; only these may still share."""
        return self._members - self._silent - self._ballot.votes.keys() - self._pushed.keys()

    def _close(self, now: float) -> Sequence[Applied]:
        if self._ballot.votes and self._ballot.verdict is None and not self._to_vote():
            self._ballot.count()
        applied = super()._close(now)
        if applied:
            self._begin(sorted(self._members) or range(self.workers))
        return applied
