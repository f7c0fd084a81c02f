"""Counts what each two nodes of a workload exchange at the switch, whatever runs over IPv4.

A dynamic set of nftables, in the bridge's hook for received frames: the kernel adds an element with
a counter for each pair of addresses at its first packet, so pairs that never talk cost nothing.
The messages are built here: neither the command ``nft`` nor its library is needed
(linux/netfilter/nf_tables.h).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from testbed.errors import HostError
from testbed.network.sock_diag import (
    HEADER,
    NLMSG_ERROR,
    RECEIVE_BYTES,
    attributes_of,
    dump,
    messages_of,
)

MOST_PAIRS = 20_000
"""Pairs of addresses, each way by itself, that are counted one by one; further ones are not."""

ANSWER_SECONDS = 2.0
"""The kernel answers at once; the agent does nothing else while it waits."""

TRUNK_GROUP = 1
"""Group of the interfaces between switches, at which a frame is not counted again."""

ETHERNET_BYTES = 14
NETLINK_NETFILTER = 12
SUBSYSTEM = 10 << 8
BATCH_BEGIN, BATCH_END = 0x10, 0x11
NEW_TABLE, NEW_CHAIN, NEW_RULE, NEW_SET, DUMP_ELEMENTS = (SUBSYSTEM | n for n in (0, 3, 6, 9, 13))
REQUEST, ACKNOWLEDGED, CREATE, APPEND = 1, 4, 0x400, 0x800
NESTED = 0x8000
BRIDGE_FAMILY = 7
TABLE, SET, CHAIN = "testbed", "pairs", "received"

PREROUTING, FILTER_PRIORITY = 0, 0
PROTOCOL, IIF_GROUP, NETWORK_HEADER, EVALUATED, UPDATE, EQUAL = 1, 21, 1, 0x20, 1, 0
IPV4 = b"\x08\x00"
ADDRESSES_AT, ADDRESSES_BYTES = 12, 8
"""Where an IPv4 header has source and destination."""
KEY_REGISTER, META_REGISTER = 1, 8


class Frames(NamedTuple):
    """What a node has sent to another one: Ethernet bytes, and packets (a GSO packet is one)."""

    frame_bytes: int
    packets: int


class FrameCounts:
    """The counters of all pairs, in the current network namespace, which is the switch's.

    Raises:
        HostError: the kernel has no nf_tables for bridges.
    """

    def __init__(self) -> None:
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self._netlink.settimeout(ANSWER_SECONDS)
        self._known: dict[tuple[str, str], Frames] = {}
        self._netlink.send(_setup())
        for _ in range(4):  # acknowledgements: table, set, chain, rule
            for kind, message in self._received():
                if kind == NLMSG_ERROR and (number := struct.unpack_from("=i", message)[0]):
                    self._netlink.close()
                    what = f"the kernel does not count pairs of nodes (error {-number})."
                    raise HostError(what, hint="It needs nf_tables (CONFIG_NF_TABLES_BRIDGE).")

    def take(self) -> Mapping[str, Mapping[str, Frames]]:
        """Return what has changed since the last call: totals by source and destination.

        Raises:
            HostError, OSError: the kernel does not answer.
        """
        changed: dict[str, dict[str, Frames]] = {}
        for pair, frames in self._elements():
            if self._known.get(pair) != frames:
                self._known[pair] = frames
                changed.setdefault(pair[0], {})[pair[1]] = frames
        return changed

    def _elements(self) -> Iterator[tuple[tuple[str, str], Frames]]:
        body = _family_header(BRIDGE_FAMILY) + _text(1, TABLE) + _text(2, SET)
        what = "pairs of nodes"
        for message in dump(self._netlink, DUMP_ELEMENTS, body, self._received, what=what):
            yield from elements_of(message)

    def _received(self) -> Iterator[tuple[int, bytes]]:
        return messages_of(self._netlink.recv(RECEIVE_BYTES))


def frame_counts() -> FrameCounts | None:
    """Return the counters; None if the kernel, or this user's rights, do not permit any."""
    with suppress(HostError, OSError):
        return FrameCounts()
    return None


