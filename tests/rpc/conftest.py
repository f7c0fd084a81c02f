"""A gRPC server in a thread, behind the gate."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager

import pytest

from testbed.rpc.limits import MessageLimits
from testbed.rpc.service import Behaviour, Gate, Refusal, serving
from testbed.rpc.tokens import token_of

TOKEN = token_of("right", "w3")
LIMITS = MessageLimits(message_bytes=1000)


class Host:
    """Serves behaviours until its context is left.

    Attributes:
        gate: see Gate.
        refusals: all so far.
        failures: unexpected errors.
    """

    def __init__(
        self, behaviours: Mapping[str, Behaviour], address: str, limits: MessageLimits
    ) -> None:
        self.refusals: list[Refusal] = []
        self.failures: list[BaseException] = []
        self.gate = Gate(
            {"w3": TOKEN}, behaviours, limits, self.refusals.append, failed=self.failures.append
        )
        self._address = address
        self._port: Future[int] = Future()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with serving(self._address, self.gate) as port:
            self._port.set_result(port)
            await self._over.wait()

    @contextmanager
    def running(self) -> Iterator[str]:
        """Yields the address for clients."""
        self._thread.start()
        try:
            port = self._port.result(10)
            if self._address.startswith("unix:"):
                yield self._address
            else:
                yield f"ipv4:127.0.0.1:{port}"
        finally:
            self.stop()

    def stop(self) -> None:
        """Shut down. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()


Start = Callable[..., tuple[Host, str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a server with these behaviours; it ends with the test."""
    with ExitStack() as stack:

        def begin(
            behaviours: Mapping[str, Behaviour],
            address: str = "127.0.0.1:0",
            limits: MessageLimits = LIMITS,
        ) -> tuple[Host, str]:
            host = Host(behaviours, address, limits)
            return host, stack.enter_context(host.running())

        yield begin
