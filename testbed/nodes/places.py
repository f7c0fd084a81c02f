"""Where nodes are on the switch, and whose uids they have."""

from __future__ import annotations

from ipaddress import IPv4Address

from testbed.scenario.links import link_spec
from testbed.scenario.schema import Link, Scenario
from testbed.seeds import stream
from testbed.topology import LinkSpec

PREFIX = 16
FIRST_ADDRESS = IPv4Address("10.77.0.1")

PS_UID = 20000
EVALUATOR_UID = 20001
FIRST_WORKER_UID = 20010


def address_of(number: int) -> tuple[str, str]:
    """IPv4 and MAC address of the ``number``-th node on the switch; the PS is number 0."""
    address = FIRST_ADDRESS + number
    return str(address), ":".join(f"{byte:02x}" for byte in (0x02, 0x00, *address.packed))


def link_at(number: int, scenario: Scenario, link: Link) -> LinkSpec:
    """The link of the ``number``-th node on the switch, in real units."""
    address, mac = address_of(number)
    seed = int(stream(scenario.seed, "link", address).integers(2**53))  # exact in any JSON
    return link_spec(link, address=address, mac=mac, time_scale=scenario.time_scale, seed=seed)
