"""The Docker runtime: a container of the machine's engine for every node, and one for the agent.

Everything that a run has in the engine carries the run's labels: its name, and the path of its
folder. No Docker network is created: the agent's container is the switch, like the native agent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from testbed.errors import HostError, NodeError, RunNotFound, TestbedError
from testbed.host.confine import seccomp_profile
from testbed.network.tunnel import Tunnel
from testbed.runtimes.agent.launch import NodeState
from testbed.runtimes.base import STOP_SECONDS, ContainerSpec, Finding, Lifeline, Request, Start
from testbed.runtimes.docker.abilities import check_abilities, limits_in, want_gpu_image
from testbed.runtimes.docker.containers import AGENT, SECCOMP, agent_container, node_container
from testbed.runtimes.docker.doctor import examine_engine
from testbed.runtimes.docker.engine import connect, describe
from testbed.runtimes.docker.image import (
    OFFICIAL_KAFKA,
    check_image,
    find_kafka_image,
    find_users_image,
    identity_of,
    image_name,
    reference_to,
)
from testbed.runtimes.docker.lifecycle import (
    FoundContainer,
    containers_of,
    find_containers,
    image_of_run,
    keeping_first,
    make_all,
    remove,
    remove_run,
)
from testbed.runtimes.docker.lifeline import DockerLifeline, clear
from testbed.runtimes.docker.remote import (
    contain_there,
    labelled_hosts,
    losing,
    recorded_hosts,
    remove_everywhere,
)
from testbed.runtimes.docker.session import run_in
from testbed.runtimes.docker.swarm_lifeline import SwarmLifeline, tunnel_of
from testbed.runtimes.lock import POLL_SECONDS, attempts, is_orphan
from testbed.runtimes.parallel import in_parallel
from testbed.telemetry.folder import ENDED, RunFolder
from testbed.telemetry.host import recorded_images
from testbed.values.topology import HostSpec, NodeSpec, Plan

if TYPE_CHECKING:
    from docker import APIClient

LOG_MODE = 0o644

LATE_SECONDS = 1.0
"""The engine creates a container in a fifth of that."""


@dataclass(frozen=True)
class DockerDriver:
    """Implements RuntimeDriver, which documents the methods."""

    image: str | None = None  # of the containers; None for the image of this package

    def requests(
        self, plan: Plan, folder: RunFolder, start: Start, specs: Sequence[ContainerSpec]
    ) -> tuple[Request, ...]:
        """Return the containers that will be requested from the engine. Pure."""
        image = self.image or image_name(gpu=want_gpu_image(plan.nodes))
        own: list[tuple[str | None, Tunnel | None]] = [(None, None)]
        own += [(host.name, tunnel_of(plan, folder, host)) for host in plan.hosts]
        agents = (
            (host, agent_container(plan, folder, start, image=image, tunnel=tunnel))
            for host, tunnel in (own[1:] or own)
        )
        nodes = (
            (
                spec.node.host if plan.hosts else None,
                node_container(
                    spec, plan, folder, image=_named(spec.node, nodes=image, kafka=OFFICIAL_KAFKA)
                ),
            )
            for spec in specs
        )
        return tuple(
            Request(f"engine of {host}" if host else "engine", f"create {one.whose}", one.body)
            for host, one in (*agents, *nodes)
        )

    def examine(self, *, workers: int, gpu: bool, broker: bool) -> Iterator[Finding]:
        return examine_engine(self.image or "", workers=workers, gpu=gpu, broker=broker)

    def start(self, plan: Plan, folder: RunFolder, start: Start) -> Lifeline:
        make = partial(agent_container, plan, folder, start)
        with connect() as engine:
            image = _as_recorded(engine, self._image(engine, plan.nodes), folder, kind="nodes")
            check_abilities(plan.here, info := describe())
            here = plan.hosts[0] if plan.hosts else None
            tunnel = None if here is None else tunnel_of(plan, folder, here)
            agent = make(image=image, limits=limits_in(info), tunnel=tunnel)
            # locked first: a second start must not touch what the run has on other hosts
            begin_here = partial(DockerLifeline.of(folder).begin, engine, agent, start=start)
            if here is None:
                return begin_here()
            others = [
                (host, make(image=image, tunnel=tunnel_of(plan, folder, host)))
                for host in plan.hosts[1:]
            ]
            return SwarmLifeline.begin(
                begin_here, others, folder=folder, start=start, server=plan.server_host
            )

    def contain(
        self, plan: Plan, folder: RunFolder, specs: Sequence[ContainerSpec]
    ) -> Mapping[str, int]:
        """Create the containers that nodes will be launched into, all of them or none.

        All hosts create theirs at the same time. They use the run's own image: a probe may be
        started by another version of testbed.
        """
        for spec in specs:
            spec.log.touch()
            spec.log.chmod(LOG_MODE)  # the container reads it, with the node's uid
        others = {host.name: host for host in plan.hosts if not host.here}
        made: dict[str, int] = {}

        def contain(name: str, group: Sequence[ContainerSpec]) -> None:
            host = others.get(name)
            with nullcontext() if host is None else losing(host):
                made.update(self._contain(plan, folder, group, host))

        by_host = groupby(sorted(specs, key=_host_of), key=_host_of)
        try:
            in_parallel(lambda one: contain(*one), [(name, [*group]) for name, group in by_host])
        except BaseException:
            with suppress(TestbedError):  # the first error is more informative
                self.discard(folder, [*made])
            raise
        return made

    def _contain(
        self, plan: Plan, folder: RunFolder, specs: Sequence[ContainerSpec], host: HostSpec | None
    ) -> Mapping[str, int]:
        """Create containers on one host; None for this one."""
        address, controller = (None, "") if host is None else (host.engine, host.controller)
        with connect(address) as engine:
            image = image_of_run(engine, folder, controller)
            kafka = ""
            if any(is_kafka(spec.node) for spec in specs):
                kafka = _as_recorded(engine, find_kafka_image(engine), folder, kind="kafka")
            limits = limits_in(describe(address), gpus=any(spec.node.gpus for spec in specs))
            if not limits.filtered:
                (folder.control / SECCOMP).write_text(json.dumps(seccomp_profile()))
            named = {spec.node.image: _named(spec.node, nodes=image, kafka=kafka) for spec in specs}
            for users in {spec.node.image for spec in specs if spec.node.has_users_image}:
                named[users] = _as_recorded(engine, users, folder, kind=users)
            wanted = [
                node_container(spec, plan, folder, image=named[spec.node.image], limits=limits)
                for spec in specs
            ]
            if host is not None:
                logs = [spec.log for spec in specs]
                wanted = contain_there(engine, host, folder, wanted, logs)
            return make_all(engine, wanted)

    def discard(self, folder: RunFolder, nodes: Sequence[str]) -> None:
        for address, controller in _engines(folder):
            # A container that stays, as one on a host that is lost, is removed by stop.
            lost = suppress(HostError) if controller else nullcontext()
            with lost, connect(address) as engine:
                there = containers_of(engine, folder, controller)
                in_parallel(partial(_discard, engine), [one for one in there if one.node in nodes])

    def stop(self, folder: RunFolder) -> tuple[str, ...]:
        removed: tuple[str, ...] = ()
        with connect() as engine:
            others = recorded_hosts(folder)
            if not others:  # first: what is here is the only record of them
                with keeping_first(engine, folder):
                    removed = remove_everywhere(labelled_hosts(engine, folder), folder)
            there = remove_run(engine, folder)
            for _ in attempts(folder, within_seconds=STOP_SECONDS):
                with folder.locked() as mine:
                    if mine:
                        if there or not _is_over(folder):
                            _remove_late(engine, folder)
                        clear(folder)
                        break
        return removed + remove_everywhere(others, folder)

    def exec(self, folder: RunFolder, node: NodeState, command: Sequence[str]) -> int:
        for address, controller in _engines(folder):
            with connect(address) as engine:
                for found in containers_of(engine, folder, controller):
                    if found.node == node.node and found.role != AGENT:
                        identity = found.identity
                        return run_in(engine, identity, command, node=node.node, address=address)
        raise NodeError(f"{node.node}: its container was removed.")

    def find(self) -> tuple[str, ...]:
        with connect() as engine:
            return tuple(sorted({one.run for one in find_containers(engine)}))

    def find_orphans(self) -> tuple[RunFolder, ...]:
        with connect() as engine:
            folders = {one.folder for one in find_containers(engine)}
        return tuple(filter(is_orphan, map(RunFolder, sorted(folders))))

    def check(self, nodes: Iterable[NodeSpec]) -> Mapping[str, str]:
        """Reject limits, CPUs and GPUs that this engine cannot provide, or a missing image."""
        asked = tuple(nodes)
        with connect() as engine:
            check_abilities(asked, describe())
            images = {"nodes": self._image(engine, asked)}
            if any(map(is_kafka, asked)):
                images["kafka"] = find_kafka_image(engine)
            for node in asked:
                if node.has_users_image and node.image not in images:
                    images[node.image] = find_users_image(engine, node.image, whose=node.name)
            return {kind: identity_of(engine, name) for kind, name in images.items()}

    def _image(self, engine: APIClient, nodes: Iterable[NodeSpec]) -> str:
        return check_image(engine, self.image or "", gpu=want_gpu_image(nodes))


def _host_of(spec: ContainerSpec) -> str:
    return spec.node.host


def _engines(folder: RunFolder) -> tuple[tuple[str | None, str], ...]:
    """Return the address of every engine of a run, this host's first, and the run's controller."""
    return ((None, ""), *((host.engine, host.controller) for host in recorded_hosts(folder)))


def _discard(engine: APIClient, found: FoundContainer) -> None:
    remove(engine, found.identity, patient=True)


def _as_recorded(engine: APIClient, name: str, folder: RunFolder, *, kind: str) -> str:
    """Return a reference to the image that ``check`` found, if the run has recorded it."""
    identity = recorded_images(folder).get(kind)
    return name if identity is None else reference_to(engine, identity, name=name)


def is_kafka(node: NodeSpec) -> bool:
    """Return whether a node's container uses a Kafka image."""
    return node.image == "kafka"


def _named(node: NodeSpec, *, nodes: str, kafka: str) -> str:
    """Return the name of the image of a node's container, given those of OWN_IMAGES."""
    return {"nodes": nodes, "kafka": kafka}.get(node.image, node.image)


def _is_over(folder: RunFolder) -> bool:
    """Return whether no controller can still be creating containers: ended, or without a folder."""
    try:
        return folder.state().state in ENDED
    except RunNotFound:
        return True
    except TestbedError:  # damaged
        return False


def _remove_late(engine: APIClient, folder: RunFolder) -> None:
    """Remove what the engine still creates because a controller requested it just before it died.

    The engine completes such requests without showing that they are in progress.
    """
    until = time.monotonic() + LATE_SECONDS
    while time.monotonic() < until:
        remove_run(engine, folder)
        time.sleep(POLL_SECONDS)
