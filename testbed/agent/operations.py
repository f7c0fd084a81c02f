"""What a client may ask of the agent: one entry of the table, one operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from testbed.agent.launch import LAUNCH
from testbed.agent.link_changes import CHANGES, LINK, SHAPE, LinkChange
from testbed.agent.nodes import Nodes
from testbed.agent.protocol import Message
from testbed.errors import NodeError, TestbedError
from testbed.runtimes.reports import encode_error

Request = Mapping[str, Any]


def answer(request: Request, nodes: Nodes) -> Message:
    """Do what a request asks for; an error is an answer too."""
    operation = OPERATIONS.get(str(request.get("operation")))
    if operation is None:
        error = NodeError(f"the agent knows no operation {request.get('operation')!r}.")
        return Message({"error": encode_error(error)})
    try:
        return operation(nodes, request)
    except (OSError, TestbedError) as failure:
        return Message({"error": encode_error(_named(failure, request))})


def _named(failure: OSError | TestbedError, request: Request) -> OSError | TestbedError:
    """The failure with the node's name in front, where it does not say it."""
    launch = request.get("launch")
    node = launch["node"]["name"] if launch else request.get("node")
    text = failure.message if isinstance(failure, TestbedError) else f"{failure}."
    if node is None or text.startswith((f"{node}:", f"{node} ")):
        return failure
    hint = failure.hint if isinstance(failure, TestbedError) else ""
    kind = type(failure) if isinstance(failure, TestbedError) else NodeError
    return kind(f"{node}: {text}", hint=hint)


def _launch(nodes: Nodes, request: Request) -> Message:
    return Message({}, nodes.launch(LAUNCH.validate_python(request["launch"], strict=False)))


def _pid(nodes: Nodes, request: Request) -> Message:
    return Message({}, nodes.pid(request["node"]))


def _running(nodes: Nodes, _: Request) -> Message:
    return Message({"result": nodes.running()})


def _exits(nodes: Nodes, request: Request) -> Message:
    nodes.reap()
    return Message({"result": [asdict(one) for one in nodes.exits[request["since"] :]]})


def _signal(nodes: Nodes, request: Request) -> Message:
    nodes.send_signal(request["node"], request["number"])
    return Message({})


def _freeze(nodes: Nodes, request: Request) -> Message:
    nodes.freeze(request["node"])
    return Message({})


def _thaw(nodes: Nodes, request: Request) -> Message:
    nodes.thaw(request["node"])
    return Message({})


def _private_bytes(nodes: Nodes, request: Request) -> Message:
    return Message({"result": nodes.private_bytes(request["node"])})


def _count(nodes: Nodes, _: Request) -> Message:
    return Message({"result": asdict(nodes.count())})


def _links(nodes: Nodes, _: Request) -> Message:
    return Message({"result": nodes.links()})


def _reshape(nodes: Nodes, request: Request) -> Message:
    change = nodes.changes.set(
        nodes.links_of(request["nodes"]),
        up=SHAPE.validate_python(request["up"]),
        down=SHAPE.validate_python(request["down"]),
        seconds=request["seconds"],
        relink=nodes.relink,
    )
    return Message({"result": _as_data([change])[0]})


def _link(nodes: Nodes, request: Request) -> Message:
    links = nodes.links_of([request["node"]])
    return Message({"result": LINK.dump_python(links[request["node"]], mode="json")})


def _reset_links(nodes: Nodes, request: Request) -> Message:
    change = nodes.changes.reset(request["nodes"], relink=nodes.relink)
    return Message({"result": _as_data([change])[0]})


def _link_changes(nodes: Nodes, request: Request) -> Message:
    return Message({"result": _as_data(nodes.changes.done[request["since"] :])})


def _as_data(changes: list[LinkChange]) -> Any:
    return CHANGES.dump_python(tuple(changes), mode="json")


OPERATIONS: Mapping[str, Callable[[Nodes, Request], Message]] = {
    "launch": _launch,
    "pid": _pid,
    "running": _running,
    "exits": _exits,
    "signal": _signal,
    "freeze": _freeze,
    "thaw": _thaw,
    "private_bytes": _private_bytes,
    "count": _count,
    "links": _links,
    "link": _link,
    "reshape": _reshape,
    "reset_links": _reset_links,
    "link_changes": _link_changes,
}
