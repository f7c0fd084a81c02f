"""A run's agent and containers on another host of the Swarm. No path of this host is used there.

The agent's folders are volumes of that engine, at the paths that they have on this host: one of the
run, into which its inputs are copied, and one of the data set, see ``copies``. Its containers mount
what is in them. What nodes print comes back through the agent's stream.
"""

from __future__ import annotations

import json
import select
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic import ValidationError

from testbed.errors import HostError, HostLostError, NodeError, TestbedError
from testbed.host.reports import decode_error
from testbed.host.terminal import STDERR
from testbed.network.capture import Captured
from testbed.runtimes.agent.client import AgentClient, Waiting
from testbed.runtimes.agent.hosts import leave_out
from testbed.runtimes.agent.lines import Lines
from testbed.runtimes.agent.settings import AGENT_LOG, AGENT_SOCKET, LIFELINE_SOCKET
from testbed.runtimes.base import container_name
from testbed.runtimes.docker.archives import get_file, get_models, put_empty, put_folder
from testbed.runtimes.docker.containers import (
    AGENT,
    CONTROLLER,
    FOLDER,
    HOST_LIST,
    HOSTS,
    RUN,
    Container,
)
from testbed.runtimes.docker.copies import check_data, data_volume
from testbed.runtimes.docker.engine import connect, container_faults
from testbed.runtimes.docker.lifecycle import (
    containers_of,
    inspect,
    last_output,
    list_containers,
    make,
    remove_run,
)
from testbed.runtimes.docker.pipe import find_agent, open_pipe
from testbed.runtimes.docker.reach import NoEngineError
from testbed.runtimes.docker.session import output_of
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import HostSpec

if TYPE_CHECKING:
    from docker import APIClient

REMOVED = "removed"
"""In the folder's ``control``, once the other hosts have nothing of the run any more."""

REACH = "Start the host, or what forwards the socket of its engine; `testbed hosts` shows the rest."

CAPTURE = ("python", "-P", "-m", "testbed.network.capture")

KEPT_HERE = frozenset(
    ("ps", "sockets", "homes", "broker", "updates", "logs", "control", "model", "events.jsonl")
)
"""Parts of a run folder that are not copied: no node on another host reads them."""

WRITTEN_THERE = ("control", "logs", "ps", "sockets", "sockets/ps", "model")
"""Folders of a run that its agent and nodes there write into."""

FAILURES = (OSError, TestbedError, tarfile.TarError)
"""Of a copy from another host."""


def agent_log(host: str) -> str:
    """Return the name of the log of the agent on another host; no node has an @ in its name."""
    return f"{AGENT_LOG}@{host}"


@contextmanager
def naming(host: HostSpec) -> Iterator[None]:
    """Inside, errors of a host's engine and agent begin with the name of the host."""
    try:
        yield
    except TestbedError as error:
        hint = REACH if type(error) is NoEngineError else error.hint
        raise type(error)(f"host {host.name}: {error.message}", hint=hint) from error


@contextmanager
def losing(host: HostSpec) -> Iterator[None]:
    """Like ``naming``; an engine that does not answer means a lost host."""
    try:
        with naming(host):
            yield
    except NoEngineError as error:
        raise HostLostError(
            f"host {host.name} is lost: its engine does not answer.", hint=leave_out(host.name)
        ) from error


def recorded_hosts(folder: RunFolder) -> tuple[HostSpec, ...]:
    """Return the other hosts of a run by its plan; none if it has none, or no readable plan."""
    try:
        hosts = HOST_LIST.validate_python(json.loads(folder.plan.read_bytes()).get("hosts") or ())
    except (OSError, ValueError, ValidationError, AttributeError):
        return ()
    return tuple(host for host in hosts if not host.here)


def labelled_hosts(engine: APIClient, folder: RunFolder) -> tuple[HostSpec, ...]:
    """Return the other hosts of a run by the labels of its containers on this one."""
    with container_faults("a run"):
        wanted = [f"{RUN}={folder.name}", f"{FOLDER}={folder.path}", HOSTS]
        for entry in list_containers(engine, *wanted):
            if CONTROLLER in entry["Labels"]:  # of another host's run
                continue
            hosts = HOST_LIST.validate_json(entry["Labels"][HOSTS])
            return tuple(host for host in hosts if not host.here)
    return ()


