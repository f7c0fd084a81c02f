"""The lifelines of a run over several hosts, as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Event, Lock, Thread
from typing import Any, Self

from testbed.errors import TestbedError
from testbed.network.tunnel import VXLAN_HEADER_BYTES, Tunnel
from testbed.runtimes.agent.relay import BEAT_SECONDS
from testbed.runtimes.agent.settings import OnHangup
from testbed.runtimes.base import Lifeline, Start
from testbed.runtimes.docker.containers import Container
from testbed.runtimes.docker.lifeline import DockerLifeline
from testbed.runtimes.docker.remote import (
    FAILURES,
    REMOVED,
    RemoteAgent,
    keep_models,
    losing,
    remove_everywhere,
)
from testbed.runtimes.docker.server_socket import ServerSocket
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import DEFAULT_MTU, HostSpec, Plan

VNI_BYTES = 3
TUNNELLED_MTU = DEFAULT_MTU - VXLAN_HEADER_BYTES
RENEWAL = b"\n"
"""An empty line renews a lease."""


def tunnel_of(plan: Plan, folder: RunFolder, host: HostSpec) -> Tunnel:
    """Return a host's end of the tunnel between the switches of a run, by its folder."""
    vni = int.from_bytes(sha256(str(folder.path).encode()).digest()[:VNI_BYTES]) or 1
    links = [node.link for node in plan.nodes if node.link is not None]
    mtu = max((link.mtu or DEFAULT_MTU for link in links), default=TUNNELLED_MTU)
    return Tunnel(vni, host.address, mtu)


@dataclass
class SwarmLifeline(Lifeline):
    """Implements Lifeline: one to the agent of this host, one to that of each other host.

    A thread renews the leases of the others: whatever this process waits for, they know it alive.

    Attributes:
        local: the lifeline to this host's.
        hosts: the others.
        agents: theirs.
        server: the host of the parameter server, if it is one of them.
    """

    local: DockerLifeline
    hosts: tuple[HostSpec, ...]
    agents: list[RemoteAgent]
    server: HostSpec | None = None
    _socket: ServerSocket | None = field(default=None, init=False)
    _ended: Event = field(default_factory=Event)
    _sending: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        if self.server is not None:
            self._socket = ServerSocket(self.server, self.folder)
        Thread(target=self._renew_leases, name="leases", daemon=True).start()

    @classmethod
    def begin(
        cls,
        begin_here: Callable[[], DockerLifeline],
        agents: Sequence[tuple[HostSpec, Container]],
        *,
        folder: RunFolder,
        start: Start,
        server: str,
    ) -> Self:
        """Create the agents of all hosts at the same time, and wait until they are ready.

        ``server`` is the name of the host of the parameter server.
        """
        hosts = tuple(host for host, _ in agents)
        (folder.control / REMOVED).unlink(missing_ok=True)  # by an earlier start of the run

        def begin_there(host: HostSpec, agent: Container) -> RemoteAgent:
            with losing(host):
                one = RemoteAgent.begin(host, folder, agent, start.reads)
                begun.append(one)  # its lease has begun, and copies to other hosts may take longer
                # from now on: what was copied may have taken long
                one.expect_ready(deadline=time.monotonic() + start.deadline_seconds)
                return one

        begun: list[RemoteAgent] = []
        with ThreadPoolExecutor(1 + len(hosts)) as pool:
            here = pool.submit(begin_here)
            others = [pool.submit(begin_there, host, agent) for host, agent in agents]
            waiting: set[Future[Any]] = {here, *others}
            while waiting:
                _, waiting = wait(waiting, timeout=BEAT_SECONDS)
                _send_all([*begun], RENEWAL)
        failures = [here.exception(), *(one.exception() for one in others)]
        with ExitStack() as undone:
            undone.callback(_undo, here, begun, hosts, folder)
            for failure in filter(None, failures):
                raise failure
            far = next((host for host in hosts if host.name == server), None)
            made = cls(folder, None, here.result(), hosts, [one.result() for one in others], far)
            undone.pop_all()
        return made

    def stop(self) -> None:
        self._hang_up()
        try:
            remove_everywhere(self.hosts, self.folder)
        finally:
            self.local.stop()

    def on_hangup(self, action: OnHangup) -> None:
        """Keep the run on all hosts, or end it on all: its workers cannot finish without logs."""
        both: OnHangup = "keep" if action == "keep" else "end"
        if both == "keep" and self.server is not None:
            with suppress(*FAILURES):  # `down` copies them, too
                keep_models(self.server, self.folder)
        self.local.on_hangup(both)
        self._send(f"{both}\n".encode())

    def explain(self) -> TestbedError | None:
        return self.local.explain()

    def close(self) -> None:
        super().close()
        self.local.close()

    def _send(self, data: bytes) -> None:
        """Send data to the other agents. That one has ended is noticed by its control stream."""
        with self._sending:
            _send_all(self.agents, data)

    def _renew_leases(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            self._send(RENEWAL)

    def _hang_up(self) -> None:
        self._ended.set()
        if self._socket is not None:
            self._socket.close()
        with self._sending:
            for agent in self.agents:
                with suppress(OSError):
                    agent.lines.close()


def _send_all(agents: Iterable[RemoteAgent], data: bytes) -> None:
    for agent in agents:
        agent.lines.unsent += data
        with suppress(OSError):
            agent.lines.send()


def _undo(
    here: Future[DockerLifeline],
    begun: Sequence[RemoteAgent],
    hosts: Sequence[HostSpec],
    folder: RunFolder,
) -> None:
    """Remove what has been started of a run whose start failed on one of its hosts."""
    for agent in begun:
        agent.lines.close()
    with suppress(TestbedError):  # the first error is more informative
        remove_everywhere(hosts, folder)
    if here.exception() is None:  # if not, it has undone that itself
        with closing(here.result()) as lifeline, suppress(TestbedError):
            lifeline.stop()
