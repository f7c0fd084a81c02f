"""The hosts of a Docker Swarm, as its manager lists them, and the engine of each.

A Swarm says which hosts there are, with their labels, resources and health. It does not say how
their engines are reached: this host's is the one at DOCKER_HOST, and the node of every other host
has a label with the address of its engine, see ``reach``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import AddressValueError, IPv4Address
from threading import Thread
from typing import TYPE_CHECKING, Any

from testbed.errors import HostError
from testbed.runtimes.docker.containers import LABEL
from testbed.runtimes.docker.engine import connect, describe, engine_faults, forget
from testbed.runtimes.docker.image import check_image
from testbed.runtimes.docker.reach import NoEngineError
from testbed.runtimes.parallel import in_parallel
from testbed.values.topology import HostSpec
from testbed.values.units import Size

if TYPE_CHECKING:
    from docker import APIClient

ENGINE_LABEL = f"{LABEL}engine"
ADDRESS_LABEL = f"{LABEL}address"
ACTIVE, READY, DRAIN, LOCKED = "active", "ready", "drain", "locked"
CPU_NANOS = 1e9
CONTAINERD = ["driver-type", "io.containerd.snapshotter.v1"]
"""In ``docker info`` of an engine whose images containerd keeps."""

START = "Start it, or what forwards its socket"


@dataclass(frozen=True)
class SwarmHost:
    """One node of the Swarm.

    Attributes:
        identity: the Swarm's own name for it. Commands have it: a host that has joined again is
            listed twice under its name.
        address: at which other hosts reach it: that of its label, or its IP address in the Swarm.
        engine: address of its engine, see ``reach``; empty if its node has no label.
        labels: of the Swarm's node.
        cpus, memory_bytes: what its engine has.
        version: of its engine.
        image_store: ``containerd``, or ``docker`` for one of Docker's own storage drivers; empty if
            it was not asked. The ID of an image is another one in the other.
        availability: ``active``, ``pause`` or ``drain``.
        state: ``ready``, ``down``, ``unknown`` or ``disconnected``.
        here: whether it is the host of the engine at DOCKER_HOST.
        image: the image of this package that it has; empty if it has none or was not asked.
        lacks: why it cannot carry nodes of a run, each with how to fix it; empty if it can.
        left_out: why runs leave it out, with how to fix it: it is drained, paused or down. Empty if
            they do not.
    """

    name: str
    identity: str
    address: str
    engine: str
    labels: Mapping[str, str]
    cpus: float
    memory_bytes: int
    architecture: str
    version: str
    availability: str
    state: str
    here: bool = False
    image_store: str = ""
    image: str = ""
    lacks: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def drain(self) -> str:
        """The command that has runs leave it out."""
        return f"docker node update --availability drain {self.identity}"

    @property
    def spec(self) -> HostSpec:
        """What a plan says of it."""
        return HostSpec(
            name=self.name,
            address=self.address,
            engine=self.engine,
            here=self.here,
            labels=self.labels,
            cpus=self.cpus,
            memory=Size(self.memory_bytes),
        )


def find_hosts(address: str | None = None) -> tuple[SwarmHost, ...]:
    """Return the hosts of the Swarm that this host's engine manages, this one first.

    Args:
        address: of the engine; by default DOCKER_HOST, or the usual one.

    Raises:
        HostError: no engine answers there, or it is not a manager of a Swarm.
    """
    forget()
    with connect(address) as engine:
        info = describe(address)
        hosts = [from_swarm(node, here=info["Swarm"]["NodeID"]) for node in nodes_of(engine, info)]
    hosts.sort(key=lambda host: (not host.here, host.name))
    hosts[0] = replace(hosts[0], engine="", image_store=_image_store(info))
    return told_apart(in_parallel(lambda host: _examine(host, address, like=hosts[0]), hosts))


def told_apart(hosts: Sequence[SwarmHost]) -> tuple[SwarmHost, ...]:
    """Return examined hosts; those of one name lack one of their own.

    A host that has joined again is listed a second time, as one that is down.
    """
    names = Counter(host.name for host in hosts if not host.left_out)
    return tuple(
        host
        if names[host.name] < 2  # or first of all: no command of Docker's can name the host
        else replace(host, lacks=(_of_one_name(host, hosts), *host.lacks))
        for host in hosts
    )


def nodes_of(engine: APIClient, info: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes as a manager, the engine with this ``docker info``, lists them.

    Raises:
        HostError: it is not a manager of a Swarm.
    """
    swarm = info.get("Swarm") or {}
    if swarm.get("LocalNodeState") != ACTIVE:
        state = swarm.get("LocalNodeState") or "inactive"
        create = "Create one (docker swarm init), and join other hosts (docker swarm join)."
        raise HostError(
            f"this host is not a node of a Docker Swarm: its engine says {state}.",
            hint="Unlock it: docker swarm unlock" if state == LOCKED else create,
        )
    if not swarm.get("ControlAvailable"):
        managers = ", ".join(one["Addr"] for one in swarm.get("RemoteManagers") or ())
        raise HostError(
            f"this host is a worker of its Docker Swarm, whose managers are {managers}: only a "
            "manager lists the hosts.",
            hint=f"On a manager: docker node promote {info.get('Name')}",
        )
    with engine_faults("listing the nodes of the Swarm"):
        found: list[dict[str, Any]] = engine.nodes()
        return found


