"""The queue at the parameter server: it serves one request after the other, as they come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ServiceQueue:
    """Who waits for whom at a server that takes ``service_seconds`` for every request."""

    service_seconds: float
    _free_at: float = 0.0

    def take(self, now: float) -> float:
        """A request has come. Returns when it has been served, after those before it."""
        self._free_at = max(now, self._free_at) + self.service_seconds
        return self._free_at
