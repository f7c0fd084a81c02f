"""The agent's event loop: a single thread that handles every event of the agent."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Callable
from contextlib import suppress

from testbed.runtimes.agent.nodes import Nodes

LONGEST_WAIT_SECONDS = 86_400.0
"""Maximum timeout of one wait: epoll accepts at most 24 days, but a change of links may end later
than that."""


class Loop:
    """Handles events on descriptors, and the ends of children.

    Nothing else accesses the nodes, so they need no locks.

    Attributes:
        on_exits: called after children that have ended were reaped.
    """

    def __init__(self, nodes: Nodes) -> None:
        self.on_exits: Callable[[], None] = lambda: None
        self._nodes = nodes
        self._selector = selectors.DefaultSelector()
        self._running = True
        self.watch(_wake_on_child(), self._reap)

    def watch(
        self, descriptor: int, react: Callable[[int], None], *, events: int = selectors.EVENT_READ
    ) -> None:
        """Call ``react`` whenever a descriptor is readable, or writable."""
        self._selector.register(descriptor, events, react)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor."""
        self._selector.unregister(descriptor)

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

    def _reap(self, ended: int) -> None:
        with suppress(BlockingIOError):
            os.read(ended, 4096)
        self._nodes.reap()
        self.on_exits()


def _wake_on_child() -> int:
    """Return a descriptor that becomes readable after a child has ended."""
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return reader
