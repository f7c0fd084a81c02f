"""The agent's event loop: a single thread that handles every event of the agent."""

from __future__ import annotations

import os
import selectors
import signal
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple

from testbed.agent.nodes import Nodes
from testbed.errors import TestbedError

LONGEST_WAIT_SECONDS = 86_400.0
"""epoll accepts at most 24 days; a change of links may last longer."""

Begin = Callable[[Nodes], None]


class Asked(NamedTuple):
    """A request of another thread; ``begin`` does the part that can overlap with another's."""

    act: Callable[[Nodes], bytes]
    begin: Begin | None
    future: Future[bytes]


class NothingYet(Exception):  # noqa: N818 - no error
    """The request cannot be answered before another node has ended."""


class Loop:
    """Handles events on descriptors, the ends of children, and requests of other threads.

    Nothing else accesses the nodes, so they need no locks.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._selector = selectors.DefaultSelector()
        self._running = True
        self._asked: SimpleQueue[Asked] = SimpleQueue()
        self._next: deque[Asked] = deque()
        self._waiting: list[Asked] = []
        nodes.meanwhile = self._begin_next
        asked, self._wake = _pipe()
        self.watch(asked, self._answer)
        self.watch(_wake_on_child(), self._reap)

    def watch(self, descriptor: int, react: Callable[[int], None]) -> None:
        """Call ``react`` whenever a descriptor is readable."""
        self._selector.register(descriptor, selectors.EVENT_READ, react)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor."""
        self._selector.unregister(descriptor)

    def ask(self, act: Callable[[Nodes], bytes], begin: Begin | None = None) -> Future[bytes]:
        """Have the loop call ``act`` with the nodes; callable from any thread.

        An ``act`` that raises NothingYet is called again whenever a node has ended. ``begin`` may
        be called once before it, while the agent waits for an earlier launch.

        Returns:
            What ``act`` returns, or the OSError or TestbedError that it raises. Any other error
            ends ``run``.
        """
        future: Future[bytes] = Future()
        self._asked.put(Asked(act, begin, future))
        with suppress(BlockingIOError):  # the pipe is full, so the loop will wake up anyway
            os.write(self._wake, b"\0")
        return future

    def stop(self) -> None:
        """Make ``run`` return."""
        self._running = False

    def run(self) -> None:
        """Handle events until ``stop`` is called."""
        while self._running:
            due = self._nodes.due_in_seconds()
            wait = None if due is None else min(due, LONGEST_WAIT_SECONDS)
            for key, _ in self._selector.select(wait):
                if key.fd in self._selector.get_map():  # an earlier handler may have closed it
                    key.data(key.fd)
            self._nodes.do_due()

    def _answer(self, asked: int) -> None:
        _drain(asked)
        self._take_in()
        while self._next:
            self._act(self._next.popleft())
            self._take_in()

    def _take_in(self) -> None:
        with suppress(Empty):
            while True:
                self._next.append(self._asked.get_nowait())

    def _begin_next(self) -> None:
        """Begin the next request, which is executed before any other event is handled."""
        self._take_in()
        if self._next and (begin := self._next[0].begin) is not None:
            begin(self._nodes)

    def _act(self, asked: Asked) -> None:
        future = asked.future
        if future.cancelled():  # no caller waits for it any more
            self._nodes.drop_begun()
            return
        try:
            settle = partial(future.set_result, asked.act(self._nodes))
        except NothingYet:
            self._waiting.append(asked)
            return
        except (OSError, TestbedError) as error:
            settle = partial(future.set_exception, error)
        if future.set_running_or_notify_cancel():
            settle()

    def _reap(self, ended: int) -> None:
        _drain(ended)
        self._nodes.reap()
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            self._act(asked)


def _wake_on_child() -> int:
    """Return a descriptor that becomes readable after a child has ended."""
    reader, writer = _pipe()
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return reader


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def _drain(descriptor: int) -> None:
    with suppress(BlockingIOError):
        os.read(descriptor, 4096)
