"""The user's own code in a process apart: whatever it does there, this process goes on.

That process is forked from this one, so that nothing is imported again, and ends with it. What came
of the work returns as JSON: what the user's code writes is read, and never executed.
"""

from __future__ import annotations

import errno
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
from testbed.user_code import Signalled, closed_descriptors, own_failures, own_place

LOADING_SECONDS = 60.0
"""How long the user's own files may take until they are read, and their classes made."""

GRACE_SECONDS = 5.0
"""How much later a process is killed that did not hear its alarm."""

END_SECONDS = 10.0
"""How long one may take that was asked to end."""

ANSWER_BYTES = 2**20
PRINTED_BYTES = 2**20
READ_BYTES = 2**16
MOST_READS = (ANSWER_BYTES + PRINTED_BYTES) // READ_BYTES

CLOSED = 125
"""Status of a process apart that could not answer, as its descriptors were closed."""

OPENED = b"\n"

Opened = Callable[[], None]
"""Called by the work when the user's files are read: what comes next may take its time."""


class Printed(Protocol):
    """Takes what a process prints.

    Attributes:
        reader: where it is to be read.
    """

    reader: int

    def copy(self) -> int:
        """Take what there is; returns how much that was, 0 at its end."""


class Overdue(Signalled):
    """The user's code still runs; the message says where."""


def apart(
    work: Callable[[Opened], Any], *, whose: str, within_seconds: float = LOADING_SECONDS
) -> Any:
    """Do work in a process apart, and return the plain data that it returns.

    The process has no standard input and a process group of its own, of which nothing is left. What
    it prints goes to standard error, up to PRINTED_BYTES.

    Args:
        work: runs the user's code; is given what it calls when the files are read.
        whose: names these files, for errors.
        within_seconds: real time until then.

    Raises:
        TestbedError: what the work has raised.
        UserCodeError: the process has ended without an answer, or was not through in time.
    """
    if not hasattr(os, "pidfd_open"):
        return work(lambda: None)  # not Linux: nothing is run there, scenarios are only checked
    reader, prints = os.pipe()
    process = _Apart.fork(work, whose, within_seconds, prints)
    os.close(prints)
    try:
        return process.outcome(_Shown(reader))
    finally:
        process.kill()
        os.close(reader)


def beside(
    work: Callable[[Opened], Any],
    *,
    whose: str,
    printed: Printed,
    within_seconds: float = LOADING_SECONDS,
) -> Any:
    """Do work like ``apart``, on the terminal of this process and with its signal handlers.

    What asks this process to end is passed on, and the end of the other one waited for. The work
    itself sees to it that what the user's code prints goes to ``printed``, which is read here.

    Args and errors are those of ``apart``; what a signal raises there is raised here too.
    """
    process = _Apart.fork(work, whose, within_seconds)
    try:
        return process.outcome(printed)
    except Signalled:
        process.ask_to_end()
        return process.outcome(printed)
    finally:
        process.kill()


def early_end(whose: str, status: int | None) -> UserCodeError:
    """What to say of a process of the user's code that has ended before its work.

    Args:
        whose: names the files.
        status: its exit status, negative for the signal that ended it; None if it is not known.
    """
    if status == CLOSED:
        return closed_descriptors(whose)
    if status is not None and status < 0:
        names = {number.value: number.name for number in signal.Signals}
        hint = "It was out of memory, perhaps: `dmesg` tells." if status == -signal.SIGKILL else ""
        how = names.get(-status, f"signal {-status}")
        return UserCodeError(f"{whose}: the process of this code was ended by {how}.", hint=hint)
    told = "" if status is None else f" with status {status}"
    return UserCodeError(
        f"{whose}: this code has ended its process{told}, and not come to its own end.",
        hint="It is part of a run: raise an error in place of exit() and os._exit().",
    )


