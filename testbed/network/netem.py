"""Handles kernels without netem: tries netem, and rejects or leaves out what needs it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from errno import ENOENT

from testbed.errors import HostError
from testbed.host.namespaces import LOOPBACK_INDEX, scratch
from testbed.network import tc
from testbed.network.qdiscs import Netem
from testbed.network.rtnetlink import Rtnetlink
from testbed.values.topology import LinkSpec, Missing, NodeSpec, Trunk
from testbed.values.units import Duration

HINT = (
    "Load it with `modprobe sch_netem`, or use a kernel built with CONFIG_NET_SCH_NETEM; "
    "`network: {missing: warn}` runs without these settings and records that in the results."
)


def kernel_has_netem() -> bool:
    """Return whether netem is available, by adding one in a temporary network namespace.

    Raises:
        HostError: it cannot be tried here: this process may not create namespaces or qdiscs.
    """
    from pyroute2.netlink.exceptions import NetlinkError

    trial = Netem(Duration(0.01), Duration(0), 0.0, None, limit_packets=10)
    try:
        with scratch(), Rtnetlink() as rtnetlink:
            tc.apply(rtnetlink, LOOPBACK_INDEX, trial)
    except NetlinkError as error:
        if error.code == ENOENT:
            return False
        raise HostError(f"cannot check whether the kernel has netem: {error}") from error
    except OSError as error:
        raise HostError(
            f"cannot check whether the kernel has netem: {error}", hint="Run as root."
        ) from error
    return True


def owned_links(
    nodes: Iterable[NodeSpec], trunks: Iterable[Trunk] = ()
) -> list[tuple[str, LinkSpec]]:
    """Return the links of nodes and between switches, each with its owner, like ``class slow``."""
    return [
        (f"class {node.device_class}" if node.device_class else node.name, node.link)
        for node in nodes
        if node.link is not None
    ] + [(f"link {trunk.name}", trunk.link) for trunk in trunks]


def check_netem(
    links: Iterable[tuple[str, LinkSpec]], *, missing: Missing, present: bool
) -> tuple[str, ...]:
    """Return what the links will lack because the kernel has no netem; empty if nothing.

    Args:
        links: with their owners, see ``owned_links``.
        missing: what to do about a link that needs netem.
        present: whether the kernel has netem.

    Returns:
        A line per device class and direction, such as ``class slow: up.delay 20ms``.

    Raises:
        HostError: a link needs netem, it is not ``present``, and ``missing`` is ``fail``.
    """
    if present:
        return ()
    wanted: dict[str, None] = {}
    for owner, link in links:
        for direction in ("up", "down"):
            shape = getattr(link, direction)
            for name in ("delay", "jitter", "loss"):
                if value := getattr(shape, name):
                    wanted[f"{owner}: {direction}.{name} {value}"] = None
    if wanted and missing == "fail":
        listed = "; ".join(wanted)
        raise HostError(f"this kernel has no netem, which is needed for {listed}.", hint=HINT)
    return tuple(wanted)


def without_netem(link: LinkSpec) -> LinkSpec:
    """Return the same link with only its rates and queues."""
    up, down = (
        shape.changed(delay=None, jitter=None, loss=None, loss_correlation=None)
        for shape in (link.up, link.down)
    )
    return replace(link, up=up, down=down)
