"""The state of a bridge's port: whether it forwards frames.

The message is built here: pyroute2's ``brport(state=...)`` takes the interface down instead, so
that the other end would lose its carrier.
"""

from __future__ import annotations

import socket
import struct

from testbed.network.interfaces import Interface

PROTOCOL_INFORMATION = 12 | 0x8000
"""IFLA_PROTINFO, with NLA_F_NESTED."""

PORT_STATE = 1
"""IFLA_BRPORT_STATE, inside it."""

DISABLED, FORWARDING = 0, 3
"""The kernel keeps a disabled port disabled as long as its carrier is up."""


def set_port_forwarding(port: Interface, *, forwarding: bool) -> None:
    """Make a port forward frames, or drop all of them, in both directions.

    Raises:
        NetlinkError: the kernel refused.
    """
    from pyroute2.netlink import NLM_F_ACK, NLM_F_REQUEST, nlmsg
    from pyroute2.netlink.rtnl import RTM_SETLINK
    from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

    class State(nlmsg):  # type: ignore[misc]
        """Encodes the bridge's attributes as the kernel does, as bytes."""

        fields = ifinfmsg.fields
        nla_map = ((PROTOCOL_INFORMATION, "PROTOCOL_INFORMATION", "cdata"),)

    message = State()
    message["family"] = socket.AF_BRIDGE
    message["index"] = port.index
    state = struct.pack("=HHB3x", 5, PORT_STATE, FORWARDING if forwarding else DISABLED)
    message["attrs"] = [("PROTOCOL_INFORMATION", state)]
    message["header"]["type"] = RTM_SETLINK
    message["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK
    tuple(port.ip.nlm_request_batch([message]))
