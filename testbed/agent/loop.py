"""The agent's one thread of work: it waits for everything that the agent has to react to."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue

from testbed.agent.nodes import Nodes
from testbed.errors import TestbedError


class Loop:
    """Reacts to descriptors, to the ends of children, and to what other threads ask for.

    Nothing else touches the nodes, so nothing of them needs a lock.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._selector = selectors.DefaultSelector()
        self._running = True
        self._asked: SimpleQueue[tuple[Callable[[Nodes], bytes], Future[bytes]]] = SimpleQueue()
        asked, self._wake = _pipe()
        self.watch(asked, self._answer)
        self.watch(_wake_on_child(), self._reap)

    def watch(self, descriptor: int, react: Callable[[int], None]) -> None:
        """Call ``react`` whenever there is something to read from a descriptor."""
        self._selector.register(descriptor, selectors.EVENT_READ, react)

    def forget(self, descriptor: int) -> None:
        """Take no more notice of a descriptor."""
        self._selector.unregister(descriptor)

    def ask(self, act: Callable[[Nodes], bytes]) -> Future[bytes]:
        """Have something done to the nodes, from another thread.

        Returns:
            What ``act`` returns, or the OSError or TestbedError that it raises. Any other error
            ends ``run``.
        """
        future: Future[bytes] = Future()
        self._asked.put((act, future))
        with suppress(BlockingIOError):  # it is full, and so will be read
            os.write(self._wake, b"\0")
        return future

    def stop(self) -> None:
        """Let ``run`` return."""
        self._running = False

    def run(self) -> None:
        """React, until ``stop`` is called."""
        while self._running:
            for key, _ in self._selector.select(self._nodes.due_in_seconds()):
                if key.fd in self._selector.get_map():  # an earlier reaction may have closed it
                    key.data(key.fd)
            self._nodes.do_due()

    def _answer(self, asked: int) -> None:
        _drain(asked)
        with suppress(Empty):
            while True:
                act, future = self._asked.get_nowait()
                if not future.set_running_or_notify_cancel():
                    continue  # nobody waits for it any more
                try:
                    future.set_result(act(self._nodes))
                except (OSError, TestbedError) as error:
                    future.set_exception(error)

    def _reap(self, ended: int) -> None:
        _drain(ended)
        self._nodes.reap()


def _wake_on_child() -> int:
    """A descriptor with something to read after a child has ended."""
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
