"""One run from beginning to end: in any case it is torn down and its outcome is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field, replace

from testbed.errors import HostError, NodeError, RunNotFound, TestbedError
from testbed.host.allocation import heap_frozen
from testbed.run.agents import connect
from testbed.run.course import Connected, Course
from testbed.run.deploy import Deployment
from testbed.run.down import BY_DOWN, asked_to_end
from testbed.run.faults import Faults, FaultyNodes
from testbed.run.interrupts import Interrupted, Interrupts
from testbed.run.metering import Metering
from testbed.run.setup import Setup
from testbed.run.watch import Watch
from testbed.runtimes.base import Lifeline, RuntimeDriver
from testbed.telemetry.event_kinds import (
    BroughtUp,
    LinksCarried,
    MemoryRead,
    State,
    StateChanged,
    TornDown,
)
from testbed.telemetry.folder import (
    FREE_SPACE,
    OUTPUT_CLOSED,
    deletion_error,
    find_deleted,
    folder_error,
    low_disk_space,
)
from testbed.telemetry.record import Recorder
from testbed.telemetry.untrusted import SpoiledError

AGENT_SECONDS = 30.0
UNFORESEEN = TestbedError.exit_code


class NotTornDown(HostError):  # noqa: N818 - named after the state, like its message
    """A run has ended, but not everything that it had on this host could be removed."""

    def __init__(self, run: str, state: State, reason: str, failure: TestbedError) -> None:
        message = f"the run has ended ({state}: {reason}), but parts of it remain on this host"
        then = f"Then: testbed down {run}"
        hint = failure.hint if then in failure.hint else f"{failure.hint} {then}".strip()
        super().__init__(f"{message}: {failure.message}", hint=hint)


@dataclass
class Execution:
    """The life cycle of one run."""

    setup: Setup
    begin: Callable[[Connected], Course]  # returns what the run does once its agent answers
    driver: RuntimeDriver
    recorder: Recorder
    interrupts: Interrupts
    keep: bool = False  # nodes of a run that was not interrupted stay until `testbed down`
    # called when training has started, for a run that outlives this process from then on
    in_training: Callable[[], None] | None = None
    metering: Metering | None = None  # shows its metrics
    clock: Callable[[], float] = time.monotonic  # monotonic seconds
    _followed: Watch | None = field(default=None, init=False)

    def carry_out(self) -> None:
        """Bring up, watch to the end, tear down.

        Raises:
            NodeError, HostError: the run failed, which is also recorded in the folder.
            Interrupted: it was interrupted, or ended by `testbed down`; likewise.
        """
        try:
            self._carry_out()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise folder_error(self.setup.folder, error) from None

    def _carry_out(self) -> None:
        begun = self.clock()
        lifeline: Lifeline | None = None
        try:
            self.recorder.event(StateChanged("starting"))
            self.interrupts.check()
            start = self.setup.start()
            if not self.setup.plan.hosts:  # for which other threads wait
                start = replace(start, waiting=self.interrupts.allowed)
            lifeline = self.driver.start(self.setup.plan, self.setup.folder, start)
            reason = self._conduct(begun, lifeline)
        except TestbedError as error:
            if asked_to_end(self.setup.folder):
                self._end("interrupted", BY_DOWN, lifeline)
                raise Interrupted(BY_DOWN) from None
            cause = self._cause(error, lifeline)
            self._end("failed", first_line(cause), lifeline, exit_code=cause.exit_code)
            raise cause from None
        except KeyboardInterrupt as signal:
            self._end("interrupted", f"by {signal}", lifeline)
            raise
        except BrokenPipeError:
            self._end("interrupted", OUTPUT_CLOSED, lifeline)
            raise
        except OSError as error:
            failure = folder_error(self.setup.folder, error)
            self._end("failed", first_line(failure), lifeline, exit_code=failure.exit_code)
            raise
        except BaseException as error:
            self._end("failed", repr(error), lifeline, exit_code=UNFORESEEN)
            raise
        else:
            self._end("finished", reason, lifeline)

    def _conduct(self, begun: float, lifeline: Lifeline) -> str:
        """Run from the agent's first request to the last reading; return why the run ended."""
        setup, folder = self.setup, self.setup.folder
        deadline = time.monotonic() + AGENT_SECONDS
        waiting, pause = self.interrupts.allowed, self.interrupts.sleep
        with connect(
            setup.plan, folder, deadline=deadline, waiting=waiting, controls=True
        ) as agent:
            course = self.begin(Connected(agent, self.recorder, self.clock, pause))
            watch, timeline = course.watch, course.timeline
            self._followed = watch
            if self.metering is not None:
                watch.metered = True
                self.metering.begin()
            deployment = Deployment(
                setup, self.driver, agent, watch, self.clock, pause=pause, as_now=course.as_now
            )
            nodes = FaultyNodes(setup, agent, watch, deployment, timeline.names, pause)
            faults = Faults(timeline, nodes, self.recorder, folder)
            self.recorder.add(faults)
            watch.read_hosts()
            probed = self.clock()
            deployment.probe_links()
            probing = self.clock() - probed  # measuring links is not part of starting nodes
            course.bring_up(deployment)
            agent.nodes_are_up()
            brought_up = BroughtUp(self.clock() - begun - probing)
            self.recorder.event(StateChanged(course.active))  # before: readers of the next find it
            self.recorder.event(brought_up)
            if self.in_training is not None:
                lifeline.on_hangup(course.on_hangup)
                self.in_training()
            with heap_frozen():
                course.follow(faults)
            watch.count()
            watch.compare_limits()
            if setup.plan.hosts:
                watch.read_hosts()
                watch.look()  # a host may have been lost meanwhile
            sent = {name: carried.up_bytes for name, carried in agent.carried().items()}
            self.recorder.event(LinksCarried(sent))
            alive = {node.name for node in setup.plan.devices}.intersection(agent.running())
            self.recorder.event(MemoryRead(agent.private_bytes(sorted(alive))))
            return watch.ending

    def _end(
        self, state: State, reason: str, lifeline: Lifeline | None, *, exit_code: int | None = None
    ) -> None:
        """Tear down, and only then record the outcome: a run with an outcome has left nothing.

        The lock is released last: a process that waits for it finds a folder to which only this
        process may still write, its report (see ``controlling``).

        Raises:
            NotTornDown: something was left.
            SpoiledError: the run had finished, and then the PS's node corrupted its record.
        """
        left: NotTornDown | None = None
        spoiled: SpoiledError | None = None
        try:
            kept = self.keep and state != "interrupted" and _keep(lifeline)
            spoiled = None if kept else self._tear_down(lifeline)
            if spoiled is not None and state == "finished":
                state, reason, exit_code = "failed", first_line(spoiled), spoiled.exit_code
        except TestbedError as failure:
            left = NotTornDown(self.setup.folder.name, state, reason, failure)
            exit_code = left.exit_code if state == "failed" else exit_code
        finally:
            try:
                self._write_down(state, reason, exit_code)
            finally:
                if lifeline is not None:
                    lifeline.close()
        if left is not None:
            raise left from None
        if spoiled is not None and reason == first_line(spoiled):
            raise spoiled

    def _write_down(self, state: State, reason: str, exit_code: int | None) -> None:
        """Write the last records; a failed run is reported even if that is impossible.

        Raises:
            OSError: the end of a run that had not failed cannot be written to the folder.
        """
        reporting = suppress(OSError) if state == "failed" else nullcontext()
        with reporting, closing(self.recorder), suppress(RunNotFound):  # deleted: no readers
            self.recorder.event(StateChanged(state, reason, exit_code))

    def _cause(self, error: TestbedError, lifeline: Lifeline | None) -> TestbedError:
        """Find a cause that lost nodes cannot report: without disk space a node cannot log."""
        if not isinstance(error, NodeError | RunNotFound):
            return error
        gone = find_deleted(self.setup.folder)
        if gone is not None:
            return deletion_error(gone)
        lack = low_disk_space(self.setup.folder)
        if lack:
            return HostError(f"No space left on device: {lack}. {error.message}", hint=FREE_SPACE)
        found = lifeline.explain() if lifeline and isinstance(error, NodeError) else None
        if found is None:
            return error
        hint = f"{found.hint} {error.hint}".strip()  # what was done to the run from outside
        return type(found)(f"{first_line(error)}: {found.message}", hint=hint)

    def _tear_down(self, lifeline: Lifeline | None) -> SpoiledError | None:
        """End all nodes; return the error in the PS's final records, if there is one."""
        begun = self.clock()
        try:
            if lifeline is not None:
                lifeline.stop()
            if self._followed is not None:  # no process writes any more
                self._followed.catch_up()
        except SpoiledError as spoiled:
            return spoiled
        finally:
            self.recorder.event(TornDown(self.clock() - begun))
        return None


def _keep(lifeline: Lifeline | None) -> bool:
    """Keep the nodes when this process ends; False if there are none, or the agent has ended."""
    if lifeline is None:
        return False
    try:
        lifeline.on_hangup("keep")
    except NodeError:
        return False
    return True


def first_line(error: TestbedError) -> str:
    """Return the first line of an error, with the last line of a log that is quoted below it."""
    first, *quoted = error.message.splitlines() or [""]
    if quoted and first.endswith(":"):
        return f"{first} {quoted[-1].strip()}".rstrip(":. ")
    return first.rstrip(":. ")
