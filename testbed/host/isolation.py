"""Runs user code in a child process: whatever it does there, this process survives.

The child is forked from this process, so that nothing is imported again, and ends with it.
"""

from __future__ import annotations

import errno
import gc
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, NoReturn, Protocol

from testbed.errors import TestbedError, UserCodeError, escaped, unforeseen
from testbed.host import syscalls
from testbed.host.deadline import TimeLimitExceeded, alarm
from testbed.values.signals import Signalled
from testbed.values.user_code import closed_descriptors, own_failures

LOADING_SECONDS = 60.0
"""How long reading the user's own files, and creating their classes, may take."""

GRACE_SECONDS = 5.0
"""Time after which a child that ignored its alarm is killed."""

END_SECONDS = 10.0
"""How long a child may take to end on request."""

PRINTED_BYTES = 2**20
ANSWER_BYTES = 2**24
READ_BYTES = 2**16
MAX_READS = (ANSWER_BYTES + PRINTED_BYTES) // READ_BYTES
"""Number of reads after the end: a process that the user's code left behind may print forever."""

CLOSED = 125
"""Exit status of a child that could not answer because its descriptors were closed."""

OPENED = b"\n"
"""Sent before the answer, a pickle, once the user's files were read."""

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
    child = _Child(work, label, within_seconds, prints)
    os.close(prints)
    try:
        return child.outcome(_ShownOutput(reader))
    finally:
        child.kill()
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
    child = _Child(work, label, within_seconds)
    try:
        return child.outcome(printed)
    except Signalled:
        child.ask_to_end()
        return child.outcome(printed)
    finally:
        child.kill()


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


class _Child:
    """The child process, as its parent sees it.

    With ``prints``, the pipe for its output, it gets a process group of its own.
    """

    def __init__(
        self,
        work: Callable[[Opened], Any],
        label: str,
        within_seconds: float,
        prints: int | None = None,
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._answers, answers = os.pipe()
        parent, self._pid = os.getpid(), os.fork()
        if not self._pid:
            os.close(self._answers)
            _run(work, within_seconds, answers, parent=parent, prints=prints)
        os.close(answers)
        self._pidfd = os.pidfd_open(self._pid)
        self._label, self._seconds, self._has_group = label, within_seconds, prints is not None
        self._deadline: float | None = time.monotonic() + within_seconds + GRACE_SECONDS
        self._answer = b""
        self._status: int | None = None

    def outcome(self, printed: Printed) -> Any:
        """Wait for the result of the work, and copy output meanwhile."""
        sources: list[Any] = [self._pidfd, self._answers, printed.reader]
        while self._status is None:
            left = None if self._deadline is None else max(0, self._deadline - time.monotonic())
            if not self._handle(sources, printed, left):
                raise UserCodeError(
                    f"{self._label}: this code still runs after {self._seconds:g} s, and ignores "
                    "the signals that should end it."
                )
        for _ in range(MAX_READS):  # data sent before the end
            if not self._handle(sources, printed, 0):
                break
        try:
            succeeded, result = pickle.loads(self._answer.lstrip(OPENED))
        except Exception:  # noqa: BLE001 - none, or what the code wrote there: any error is possible
            raise early_exit(self._label, self._status) from None
        if not succeeded:
            raise result
        return result

    def _handle(self, sources: list[Any], printed: Printed, seconds: float | None) -> bool:
        """Handle what arrives within ``seconds``; return whether anything did."""
        ready = wait(sources, seconds)
        for source in ready:
            if source == self._pidfd:
                self._reap()
                sources.remove(source)
            elif not (self._receive() if source is self._answers else printed.copy()):
                sources.remove(source)
        return bool(ready)

    def _receive(self) -> int:
        data = os.read(self._answers, READ_BYTES)
        self._answer += data if len(self._answer) < ANSWER_BYTES else b""
        if self._answer.startswith(OPENED):
            self._deadline = None
        return len(data)

    def ask_to_end(self) -> None:
        """Send SIGTERM to the child process, which then has END_SECONDS to exit."""
        signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
        self._seconds, self._deadline = END_SECONDS, time.monotonic() + END_SECONDS

    def kill(self) -> None:
        """Kill the child process, unless it has exited, and the rest of its process group."""
        if self._status is None:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            self._reap()
        os.close(self._pidfd)
        os.close(self._answers)

    def _reap(self) -> None:
        if self._has_group:  # while its leader is a zombie, the group's id is not reused
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
        self._status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def _run(
    work: Callable[[Opened], Any],
    seconds: float,
    answers: int,
    *,
    parent: int,
    prints: int | None,
) -> NoReturn:
    """Do the work in the child, from the fork to the end."""
    status, process = 1, os.getpid()
    gc.freeze()  # the parent's garbage may wait for threads when collected: gRPC's servers do
    try:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            if prints is not None:
                _set_up(prints)
            answer = pickle.dumps(_answer(work, seconds, answers))
            if os.getpid() == process:  # not in a copy that the user's code has forked
                _send(answers, answer)
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


def _answer(work: Callable[[Opened], Any], seconds: float, answers: int) -> tuple[bool, object]:
    """Do the work; return whether it succeeded, and its result or error."""
    try:
        with alarm(seconds, anywhere=False) as off, own_failures(""):

            def opened() -> None:
                off()
                _send(answers, OPENED)

            return True, work(opened)
    except TimeLimitExceeded as error:
        text = f"{error.location}: this code still runs after {seconds:g} s."
        return False, UserCodeError(text)
    except (TestbedError, BrokenPipeError) as error:
        return False, error
    except KeyboardInterrupt as error:
        return False, KeyboardInterrupt(str(error))
    except OSError:
        raise  # perhaps of a closed descriptor
    except Exception as error:  # noqa: BLE001 - a user's code may cause any
        return False, unforeseen(error)


def _send(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


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
