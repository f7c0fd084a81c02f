"""The parameter server: serves workers over TCP and the evaluator over a unix socket."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path

from testbed.payloads.encodings import Encoding
from testbed.roles.arguments import Arguments, limits
from testbed.roles.checkpoints import Checkpoints
from testbed.roles.clock import EmulatedClock, wait
from testbed.roles.heartbeat import BEAT_SECONDS, Heartbeat
from testbed.roles.keys import ServerKeys
from testbed.roles.process import TerminatedError, return_free_memory, run
from testbed.roles.record import Record
from testbed.roles.servicer import Servicer
from testbed.roles.training import Training
from testbed.rpc.addresses import unix_address
from testbed.rpc.limits import MessageLimits
from testbed.rpc.service import Gate, serving
from testbed.rpc.shared import Exchanged
from testbed.rpc.tokens import CONTROLLER, EVALUATOR, tokens_of
from testbed.scenario.experiment import Experiment
from testbed.scenario.links import producers
from testbed.telemetry.events import EventLog
from testbed.telemetry.ps_events import Drained, Listening, Load
from testbed.telemetry.spool import SpoolWriter

FLUSH_SECONDS = 0.1
"""How often new rows are passed to the kernel."""

REFUSED_SECONDS = 5.0
"""How often to check for refused messages, to return their memory."""

LOAD_SECONDS = 1.0
"""Interval of events that record the server's load."""

MAX_EVENTS = 200
"""Limit of individually logged events per kind and node, so no node can fill the disk."""

DRAIN_SECONDS = 5.0
"""How long workers may fetch their last reply after the end, before they count as lost."""

EVALUATOR_SECONDS = 60.0
"""How long the evaluator may take to request the final model after the end."""

REPORT_SECONDS = 10.0
"""Time to report the final evaluation, in addition to that of the evaluation itself."""


def main(arguments: Mapping[str, str], opened: Experiment | None = None) -> int:
    """Serve until SIGTERM; after SIGHUP, until the run is done. Return the exit status."""
    return run(arguments.get("node", "ps"), lambda: _main(Arguments.parse(arguments), opened))


def _main(arguments: Arguments, opened: Experiment | None) -> None:
    experiment = arguments.experiment(opened)
    folder, clock = arguments.ps_folder, EmulatedClock(experiment.scenario.time_scale)
    for place in (folder, arguments.socket.parent):
        place.mkdir(exist_ok=True)
    streamed = experiment.algorithm.TAKES_STREAMS
    checkpoints = Checkpoints.of(experiment, arguments.folder)
    log = EventLog(folder / "events.jsonl", elapsed=lambda: clock.elapsed, most=MAX_EVENTS)
    training = Training(
        server=experiment.server(),
        queue=experiment.service_queue(),
        workers=experiment.scenario.workers.count,
        first=experiment.scenario.workers.count - len(experiment.timeline().population.absent),
        fingerprint=experiment.network.layout.fingerprint,
        clock=clock,
        streamed=experiment.scenario.streams is not None,
        exchanged=Exchanged(experiment.sample_bytes),
        log=log,
        record=Record(SpoolWriter(folder / "updates.bin", streamed=streamed), clock, log),
    )
    if experiment.algorithm.SENDS_KEYS:
        training.keys = ServerKeys(training.log)
    if checkpoints is not None:
        checkpoints.resume(training, folder / "updates.bin")
    server = ParameterServer(
        training,
        checkpoints=checkpoints,
        limits=limits(experiment),
        encoding=experiment.scenario.encoding,
        secret=arguments.token,
        producers=producers(experiment.scenario),
        drain_seconds=min(DRAIN_SECONDS, arguments.patience_seconds),
        final_seconds=experiment.scenario.evaluate.timeout + REPORT_SECONDS,
    )
    asyncio.run(_serve_until_sigterm(server, arguments))


async def _serve_until_sigterm(server: ParameterServer, arguments: Arguments) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, server.end, TerminatedError())
    loop.add_signal_handler(signal.SIGHUP, server.finish_unattended)
    await server.serve(arguments.server, arguments.socket)