def _setup() -> bytes:
    """Return the messages that create the set, and the rule that updates it."""
    made, counter = REQUEST | CREATE | ACKNOWLEDGED, _text(1, "counter") + _nest(2)
    pairs = [_text(1, TABLE), _text(2, SET), _number(3, EVALUATED), _number(4, 0)]
    pairs += [_number(5, ADDRESSES_BYTES), _nest(9, _number(1, MOST_PAIRS)), _number(10, 1)]
    hook = _nest(4, _number(1, PREROUTING), _number(2, FILTER_PRIORITY))
    update = [_text(1, SET), _number(3, UPDATE), _number(4, KEY_REGISTER), _nest(7, counter)]
    rule = _nest(
        4,
        *_require(IIF_GROUP, bytes(4)),  # 0: of a port, not of a trunk
        *_require(PROTOCOL, IPV4),
        _expression(
            "payload",
            *(_number(1, KEY_REGISTER), _number(2, NETWORK_HEADER)),
            *(_number(3, ADDRESSES_AT), _number(4, ADDRESSES_BYTES)),
        ),
        _expression("dynset", *update),
    )
    return b"".join(
        [
            _message(BATCH_BEGIN, REQUEST, b"", family=0, resource=10),
            _message(NEW_TABLE, made, _text(1, TABLE)),
            _message(NEW_SET, made, b"".join([*pairs, _nest(17, counter)])),
            _message(
                NEW_CHAIN, made, _text(1, TABLE) + _text(3, CHAIN) + hook + _text(7, "filter")
            ),
            _message(NEW_RULE, made | APPEND, _text(1, TABLE) + _text(2, CHAIN) + rule),
            _message(BATCH_END, REQUEST, b"", family=0, resource=10),
        ]
    )


def _require(key: int, value: bytes) -> tuple[bytes, bytes]:
    """Return the expressions that end a rule unless a frame's property has this value."""
    wanted = _nest(3, _attribute(1, value))
    return (
        _expression("meta", _number(1, META_REGISTER), _number(2, key)),
        _expression("cmp", _number(1, META_REGISTER), _number(2, EQUAL), wanted),
    )


def elements_of(message: bytes) -> Iterator[tuple[tuple[str, str], Frames]]:
    """Decode the elements of one message of a dump: source and destination, and their totals."""
    lists = (value for kind, value in attributes_of(message, 4) if kind == 3)
    for element in (value for found in lists for _, value in attributes_of(found, 0)):
        parts = dict(attributes_of(element, 0))
        key = dict(attributes_of(parts[1], 0))[1]
        counter = dict(attributes_of(dict(attributes_of(parts[7], 0))[2], 0))
        (length,), (packets,) = (struct.unpack(">Q", counter[kind]) for kind in (1, 2))
        pair = (socket.inet_ntoa(key[:4]), socket.inet_ntoa(key[4:]))
        yield pair, Frames(length + ETHERNET_BYTES * packets, packets)


def _message(
    kind: int, flags: int, body: bytes, *, family: int = BRIDGE_FAMILY, resource: int = 0
) -> bytes:
    whole = _family_header(family, resource) + body
    return HEADER.pack(HEADER.size + len(whole), kind, flags, 1, 0) + whole


def _family_header(family: int, resource: int = 0) -> bytes:
    return struct.pack(">BBH", family, 0, resource)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _nest(kind: int, *parts: bytes) -> bytes:
    return _attribute(kind | NESTED, b"".join(parts))


def _text(kind: int, text: str) -> bytes:
    return _attribute(kind, text.encode() + b"\0")


def _number(kind: int, number: int) -> bytes:
    return _attribute(kind, struct.pack(">I", number))


def _expression(name: str, *attributes: bytes) -> bytes:
    return _nest(1, _text(1, name), _nest(2, *attributes))
