"""The parameter server: serves workers over TCP and the evaluator over a unix socket."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

from testbed.events.kinds import Done, Drained, Listening
from testbed.experiment import Experiment
from testbed.frame.server import Server
from testbed.frame.service_queue import ServiceQueue
from testbed.roles.arguments import Arguments
from testbed.roles.clock import Clock
from testbed.roles.connection import limits
from testbed.roles.process import TerminatedError, return_free_memory, run
from testbed.roles.record import Record
from testbed.roles.servicer import Servicer
from testbed.roles.snapshots import Snapshots
from testbed.roles.training import Training
from testbed.rpc.addresses import unix_address
from testbed.rpc.limits import Limits
from testbed.rpc.service import Gate, serving
from testbed.telemetry.events import EventLog
from testbed.telemetry.spool import SpoolWriter

FLUSH_SECONDS = 0.1
"""How often new rows are handed to the kernel."""

DRAIN_SECONDS = 5.0
"""How long after the end workers may still come for their last reply before they count as lost."""

EVALUATOR_SECONDS = 60.0
"""How long after the end the evaluator may take to ask for the final model."""

FINAL_SECONDS = 600.0
"""How long it may then take to evaluate it on all test images."""


def main(arguments: Mapping[str, str]) -> int:
    """Serve until SIGTERM; after SIGHUP, until the run is done. Returns the exit status."""
    return run(arguments.get("node", "ps"), lambda: _main(Arguments.parse(arguments)))


def _main(arguments: Arguments) -> None:
    experiment = Experiment.open(arguments.folder)
    arguments.ps_folder.mkdir(exist_ok=True)
    server = ParameterServer(
        experiment.server(),
        queue=experiment.service_queue(),
        workers=experiment.scenario.workers.count,
        fingerprint=experiment.network.layout.fingerprint,
        clock=Clock(experiment.scenario.time_scale),
        limits=limits(experiment),
        folder=arguments.ps_folder,
        token=arguments.token,
        drain_seconds=min(DRAIN_SECONDS, arguments.patience_seconds),
    )
    asyncio.run(_serve_until_sigterm(server, arguments))


async def _serve_until_sigterm(server: ParameterServer, arguments: Arguments) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, server.end, TerminatedError())
    loop.add_signal_handler(signal.SIGHUP, server.leave_alone)
    await server.serve(arguments.server, arguments.socket)


class ParameterServer:
    """One training, its two addresses and its books.

    Attributes:
        gates: in front of the workers and of the evaluator.

    Args:
        server: the frame's loop.
        queue: the queue of requests in front of it.
        workers: how many must join before the training starts.
        fingerprint: of the model's layout.
        clock: of the training.
        limits: of one connection.
        folder: where ``events.jsonl`` and ``updates.bin`` are written.
        token: of the run.
        drain_seconds: see DRAIN_SECONDS.
    """

    def __init__(
        self,
        server: Server,
        *,
        queue: ServiceQueue,
        workers: int,
        fingerprint: int,
        clock: Clock,
        limits: Limits,
        folder: Path,
        token: str,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        self._log = EventLog(folder / "events.jsonl", elapsed=lambda: clock.elapsed)
        self._record = Record(SpoolWriter(folder / "updates.bin"), clock)
        self._snapshots = Snapshots()
        self._training = Training(
            server,
            queue=queue,
            workers=workers,
            fingerprint=fingerprint,
            clock=clock,
            log=self._log,
            record=self._record,
            snapshots=self._snapshots,
        )
        servicer = Servicer(self._training, self._snapshots, self._log)
        self.gates = (
            Gate(
                token,
                servicer.for_workers,
                limits,
                servicer.refused,
                failed=self.end,
                streams=servicer.streams_for_workers,
            ),
            Gate(token, servicer.for_management, limits, servicer.refused, failed=self.end),
        )
        self._workers = workers
        self._drain_seconds = drain_seconds
        self._over: asyncio.Future[None] | None = None
        self._unattended = False
        self._done = False

    async def serve(self, address: str, socket: Path) -> None:
        """Answer until ``end`` is called, and raise what it was called with.

        Args:
            address: ``address:port`` for workers.
            socket: path of the unix socket for the evaluator.

        Raises:
            HostError: nothing can listen there.
        """
        self._over = asyncio.get_running_loop().create_future()
        async with AsyncExitStack() as stack:
            stack.enter_context(closing(self._log))
            stack.enter_context(closing(self._record.spool))
            port = await stack.enter_async_context(serving(address, self.gates[0]))
            listening = stack.enter_context(unix_address(socket))
            await stack.enter_async_context(serving(listening, self.gates[1]))
            socket.chmod(0o666)  # the evaluator has another uid; the token is what guards
            self._log.write(Listening(port))
            duties = (
                self._training.keep_time(),
                self._flush(),
                self._shrink(),
                self._conclude(),
            )
            await self._attend(self._over, *duties)

    def end(self, error: BaseException) -> None:
        """Make ``serve`` raise this error; only the first one counts."""
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)

    def leave_alone(self) -> None:
        """Nobody attends to the run any more: end by itself when all is done.

        A training that has not started never will: nobody is there to launch who is missing.
        """
        self._unattended = True
        if self._done or not self._training.started:
            self.end(TerminatedError())

    async def _attend(self, over: asyncio.Future[None], *duties: Coroutine[Any, Any, None]) -> None:
        """Do all duties until one of them, or ``over``, raises; raise that."""
        tasks = [asyncio.create_task(duty) for duty in duties]
        try:
            done, _ = await asyncio.wait([over, *tasks], return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            self._record.spool.flush()

    async def _shrink(self) -> None:
        """Give back what answering all workers at once, at the start, has taken and never again."""
        while self._training.version < self._workers:
            await asyncio.sleep(FLUSH_SECONDS)
        return_free_memory()

    async def _conclude(self) -> None:
        """See the run to its end: the workers know, and the final model is evaluated."""
        await self._training.ended.wait()
        await _wait(self._training.drained, self._drain_seconds)
        untold = tuple(f"w{worker}" for worker in self._training.untold)
        self._log.write(Drained(untold))
        if await _wait(self._snapshots.final_taken, EVALUATOR_SECONDS):
            await _wait(self._snapshots.concluded, FINAL_SECONDS)
        evaluated = self._snapshots.concluded.is_set()
        self._log.write(Done(evaluated, **self._record.totals()))
        self._done = True
        if self._unattended:
            self.end(TerminatedError())


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but not for ever. Returns whether it has come."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
