"""The queue at the parameter server: it serves one request after the other, as they come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ServiceQueue:
    """Who has to wait for whom at a server that takes the same time for every request.

    Attributes:
        service_seconds: what it takes for one; 0 for a server at which nobody ever waits.
    """

    service_seconds: float
    _free_at: float = 0.0

    def take(self, now: float) -> float:
        """A request has come. Returns when it has been served, those before it having been.

        Args:
            now: the time, not before that of the last request.
        """
        self._free_at = max(now, self._free_at) + self.service_seconds
        return self._free_at
