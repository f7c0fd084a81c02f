"""Sets the qdisc of an interface and reads back the kernel's version of it.

The messages are built here from whole bytes and kernel ticks, not by pyroute2's keyword arguments:
those take a rate as bytes per second if it is a number and as bits if it is a string, and truncate
times to microseconds. ``nlm_request_batch`` sends a custom message; ``nlm_request`` of 0.9.7 fails.
"""

from __future__ import annotations

from dataclasses import replace
from errno import ENOENT
from functools import cache, partial
from typing import Any

from testbed.errors import HostError, NodeError
from testbed.network import netem_options
from testbed.network.qdiscs import TICK_SECONDS, Netem, Qdisc, TokenBucket, describe, differences
from testbed.values.units import Rate

LINKLAYER_ETHERNET = 1
"""With it the kernel computes transfer times itself; without it, it expects a table of them."""

MISSING_HINT = (
    "A rate needs tbf (`modprobe sch_tbf`, CONFIG_NET_SCH_TBF), delay and loss need netem "
    "(`modprobe sch_netem`, CONFIG_NET_SCH_NETEM)."
)


def apply(ip: Any, index: int, qdisc: Qdisc | None) -> None:
    """Make ``qdisc`` the root of interface ``index``, replacing our previous one.

    A qdisc of the same kind is changed in place and keeps its packets. None removes
    our qdisc. ``ip`` is an open ``IPRoute`` of the interface's network namespace.

    Raises:
        NetlinkError: the kernel refused (code 2: it has no such qdisc).
    """
    from pyroute2.netlink import NLM_F_CREATE, NLM_F_REPLACE
    from pyroute2.netlink.rtnl import RTM_DELQDISC, RTM_NEWQDISC

    if qdisc is None:
        if read_back(ip, index) is not None:
            _request(ip, index, RTM_DELQDISC, 0)
        return
    # Without a handle of its own, one qdisc replaces another of any kind.
    put = partial(_request, ip, index, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE)
    bucket = qdisc.bucket if isinstance(qdisc, Netem) else None
    if isinstance(qdisc, Netem) and bucket is None:
        found = read_back(ip, index)
        if isinstance(found, Netem) and found.bucket is not None:
            _request(ip, index, RTM_DELQDISC, 0)  # changed in place, it would keep its bucket
    put(attributes=_attributes(qdisc))
    if bucket is not None:
        put(parent=_leaf(_root(ip, index)), attributes=_attributes(bucket))


def read_back(ip: Any, index: int) -> Qdisc | None:
    """Return the root qdisc of interface ``index`` in the kernel; None for the default qdisc.

    Raises:
        NetlinkError: no such interface.
        NodeError: the root qdisc is of a kind that this package never sets.
    """
    message = _root(ip, index)
    if message is None:
        return None
    options = message.get_attr("TCA_OPTIONS")
    match message.get_attr("TCA_KIND"):
        case "tbf":
            return _token_bucket(options.get_attr("TCA_TBF_PARMS"))
        case "netem":
            return replace(_netem(options), bucket=_bucket_below(ip, index, message))
        case kind:
            raise NodeError(f"interface {index} has an unexpected root qdisc {kind}: {options}")


def shape(ip: Any, index: int, qdisc: Qdisc | None, *, where: str) -> Qdisc | None:
    """Set the root qdisc of an interface, read it back and compare; return the kernel's qdisc.

    ``where`` names node and direction in error messages: ``w3: up``.

    Raises:
        HostError: the kernel has no qdisc of this kind.
        NodeError: the kernel refused the request, or set another qdisc.
    """
    from pyroute2.netlink.exceptions import NetlinkError

    if qdisc is None and read_back(ip, index) is None:  # like a new interface
        return None
    try:
        apply(ip, index, qdisc)
    except NetlinkError as error:
        message = f"{where}: the kernel refused {describe(qdisc)}: {error}"
        if error.code == ENOENT:
            raise HostError(f"{message}.", hint=MISSING_HINT) from error
        raise NodeError(message) from error
    found = read_back(ip, index)
    wrong = differences(qdisc, found)
    if wrong:
        raise NodeError(f"{where}: {'; '.join(wrong)}")
    return found


def _attributes(qdisc: Qdisc) -> list[tuple[str, Any]]:
    match qdisc:
        case TokenBucket(rate, burst, limit):
            parameters = {
                "rate": round(rate.bytes_per_second),
                "rate___reserved": LINKLAYER_ETHERNET,  # pyroute2's name for the link layer
                "buffer": round(burst / rate.bytes_per_second / TICK_SECONDS),
                "limit": limit,
            }
            options = {"attrs": [["TCA_TBF_PARMS", parameters]]}
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


def _bucket_below(ip: Any, index: int, root: Any) -> TokenBucket | None:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        message = _root(ip, index, parent=_leaf(root))
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


def _root(ip: Any, index: int, *, parent: int | None = None) -> Any:
    """Return the kernel's message about the root qdisc, or None for the kernel's default.

    With ``parent`` it is about the qdisc below that handle instead.

    Only one interface is queried: a dump would list all ports for every port that is created.
    Kernels before 6.8 answer only with the echo flag.
    """
    from pyroute2.netlink import NLM_F_ECHO
    from pyroute2.netlink.rtnl import RTM_GETQDISC, RTM_NEWQDISC

    for message in _request(ip, index, RTM_GETQDISC, NLM_F_ECHO, parent=parent):
        # A default qdisc (noqueue, once the interface is up) has no handle.
        if message["header"]["type"] == RTM_NEWQDISC and message["handle"]:
            return message
    return None


@cache
def _raw_message() -> type[Any]:
    from pyroute2.netlink import nlmsg
    from pyroute2.netlink.rtnl.tcmsg import tcmsg

    class Raw(nlmsg):  # type: ignore[misc]
        """Encodes a qdisc's options as the kernel does, as bytes."""

        fields = tcmsg.fields
        nla_map = (("TCA_UNSPEC", "none"), ("TCA_KIND", "asciiz"), ("TCA_OPTIONS", "cdata"))

    return Raw


def _request(
    ip: Any,
    index: int,
    kind: int,
    flags: int,
    *,
    parent: int | None = None,
    attributes: list[tuple[str, Any]] | None = None,
) -> tuple[Any, ...]:
    from pyroute2.netlink import NLM_F_ACK, NLM_F_REQUEST
    from pyroute2.netlink.rtnl import TC_H_ROOT
    from pyroute2.netlink.rtnl.tcmsg import tcmsg

    raw = any(isinstance(value, bytes) for _, value in attributes or [])
    message = _raw_message()() if raw else tcmsg()
    message["index"] = index
    message["parent"] = TC_H_ROOT if parent is None else parent
    message["attrs"] = attributes or []
    message["header"]["type"] = kind
    message["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK | flags
    return tuple(ip.nlm_request_batch([message]))
