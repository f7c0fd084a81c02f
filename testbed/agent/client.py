"""The client of the control service, used by the controller: see protos/testbed/v1/agent.proto."""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypeVar

from google.protobuf.message import Message

from testbed.agent.launch import CARRIED, LAUNCH, TRAFFIC, USAGE, Exit, LaunchSpec
from testbed.agent.link_changes import CHANGE, CHANGES, LINK, SHAPE, LinkChange
from testbed.agent.settings import AGENT_TOKEN, CONTROL_LIMITS, SERVICE, TOKEN_VARIABLE
from testbed.errors import NodeError, TestbedError
from testbed.events.usage import Usage
from testbed.host.process import child_of, environment_of
from testbed.host.reports import decode_error
from testbed.host.sockets import pid_of_listener, short_path
from testbed.network.counters import Carried, Traffic
from testbed.rpc._pb import agent_pb2 as pb
from testbed.rpc.addresses import unix_address
from testbed.rpc.methods import TOKEN_KEY
from testbed.topology import LinkSpec, Shape

if TYPE_CHECKING:
    import grpc

CALL_SECONDS = 30.0
LAUNCH_SECONDS = 90.0
POLL_SECONDS = 0.02

Reply = TypeVar("Reply", bound=Message)
Waiting = Callable[[], AbstractContextManager[object]]


