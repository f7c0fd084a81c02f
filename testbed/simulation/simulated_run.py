"""The state of a simulated run, and the steps that the parts of its engine ask for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.service_queue import ServiceQueue
from testbed.simulation.device import DeviceModel
from testbed.simulation.event_queue import Callback, EventQueue
from testbed.simulation.links import FairLink
from testbed.simulation.pool import Pool
from testbed.simulation.worker import Cycle
from testbed.telemetry.record import Recorder


@dataclass
class SimulatedRun(ABC):
    """Implemented by the engine; its faults, traces, coding times and key misses use it.

    Attributes:
        workers: the pool that computes the workers.
        uplink: the PS's link, towards the PS.
        downlink: the PS's link, from the PS.
        queue: requests that wait for the PS.
        recorder: receives all events and updates.
    """

    server: Server
    workers: Pool
    devices: Sequence[DeviceModel]
    events: EventQueue
    uplink: FairLink
    downlink: FairLink
    queue: ServiceQueue
    recorder: Recorder

    @abstractmethod
    def silence(self, worker: int) -> None:
        """Freeze a worker's device for good; only the frame's books note it."""

    @abstractmethod
    def call(self, worker: int) -> None:
        """Start a worker's first call to the PS; its process has started."""

    @abstractmethod
    def leave(self, worker: int) -> None:
        """Remove a worker from the run."""

    @abstractmethod
    def push(self, cycle: Cycle, now: float) -> None:
        """Send a push through the worker's links."""

    @abstractmethod
    def enqueue(self, serve: Callback, now: float, *, coding_seconds: float = 0.0) -> None:
        """Queue a request at the PS, which serves it after all earlier requests."""

    @abstractmethod
    def send_down(self, worker: int, payload_bytes: int, now: float) -> None:
        """Send a reply through the worker's links."""

    @abstractmethod
    def extend_horizon(self) -> None:
        """Plan the next tick again after a change of the timeline."""
