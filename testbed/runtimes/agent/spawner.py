"""The agent's interface to its template: requests nodes, and releases each once it is complete."""

from __future__ import annotations

import marshal
import os
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from testbed.errors import NodeError
from testbed.host.environment import python
from testbed.host.process import Process
from testbed.host.reports import ReportPipe
from testbed.runtimes.agent.interpreter import Needs, find_needs
from testbed.runtimes.agent.launch import LaunchSpec
from testbed.runtimes.agent.logs import Logs
from testbed.runtimes.agent.settings import TEMPLATE, AgentSettings
from testbed.runtimes.agent.view import View

SETUP_SECONDS = 30.0
ONLY_UID = 0
"""The user's own uid, as a user namespace with a single uid maps it."""

REQUEST_BYTES = 128 * 1024
"""More than any request; the kernel's default socket buffer holds it."""


@dataclass(frozen=True)
class Placement:
    """How a process joins a node.

    Attributes:
        entrances: files of the node's control groups into which it writes 0.
        nice: its nice value, where no control group can give it a CPU weight.
        container: the process whose namespaces it enters; None to create the node's own.
    """

    entrances: tuple[Path, ...]
    nice: int = 0
    container: Process | None = None


class SpawnRequest(NamedTuple):
    """The template's input for one node: strings, numbers and tuples only.

    What a node unpacks and touches to set itself up stays in its memory until it ends. The data
    classes of a launch, which it does not need, and their pickle were 1 MB of that.
    """

    name: str
    uid: int
    command: tuple[str, ...]  # empty for an entry of this package
    image: str  # of the user, without testbed in it; empty for others
    gpus: bool
    entry: str
    arguments: dict[str, str]
    environment: dict[str, str]
    cold: bool
    home: str  # empty for /
    held: bool
    entrances: tuple[str, ...]
    nice: int
    container: str  # the process whose namespaces it enters; empty to create the node's own
    view: tuple[Any, ...]  # see View; empty in a container
    processes: int  # the maximum number of processes and threads of the node's uid
    report: int = -1  # descriptor of the pipe in which the new processes report; see ReportPipe
    gate: int = -1  # descriptor of the pipe in which a byte arrives once the role may run
    log: int = -1  # descriptor that the node prints into

    @classmethod
    def of(
        cls, launch: LaunchSpec, placement: Placement, *, view: View | None, processes: int
    ) -> SpawnRequest:
        """Return the request for a launch."""
        node, container = launch.node, placement.container
        return cls(
            name=node.name,
            uid=node.uid,
            command=tuple(node.command),
            image=node.image if node.has_users_image else "",
            gpus=bool(node.gpus),
            entry=launch.entry,
            arguments=dict(launch.arguments),
            environment=dict(launch.environment),
            cold=launch.mode == "cold",
            home="" if launch.home is None else str(launch.home),
            held=launch.held,
            entrances=tuple(map(str, placement.entrances)),
            nice=placement.nice,
            container="" if container is None else str(container),
            view=() if view is None else (tuple(map(tuple, view.covers)), *view[1:]),
            processes=processes,
        )

    @property
    def forks_role(self) -> bool:
        """Whether the template may fork the role itself, in a pid namespace of its own.

        It is not possible in a container's pid namespace, which the template might not be able to
        leave. And PyTorch could not compute on a GPU, for which it relies on ``pthread_atfork``.
        """
        return not self.container and not self.gpus

    def send(self, channel: socket.socket, *descriptors: int) -> None:
        """Send it to the template, which gets ``report``, ``gate`` and ``log`` of its own."""
        data = _FORKS_ROLE[self.forks_role] + marshal.dumps(tuple(self))
        socket.send_fds(channel, [data], descriptors)


class Received(NamedTuple):
    """A request as it arrived.

    The template leaves the rest to its fork: each page that it writes to between two forks is one
    more that these do not share. Hence ``marshal`` too, which writes to fewer than any other.
    """

    data: bytes
    descriptors: list[int]

    @classmethod
    def next_of(cls, channel: socket.socket) -> Received | None:
        """Wait for the next request; None once the agent has ended."""
        data, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES, 3)
        return cls(data, descriptors) if data else None

    @property
    def forks_role(self) -> bool:
        """As that of the request."""
        return self.data.startswith(_FORKS_ROLE[True])

    def request(self) -> SpawnRequest:
        """Return the request, with the descriptors of this process."""
        return SpawnRequest(*marshal.loads(self.data[1:])[:-3], *self.descriptors)


