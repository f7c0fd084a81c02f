"""The operations of the agent: one entry of the table for each method of the service."""

from __future__ import annotations

import json
import math
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from google.protobuf.message import DecodeError, Message

from testbed.agent.launch import CARRIED, LAUNCH, TRAFFIC, USAGE
from testbed.agent.link_changes import CHANGE, CHANGES, LINK, SHAPE
from testbed.agent.loop import NothingYet
from testbed.agent.nodes import Nodes
from testbed.agent.settings import SERVICE
from testbed.errors import NodeError, TestbedError
from testbed.host.reports import MESSAGE_CHARACTERS
from testbed.rpc._pb import agent_pb2 as pb
from testbed.rpc.wire import MalformedError

Act = Callable[[Nodes, Any], Message | bytes | None]
"""Executes a request and returns the reply: JSON is sent as a Document, None as Done.

Raises NothingYet if the request cannot be answered before another node has ended.
"""


@dataclass(frozen=True)
class Operation:
    """One method: the class of its requests, its action, and what may begin before that."""

    request: type[Message]
    act: Act
    begin: Callable[[bytes, Nodes], None] | None = None

    def answer(self, message: bytes, nodes: Nodes) -> bytes:
        """Execute a request.

        Raises:
            NothingYet: the caller must retry once a node has ended.
            MalformedError: it is no such request, or holds invalid values, expected or not.
            OSError, TestbedError: it failed; names the node.
        """
        try:
            request = self.request.FromString(message)
            with _naming(getattr(request, "node", "")):
                reply = self.act(nodes, request)
        except (OSError, TestbedError, NothingYet):
            raise
        except (DecodeError, ValueError) as error:
            raise MalformedError(str(error)[:MESSAGE_CHARACTERS]) from None
        except Exception as error:  # noqa: BLE001 - no request may end the run
            traceback.print_exc()  # in the agent's log
            what = f"the agent met {error!r}"[:MESSAGE_CHARACTERS]
            raise MalformedError(f"{what}; its log has more") from None
        if isinstance(reply, bytes):
            reply = pb.Document(json=reply.decode())
        return (pb.Done() if reply is None else reply).SerializeToString()


@contextmanager
def _naming(node: str) -> Iterator[None]:
    """Prefix errors raised inside with the node's name, unless they contain it."""
    try:
        yield
    except (OSError, TestbedError) as failure:
        known = failure if isinstance(failure, TestbedError) else NodeError(f"{failure}.")
        if not node or known.message.startswith((f"{node}:", f"{node} ")):
            raise known from failure.__cause__
        raise type(known)(f"{node}: {known.message}", hint=known.hint) from failure


def _launch(nodes: Nodes, request: pb.LaunchRequest) -> pb.LaunchReply:
    launch = LAUNCH.validate_json(request.launch)
    with _naming(launch.node.name):
        return pb.LaunchReply(pid=nodes.launch(launch))


def _begin_launch(message: bytes, nodes: Nodes) -> None:
    # The error will be raised again, and reported, when the request is executed.
    with suppress(DecodeError, ValueError, OSError, TestbedError):
        nodes.begin(LAUNCH.validate_json(pb.LaunchRequest.FromString(message).launch))


def _exits(nodes: Nodes, request: pb.HistoryRequest) -> pb.ExitsReply:
    nodes.reap()
    if not (unseen := nodes.exits[request.since :]):
        raise NothingYet
    return pb.ExitsReply(exits=[pb.Exit(**asdict(one)) for one in unseen])


def _signal(nodes: Nodes, request: pb.SignalRequest) -> None:
    nodes.send_signal(request.node, signal.Signals(request.number))


def _private_bytes(nodes: Nodes, request: pb.NodeRequest) -> pb.PrivateBytesReply:
    return pb.PrivateBytesReply(private_bytes=nodes.private_bytes(request.node))


def _link(nodes: Nodes, request: pb.NodeRequest) -> bytes:
    return LINK.dump_json(nodes.links_of([request.node])[request.node])


def _reshape(nodes: Nodes, request: pb.ReshapeRequest) -> bytes:
    if not 0 <= request.seconds < math.inf:
        raise MalformedError(f"a change for {request.seconds} seconds")
    if not math.isfinite(request.planned):
        raise MalformedError(f"a change planned for {request.planned} seconds since 1970")
    change = nodes.changes.set(
        nodes.links_of(request.nodes),
        up=SHAPE.validate_json(request.up) if request.HasField("up") else None,
        down=SHAPE.validate_json(request.down) if request.HasField("down") else None,
        seconds=request.seconds if request.HasField("seconds") else None,
        planned=request.planned if request.HasField("planned") else None,
        relink=nodes.relink,
    )
    return CHANGE.dump_json(change)


def _reset_links(nodes: Nodes, request: pb.NodesRequest) -> bytes:
    return CHANGE.dump_json(nodes.changes.reset(request.nodes, relink=nodes.relink))


def _link_changes(nodes: Nodes, request: pb.HistoryRequest) -> bytes:
    return CHANGES.dump_json(tuple(nodes.changes.done[request.since :]))


_ACTS: Mapping[str, tuple[type[Message], Act]] = {
    "Running": (pb.RunningRequest, lambda nodes, _: pb.NodesReply(nodes=nodes.running())),
    "Frozen": (pb.FrozenRequest, lambda nodes, _: pb.NodesReply(nodes=nodes.frozen())),
    "Exits": (pb.HistoryRequest, _exits),
    "Signal": (pb.SignalRequest, _signal),
    "Freeze": (pb.NodeRequest, lambda nodes, request: nodes.freeze(request.node)),
    "Thaw": (pb.NodeRequest, lambda nodes, request: nodes.thaw(request.node)),
    "Partition": (pb.NodeRequest, lambda nodes, request: nodes.partition(request.node)),
    "Heal": (pb.NodeRequest, lambda nodes, request: nodes.heal(request.node)),
    "PrivateBytes": (pb.NodeRequest, _private_bytes),
    "Count": (pb.CountRequest, lambda nodes, _: TRAFFIC.dump_json(nodes.meter.read())),
    "Carried": (pb.CarriedRequest, lambda nodes, _: CARRIED.dump_json(nodes.carried())),
    "Usage": (pb.UsageRequest, lambda nodes, _: USAGE.dump_json(nodes.usage())),
    "Links": (pb.LinksRequest, lambda nodes, _: json.dumps(nodes.links()).encode()),
    "Link": (pb.NodeRequest, _link),
    "Reshape": (pb.ReshapeRequest, _reshape),
    "ResetLinks": (pb.NodesRequest, _reset_links),
    "LinkChanges": (pb.HistoryRequest, _link_changes),
}

OPERATIONS = {
    f"{SERVICE}Launch": Operation(pb.LaunchRequest, _launch, _begin_launch),
    **{f"{SERVICE}{name}": Operation(*both) for name, both in _ACTS.items()},
}
"""By the full name of the method."""
