"""A link as requested, and as the kernel has it. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from testbed.network.offloads import Offloads
from testbed.network.qdiscs import Netem, Qdisc, describe, differences


@dataclass(frozen=True)
class AttachedLink:
    """A link as requested and as the kernel has it.

    Attributes:
        node: the node's name, and the name of its port; or the trunk's name, whose ``up`` is at
            its first switch and ``down`` at its second.
        up: requested at the node's end, ``eth0``; None if nothing is shaped.
        down: requested at the switch's end, the port.
        congestion_control: of the node's connections; empty for the host's default.
        mtu: requested at both ends; found at the node's and at the switch's.
        left_out: what ``missing: warn`` left out, such as ``class slow: up.delay 20ms``.
    """

    node: str
    up: Qdisc | None
    up_found: Qdisc | None
    down: Qdisc | None
    down_found: Qdisc | None
    node_offloads: Offloads
    port_offloads: Offloads
    congestion_control: str
    left_out: tuple[str, ...]
    mtu: int
    mtus_found: tuple[int, int]

    def as_dict(self) -> dict[str, object]:
        """Return the same as plain data, the qdiscs as text."""
        qdiscs = ("up", "up_found", "down", "down_found")
        return {
            **asdict(self),
            **{name: describe(getattr(self, name)) for name in qdiscs},
            "left_out": list(self.left_out),
            "unseeded": self.unseeded(),
            "differences": self.differences(),
        }

    def unseeded(self) -> list[str]:
        """Return the directions with irreproducible draws: no seed in the kernel (before 6.6)."""
        directions = {"up": self.up_found, "down": self.down_found}
        return [
            direction
            for direction, found in directions.items()
            if isinstance(found, Netem) and (found.jitter or found.loss) and found.seed is None
        ]

    def differences(self) -> list[str]:
        """Return the differences between kernel and request, with their direction."""
        directions = {"up": (self.up, self.up_found), "down": (self.down, self.down_found)}
        return [
            f"{direction}: {difference}"
            for direction, pair in directions.items()
            for difference in differences(*pair)
        ] + [
            f"{direction}: mtu: configured {self.mtu}, the kernel has {found}"
            for direction, found in zip(directions, self.mtus_found, strict=True)
            if found != self.mtu
        ]