_FORKS_ROLE = {True: b"+", False: b"-"}


class Spawned:
    """A node whose processes exist, and whose role waits to be released.

    Its methods raise the NodeError or HostError that prevented the node from being created.
    """

    def __init__(self, reports: ReportPipe, gate: int, *, deadline: float) -> None:
        self._reports = reports
        self._gate = gate
        self._deadline = deadline

    def pid(self) -> int:
        """Wait for the role's pid and return it; its namespaces exist then."""
        return int(self._reports.expect("pid", deadline=self._deadline))

    def prepared(self) -> None:
        """Wait until the node is ready for its role."""
        self._reports.expect("prepared", deadline=self._deadline)

    def release(self) -> None:
        """Let the role of a prepared node run."""
        with suppress(BrokenPipeError):  # killed just now; it is reaped and reported like any other
            os.write(self._gate, b"\n")


@dataclass
class Spawner:
    """Forks nodes from the template, which is ``process`` and prints into ``agent_log``."""

    settings: AgentSettings
    agent_log: Path
    process: subprocess.Popen[bytes]
    logs: Logs
    _channel: socket.socket

    @classmethod
    def start(cls, settings: AgentSettings, *, agent_log: Path) -> Spawner:
        """Start the template; ``ready_pipe`` becomes readable when it is ready or has ended."""
        template = TEMPLATE.dump_json(settings.template).decode()
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            process = subprocess.Popen(
                python("testbed.runtimes.agent.template", str(its.fileno()), template),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                bufsize=0,
                pass_fds=(its.fileno(),),
            )
        return cls(settings, agent_log, process, Logs(), mine)

    @property
    def ready_pipe(self) -> int:
        """Descriptor of the pipe in which the template reports that it is ready."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def check_ready(self) -> None:
        """Read the ready pipe; NodeError if the template has ended."""
        pipe = ReportPipe(self.ready_pipe, writer="the template", log=self.agent_log)
        pipe.expect("ready", deadline=time.monotonic())

    @contextmanager
    def spawn(self, launch: LaunchSpec, placement: Placement) -> Iterator[Spawned]:
        """Have a node forked. It survives only if it is released before the body ends.

        Raises:
            NodeError, OSError: the template has ended; the log cannot be opened.
            HostError: the interpreter is closed to the node.
        """
        name = launch.node.name
        deadline = time.monotonic() + SETUP_SECONDS
        request = self._request(launch, placement)
        log = self.logs.open(launch.log)
        report_reader, report_writer = os.pipe()
        gate_reader, gate_writer = os.pipe()
        theirs = (report_writer, gate_reader, log)
        try:
            try:
                request.send(self._channel, *theirs)
            except (BrokenPipeError, ConnectionResetError):
                raise NodeError(
                    f"{name}: the template has ended, so no more nodes can be started.",
                    hint=f"See {self.agent_log}.",
                ) from None
            finally:
                for descriptor in theirs:
                    os.close(descriptor)
            complete = partial(self.logs.catch_up, launch.log)
            reports = ReportPipe(report_reader, writer=name, log=launch.log, complete=complete)
            yield Spawned(reports, gate_writer, deadline=deadline)
        finally:
            os.close(report_reader)
            os.close(gate_writer)

    @cached_property
    def _needs(self) -> Needs:
        """The files that the interpreter of every node uses."""
        return find_needs()

    def _request(self, launch: LaunchSpec, placement: Placement) -> SpawnRequest:
        """Return the request for a launch, after making the writable mounts writable."""
        node, told = launch.node, self.settings
        if told.users.kind == "one":
            node = replace(node, uid=ONLY_UID)
        for mount in launch.mounts:
            if mount.writable and node.uid != ONLY_UID:
                share(mount.source, node.uid)
        view = None
        if placement.container is None:
            view = View.plan(
                launch.mounts,
                node.uid,
                needs=self._needs,
                run_folder=told.folder,
                private=told.private,
                scratch=node.scratch,
            )
        launch = replace(launch, node=node)
        return SpawnRequest.of(launch, placement, view=view, processes=told.processes)


def share(path: Path, group: int) -> None:
    """Let a group write to a file or folder.

    The owner stays the same, and so can remove files that a node with another uid leaves in it.
    """
    os.chown(path, -1, group)
    wanted = 0o070 if path.is_dir() else 0o060
    path.chmod(stat.S_IMODE(path.stat().st_mode) | wanted)
