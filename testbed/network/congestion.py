"""One congestion control for every run, whatever the host's own default is.

It decides how much of a model is sent twice: through a queue of 100 ms at 10 mbit, BBR sent 7 to
11 % of an 847 KB pull again and cubic 0.3 %. A namespace may not choose its default freely
(``tcp_allowed_congestion_control`` binds it), but its routes may name what they want.
"""

from __future__ import annotations

from errno import EINVAL
from ipaddress import IPv4Interface
from socket import AF_INET
from typing import Any

from testbed.network.ends import End

CONGESTION_CONTROL = "cubic"
"""Linux's default; what devices have unless somebody chose otherwise."""

RTAX_CC_ALGO = 16
TABLE_MAIN, PROTOCOL_KERNEL, SCOPE_LINK, TYPE_UNICAST = 254, 2, 253, 1
UNKNOWN_ALGORITHM = EINVAL


def fix_congestion_control(end: End, address: str, *, prefix: int) -> str:
    """Have every connection through ``end``, which has this address, use CONGESTION_CONTROL.

    Returns:
        CONGESTION_CONTROL, or an empty string where the kernel lacks it: then the host's default
        is in force.

    Raises:
        NetlinkError: the kernel refused for another reason.
    """
    from pyroute2.netlink.exceptions import NetlinkError

    interface = IPv4Interface(f"{address}/{prefix}")
    try:
        tuple(end.ip.nlm_request_batch([_route(end, interface)]))
    except NetlinkError as error:
        if error.code == UNKNOWN_ALGORITHM:
            return ""
        raise
    return CONGESTION_CONTROL


def _route(end: End, interface: IPv4Interface) -> Any:
    """The subnet's route as the kernel made it, with the algorithm added."""
    from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST
    from pyroute2.netlink.rtnl import RTM_NEWROUTE
    from pyroute2.netlink.rtnl.rtmsg import rtmsg

    class Route(rtmsg):  # type: ignore[misc]
        """The metrics of pyroute2 0.7 end before this one."""

        class metrics(rtmsg.metrics):  # type: ignore[misc]  # noqa: N801 - looked up by name
            nla_map = ((RTAX_CC_ALGO, "RTAX_CC_ALGO", "asciiz"),)

    route = Route()
    route["family"] = AF_INET
    route["dst_len"] = interface.network.prefixlen
    route["table"] = TABLE_MAIN
    route["proto"] = PROTOCOL_KERNEL
    route["scope"] = SCOPE_LINK
    route["type"] = TYPE_UNICAST
    route["attrs"] = [
        ("RTA_DST", str(interface.network.network_address)),
        ("RTA_OIF", end.index),
        ("RTA_PREFSRC", str(interface.ip)),
        ("RTA_METRICS", {"attrs": [("RTAX_CC_ALGO", CONGESTION_CONTROL)]}),
    ]
    route["header"]["type"] = RTM_NEWROUTE
    route["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE
    return route
