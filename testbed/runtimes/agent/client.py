"""The client of the agent's control server: see ``control.py``."""

from __future__ import annotations

import errno
import json
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Self, cast

from pydantic import TypeAdapter

from testbed.errors import NodeError
from testbed.host.process import child_of, children_of
from testbed.host.reports import decode_error
from testbed.host.sockets import pid_of_listener, short_path
from testbed.network.counters import Carried, Traffic
from testbed.runtimes.agent.launch import (
    CARRIED,
    EXITS,
    LAUNCH,
    NODES,
    TRAFFIC,
    USAGE,
    Exit,
    LaunchSpec,
    NodeState,
)
from testbed.runtimes.agent.lines import Lines
from testbed.runtimes.agent.link_changes import SHAPE
from testbed.telemetry.event_kinds import LinkChanged
from testbed.values.topology import LinkSpec, Shape
from testbed.values.usage import Usage

CALL_SECONDS = 30.0
LAUNCH_SECONDS = 90.0
POLL_SECONDS = 0.02

REPLY_BYTES = 2**26
"""The longest reply, the links of all nodes, takes a few hundred bytes for each."""

_LINK, _CHANGED = TypeAdapter(LinkSpec), TypeAdapter(LinkChanged)
_CHANGES = TypeAdapter(list[LinkChanged])

Waiting = Callable[[], AbstractContextManager[object]]


class AgentEndedError(NodeError):
    """The agent has ended before it answered."""


