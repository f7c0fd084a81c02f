"""The queue at the parameter server: it serves one request after the other, as they come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ServiceQueue:
    """Who waits for whom at a server that takes ``service_seconds`` for every request."""

    service_seconds: float
    _free_at: float = 0.0

    def take(self, now: float, *, coding_seconds: float = 0.0) -> float:
        """A request has come that takes so long to decode beside its service.

        Returns when it has been served, after those before it.
        """
        return self.occupy(now, self.service_seconds + coding_seconds)

    def occupy(self, now: float, seconds: float) -> float:
        """The server does something else for so long; returns when it has done it."""
        self._free_at = max(now, self._free_at) + seconds
        return self._free_at
