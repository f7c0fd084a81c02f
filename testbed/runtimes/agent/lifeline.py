"""What a run does when its controller hangs up or dies.

It ends at once, unless the controller has sent a word: after *finish*, it runs until its
parameter server ends, which is notified and ends when training has finished; after *keep*, until it
is stopped.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from testbed.errors import TestbedError
from testbed.host.reports import encode_error
from testbed.runtimes.agent.control import Control
from testbed.runtimes.agent.loop import Loop
from testbed.runtimes.agent.nodes import Nodes
from testbed.runtimes.agent.settings import AgentSettings, OnHangup
from testbed.runtimes.agent.spawner import Spawner

LONGEST_WORDS = 256

UNMAPPED_UID = 65534
"""What the host's root is in a user namespace; no other user without a uid there can open the
socket."""

Say = Callable[..., None]
"""Sends the controller keywords; it may have ended."""


class HungUp(BaseException):
    """The controller has ended before the agent had started."""


@contextmanager
def giving_up_at_hangup(lifeline: int) -> Iterator[None]:
    """Raise HungUp inside the context as soon as the lifeline ends; later the loop handles that.

    Nothing reads the lifeline while the agent starts, which takes seconds on a busy host. The
    controller writes nothing into it before it was notified that the agent has started.
    """

    def look(number: int, frame: FrameType | None) -> None:
        if select.select([lifeline], [], [], 0)[0]:
            signal.signal(signal.SIGIO, signal.SIG_IGN)
            raise HungUp

    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    signal.signal(signal.SIGIO, look)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        look(signal.SIGIO, None)  # it may have ended before SIGIO was enabled
        yield
    finally:
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags)


def start_service(
    settings: AgentSettings, nodes: Nodes, *, lifeline: int, say: Say, socket_path: Path
) -> Loop:
    """Listen for clients; return the loop, which the caller must run.

    Args:
        settings, nodes: of the run.
        lifeline: descriptor of the agent's end, after the commit; when it ends, the loop stops.
        say: called once while it runs, with ``ready`` or the ``error`` of the template.
        socket_path: where to listen.
    """
    loop = Loop(nodes)
    Lifeline(lifeline, loop, nodes)
    loop.watch(nodes.spawner.ready_pipe, lambda _: _template_says(loop, nodes.spawner, say))
    owners = {0, settings.folder.stat().st_uid}
    if settings.users.namespace:
        owners.add(UNMAPPED_UID)
    Control(loop, nodes).listen(socket_path, owners=owners)
    gc.freeze()  # a full collection would delay the loop's requests by 50 ms
    return loop


def _template_says(loop: Loop, spawner: Spawner, say: Say) -> None:
    loop.forget(spawner.ready_pipe)
    try:
        spawner.check_ready()
    except TestbedError as error:
        say(error=encode_error(error))
        loop.stop()
    else:
        say(ready=True)


@dataclass
class Lifeline:
    """The agent's end of the lifeline, once the run is committed; stops the loop at its end."""

    descriptor: int
    loop: Loop
    nodes: Nodes
    on_hangup: OnHangup = "end"

    def __post_init__(self) -> None:
        self.loop.watch(self.descriptor, lambda _: self._read())

    def _read(self) -> None:
        words: list[str] = []
        # Raised by a socket if the other end left data unread.
        with suppress(ConnectionResetError):
            words = os.read(self.descriptor, LONGEST_WORDS).decode().split()
        if words:
            self.on_hangup = words[-1]  # type: ignore[assignment]  # only a lifeline writes there
            return
        self.loop.forget(self.descriptor)
        if self.on_hangup == "end":
            self.loop.stop()
        elif self.on_hangup == "finish":
            self.nodes.thaw_all()  # no other process would undo what the controller has done
            self.nodes.heal_all()
            self._finish()

    def _finish(self) -> None:
        """Exit with the parameter server or the last worker, which no other process watches."""
        servers, workers = self.nodes.pids("server"), self.nodes.pids("client")
        if not servers or not workers:
            self.loop.stop()
            return
        for pid in servers:
            os.kill(pid, signal.SIGHUP)
            self._react_to_end_of(pid, self.loop.stop)
        for pid in workers:
            self._react_to_end_of(pid, self._look_for_workers)

    def _look_for_workers(self) -> None:
        self.nodes.reap()
        if not self.nodes.pids("client"):
            self.loop.stop()

    def _react_to_end_of(self, pid: int, react: Callable[[], None]) -> None:
        descriptor = os.pidfd_open(pid)

        def ended(_: int) -> None:
            self.loop.forget(descriptor)
            os.close(descriptor)
            react()

        self.loop.watch(descriptor, ended)