@dataclass(frozen=True)
class RemoteAgent:
    """The lifeline to an agent on another host; see ``Lifeline``."""

    host: HostSpec
    folder: RunFolder
    lines: Lines

    @classmethod
    def begin(
        cls, host: HostSpec, folder: RunFolder, agent: Container, reads: Sequence[Path]
    ) -> RemoteAgent:
        """Create an agent's container and what it reads, and commit the run there.

        Raises:
            HostError, NodeError: the engine does not answer, or refuses.
        """
        with connect(host.engine) as engine:
            agent = _of_controller(agent, host)
            volumes = {folder.path: _create_volume(engine, agent)}
            volumes |= {path: data_volume(engine, host, path) for path in reads}
            made: list[str] = []
            fill = partial(_fill, engine, folder, reads)
            make(engine, _on_volumes(agent, volumes), made, before=fill)
            control = folder.control
            paths = (control / LIFELINE_SOCKET, folder.lock)
            lines = open_pipe(engine, host, folder, paths)
            return cls(host, folder, lines)

    def expect_ready(self, *, deadline: float) -> None:
        """Wait until the agent is ready.

        Raises:
            HostError, NodeError: it failed, ended or was late (``deadline`` is monotonic).
        """
        said_more = select.poll()
        for reader in self.lines.readers:
            said_more.register(reader, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            if not said_more.poll(1000 * left):
                break
            lines = self.lines.receive()
            if lines is None:
                name = container_name(self.folder.name, AGENT)
                with connect(self.host.engine) as engine:
                    raise NodeError(f"the agent ended early.{last_output(engine, name)}")
            for said in map(json.loads, lines):
                if "error" in said:
                    raise decode_error(said["error"])
                if "ready" in said:
                    return
        raise NodeError("the agent is not ready in time.")


def connect_agent(host: HostSpec, folder: RunFolder, *, waiting: Waiting) -> AgentClient:
    """Return a client of the agent of a run on another host."""
    with naming(host), connect(host.engine) as engine:
        path = folder.control / AGENT_SOCKET
        lines = open_pipe(engine, host, folder, (path,))
    return AgentClient(lines, 0, waiting=waiting)


def contain_there(
    engine: APIClient,
    host: HostSpec,
    folder: RunFolder,
    containers: Iterable[Container],
    logs: Iterable[Path],
) -> list[Container]:
    """Return containers with their sources in the host's volumes, where empty logs now exist."""
    agent = container_name(folder.name, AGENT)
    with container_faults("a run"):
        mounts = inspect(engine, agent)["Mounts"]
        put_empty(engine, agent, logs)
    volumes = (mount for mount in mounts if mount["Type"] == "volume")
    sources = {Path(mount["Destination"]): Path(mount["Source"]) for mount in volumes}
    return [_from_volumes(_of_controller(one, host), sources) for one in containers]


def capture_there(
    host: HostSpec,
    folder: RunFolder,
    node: str,
    into: BinaryIO,
    *,
    seconds: float,
    most_bytes: int,
) -> Captured:
    """Capture what the link of a node on another host carries; see ``capture``.

    Raises:
        HostError, NodeError: the engine does not answer, or the node has no link there.
    """
    with naming(host), connect(host.engine) as engine:
        agent = container_name(folder.name, AGENT)
        command = [*CAPTURE, node, str(seconds), str(most_bytes)]
        told = b""
        pieces = output_of(
            engine, agent, command, node=node, address=host.engine, within_seconds=seconds
        )
        for stream, piece in pieces:
            if stream == STDERR:
                told += piece
            else:
                into.write(piece)
                into.flush()
        try:
            return Captured(**json.loads(told))
        except ValueError:
            why = told.decode(errors="replace").strip() or "its container has ended."
            raise NodeError(f"{node}: the capture failed: {why}") from None


def remove_there(host: HostSpec, folder: RunFolder) -> bool:
    """Remove a run's containers and volumes on another host; return whether there were any.

    Raises:
        HostError: the engine does not answer, or could not remove one.
    """
    from docker.errors import NotFound

    with naming(host), connect(host.engine) as engine:
        with suppress(*FAILURES):  # it must not prevent the removal
            _keep_files(engine, host, folder)
        there = remove_run(engine, folder, controller=host.controller)
        with container_faults("a run"):
            for volume in _volumes(engine, folder, host):
                there = True
                with suppress(NotFound):  # by another `down`
                    engine.remove_volume(volume["Name"])
    return there


def keep_models(host: HostSpec, folder: RunFolder) -> None:
    """Copy the models that an evaluator on another host has saved so far, if there are any.

    Raises:
        HostError, NodeError: the engine does not answer, or the run was removed there.
    """
    with naming(host), connect(host.engine) as engine, container_faults(AGENT):
        get_models(engine, find_agent(engine, host, folder), folder.model)


def _keep_files(engine: APIClient, host: HostSpec, folder: RunFolder) -> None:
    """Copy the log of an agent that is about to be removed, and models, if there are any."""
    from docker.errors import APIError

    agents = [one for one in containers_of(engine, folder, host.controller) if one.role == AGENT]
    if not (agents and folder.logs.is_dir()):
        return
    identity, log = agents[0].identity, folder.log(agent_log(host.name))
    with suppress(*FAILURES), container_faults(AGENT), suppress(APIError):  # it has none yet
        log.write_bytes(get_file(engine, identity, folder.log(AGENT_LOG)))
    try:
        with container_faults(AGENT):
            get_models(engine, identity, folder.model)
    except FAILURES as error:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"the models of the evaluator on this host were not copied: {error}\n")


