"""Runs user code in a child process: whatever it does there, this process survives.

The child is forked from this process, so that nothing is imported again, and ends with it. The
result is returned as JSON: data from the user's code is parsed, and never executed.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any, NoReturn, Protocol

from testbed import errors
from testbed.errors import Problem, ScenarioError, TestbedError, UserCodeError, escaped
from testbed.host import syscalls
from testbed.values.user_code import Signalled, closed_descriptors, own_failures, user_code_location

LOADING_SECONDS = 60.0
"""How long reading the user's own files, and creating their classes, may take."""

GRACE_SECONDS = 5.0
"""Time after which a child that ignored its alarm is killed."""

END_SECONDS = 10.0
"""How long a child may take to end on request."""

ANSWER_BYTES = 2**20
PRINTED_BYTES = 2**20
READ_BYTES = 2**16
MAX_READS = (ANSWER_BYTES + PRINTED_BYTES) // READ_BYTES

CLOSED = 125
"""Exit status of a child that could not answer because its descriptors were closed."""

OPENED = b"\n"

Opened = Callable[[], None]
"""Called by the work when the user's files were read: from then on there is no time limit."""


class Printed(Protocol):
    """Receives the output of a process.

    Attributes:
        reader: descriptor to read it from.
    """

    reader: int

    def copy(self) -> int:
        """Copy available output; return its size, 0 at the end."""


class TimeLimitExceeded(Signalled):
    """The user's code is still running; the message says where."""


def run_isolated(
    work: Callable[[Opened], Any], *, label: str, within_seconds: float = LOADING_SECONDS
) -> Any:
    """Run work in a child process, and return the plain data that it returns.

    The child has no standard input and a process group of its own, which is killed at the end. Its
    output goes to standard error, up to PRINTED_BYTES.

    Args:
        work: runs the user's code; receives the function to call when the files were read.
        label: names these files, for errors.
        within_seconds: real time until then.

    Raises:
        TestbedError: raised by the work.
        UserCodeError: the child has ended without an answer, or was not done in time.
    """
    if not hasattr(os, "pidfd_open"):
        return work(lambda: None)  # not Linux: only for checking scenarios, not for runs
    reader, prints = os.pipe()
    process = _Child.fork(work, label, within_seconds, prints)
    os.close(prints)
    try:
        return process.outcome(_ShownOutput(reader))
    finally:
        process.kill()
        os.close(reader)


def run_in_child(
    work: Callable[[Opened], Any],
    *,
    label: str,
    printed: Printed,
    within_seconds: float = LOADING_SECONDS,
) -> Any:
    """Run work like ``run_isolated``, but on this process's terminal and with its signal handlers.

    Signals that ask this process to end are forwarded, and the child's end awaited. The work
    itself must redirect the output of the user's code to ``printed``, which is read here.

    Args and errors are those of ``run_isolated``; exceptions of a signal in the child are raised
    here too.
    """
    process = _Child.fork(work, label, within_seconds)
    try:
        return process.outcome(printed)
    except Signalled:
        process.ask_to_end()
        return process.outcome(printed)
    finally:
        process.kill()


def early_exit(label: str, status: int | None) -> UserCodeError:
    """Return the error for a child that ended before its work was done.

    Args:
        label: names the files.
        status: its exit status, negative for the signal that ended it; None if unknown.
    """
    if status == CLOSED:
        return closed_descriptors(label)
    if status is not None and status < 0:
        names = {number.value: number.name for number in signal.Signals}
        hint = "If it ran out of memory, `dmesg` shows it." if status == -signal.SIGKILL else ""
        how = names.get(-status, f"signal {-status}")
        return UserCodeError(f"{label}: the process of this code was ended by {how}.", hint=hint)
    exit_status = "" if status is None else f" with status {status}"
    return UserCodeError(
        f"{label}: this code ended its process{exit_status} before it returned.",
        hint="It runs inside testbed: raise an exception instead of exit() or os._exit().",
    )