@dataclass
class _Apart:
    """The process, as this one sees it.

    Attributes:
        group: whether it has a process group of its own.
        deadline: when it is no longer waited for, as a ``time.monotonic``, or None.
    """

    pid: int
    answers: int
    whose: str
    group: bool
    within_seconds: float
    deadline: float | None
    _heard: bytes = b""
    _status: int | None = None

    def __post_init__(self) -> None:
        self._pidfd = os.pidfd_open(self.pid)

    @classmethod
    def fork(
        cls,
        work: Callable[[Opened], Any],
        whose: str,
        within_seconds: float,
        prints: int | None = None,
    ) -> _Apart:
        """Have it work; what it ``prints`` goes into a pipe, of one with a group of its own."""
        sys.stdout.flush()
        sys.stderr.flush()
        answers, answer = os.pipe()
        parent, pid = os.getpid(), os.fork()
        if not pid:
            os.close(answers)
            life = _Life(work, whose, within_seconds, answer)
            life.live(parent, prints)
        os.close(answer)
        deadline = time.monotonic() + within_seconds + GRACE_SECONDS
        return cls(pid, answers, whose, prints is not None, within_seconds, deadline)

    def outcome(self, printed: Printed) -> Any:
        """Wait for what comes of the work, and take what is printed meanwhile."""
        poller = select.poll()
        for descriptor in (self._pidfd, self.answers, printed.reader):
            poller.register(descriptor, select.POLLIN)
        while self._status is None:
            left = None if self.deadline is None else self.deadline - time.monotonic()
            if left is not None and left < 0:
                text = f"{self.whose}: this code still runs after {self.within_seconds:g} s."
                raise UserCodeError(text, hint="It takes no notice of signals.")
            self._take_in(poller, printed, milliseconds=None if left is None else left * 1000 + 1)
        for _ in range(MOST_READS):  # what was said before the end
            if not self._take_in(poller, printed, milliseconds=0):
                break
        return self._answer()

    def _take_in(
        self, poller: select.poll, printed: Printed, *, milliseconds: float | None
    ) -> bool:
        """Wait for whatever comes, and take it in; returns whether anything was said."""
        said = False
        for descriptor, _ in poller.poll(milliseconds):
            if descriptor == self._pidfd:
                poller.unregister(descriptor)
                self._reap()
            elif printed.copy() if descriptor == printed.reader else self._hear():
                said = True
            else:
                poller.unregister(descriptor)
        return said

    def ask_to_end(self) -> None:
        """Have it end in its own way, within END_SECONDS."""
        signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
        self.within_seconds, self.deadline = END_SECONDS, time.monotonic() + END_SECONDS

    def kill(self) -> None:
        """End it, if it has not ended, and what is left of its group."""
        if self._status is None:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            self._reap()
        os.close(self._pidfd)
        os.close(self.answers)

    def _hear(self) -> int:
        data = os.read(self.answers, READ_BYTES)
        self._heard += data if len(self._heard) < ANSWER_BYTES else b""
        if data.startswith(OPENED):
            self.deadline = None
        return len(data)

    def _answer(self) -> Any:
        try:
            answer = json.loads(self._heard)
            if "value" in answer:
                return answer["value"]
            error = _decoded(answer)
        except (ValueError, TypeError, KeyError, AttributeError):
            error = early_end(self.whose, self._status)
        raise error

    def _reap(self) -> None:
        if self.group:  # while its leader is a zombie, the group's number is nobody else's
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@dataclass(frozen=True)
class _Life:
    """What the process apart does: the work, and it answers."""

    work: Callable[[Opened], Any]
    whose: str
    within_seconds: float
    answer: int

    def live(self, parent: int, prints: int | None) -> NoReturn:
        """From the fork to the end: no way leads back from here."""
        status, process = 1, os.getpid()
        try:
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                if prints is not None:
                    _settle(prints)
                answer = json.dumps(self._done()).encode()
                if os.getpid() == process:  # and no copy that the user's code has forked
                    self._say(answer)
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
        """Do the work; returns the answer."""
        try:
            with self._alarm() as off, own_failures(""):

                def opened() -> None:
                    off()
                    self._say(OPENED)

                return {"value": self.work(opened)}
        except Overdue as error:
            return _encoded(UserCodeError(str(error)))
        except (TestbedError, KeyboardInterrupt, BrokenPipeError) as error:
            return _encoded(error)

    @contextmanager
    def _alarm(self) -> Iterator[Callable[[], None]]:
        """Inside, an alarm rings when the time is over, again and again; yields its switch."""

        def ring(number: int, frame: FrameType | None) -> None:
            place = own_place(reversed(list(traceback.walk_stack(frame))))
            if place:  # else it is ours that takes so long
                raise Overdue(f"{place}: this code still runs after {self.within_seconds:g} s.")

        def off() -> None:
            signal.setitimer(signal.ITIMER_REAL, 0)

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, self.within_seconds, 1.0)
        try:
            yield off
        finally:
            off()

    def _say(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.answer, data) :]


def _settle(prints: int) -> None:
    """A group of its own, nothing to read, all that is printed into the pipe, usual signals."""
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
class _Shown:
    """Passes on to standard error what is printed, as far as there is room for it."""

    reader: int
    _room: int = PRINTED_BYTES

    def copy(self) -> int:
        """See Printed."""
        data = os.read(self.reader, READ_BYTES)
        if self._room >= 0:
            sys.stderr.write(escaped(data[: self._room].decode(errors="replace")))
            if len(data) > self._room:
                sys.stderr.write(f"\n(more than {PRINTED_BYTES:,} bytes were printed)\n")
            sys.stderr.flush()
        self._room -= len(data)
        return len(data)


def _encoded(error: BaseException) -> dict[str, Any]:
    told: dict[str, Any] = {"raised": type(error).__name__, "message": str(error)}
    if isinstance(error, ScenarioError):
        told["problems"] = [asdict(one) for one in error.problems]
    elif isinstance(error, TestbedError):
        told |= {"message": error.message, "hint": error.hint}
    return told


def _decoded(told: Mapping[str, Any]) -> BaseException:
    name, message = told["raised"], told["message"]
    if name == "BrokenPipeError":
        return BrokenPipeError(message)
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, TestbedError)):
        return KeyboardInterrupt(message)
    if issubclass(kind, ScenarioError):
        return kind([Problem(**one) for one in told["problems"]])
    return kind(message, hint=told["hint"])