def remove_everywhere(hosts: Sequence[HostSpec], folder: RunFolder) -> tuple[str, ...]:
    """Remove a run on all these hosts; return the names of those that had something of it.

    A host that is absent has nothing of a run removed before.

    Raises:
        HostError: something may be left; names the hosts and how to reach them.
    """
    failures: list[TestbedError] = []
    removed, had = folder.control / REMOVED, list[str]()
    for host in hosts:
        try:
            if remove_there(host, folder):
                had.append(host.name)
        except NoEngineError as error:
            if not removed.exists():
                failures.append(error)
        except TestbedError as error:
            failures.append(error)
    if failures:
        message = "; ".join(error.message.rstrip(".") for error in failures)
        absent = any(isinstance(error, NoEngineError) for error in failures)
        hint = f"{REACH} Then: testbed down {folder.name}" if absent else failures[0].hint
        raise HostError(f"{message}.", hint=hint)
    if hosts and folder.control.is_dir():
        removed.touch()
    return tuple(had)


def _fill(engine: APIClient, folder: RunFolder, reads: Iterable[Path], agent: str) -> None:
    """Copy what the agent and its nodes read of the run into the volume of its container.

    What they read outside the run has been copied before, to volumes that the container now keeps.
    """
    for data in reads:
        check_data(engine, agent, data)
    put_folder(engine, agent, folder.path, but=KEPT_HERE, empty=WRITTEN_THERE)


def _create_volume(engine: APIClient, agent: Container) -> str:
    """Create the volume in place of the run's folder; return its name."""
    labels = {name: agent.body["Labels"][name] for name in (RUN, FOLDER, CONTROLLER)}
    digest = sha256(labels[FOLDER].encode()).hexdigest()[:12]
    name = f"testbed-{labels[RUN]}-{digest}"
    with container_faults("the agent"):
        engine.create_volume(name, labels=labels)
    return name


def _on_volumes(agent: Container, volumes: Mapping[Path, str]) -> Container:
    """Return the agent's container with volumes in place of the folders of this host."""
    mounts = []
    for mount in agent.body["HostConfig"]["Mounts"]:
        volume = volumes.get(Path(mount["Source"]))
        mounts.append(mount if volume is None else {**mount, "Type": "volume", "Source": volume})
    return _with_mounts(agent, mounts)


def _from_volumes(container: Container, sources: Mapping[Path, Path]) -> Container:
    mounts = []
    for mount in container.body["HostConfig"]["Mounts"]:
        source = Path(mount["Source"])
        for path, point in sources.items():
            if source.is_relative_to(path):
                mounts.append({**mount, "Source": str(point / source.relative_to(path))})
                break
        else:
            raise NodeError(f"{container.whose}: {source} is on this host only.")
    return _with_mounts(container, mounts)


def _with_mounts(container: Container, mounts: list[dict[str, Any]]) -> Container:
    host = {**container.body["HostConfig"], "Mounts": mounts}
    return replace(container, body={**container.body, "HostConfig": host}, here=False)


def _of_controller(container: Container, host: HostSpec) -> Container:
    """Return a container labelled as one of a run of another host."""
    labels = {**container.body["Labels"], CONTROLLER: host.controller}
    return replace(container, body={**container.body, "Labels": labels})


def _volumes(engine: APIClient, folder: RunFolder, host: HostSpec) -> list[dict[str, Any]]:
    whose = {RUN: folder.name, FOLDER: folder.path, CONTROLLER: host.controller}
    wanted = [f"{name}={value}" for name, value in whose.items()]
    found: list[dict[str, Any]] = engine.volumes(filters={"label": wanted})["Volumes"] or []
    return found