class DrainedHosts:
    """Why hosts of the Swarm are to be left, by name; none if its manager does not say.

    A call returns what the manager answered last, and asks again in a thread: without a quorum, the
    answer takes long, and faults and recorded links must not be late.
    """

    def __init__(self) -> None:
        self._drained: dict[str, str] = {}
        self._asking = Thread()

    def __call__(self) -> Mapping[str, str]:
        if not self._asking.is_alive():
            self._asking = Thread(target=self._ask, daemon=True)
            self._asking.start()
        return self._drained

    def _ask(self) -> None:
        doing = "listing the nodes of the Swarm"
        with suppress(HostError), connect() as engine, engine_faults(doing):
            self._drained = drained([from_swarm(node, here="") for node in engine.nodes()])


def drained(hosts: Sequence[SwarmHost]) -> dict[str, str]:
    """Return why hosts are to be left, by name, but for one that has joined again and is usable."""
    usable = {host.name for host in hosts if not absence(host)}
    names = {host.name for host in hosts if host.availability == DRAIN}
    return dict.fromkeys(names - usable, "the Swarm drains it")


def from_swarm(node: Mapping[str, Any], *, here: str) -> SwarmHost:
    """Return a host from a node of the engine's API; ``here`` is the ID of this host's node."""
    described, spec, status = node["Description"], node["Spec"], node["Status"]
    labels, resources = spec.get("Labels") or {}, described.get("Resources") or {}
    return SwarmHost(  # one that has joined, but not reported yet, has no description
        name=described.get("Hostname") or node["ID"],
        identity=node["ID"],
        address=labels.get(ADDRESS_LABEL)
        or (node.get("ManagerStatus") or {}).get("Addr", "").rpartition(":")[0]
        or status.get("Addr", ""),
        engine=labels.get(ENGINE_LABEL, ""),
        labels={name: text for name, text in labels.items() if not name.startswith(LABEL)},
        cpus=resources.get("NanoCPUs", 0) / CPU_NANOS,
        memory_bytes=resources.get("MemoryBytes", 0),
        architecture=(described.get("Platform") or {}).get("Architecture", ""),
        version=(described.get("Engine") or {}).get("EngineVersion", ""),
        availability=spec["Availability"],
        state=status["State"],
        here=node["ID"] == here,
    )


