"""Puts a qdisc on an interface and reads back what the kernel made of it.

The messages are built here from whole bytes and kernel ticks, not by pyroute2's keyword arguments:
those take a rate as bytes a second if it is a number and as bits if it is a string, cut times to
microseconds, and in 0.9.2 to 0.9.7 cannot set netem's rate at all. ``nlm_request_batch`` is the one
way to send a message of one's own that works from 0.7.12 to 0.9.7 (``nlm_request`` of 0.9.7 fails).
"""

from __future__ import annotations

from dataclasses import dataclass
from errno import ENOENT
from typing import Any

from testbed.errors import HostError, NodeError
from testbed.network.qdiscs import TICK_SECONDS, Netem, Qdisc, TokenBucket, describe, differences
from testbed.units import Duration, Rate

LOSS_UNIT = 2**32 - 1
"""netem keeps a probability as a 32-bit share of one."""

LINKLAYER_ETHERNET = 1
"""With it the kernel computes transfer times itself; without, it expects a table of them."""

MISSING_HINT = (
    "A rate needs tbf (`modprobe sch_tbf`, CONFIG_NET_SCH_TBF), delay and loss need netem "
    "(`modprobe sch_netem`, CONFIG_NET_SCH_NETEM)."
)


@dataclass(frozen=True)
class QdiscCounters:
    """What passed a root qdisc since it was put there.

    Attributes:
        bytes: Ethernet bytes, with the header of every segment of a GSO packet.
        packets: segments.
        drops: packets that found the queue full, or that netem lost.
    """

    bytes: int
    packets: int
    drops: int


def apply(ip: Any, index: int, qdisc: Qdisc | None) -> None:
    """Make ``qdisc`` the root of interface ``index``, in place of what we put there before.

    Args:
        ip: an open ``IPRoute`` of the interface's network namespace.
        index: the interface.
        qdisc: what to put there; None takes away a qdisc of ours.

    Raises:
        NetlinkError: the kernel refused (code 2: it has no such qdisc).
    """
    from pyroute2.netlink import NLM_F_CREATE, NLM_F_REPLACE
    from pyroute2.netlink.rtnl import RTM_DELQDISC, RTM_NEWQDISC

    if qdisc is None:
        if read_back(ip, index) is not None:
            _request(ip, index, RTM_DELQDISC, 0)
        return
    # Without a handle of its own, one qdisc replaces another whatever their kinds are.
    create = NLM_F_CREATE | NLM_F_REPLACE
    _request(ip, index, RTM_NEWQDISC, create, attributes=_attributes(qdisc))


def read_back(ip: Any, index: int) -> Qdisc | None:
    """The root qdisc of interface ``index`` as the kernel has it; None for the kernel's default.

    Raises:
        NetlinkError: no such interface.
        NodeError: the root qdisc is of a kind that is never put there by this package.
    """
    message = _root(ip, index)
    if message is None:
        return None
    options = message.get_attr("TCA_OPTIONS")
    match message.get_attr("TCA_KIND"):
        case "tbf":
            return _token_bucket(options.get_attr("TCA_TBF_PARMS"))
        case "netem":
            return _netem(options)
        case kind:
            raise NodeError(f"interface {index} has a root qdisc of kind {kind}: found {options}")


def read_counters(ip: Any, index: int) -> QdiscCounters:
    """What the root qdisc of interface ``index`` let through and dropped.

    Raises:
        NodeError: the interface has no root qdisc of ours, so nothing is counted.
    """
    message = _root(ip, index)
    if message is None:
        raise NodeError(f"interface {index} has no root qdisc: nothing was counted")
    statistics = message.get_attr("TCA_STATS2")
    basic, queue = (statistics.get_attr(f"TCA_STATS_{part}") for part in ("BASIC", "QUEUE"))
    return QdiscCounters(bytes=basic["bytes"], packets=basic["packets"], drops=queue["drops"])


def shape(ip: Any, index: int, qdisc: Qdisc | None, *, where: str) -> Qdisc | None:
    """Apply, read back and compare.

    Args:
        ip: an open ``IPRoute`` of the interface's network namespace.
        index: the interface.
        qdisc: what to put there.
        where: node and direction, for the message: ``w3: up``.

    Returns:
        What the kernel has.

    Raises:
        HostError: the kernel has no such qdisc.
        NodeError: the kernel refused, or has something else than was asked for.
    """
    from pyroute2.netlink.exceptions import NetlinkError

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
                "buffer": _ticks(burst / rate.bytes_per_second),
                "limit": limit,
            }
            return [
                ("TCA_KIND", "tbf"),
                ("TCA_OPTIONS", {"attrs": [["TCA_TBF_PARMS", parameters]]}),
            ]
        case Netem(delay, jitter, loss, rate, limit):
            whole = round(rate.bytes_per_second) if rate is not None else 0
            options = {
                "delay": _ticks(delay),
                "jitter": _ticks(jitter),
                "loss": round(loss * LOSS_UNIT),
                "limit": limit,
                "attrs": [["TCA_NETEM_RATE", {"rate": whole}]],
            }
            return [("TCA_KIND", "netem"), ("TCA_OPTIONS", options)]


def _token_bucket(parameters: Any) -> TokenBucket:
    rate = parameters["rate"]
    return TokenBucket(
        rate=Rate(rate * 8),
        burst_bytes=round(parameters["buffer"] * TICK_SECONDS * rate),
        limit_bytes=parameters["limit"],
    )


def _netem(options: Any) -> Netem:
    rate = options.get_attr("TCA_NETEM_RATE")
    return Netem(
        delay=_duration(options["delay"]),
        jitter=_duration(options["jitter"]),
        loss=options["loss"] / LOSS_UNIT,
        rate=Rate(rate["rate"] * 8) if rate and rate["rate"] else None,
        limit_packets=options["limit"],
    )


def _ticks(seconds: float) -> int:
    return round(seconds / TICK_SECONDS)


def _duration(ticks: int) -> Duration:
    return Duration(round(ticks * TICK_SECONDS, 9))


def _root(ip: Any, index: int) -> Any:
    """The kernel's message about the root qdisc, or None where it is the kernel's default.

    One interface is asked for: a dump would list those of all ports for every port that is built.
    Kernels before 6.8 answer only with the echo flag.
    """
    from pyroute2.netlink import NLM_F_ECHO
    from pyroute2.netlink.rtnl import RTM_GETQDISC, RTM_NEWQDISC

    for message in _request(ip, index, RTM_GETQDISC, NLM_F_ECHO):
        # A qdisc that nobody put there (noqueue, once the interface is up) has no handle.
        if message["header"]["type"] == RTM_NEWQDISC and message["handle"]:
            return message
    return None


def _request(
    ip: Any, index: int, kind: int, flags: int, *, attributes: list[tuple[str, Any]] | None = None
) -> tuple[Any, ...]:
    from pyroute2.netlink import NLM_F_ACK, NLM_F_REQUEST
    from pyroute2.netlink.rtnl import TC_H_ROOT
    from pyroute2.netlink.rtnl.tcmsg import tcmsg

    message = tcmsg()
    message["index"] = index
    message["parent"] = TC_H_ROOT
    message["attrs"] = attributes or []
    message["header"]["type"] = kind
    message["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK | flags
    return tuple(ip.nlm_request_batch([message]))
