"""What the clock's process sends to a process of the pool, and in which portions.

A channel leads to a process forked from this one, with shared memory; or see ``actors``.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections import deque
from collections.abc import Callable, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any, ClassVar, Protocol

from testbed.errors import NodeError, TestbedError
from testbed.host.isolation import early_exit
from testbed.simulation.messages import Task
from testbed.simulation.process import Build, ControlRequest, Rows, serve

MAX_AHEAD_BYTES = 64 * 1024
"""Maximum bytes of unanswered messages to a process. A pipe holds 208 KiB: neither these messages
nor their answers block."""

MESSAGE_BYTES = 1024
"""Bytes that a message takes in a pipe in addition to its content, rounded up."""

END_SECONDS = 10.0  # time limit for the exit of a process that closed its pipe


class Channel(Protocol):
    """The way to one process of the pool, which answers messages in their order.

    Attributes:
        MAX_AHEAD_BYTES: maximum bytes of unanswered messages; a single message may be larger.
    """

    MAX_AHEAD_BYTES: ClassVar[int]

    def message(self, request: list[Task] | ControlRequest) -> Sized:
        """Return the message that makes the process carry out a request."""

    def send(self, message: Any) -> None:
        """Send a message; raises as ``receive`` does."""

    def receive(self) -> Any:
        """Wait for the next answer: a list of Answer, or what a control request returned.

        Raises:
            NodeError: the process has exited.
            UserCodeError: the user's own code made it exit.
            TestbedError: the error that the process reported.
        """

    def close(self) -> None:
        """End the process."""


Start = Callable[[int, Rows], Channel]
"""Starts the process of a number; the rows are those of the pool."""


@dataclass
class PoolProcess:
    """One process of the pool, and what it has still to do."""

    channel: Channel
    batch: int
    queue: deque[Task] = field(default_factory=deque)
    _made: deque[Sized] = field(default_factory=deque)  # messages still to be sent
    _unanswered: deque[int] = field(default_factory=deque)  # bytes of each in the channel
    _ahead: int = 0

    @property
    def load(self) -> int:
        """Approximate number of its tasks; 0 only if it has none."""
        return len(self.queue) + self.batch * (len(self._made) + len(self._unanswered))

    def add(self, task: Task) -> None:
        """Send a task; batch it with later tasks while the process has other work."""
        self.queue.append(task)
        if not self._unanswered or len(self.queue) >= self.batch:
            self.send()

    def ask(self, request: ControlRequest) -> None:
        """Send a control request, such as an evaluation, to run after the tasks already sent."""
        self._made.append(self.channel.message(request))
        self.send()

    def send(self) -> None:
        """Send waiting messages, up to the limit ahead of answers; raises as ``receive`` does."""
        while self._made or self.queue:
            if not self._made:
                tasks = [self.queue.popleft() for _ in range(min(self.batch, len(self.queue)))]
                self._made.append(self.channel.message(tasks))
            taken = MESSAGE_BYTES + len(self._made[0])
            if self._unanswered and self._ahead + taken > self.channel.MAX_AHEAD_BYTES:
                return
            self.channel.send(self._made.popleft())
            self._unanswered.append(taken)
            self._ahead += taken

    def receive(self) -> Any:
        """Wait for the next answers and return them; raises as ``Channel.receive`` does."""
        self.send()
        answers = self.channel.receive()
        self._ahead -= self._unanswered.popleft()
        return answers


@dataclass
class ForkChannel:
    """The way to a process that shares the memory of the rows; implements Channel.

    Attributes:
        own_files: the user's files whose code runs in it, or empty.
    """

    MAX_AHEAD_BYTES: ClassVar[int] = MAX_AHEAD_BYTES
    process: ForkProcess
    pipe: Connection
    own_files: str = ""

    def message(self, request: list[Task] | ControlRequest) -> bytes:
        return pickle.dumps(request)

    def send(self, message: bytes) -> None:
        try:
            self.pipe.send_bytes(message)
        except ConnectionError:  # it has exited; its pipe may hold an error
            with suppress(EOFError, ConnectionError):
                while True:
                    answers_in(self.pipe.recv_bytes())
            raise self._ended() from None

    def receive(self) -> Any:
        try:
            data = self.pipe.recv_bytes()
        except (EOFError, ConnectionError):
            raise self._ended() from None
        return answers_in(data)

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _ended(self) -> TestbedError:
        """Return the error for a process that exited unexpectedly; blame the user's own files."""
        self.process.join(END_SECONDS)
        status = self.process.exitcode
        if self.own_files:
            return early_exit(self.own_files, status)
        killed = status == -signal.SIGKILL
        how = "by SIGKILL" if killed else f"with status {status}"
        return NodeError(
            f"a process of the simulation (pid {self.process.pid}) ended unexpectedly, {how}.",
            hint="If memory ran out, `dmesg` shows it." if killed else "Its last output is above.",
        )


def answers_in(data: bytes | memoryview) -> Any:
    """Return what a process has answered; raise an error instead."""
    answers = pickle.loads(data)
    if isinstance(answers, TestbedError):
        raise answers
    return answers


def forked(build: Build, *, workers: int, own_files: str = "") -> Start:
    """Return what forks a process from this one, which calls ``build`` once after its start."""
    context = multiprocessing.get_context("fork")

    def start(number: int, rows: Rows) -> ForkChannel:
        ours, theirs = context.Pipe()
        process = context.Process(
            target=serve, args=(theirs, build, number, rows, workers), daemon=True
        )
        process.start()
        theirs.close()
        return ForkChannel(process, ours, own_files)

    return start