class AgentClient:
    """A connection to a run's agent, for one thread.

    Every method raises NodeError if the agent has ended or does not answer in time, and the
    HostError or NodeError that occurred in the agent.

    Args:
        lines: this end of the stream; closed with the client.
        pid: of the agent, in this process's pid namespace.
        waiting: held only while waiting for a reply: there a signal handler may raise.
    """

    def __init__(self, lines: Lines, pid: int, *, waiting: Waiting = nullcontext) -> None:
        self._lines = lines
        self._agent = pid
        self._waiting = waiting
        self._numbers = count()
        self._asked: dict[int, str] = {}  # methods of the requests without a reply
        self._replies: dict[int, Mapping[str, Any]] = {}  # those not returned yet
        self._ended = False
        self._exits_seen = 0
        self._next_exits: int | None = None
        self._changes_seen = 0

    @classmethod
    def connect(cls, socket_path: Path, *, deadline: float, waiting: Waiting = nullcontext) -> Self:
        """Connect to the agent that listens, or will listen, at ``control/agent.sock``.

        Args:
            socket_path: may exceed the length limit of a socket address.
            deadline: how long to try, as a ``time.monotonic``.
            waiting: as for the class.

        Raises:
            NodeError: it does not listen by the deadline.
        """
        while True:
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                with short_path(socket_path) as name:
                    peer.connect(name)
                pid = pid_of_listener(peer)
                return cls(Lines.over(peer, line_bytes=REPLY_BYTES), pid, waiting=waiting)
            except OSError as error:
                peer.close()
                not_yet = error.errno in (errno.ENOENT, errno.ECONNREFUSED)
                if not not_yet or time.monotonic() > deadline:
                    raise NodeError(f"{socket_path}: {error.strerror}.") from None
            with waiting():
                time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Close the connection; the run continues."""
        self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def launch(self, launch: LaunchSpec) -> int | None:
        """Start a node; return the pid of its role in this pid namespace, or None if it exited."""
        return self.begin_launch(launch)()

    def begin_launch(self, launch: LaunchSpec) -> Callable[[], int | None]:
        """Request a node; the returned function waits until it runs and returns its pid.

        Several requests can be open: the agent creates the processes of a node while it connects
        the link of the previous node.
        """
        answer = self._ask(
            "launch",
            within_seconds=LAUNCH_SECONDS,
            launch=LAUNCH.dump_python(launch, mode="json"),
        )
        return lambda: child_of(self._agent, answer())

    def nodes(self) -> list[NodeState]:
        """Return the states of the running nodes, in the order of their launches."""
        found = NODES.validate_python(self._call("nodes"))
        pids = children_of(self._agent)
        return [replace(state, pid=pids.get(cast(int, state.pid))) for state in found]

    def running(self) -> list[str]:
        """Return the names of the running nodes, in the order of their launches."""
        return list(self._call("running"))

    def frozen(self) -> list[str]:
        """Return the names of the frozen nodes, whatever froze them."""
        return list(self._call("frozen"))

    def exits(self, within_seconds: float = 0.0) -> list[Exit]:
        """Return the nodes that have ended since the last call of this client.

        One request is pending at the agent, which replies when a node ends: frequent calls cost
        nothing.

        Args:
            within_seconds: how long to wait for the end of a node if none has ended yet.
        """
        if self._next_exits is None:
            self._next_exits = self._send("exits", since=self._exits_seen)
        if not self._await(self._next_exits, within_seconds):
            return []
        number, self._next_exits = self._next_exits, None
        new = EXITS.validate_python(self._result(number))
        self._exits_seen += len(new)
        return new

    def signal(self, node: str, number: int) -> None:
        """Send a signal to a node's role."""
        self._call("signal", node=node, number=int(number))

    def freeze(self, node: str) -> None:
        """Freeze a node's processes."""
        self._call("freeze", node=node)

    def thaw(self, node: str) -> None:
        """Thaw a frozen node."""
        self._call("thaw", node=node)

    def partition(self, node: str) -> None:
        """Block all traffic on a node's link."""
        self._call("partition", node=node)

    def heal(self, node: str) -> None:
        """Unblock a node's link."""
        self._call("heal", node=node)

    def private_bytes(self, nodes: Iterable[str]) -> dict[str, int]:
        """Return the memory of each node's role that no other process shares, if it still runs."""
        found = {}
        for node in nodes:
            with suppress(NodeError):  # it has just ended
                found[node] = int(self._call("private_bytes", node=node))
        return found

    def count(self) -> Traffic:
        """Return what the links have carried so far."""
        return TRAFFIC.validate_python(self._call("count"))

    def carried(self) -> Mapping[str, Carried]:
        """Return what each running node's link has carried so far."""
        return CARRIED.validate_python(self._call("carried"))

    def usage(self) -> Usage:
        """Return the contents of the queues and the resource usage of the containers."""
        return USAGE.validate_python(self._call("usage"))

    def links(self) -> list[Mapping[str, Any]]:
        """Return every running node's link, as requested and as the kernel has it now."""
        return list(self._call("links"))

    def link(self, node: str) -> LinkSpec:
        """Return a running node's link as it is now, including changes since it was planned."""
        return _LINK.validate_python(self._call("link", node=node))

    def reshape(
        self,
        nodes: Sequence[str],
        *,
        up: Shape | None = None,
        down: Shape | None = None,
        seconds: float | None = None,
        planned: float | None = None,
    ) -> LinkChanged:
        """Change the links of those of the nodes that run, for ``seconds`` or until reset.

        The agent ends the change at that time, whether or not a client is connected. A change from
        a recording was ``planned`` for a moment, in seconds since 1970.
        """
        result = self._call(
            "reshape",
            nodes=list(nodes),
            up=SHAPE.dump_python(up, mode="json"),
            down=SHAPE.dump_python(down, mode="json"),
            seconds=seconds,
            planned=planned,
        )
        return _CHANGED.validate_python(result)

    def reset_links(self, nodes: Sequence[str]) -> LinkChanged:
        """Restore the plan's links of nodes."""
        return _CHANGED.validate_python(self._call("reset_links", nodes=list(nodes)))

    def link_changes(self) -> list[LinkChanged]:
        """Return the link changes since the last call of this client, from any source."""
        new = _CHANGES.validate_python(self._call("link_changes", since=self._changes_seen))
        self._changes_seen += len(new)
        return new

    def _call(self, method: str, **arguments: Any) -> Any:
        return self._ask(method, **arguments)()

    def _ask(
        self, method: str, *, within_seconds: float = CALL_SECONDS, **arguments: Any
    ) -> Callable[[], Any]:
        """Send a request; the returned function waits for the result."""
        number = self._send(method, **arguments)
        deadline = time.monotonic() + within_seconds

        def answer() -> Any:
            if not self._await(number, deadline - time.monotonic()):
                del self._asked[number]
                raise NodeError(f"the agent did not answer {method} in time.")
            return self._result(number)

        return answer

    def _send(self, method: str, **arguments: Any) -> int:
        """Send a request, or as much of it as the agent accepts now; return its number."""
        number = next(self._numbers)
        self._asked[number] = method
        with suppress(OSError):  # the agent has exited; waiting for the reply raises the error
            self._lines.send(json.dumps({"id": number, "method": method, **arguments}).encode())
        return number

    def _await(self, number: int, within_seconds: float) -> bool:
        """Wait for the reply to a request; return False after ``within_seconds`` without it."""
        deadline = time.monotonic() + within_seconds
        while number not in self._replies:
            if self._ended:
                raise AgentEndedError(
                    f"the agent exited before it answered {self._asked[number]}.",
                    hint="See logs/agent.log.",
                )
            if not self._exchange(max(0.0, deadline - time.monotonic())):
                return False
        return True

    def _exchange(self, within_seconds: float) -> bool:
        """Send and receive; return False if neither was possible for ``within_seconds``."""
        poller = select.poll()
        poller.register(self._lines.reader, select.POLLIN)
        if self._lines.unsent:
            poller.register(self._lines.writer, select.POLLOUT)
        with self._waiting() if within_seconds else nullcontext():
            ready = poller.poll(1000 * within_seconds)
        if not ready:
            return False
        with suppress(OSError):  # the agent has ended; what it sent before is received first
            self._lines.send()
        lines = self._lines.receive()
        self._ended = lines is None
        for line in lines or ():
            reply = json.loads(line)
            if reply["id"] is None:  # it could not read a request
                raise decode_error(reply["error"])
            if self._asked.pop(reply["id"], None) is not None:  # else it was too late
                self._replies[reply["id"]] = reply
        return True

    def _result(self, number: int) -> Any:
        """Return the result in a reply that has arrived, or raise the error."""
        reply = self._replies.pop(number)
        if "error" in reply:
            raise decode_error(reply["error"])
        return reply["result"]