def _examine(host: SwarmHost, here: str | None, *, like: SwarmHost) -> SwarmHost:
    """Return a host with what its engine says, and what it lacks.

    Args:
        host: as the Swarm lists it.
        here: the address of this host's engine.
        like: this host.
    """
    if absent := absence(host):
        return replace(host, left_out=absent)
    if not host.here and not host.engine:
        label = _label(host, f"ssh://USER@{host.address}")
        return _lacking(host, *differences(host, like), f"its engine's address is unknown: {label}")
    address = here if host.here else host.engine
    try:
        with connect(address) as engine:
            found = describe(address)
            if found["Swarm"].get("NodeID") != host.identity:
                return _lacking(host, *differences(host, like), _of_another(host, found))
            host = replace(
                host,
                image=_image_of(engine),
                architecture=found["Architecture"],
                version=found["ServerVersion"],
                image_store=_image_store(found),
            )
            return _lacking(host, *differences(host, like))
    except HostError as error:
        cure = START if type(error) is NoEngineError and not host.here else error.hint
        why = f"{error.message} {cure}".rstrip(". ")
        return _lacking(host, *differences(host, like), why)


def _of_another(host: SwarmHost, found: Mapping[str, Any]) -> str:
    """Return how to fix that the engine with this ``docker info`` is not that of the host."""
    if not found["Swarm"].get("NodeID"):
        return (
            f"the engine at {host.engine}, on {found['Name']}, is not in a Swarm: if it is that of "
            f"{host.name}, docker swarm join there (docker swarm join-token worker)"
        )
    return (
        f"{host.engine} is the engine of {found['Name']}: {_label(host, f'ssh://USER@{host.name}')}"
    )


def _label(host: SwarmHost, address: str) -> str:
    return f"docker node update --label-add {ENGINE_LABEL}={address} {host.identity}"


def _image_store(info: Mapping[str, Any]) -> str:
    """Return where an engine with this ``docker info`` keeps images."""
    return "containerd" if CONTAINERD in (info.get("DriverStatus") or ()) else "docker"


def _image_of(engine: APIClient) -> str:
    """Return the image of this package; empty without one: `up` copies it."""
    with suppress(HostError):
        return check_image(engine)
    return ""


def absence(host: SwarmHost) -> str:
    """Return why the Swarm itself gives a host nothing, with how to fix it; empty if it does."""
    if host.state != READY:
        cure = f"start its engine and wait until it reports, or docker node rm {host.identity}"
        return f"the Swarm says that it is {host.state}: {cure}"
    if host.availability != ACTIVE:
        cure = f"docker node update --availability active {host.identity}"
        return f"its availability is {host.availability}: {cure}"
    return ""


def differences(host: SwarmHost, like: SwarmHost) -> Iterator[str]:
    """Yield what is against a host, of what is known of it: its address and engine. Pure."""
    try:
        IPv4Address(host.address)
    except AddressValueError:
        yield (
            f"its address {host.address} is not IPv4: docker node update --label-add "
            f"{ADDRESS_LABEL}=ADDRESS {host.identity}"
        )
    if host.architecture != like.architecture:
        yield (
            f"its architecture is {host.architecture}, that of {like.name} {like.architecture}: "
            f"leave it out, {host.drain}"
        )
    if host.version != like.version:
        yield (
            f"its engine is {host.version}, that of {like.name} {like.version}: install the same"
        )
    if host.image_store and host.image_store != like.image_store:
        wanted = json.dumps({"features": {"containerd-snapshotter": host.image_store == "docker"}})
        yield (
            f"its engine keeps images in {host.image_store}'s store, that of {like.name} in "
            f"{like.image_store}'s, where they have other IDs: {wanted} in its "
            "/etc/docker/daemon.json, and restart it"
        )


def _of_one_name(host: SwarmHost, hosts: Sequence[SwarmHost]) -> str:
    others = (one for one in hosts if one.name == host.name and one.identity != host.identity)
    addresses = " and ".join(one.address for one in others if not one.left_out)
    return (
        f"the host at {host.address} has the name of that at {addresses}: hostnamectl "
        "set-hostname NAME on one of them, and restart its engine"
    )


def _lacking(host: SwarmHost, *lacks: str) -> SwarmHost:
    return replace(host, lacks=(*host.lacks, *lacks))
