"""Requests to the kernel's rtnetlink: pyroute2's messages over a plain socket.

pyroute2's own sockets have an event loop and run several tasks in it for each request, which takes
most of the time of a request.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum, IntFlag
from functools import cache, lru_cache
from types import TracebackType
from typing import Any, NamedTuple, Self

NLMSG_ERROR, NLMSG_DONE = 2, 3
HEADER = struct.Struct("=IHHII")
CODE = struct.Struct("=i")
RECEIVE_BYTES = 1 << 16

AT_ONCE = 64
"""Requests in one datagram. The replies to them fit into a socket's buffer, even if all fail."""


class Kind(IntEnum):
    """Types of requests and answers (linux/rtnetlink.h)."""

    NEW_LINK = 16
    DELETE_LINK = 17
    GET_LINK = 18
    SET_LINK = 19
    NEW_ADDRESS = 20
    GET_ADDRESS = 22
    NEW_ROUTE = 24
    NEW_NEIGHBOUR = 28
    NEW_QDISC = 36
    DELETE_QDISC = 37
    GET_QDISC = 38


class Flag(IntFlag):
    """Flags of requests (linux/netlink.h)."""

    REQUEST = 0x001
    ACKNOWLEDGE = 0x004
    ECHO = 0x008
    DUMP = 0x300
    REPLACE = 0x100
    EXCLUSIVE = 0x200
    CREATE = 0x400


CREATE_NEW = Flag.CREATE | Flag.EXCLUSIVE
CREATE_OR_REPLACE = Flag.CREATE | Flag.REPLACE


Attribute = tuple[Any, ...]
"""Name and value of an attribute, and its flags if it has any. A tuple of attributes is a value."""


class Request(NamedTuple):
    """A request to the kernel."""

    kind: Kind
    flags: int
    body: bytes


def request(kind: Kind, flags: int, /, *attributes: Attribute, **fields: int) -> Request:
    """Return a request, whose attributes and fields have the names that pyroute2 gives them."""
    cls = _class_of(kind)
    values = (fields.get(name, 0) for name, code in cls.fields if not code.endswith("x"))
    fixed = struct.pack("=" + "".join(code for _, code in cls.fields), *values)
    return Request(kind, flags, fixed + _encoded(kind, fields.get("family", 0), attributes))


def new_link(
    name: str, kind: str, *data: Attribute, attributes: Sequence[Attribute] = ()
) -> Request:
    """Return the request that creates an interface, with data for its kind."""
    information = ("IFLA_LINKINFO", (("IFLA_INFO_KIND", kind), ("IFLA_INFO_DATA", data)))
    return request(Kind.NEW_LINK, CREATE_NEW, ("IFLA_IFNAME", name), *attributes, information)


@lru_cache
def _encoded(kind: Kind, family: int, attributes: tuple[Attribute, ...]) -> bytes:
    """Encode attributes, most of which are the same for many nodes; this takes pyroute2 long."""
    if not attributes:
        return b""
    message = _class_of(kind)()
    message["family"] = family
    message.update(_nested(attributes))
    message.encode()
    fixed = sum(struct.calcsize(f"={code}") for _, code in message.fields)
    return bytes(message.data[HEADER.size + fixed :])


def _nested(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    return {"attrs": [(name, _nested(content), *flags) for name, content, *flags in value]}


@cache
def _class_of(kind: Kind) -> Any:
    from pyroute2.netlink import nlmsg
    from pyroute2.netlink.rtnl.marshal import MarshalRtnl
    from pyroute2.netlink.rtnl.tcmsg import tcmsg

    class Qdisc(nlmsg):  # type: ignore[misc]
        """Takes a qdisc's options as the kernel does, as bytes."""

        fields = tcmsg.fields
        nla_map = (("TCA_UNSPEC", "none"), ("TCA_KIND", "asciiz"), ("TCA_OPTIONS", "cdata"))

    return Qdisc if kind is Kind.NEW_QDISC else MarshalRtnl.msg_map[kind]


class Rtnetlink:
    """A socket in the network namespace in which it is created."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._number = 0

    def ask(self, *requests: Request) -> list[Any]:
        """Have the kernel execute requests in this order; return its answers.

        The kernel executes the requests after one that it refuses, too, at least the next few.

        Raises:
            NetlinkError: of the first request that the kernel refused.
            OSError: the kernel's replies do not fit into the socket's buffer.
        """
        answers: list[Any] = []
        for start in range(0, len(requests), AT_ONCE):
            first = self._number + 1
            self._send(requests[start : start + AT_ONCE])
            answers += self._answers(first)
        return answers

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, requests: Sequence[Request]) -> None:
        data, last = bytearray(), self._number + len(requests)
        for kind, flags, body in requests:
            self._number += 1
            # To requests before the last, the kernel replies only if it refuses them.
            how = Flag.REQUEST | (Flag.ACKNOWLEDGE if self._number == last else 0) | flags
            data += HEADER.pack(HEADER.size + len(body), kind, how, self._number, 0) + body
        self._socket.send(data)

    def _answers(self, first: int) -> Iterator[Any]:
        """Yield the answers up to the last request's acknowledgement, or the end of its dump.

        Those to requests before the first were left by a call that was interrupted.
        """
        from pyroute2.netlink.exceptions import NetlinkError
        from pyroute2.netlink.rtnl.marshal import MarshalRtnl

        refusal, ended = 0, False
        while not ended:
            data, position = self._socket.recv(RECEIVE_BYTES), 0
            while position < len(data):
                length, kind, _, number, _ = HEADER.unpack_from(data, position)
                if number < first:
                    pass
                elif kind in (NLMSG_ERROR, NLMSG_DONE):
                    refusal = refusal or -CODE.unpack_from(data, position + HEADER.size)[0]
                    ended = number == self._number
                else:
                    answer = MarshalRtnl.msg_map[kind](data, offset=position)
                    answer.decode()
                    yield answer
                position += (length + 3) & ~3
        if refusal:
            raise NetlinkError(refusal)
