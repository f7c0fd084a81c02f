"""Sets the qdisc of an interface and reads back the kernel's version of it.

The messages are built here from whole bytes and kernel ticks, not by pyroute2's keyword arguments:
those take a rate as bytes per second if it is a number and as bits if it is a string, and truncate
times to microseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from errno import ENOENT
from functools import partial
from typing import Any

from testbed.errors import HostError, NodeError
from testbed.network import netem_options
from testbed.network.qdiscs import TICK_SECONDS, Netem, Qdisc, TokenBucket, describe, differences
from testbed.network.rtnetlink import CREATE_OR_REPLACE, Flag, Kind, Rtnetlink, request
from testbed.values.units import Rate

ROOT = 0xFFFFFFFF
"""The parent of an interface's root qdisc."""

PARAMETERS = 1
"""TCA_TBF_PARMS."""

TOKEN_BUCKET = struct.Struct("=BBHhHI12xII4x")
"""struct tc_tbf_qopt: the rate with its link layer, no peak rate, limit, and size of the bucket."""

LINKLAYER_ETHERNET = 1
"""With it the kernel computes transfer times itself; without it, it expects a table of them."""

MISSING_HINT = (
    "A rate needs tbf (`modprobe sch_tbf`, CONFIG_NET_SCH_TBF), delay and loss need netem "
    "(`modprobe sch_netem`, CONFIG_NET_SCH_NETEM)."
)


def apply(rtnetlink: Rtnetlink, index: int, qdisc: Qdisc | None) -> None:
    """Make ``qdisc`` the root of interface ``index``, replacing our previous one.

    A qdisc of the same kind is changed in place and keeps its packets. None removes
    our qdisc. ``rtnetlink`` is a socket in the interface's network namespace.

    Raises:
        NetlinkError: the kernel refused (code 2: it has no such qdisc).
    """
    if qdisc is None:
        if read_back(rtnetlink, index) is not None:
            _request(rtnetlink, index, Kind.DELETE_QDISC, 0)
        return
    # Without a handle of its own, one qdisc replaces another of any kind.
    put = partial(_request, rtnetlink, index, Kind.NEW_QDISC, CREATE_OR_REPLACE)
    bucket = qdisc.bucket if isinstance(qdisc, Netem) else None
    if isinstance(qdisc, Netem) and bucket is None:
        found = read_back(rtnetlink, index)
        if isinstance(found, Netem) and found.bucket is not None:
            # Changed in place, it would keep its bucket.
            _request(rtnetlink, index, Kind.DELETE_QDISC, 0)
    put(attributes=_attributes(qdisc))
    if bucket is not None:
        put(parent=_leaf(_root(rtnetlink, index)), attributes=_attributes(bucket))


def read_back(rtnetlink: Rtnetlink, index: int) -> Qdisc | None:
    """Return the root qdisc of interface ``index`` in the kernel; None for the default qdisc.

    Raises:
        NetlinkError: no such interface.
        NodeError: the root qdisc is of a kind that this package never sets.
    """
    message = _root(rtnetlink, index)
    if message is None:
        return None
    options = message.get_attr("TCA_OPTIONS")
    match message.get_attr("TCA_KIND"):
        case "tbf":
            return _token_bucket(options.get_attr("TCA_TBF_PARMS"))
        case "netem":
            return replace(_netem(options), bucket=_bucket_below(rtnetlink, index, message))
        case kind:
            raise NodeError(f"interface {index} has an unexpected root qdisc {kind}: {options}")


def shape(rtnetlink: Rtnetlink, index: int, qdisc: Qdisc | None, *, where: str) -> Qdisc | None:
    """Set the root qdisc of an interface, read it back and compare; return the kernel's qdisc.

    ``where`` names node and direction in error messages: ``w3: up``.

    Raises:
        HostError: the kernel has no qdisc of this kind.
        NodeError: the kernel refused the request, or set another qdisc.
    """
    from pyroute2.netlink.exceptions import NetlinkError

    if qdisc is None and read_back(rtnetlink, index) is None:  # like a new interface
        return None
    try:
        apply(rtnetlink, index, qdisc)
    except NetlinkError as error:
        message = f"{where}: the kernel refused {describe(qdisc)}: {error}"
        if error.code == ENOENT:
            raise HostError(f"{message}.", hint=MISSING_HINT) from error
        raise NodeError(message) from error
    found = read_back(rtnetlink, index)
    wrong = differences(qdisc, found)
    if wrong:
        raise NodeError(f"{where}: {'; '.join(wrong)}")
    return found


def _attributes(qdisc: Qdisc) -> list[tuple[str, Any]]:
    match qdisc:
        case TokenBucket(rate, burst, limit):
            bytes_per_second = round(rate.bytes_per_second)
            buffer = round(burst / rate.bytes_per_second / TICK_SECONDS)
            numbers = (0, LINKLAYER_ETHERNET, 0, 0, 0, bytes_per_second, limit, buffer)
            options = netem_options.attribute(PARAMETERS, TOKEN_BUCKET.pack(*numbers))
            return [("TCA_KIND", "tbf"), ("TCA_OPTIONS", options)]
        case Netem():
            return [("TCA_KIND", "netem"), ("TCA_OPTIONS", netem_options.encode(qdisc))]


def _token_bucket(parameters: Any) -> TokenBucket:
    rate = parameters["rate"]
    return TokenBucket(
        rate=Rate(rate * 8),
        burst_bytes=round(parameters["buffer"] * TICK_SECONDS * rate),
        limit_bytes=parameters["limit"],
    )


def _netem(options: Any) -> Netem:
    """Decode the bytes behind pyroute2's attributes, which leave out what pyroute2 lacks."""
    header = 4
    return netem_options.decode(
        bytes(options.data[options.offset + header : options.offset + options.length])
    )


def _bucket_below(rtnetlink: Rtnetlink, index: int, root: Any) -> TokenBucket | None:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        message = _root(rtnetlink, index, parent=_leaf(root))
    except NetlinkError as error:
        if error.code == ENOENT:
            return None
        raise
    if message is None:
        return None
    if message.get_attr("TCA_KIND") != "tbf":
        raise NodeError(f"interface {index} has a {message.get_attr('TCA_KIND')} below its netem")
    return _token_bucket(message.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS"))


def _leaf(root: Any) -> int:
    """Return the handle of the only qdisc below a netem."""
    return int(root["handle"]) | 1


def _root(rtnetlink: Rtnetlink, index: int, *, parent: int | None = None) -> Any:
    """Return the kernel's message about the root qdisc, or None for the kernel's default.

    With ``parent`` it is about the qdisc below that handle instead.

    Only one interface is queried: a dump would list all ports for every port that is created.
    Kernels before 6.8 answer only with the echo flag.
    """
    for message in _request(rtnetlink, index, Kind.GET_QDISC, Flag.ECHO, parent=parent):
        if message["handle"]:  # a default qdisc (noqueue, once the interface is up) has none
            return message
    return None


def _request(
    rtnetlink: Rtnetlink,
    index: int,
    kind: Kind,
    flags: int,
    *,
    parent: int | None = None,
    attributes: Sequence[tuple[str, Any]] = (),
) -> list[Any]:
    parent = ROOT if parent is None else parent
    return rtnetlink.ask(request(kind, flags, *attributes, index=index, parent=parent))