@dataclass(eq=False, repr=False)
class ParameterServer:
    """Serves a training to workers and the evaluator, each behind a gate.

    Attributes:
        encoding: the encoding that pushes must use.
        secret: the run's secret, from which all callers' tokens are derived.
        producers: the nodes that produce streams.
        final_seconds: time limit of the final model's evaluation.
    """

    training: Training
    _: KW_ONLY
    checkpoints: Checkpoints | None = None
    limits: MessageLimits
    secret: str
    encoding: Encoding = "raw"
    producers: Sequence[str] = ()
    drain_seconds: float = DRAIN_SECONDS
    final_seconds: float = 600.0
    heartbeat: Heartbeat = field(default_factory=Heartbeat)

    def __post_init__(self) -> None:
        servicer = Servicer(self.training, self.encoding)
        gate = partial(Gate, limits=self.limits, refused=servicer.refused, failed=self.end)
        workers = (f"w{index}" for index in range(self.training.workers))
        others = (EVALUATOR, CONTROLLER, *self.producers)
        self.gates = (
            gate(
                tokens_of(self.secret, workers),
                servicer.for_workers,
                streams=servicer.streams_for_workers,
            ),
            gate(tokens_of(self.secret, others), servicer.for_management),
        )
        self._over: asyncio.Future[None] | None = None
        self._unattended = False
        self._done = False

    async def serve(self, address: str, socket: Path) -> None:
        """Serve until ``end`` is called, and raise its error.

        Workers call ``address:port``, the evaluator the unix socket.

        Raises:
            HostError: an address cannot be used.
        """
        self._over = asyncio.get_running_loop().create_future()
        async with AsyncExitStack() as stack:
            stack.enter_context(closing(self.training.log))
            stack.enter_context(closing(self.training.record.spool))
            port = await stack.enter_async_context(serving(address, self.gates[0]))
            listening = stack.enter_context(unix_address(socket))
            await stack.enter_async_context(serving(listening, self.gates[1]))
            socket.chmod(0o666)  # the evaluator has another uid; the parent folder protects it
            self.training.log.write(Listening(port))
            stack.enter_context(self.heartbeat.beating())
            duties = [self.training.keep_time(), self._watch_own_time(), self._flush()]
            duties += [self._log_load(), self._shrink(), self._shrink_after_refusals()]
            tasks = [asyncio.create_task(duty) for duty in duties]
            kept = asyncio.create_task(self._keep_checkpoints())
            tasks += [kept, asyncio.create_task(self._conclude(kept))]
            try:
                await asyncio.gather(self._over, *tasks)
            finally:
                for task in tasks:
                    task.cancel()

    def end(self, error: BaseException) -> None:
        """Make ``serve`` raise this error; only the first counts."""
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)

    def finish_unattended(self) -> None:
        """Continue without a controller: end when all is done.

        A training that has not started ends now: no controller can launch the missing nodes.
        """
        self._unattended = True
        if self._done or not self.training.started.is_set():
            self.end(TerminatedError())

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            self.training.record.spool.flush()

    async def _shrink(self) -> None:
        """Return memory that only answering all workers at once, at the start, has needed."""
        while self.training.server.version < self.training.workers:
            await asyncio.sleep(FLUSH_SECONDS)
        return_free_memory()

    async def _shrink_after_refusals(self) -> None:
        """Return the memory of messages that were refused or incomplete."""
        before = 0
        while True:
            await asyncio.sleep(REFUSED_SECONDS)
            refused = sum(gate.counts.total() - gate.counts["OK"] for gate in self.gates)
            if refused != before:
                return_free_memory()
            before = refused

    async def _watch_own_time(self) -> None:
        """Log pauses of this process during the training."""
        training = self.training
        await training.started.wait()
        self.heartbeat.take()  # discard pauses before the training
        while not await wait(training.ended, BEAT_SECONDS):
            training.record_pause("ps", self.heartbeat.take())
        training.record_pause("ps", self.heartbeat.take())

    async def _log_load(self) -> None:
        """Log the load of this process during the training."""
        training = self.training
        await training.started.wait()
        while not await wait(training.ended, LOAD_SECONDS):
            training.log.write(Load(training.waiting, time.process_time()))

    async def _keep_checkpoints(self) -> None:
        if self.checkpoints is not None:
            await self.checkpoints.keep(self.training)

    async def _conclude(self, kept: asyncio.Task[None]) -> None:
        """Finish the run: notify the workers, and wait for the final model's evaluation.

        Checkpoints are ``kept`` until then: a server that is killed meanwhile is restarted.
        """
        training, snapshots = self.training, self.training.snapshots
        await training.ended.wait()
        await wait(training.drained, self.drain_seconds)
        training.log.write(Drained(tuple(f"w{worker}" for worker in training.unnotified)))
        if await wait(snapshots.final_taken, EVALUATOR_SECONDS):
            await wait(snapshots.concluded, self.final_seconds)
        training.log.summarise()
        if self.checkpoints is not None and training.started.is_set():
            await kept  # one may still be being written
            self.checkpoints.remove()
        training.log.write(training.record.done(evaluated=snapshots.concluded.is_set()))
        self._done = True
        if self._unattended:
            self.end(TerminatedError())