class AgentClient:
    """A connection to a run's agent.

    Every method raises NodeError if the agent has ended or does not answer in time, and the
    HostError or NodeError that occurred in the agent.

    Args:
        place: path of its socket; may exceed the length limit of a socket address.
        pid: of the agent, in this process's pid namespace.
        waiting: held only while waiting for a reply: there a signal handler may raise. In gRPC's
            own code an exception may leave a lock held, and then the channel never closes.
    """

    def __init__(self, place: Path, pid: int, *, waiting: Waiting = nullcontext) -> None:
        import grpc

        self._agent = pid
        self._waiting = waiting
        self._metadata = ((TOKEN_KEY, _token(place.parent, pid)),)
        self._held = ExitStack()
        address = self._held.enter_context(unix_address(place))
        channel = grpc.insecure_channel(address, options=CONTROL_LIMITS.channel_options())
        self._channel = self._held.enter_context(channel)
        self._exits_seen = 0
        self._next_exits: grpc.Future[pb.ExitsReply] | None = None
        self._changes_seen = 0

    @classmethod
    def connect(cls, socket_path: Path, *, deadline: float, waiting: Waiting = nullcontext) -> Self:
        """Connect to the agent that listens, or will listen, at ``control/agent.sock``.

        Raises:
            NodeError: it does not listen by the deadline (``time.monotonic``).
        """
        while True:
            try:
                # Unlike gRPC's socket, our own one tells which user owns the other end.
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                    with short_path(socket_path) as name:
                        peer.connect(name)
                    pid = pid_of_listener(peer)
                return cls(socket_path, pid, waiting=waiting)
            except OSError as error:
                not_yet = error.errno in (errno.ENOENT, errno.ECONNREFUSED)
                if not not_yet or time.monotonic() > deadline:
                    raise NodeError(f"{socket_path}: {error.strerror}.") from None
            with waiting():
                time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Close the connection; the run continues."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def launch(self, launch: LaunchSpec) -> int | None:
        """Start a node; return its role's pid in this pid namespace, None if it has ended."""
        return self.begin_launch(launch)()

    def begin_launch(self, launch: LaunchSpec) -> Callable[[], int | None]:
        """Request a node; the returned function waits for it and returns what ``launch`` returns.

        The agent creates a node's processes while it connects the link of the node before it.
        """
        request = pb.LaunchRequest(launch=LAUNCH.dump_json(launch).decode())
        answer = self._ask("Launch", request, pb.LaunchReply, within_seconds=LAUNCH_SECONDS)
        return lambda: child_of(self._agent, answer().pid)

    def running(self) -> list[str]:
        """Return the names of the running nodes, in the order of their launches."""
        return list(self._call("Running", pb.RunningRequest(), pb.NodesReply).nodes)

    def frozen(self) -> list[str]:
        """Return the names of the frozen nodes, whatever froze them."""
        return list(self._call("Frozen", pb.FrozenRequest(), pb.NodesReply).nodes)

    def exits(self, within_seconds: float = 0.0) -> list[Exit]:
        """Return the nodes that have ended since the last call of this client.

        One request is pending at the agent, which replies when a node ends: frequent calls cost
        nothing.

        Args:
            within_seconds: how long to wait for the end of a node if none has ended yet.
        """
        import grpc

        if self._next_exits is None:
            request = pb.HistoryRequest(since=self._exits_seen)
            ask = self._method("Exits", request, pb.ExitsReply)
            self._next_exits = ask.future(request, metadata=self._metadata)
        if not self._await(self._next_exits, within_seconds):
            return []
        try:
            reply: pb.ExitsReply = self._next_exits.result()
        except grpc.RpcError as error:
            raise _explain("Exits", error) from None
        self._next_exits = None
        self._exits_seen += len(reply.exits)
        return [
            Exit(one.node, one.status, one.out_of_memory, one.container_ended)
            for one in reply.exits
        ]

    def signal(self, node: str, number: int) -> None:
        """Send a signal to a node's role."""
        self._call("Signal", pb.SignalRequest(node=node, number=int(number)), pb.Done)

    def freeze(self, node: str) -> None:
        """Freeze a node's processes."""
        self._call("Freeze", pb.NodeRequest(node=node), pb.Done)

    def thaw(self, node: str) -> None:
        """Thaw a frozen node."""
        self._call("Thaw", pb.NodeRequest(node=node), pb.Done)

    def partition(self, node: str) -> None:
        """Block all traffic on a node's link."""
        self._call("Partition", pb.NodeRequest(node=node), pb.Done)

    def heal(self, node: str) -> None:
        """Unblock a node's link."""
        self._call("Heal", pb.NodeRequest(node=node), pb.Done)

    def private_bytes(self, nodes: Iterable[str]) -> dict[str, int]:
        """Return the memory of each node's role that no other process shares, if it still runs."""
        found = {}
        for node in nodes:
            with suppress(NodeError):  # it has just ended
                reply = self._call("PrivateBytes", pb.NodeRequest(node=node), pb.PrivateBytesReply)
                found[node] = reply.private_bytes
        return found

    def count(self) -> Traffic:
        """Return what the links have carried so far."""
        return TRAFFIC.validate_json(self._read("Count", pb.CountRequest()))

    def carried(self) -> Mapping[str, Carried]:
        """Return what each running node's link has carried so far."""
        return CARRIED.validate_json(self._read("Carried", pb.CarriedRequest()))

    def usage(self) -> Usage:
        """Return the contents of the queues and the resource usage of the containers."""
        return USAGE.validate_json(self._read("Usage", pb.UsageRequest()))

    def links(self) -> list[Mapping[str, Any]]:
        """Return every running node's link, as requested and as the kernel has it now."""
        links: list[Mapping[str, Any]] = json.loads(self._read("Links", pb.LinksRequest()))
        return links

    def link(self, node: str) -> LinkSpec:
        """Return a running node's link as it is now, including changes since it was planned."""
        return LINK.validate_json(self._read("Link", pb.NodeRequest(node=node)))

    def reshape(
        self,
        nodes: Sequence[str],
        *,
        up: Shape | None = None,
        down: Shape | None = None,
        seconds: float | None = None,
        planned: float | None = None,
    ) -> LinkChange:
        """Change the links of those of the nodes that run, for ``seconds`` or until reset.

        The agent ends the change at that time, whether or not a client is connected. A change from
        a recording was ``planned`` for a moment, in seconds since 1970.
        """
        request = pb.ReshapeRequest(nodes=nodes, seconds=seconds, planned=planned)
        for direction, shape in {"up": up, "down": down}.items():
            if shape is not None:
                setattr(request, direction, SHAPE.dump_json(shape).decode())
        return CHANGE.validate_json(self._read("Reshape", request))

    def reset_links(self, nodes: Sequence[str]) -> LinkChange:
        """Restore the plan's links of nodes."""
        return CHANGE.validate_json(self._read("ResetLinks", pb.NodesRequest(nodes=nodes)))

    def link_changes(self) -> list[LinkChange]:
        """Return the link changes since the last call of this client, from any source."""
        request = pb.HistoryRequest(since=self._changes_seen)
        new = CHANGES.validate_json(self._read("LinkChanges", request))
        self._changes_seen += len(new)
        return list(new)

    def _read(self, method: str, request: Message) -> str:
        return self._call(method, request, pb.Document).json

    def _call(
        self,
        method: str,
        request: Message,
        reply: type[Reply],
        *,
        within_seconds: float = CALL_SECONDS,
    ) -> Reply:
        return self._ask(method, request, reply, within_seconds=within_seconds)()

    def _ask(
        self, method: str, request: Message, reply: type[Reply], *, within_seconds: float
    ) -> Callable[[], Reply]:
        """Send a request; the returned function waits for the reply."""
        import grpc

        ask = self._method(method, request, reply)
        call = ask.future(request, timeout=within_seconds, metadata=self._metadata)

        def answer() -> Reply:
            self._await(call)
            try:
                found: Reply = call.result()
            except grpc.RpcError as error:
                raise _explain(method, error) from None
            return found

        return answer

    def _await(self, call: grpc.Future[Any], within_seconds: float | None = None) -> bool:
        """Return whether a call has completed, or completes in time."""
        if call.done():
            return True
        if within_seconds == 0.0:
            return False
        ended: SimpleQueue[object] = SimpleQueue()
        call.add_done_callback(ended.put)
        try:
            with self._waiting():
                ended.get(timeout=within_seconds)
        except Empty:
            return False
        return True

    def _method(self, name: str, request: Message, reply: type[Message]) -> Any:
        return self._channel.unary_unary(
            f"{SERVICE}{name}", type(request).SerializeToString, reply.FromString
        )


def _token(control: Path, pid: int) -> str:
    """Return the token that the agent, process ``pid``, accepts.

    Raises:
        NodeError: that process is not an agent.
        OSError: it belongs to another user.
    """
    try:
        return (control / AGENT_TOKEN).read_text()
    except FileNotFoundError:  # not in a container: a process of this host
        token = environment_of(pid).get(TOKEN_VARIABLE)
    if token is None:
        raise NodeError(f"{control}: process {pid}, which listens there, is no agent.")
    return token


def _explain(method: str, error: grpc.RpcError) -> TestbedError:
    from grpc import StatusCode

    code, details = error.code(), str(error.details())
    if code is StatusCode.FAILED_PRECONDITION:
        return decode_error(json.loads(details))
    if code is StatusCode.DEADLINE_EXCEEDED:
        return NodeError(f"the agent did not answer {method} in time.")
    if code in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED):
        return NodeError(f"the agent has ended, asked for {method}.", hint="See logs/agent.log.")
    return NodeError(f"the agent refused {method}: {details} ({code.name}).")
