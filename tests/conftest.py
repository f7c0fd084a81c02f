"""What tests need of the machine, by marker. What it lacks is skipped, with the reason printed.

``pytest`` runs whatever the machine can. ``pytest --quick`` (``make test``) leaves out what needs
root or takes long, also with a reason.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21


@cache
def lacks_root() -> str:
    """Why namespaces, cgroups and tc cannot be had; empty if they can."""
    status = Path("/proc/self/status")
    if not status.exists():
        return "needs Linux"
    fields = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
    effective = int(fields["CapEff"], 16)
    if os.geteuid() != 0 or not all(effective >> cap & 1 for cap in (CAP_NET_ADMIN, CAP_SYS_ADMIN)):
        return "needs root with CAP_NET_ADMIN and CAP_SYS_ADMIN: sudo make privileged"
    return ""


@cache
def lacks_namespaces() -> str:
    """Why this user can make no containers; empty if it can, as root or as any other user."""
    if os.geteuid() == 0:
        return lacks_root()
    from testbed.errors import HostError
    from testbed.runtimes.users import find_users

    try:
        find_users()
    except HostError as refusal:
        return f"needs namespaces: {refusal}"
    return ""


@cache
def lacks_netem() -> str:
    """Why no link can have a delay, jitter or loss; empty if it can."""
    if reason := lacks_root():
        return reason
    from testbed.network.netem import kernel_has_netem

    return "" if kernel_has_netem() else "needs a kernel with netem (CONFIG_NET_SCH_NETEM)"


@cache
def lacks_docker() -> str:
    """Why no Docker engine can be used; empty if one can."""
    address = urlsplit(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    if address.scheme == "unix":
        return _refusal("a Docker engine", socket.AF_UNIX, address.path)
    return _refusal("a Docker engine", socket.AF_INET, (address.hostname, address.port or 2375))


@cache
def lacks_kafka() -> str:
    """Why no Kafka broker can be used; empty if one can."""
    address = os.environ.get("TESTBED_KAFKA", "")
    if not address:
        return "needs a Kafka broker: name it as TESTBED_KAFKA=host:port"
    host, _, port = address.rpartition(":")
    return _refusal("a Kafka broker", socket.AF_INET, (host, int(port)))


def _refusal(what: str, family: socket.AddressFamily, address: object) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(2)
        try:
            client.connect(address)
        except OSError as error:
            return f"needs {what}, at {address}: {error.strerror or error}"
    return ""


LACKS = {
    "root": lacks_root,
    "namespaces": lacks_namespaces,
    "netem": lacks_netem,
    "docker": lacks_docker,
    "kafka": lacks_kafka,
}
NOT_QUICK = ("root", "namespaces", "docker", "slow")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="skip what needs root or takes long, saying so"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, lacks in LACKS.items():
        if item.get_closest_marker(marker) and (reason := lacks()):
            pytest.skip(reason)
    if item.config.getoption("quick"):
        for marker in NOT_QUICK:
            if item.get_closest_marker(marker):
                pytest.skip(f"marked {marker}, which --quick leaves out: make privileged")
