"""The request queue at the parameter server: first in, first out, one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass
class ServiceQueue:
    """The queue of a server that takes ``service_seconds`` for every request."""

    STATE: ClassVar = ("_free_at",)
    service_seconds: float
    _free_at: float = 0.0

    def take(self, now: float, *, coding_seconds: float = 0.0) -> float:
        """Queue a request that also takes ``coding_seconds`` to decode.

        Returns when the request has been served.
        """
        return self.occupy(now, self.service_seconds + coding_seconds)

    def occupy(self, now: float, seconds: float) -> float:
        """Keep the server busy for ``seconds``; return when it is free again."""
        self._free_at = max(now, self._free_at) + seconds
        return self._free_at