@dataclass
class _Child:
    """The child process, as its parent sees it.

    Attributes:
        group: whether it has a process group of its own.
        deadline: when the parent stops waiting, as a ``time.monotonic``, or None.
    """

    pid: int
    answers: int
    label: str
    group: bool
    within_seconds: float
    deadline: float | None
    _answer_data: bytes = b""
    _status: int | None = None

    def __post_init__(self) -> None:
        self._pidfd = os.pidfd_open(self.pid)

    @classmethod
    def fork(
        cls,
        work: Callable[[Opened], Any],
        label: str,
        within_seconds: float,
        prints: int | None = None,
    ) -> _Child:
        """Fork a child that works; with ``prints``, its output pipe, it gets its own group."""
        sys.stdout.flush()
        sys.stderr.flush()
        answers, answer = os.pipe()
        parent, pid = os.getpid(), os.fork()
        if not pid:
            os.close(answers)
            child = _ChildSide(work, label, within_seconds, answer)
            child.run(parent, prints)
        os.close(answer)
        deadline = time.monotonic() + within_seconds + GRACE_SECONDS
        return cls(pid, answers, label, prints is not None, within_seconds, deadline)

    def outcome(self, printed: Printed) -> Any:
        """Wait for the result of the work, and copy output meanwhile."""
        poller = select.poll()
        for descriptor in (self._pidfd, self.answers, printed.reader):
            poller.register(descriptor, select.POLLIN)
        while self._status is None:
            left = None if self.deadline is None else self.deadline - time.monotonic()
            if left is not None and left < 0:
                text = (
                    f"{self.label}: this code still runs after {self.within_seconds:g} s, and "
                    "ignores the signals that should end it."
                )
                raise UserCodeError(text)
            self._take_in(poller, printed, milliseconds=None if left is None else left * 1000 + 1)
        for _ in range(MAX_READS):  # data sent before the end
            if not self._take_in(poller, printed, milliseconds=0):
                break
        return self._answer()

    def _take_in(
        self, poller: select.poll, printed: Printed, *, milliseconds: float | None
    ) -> bool:
        """Wait for events, and handle them; return whether any data arrived."""
        received = False
        for descriptor, _ in poller.poll(milliseconds):
            if descriptor == self._pidfd:
                poller.unregister(descriptor)
                self._reap()
            elif printed.copy() if descriptor == printed.reader else self._read_answer():
                received = True
            else:
                poller.unregister(descriptor)
        return received

    def ask_to_end(self) -> None:
        """Send SIGTERM to the child process, which then has END_SECONDS to exit."""
        signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
        self.within_seconds, self.deadline = END_SECONDS, time.monotonic() + END_SECONDS

    def kill(self) -> None:
        """Kill the child process, unless it has exited, and the rest of its process group."""
        if self._status is None:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            self._reap()
        os.close(self._pidfd)
        os.close(self.answers)

    def _read_answer(self) -> int:
        data = os.read(self.answers, READ_BYTES)
        self._answer_data += data if len(self._answer_data) < ANSWER_BYTES else b""
        if data.startswith(OPENED):
            self.deadline = None
        return len(data)

    def _answer(self) -> Any:
        try:
            answer = json.loads(self._answer_data)
            if "value" in answer:
                return answer["value"]
            error = _decoded(answer)
        except (ValueError, TypeError, KeyError, AttributeError):
            error = early_exit(self.label, self._status)
        raise error

    def _reap(self) -> None:
        if self.group:  # while its leader is a zombie, the group's id is not reused
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@dataclass(frozen=True)
class _ChildSide:
    """The child's side: does the work and sends the answer."""

    work: Callable[[Opened], Any]
    label: str
    within_seconds: float
    answer: int

    def run(self, parent: int, prints: int | None) -> NoReturn:
        """Run from the fork to the end; never return."""
        status, process = 1, os.getpid()
        gc.freeze()  # the parent's garbage may wait for threads when collected: gRPC's servers do
        try:
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                if prints is not None:
                    _set_up(prints)
                answer = json.dumps(self._done()).encode()
                if os.getpid() == process:  # not in a copy that the user's code has forked
                    self._send(answer)
                status = 0
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            status = CLOSED
        finally:
            if status == 1:
                traceback.print_exc()
            with suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _done(self) -> Mapping[str, Any]:
        """Do the work; return the answer."""
        try:
            with self._alarm() as off, own_failures(""):

                def opened() -> None:
                    off()
                    self._send(OPENED)

                return {"value": self.work(opened)}
        except TimeLimitExceeded as error:
            return _encoded(UserCodeError(str(error)))
        except (TestbedError, KeyboardInterrupt, BrokenPipeError) as error:
            return _encoded(error)

    @contextmanager
    def _alarm(self) -> Iterator[Callable[[], None]]:
        """Inside, an alarm goes off repeatedly once the time is over; yield its off switch."""

        def ring(number: int, frame: FrameType | None) -> None:
            place = user_code_location(reversed(list(traceback.walk_stack(frame))))
            if place:  # else our code takes the time
                raise TimeLimitExceeded(
                    f"{place}: this code still runs after {self.within_seconds:g} s."
                )

        def off() -> None:
            signal.setitimer(signal.ITIMER_REAL, 0)

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, self.within_seconds, 1.0)
        try:
            yield off
        finally:
            off()

    def _send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.answer, data) :]


def _set_up(prints: int) -> None:
    """Set up an own group, empty input, output into the pipe, and default signal handlers."""
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (prints, 1), (prints, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(prints)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, closefd=False, errors="replace")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="replace")  # noqa: SIM115
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@dataclass
class _ShownOutput:
    """Copies output to standard error, up to its limit."""

    reader: int
    _room: int = PRINTED_BYTES

    def copy(self) -> int:
        """Copy available output; return its size, 0 at the end."""
        data = os.read(self.reader, READ_BYTES)
        if self._room >= 0:
            sys.stderr.write(escaped(data[: self._room].decode(errors="replace")))
            if len(data) > self._room:
                sys.stderr.write(f"\n(more than {PRINTED_BYTES:,} bytes were printed)\n")
            sys.stderr.flush()
        self._room -= len(data)
        return len(data)


def _encoded(error: BaseException) -> dict[str, Any]:
    encoded: dict[str, Any] = {"raised": type(error).__name__, "message": str(error)}
    if isinstance(error, ScenarioError):
        encoded["problems"] = [asdict(one) for one in error.problems]
    elif isinstance(error, TestbedError):
        encoded |= {"message": error.message, "hint": error.hint}
    return encoded


def _decoded(encoded: Mapping[str, Any]) -> BaseException:
    name, message = encoded["raised"], encoded["message"]
    if name == "BrokenPipeError":
        return BrokenPipeError(message)
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, TestbedError)):
        return KeyboardInterrupt(message)
    if issubclass(kind, ScenarioError):
        return kind([Problem(**one) for one in encoded["problems"]])
    return kind(message, hint=encoded["hint"])
