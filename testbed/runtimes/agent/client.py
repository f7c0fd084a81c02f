"""The client of the agent's control server: see ``control.py``."""

from __future__ import annotations

import errno
import inspect
import json
import select
import socket
import time
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import cache
from itertools import count as numbers
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast, get_type_hints

from pydantic import TypeAdapter

from testbed.errors import NodeError
from testbed.host.process import child_of, children_of
from testbed.host.reports import decode_error
from testbed.host.sockets import pid_of_listener, short_path
from testbed.runtimes.agent.launch import (
    EXITS,
    LAUNCH,
    NODES,
    Exit,
    LaunchSpec,
    NodeState,
)
from testbed.runtimes.agent.lines import Lines
from testbed.runtimes.agent.nodes import Nodes
from testbed.runtimes.agent.operations import Requests
from testbed.telemetry.event_kinds import LinkChanged
from testbed.telemetry.host import OtherHost

CALL_SECONDS = 30.0
LAUNCH_SECONDS = 90.0
POLL_SECONDS = 0.02

REPLY_BYTES = 2**26
"""The longest reply, the links of all nodes, takes a few hundred bytes for each."""

_CHANGES = TypeAdapter(list[LinkChanged])

Waiting = Callable[[], AbstractContextManager[object]]
Written = dict[Path, bytes]
"""What nodes have written to files after some byte of each."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _remote(
    act: Callable[Concatenate[Any, Parameters], Result],
) -> Callable[Concatenate[AgentClient, Parameters], Result]:
    """Return the method of the client that has the agent call ``act``."""
    form = inspect.signature(act)

    @cache
    def types() -> dict[str, TypeAdapter[Any]]:
        hints = get_type_hints(act, include_extras=True)
        return {name: TypeAdapter(hint) for name, hint in hints.items()}

    def call(client: AgentClient, /, *values: Any, **named: Any) -> Any:
        _, *given = form.bind(client, *values, **named).arguments.items()
        fields = {name: types()[name].dump_python(value, mode="json") for name, value in given}
        return types()["return"].validate_python(client.call(act.__name__, **fields))

    return call


class AgentEndedError(NodeError):
    """The agent has ended before it answered."""


class AgentLateError(NodeError):
    """The agent has not answered in time."""


class AgentClient:
    """A connection to a run's agent, for one thread.

    Every method raises NodeError if the agent has ended or does not answer in time, and the
    HostError or NodeError that occurred in the agent.

    Args:
        lines: this end of the stream; closed with the client.
        pid: of the agent, in this process's pid namespace; 0 on another host, where the pids of
            nodes are those of that host.
        waiting: entered only to wait for a reply: inside it, a signal handler may raise.
    """

    def __init__(self, lines: Lines, pid: int, *, waiting: Waiting = nullcontext) -> None:
        self._lines = lines
        self._agent = pid
        self._waiting = waiting
        self._numbers = numbers()
        self._asked: dict[int, str] = {}  # methods of the requests without a reply
        self._replies: dict[int, Mapping[str, Any]] = {}  # those not returned yet
        self._ended = False
        self._exits_seen = 0
        self._next_exits: int | None = None
        self._changes_seen = 0

    def nodes_are_up(self) -> None:
        """Say that the run has begun: from now on it may continue without a host that is lost."""

    def require_host(self, host: str) -> None:
        """Raise HostLostError if a host is lost: of a run on one host, none is."""

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
                lines = Lines.over(peer, line_bytes=REPLY_BYTES, takes_descriptors=True)
                return cls(lines, pid, waiting=waiting)
            except OSError as error:
                peer.close()
                not_yet = error.errno in (errno.ENOENT, errno.ECONNREFUSED)
                if not not_yet or time.monotonic() > deadline:
                    raise NodeError(f"{socket_path}: {error.strerror}.") from None
            with waiting():
                time.sleep(POLL_SECONDS)

    @property
    def readers(self) -> tuple[int, ...]:
        """Descriptors one of which becomes readable when the agent replies, or has ended."""
        return self._lines.readers

    def defer_signals(self) -> None:
        """From now on, let no signal handler raise while this waits for a reply."""
        self._waiting = nullcontext

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
        return lambda: child_of(self._agent, answer()) if self._agent else int(answer())

    def nodes(self) -> list[NodeState]:
        """Return the states of the running nodes, in the order of their launches."""
        found = NODES.validate_python(self.call("nodes"))
        if not self._agent:
            return found
        pids = children_of(self._agent)
        return [replace(state, pid=pids.get(cast(int, state.pid))) for state in found]

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

    def copy_logs(self, last: Collection[str] = ()) -> None:
        """Bring the logs of nodes up to date, those in ``last`` for the last time.

        Those of an agent on this host always are.
        """

    def copy_records(self, *, whole: bool = False) -> None:
        """Bring the parameter server's records up to date, as they were at the call if ``whole``.

        Those of one on this host always are.
        """

    def begin_written(self, since: Mapping[Path, int]) -> Callable[[bool], Written | None]:
        """Request what nodes have written to files after these numbers of bytes, in this order.

        The returned function waits for that, or returns None if it is not to wait and that has not
        arrived.
        """
        numbers = {str(path): read for path, read in since.items()}
        number = self._send("written", since=numbers)

        def answer(wait: bool) -> Written | None:
            if not self._await(number, CALL_SECONDS if wait else 0.0):
                if wait:
                    raise AgentLateError("the agent did not answer written in time.")
                return None
            return {Path(path): b64decode(data) for path, data in self._result(number).items()}

        return answer

    def other_hosts(self) -> list[OtherHost]:
        """Return the load and the clock of each of the run's other hosts; none if there are none.

        The clocks are compared with this process's (``WALL``).
        """
        return []

    def private_bytes(self, nodes: Iterable[str]) -> dict[str, int]:
        """Return the memory of each node's role that no other process shares, if it still runs."""
        found = {}
        for node in nodes:
            with suppress(NodeError):  # it has just ended
                found[node] = int(self.call("private_bytes", node=node))
        return found

    running = _remote(Nodes.running)
    frozen = _remote(Nodes.frozen)
    signal = _remote(Nodes.signal)
    partition = _remote(Nodes.partition)
    heal = _remote(Nodes.heal)
    carried = _remote(Nodes.carried)
    listening = _remote(Nodes.listening)
    scrape = _remote(Nodes.scrape)
    set_quota = _remote(Nodes.set_quota)
    usage = _remote(Nodes.usage)
    links = _remote(Nodes.links)
    limit_changes = _remote(Nodes.limit_changes)
    count = _remote(Requests.count)
    link = _remote(Requests.link)
    clock = _remote(Requests.clock)
    load = _remote(Requests.load)
    set_pace = _remote(Requests.set_pace)
    freeze = _remote(Requests.freeze)
    thaw = _remote(Requests.thaw)
    reshape = _remote(Requests.reshape)
    reset_links = _remote(Requests.reset_links)

    def link_changes(self) -> list[LinkChanged]:
        """Return the link changes since the last call of this client, from any source."""
        new = _CHANGES.validate_python(self.call("link_changes", since=self._changes_seen))
        self._changes_seen += len(new)
        return new

    def capture(self, node: str) -> socket.socket:
        """Return a socket that receives all frames of a running node's link from now on."""
        self.call("capture", node=node)
        return socket.socket(fileno=self._lines.descriptors.pop())

    def call(self, method: str, **arguments: Any) -> Any:
        """Have the agent execute one of its operations; return the result as JSON has it."""
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
                raise AgentLateError(f"the agent did not answer {method} in time.")
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
                    f"the agent has ended before it answered {self._asked[number]}.",
                    hint="See logs/agent.log.",
                )
            if not self._exchange(max(0.0, deadline - time.monotonic())):
                return False
        return True

    def _exchange(self, within_seconds: float) -> bool:
        """Send and receive; return False if neither was possible for ``within_seconds``."""
        poller = select.poll()
        for reader in self._lines.readers:
            poller.register(reader, select.POLLIN)
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
