"""Creates, finds and removes the containers of a run, many at a time.

Every function raises HostError if the engine does not answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import HostError, NodeError, TestbedError
from testbed.runtimes.base import STOP_SECONDS
from testbed.runtimes.docker.containers import (
    AGENT,
    CONTROLLER,
    FOLDER,
    INDEX,
    NODE,
    ROLE,
    RUN,
    Container,
)
from testbed.runtimes.docker.engine import CONFLICT, container_faults
from testbed.runtimes.docker.image import reference_to
from testbed.runtimes.parallel import in_parallel
from testbed.telemetry.folder import RunFolder

if TYPE_CHECKING:
    from docker import APIClient

LAST_LINES = 10
RETRY_SECONDS = 0.1
IN_USE = "that name is already in use"
"""Podman's reason for a conflict, which has another status there."""

ENDED_MEANWHILE = re.compile(r"read /proc/\d+/cgroup: no such process")
"""Podman's reason, with which it fails a whole list for one container that ends at that moment."""

END_SECONDS = 10
"""How long an agent may take to end; usually a moment."""


@dataclass(frozen=True)
class FoundContainer:
    """A container of ours in the engine; ``node`` and ``role`` are AGENT for the agent's."""

    identity: str  # the engine's name for it
    name: str
    node: str
    run: str
    folder: Path
    role: str
    index: int
    state: str  # as the engine calls it: running, paused, exited
    controller: str = ""  # the host that it belongs to, if that is another one


def observe(ask: Callable[[], Any]) -> Any:
    """Return what an engine answers about containers.

    Podman fails the request if a container ends between the moments when it opens and reads the
    file ``cgroup`` of its process. That container has ended when it is asked again.
    """
    from docker.errors import APIError

    while True:
        try:
            return ask()
        except APIError as error:
            if not ENDED_MEANWHILE.search(error.explanation or ""):
                raise


def list_containers(engine: APIClient, *labels: str) -> list[dict[str, Any]]:
    """Return the engine's entries of the containers, running or not, that have all these labels."""
    wanted = {"label": [*labels]}
    return list(observe(lambda: engine.containers(all=True, filters=wanted)))


def inspect(engine: APIClient, identity: str) -> dict[str, Any]:
    """Return all that the engine has on record of a container."""
    return dict(observe(lambda: engine.inspect_container(identity)))


def find_containers(engine: APIClient, *labels: str, controller: str = "") -> list[FoundContainer]:
    """Return the containers that have all these labels, in the plan's order, the agent first.

    Args:
        engine: of this host, or of another one.
        labels: of the containers.
        controller: the host whose runs they are of, for another host's engine. On this host, runs
            of others are none of its business: their folders are on those.
    """
    with container_faults("a run"):
        entries = list_containers(engine, RUN, FOLDER, *labels)
    found = (one for one in map(_container_from, entries) if one.controller == controller)
    place = attrgetter("role", "index", "name")
    return sorted(found, key=lambda one: (one.role != AGENT, place(one)))


def containers_of(
    engine: APIClient, folder: RunFolder, controller: str = ""
) -> list[FoundContainer]:
    """Return the containers of one run, without runs of the same name in other folders."""
    labels = (f"{RUN}={folder.name}", f"{FOLDER}={folder.path}")
    return find_containers(engine, *labels, controller=controller)


def make_all(engine: APIClient, containers: Sequence[Container]) -> dict[str, int]:
    """Create and start containers, all of them or none; return the pids of their first processes.

    Raises:
        HostError, NodeError: one cannot be created; names it. Nothing of them is left.
    """
    made: list[str] = []
    try:
        pids = in_parallel(lambda container: make(engine, container, made), containers)
    except BaseException:
        with suppress(TestbedError):  # the first error is more informative
            in_parallel(lambda identity: remove(engine, identity), made)
        raise
    return {container.whose: pid for container, pid in zip(containers, pids, strict=True)}


def make(
    engine: APIClient,
    container: Container,
    made: list[str],
    *,
    before: Callable[[str], None] = lambda identity: None,
) -> int:
    """Create and start one container; return the pid of its first process on the host.

    The container's identity is appended to ``made`` as soon as it exists; ``before`` is called with
    it before the container starts.

    Raises:
        HostError, NodeError: it cannot be created; names it.
    """
    if container.here:
        _check_sources(container)
    with container_faults(container.whose):
        identity = _create(engine, container)
        made.append(identity)
        before(identity)
        engine.start(identity)
        state = inspect(engine, identity)["State"]
    if not state["Running"]:
        raise NodeError(
            f"{container.whose}: its container ended as soon as it was started."
            f"{last_output(engine, identity)}"
        )
    return int(state["Pid"])


def _check_sources(container: Container) -> None:
    """Reject mounts of missing files, where Podman would make folders."""
    for mount in container.body["HostConfig"]["Mounts"]:
        with suppress(PermissionError):  # only the engine can tell
            if not Path(mount["Source"]).exists():
                raise NodeError(f"{container.whose}: No such file or directory: {mount['Source']}")


def pid_of(engine: APIClient, identity: str) -> int | None:
    """Return the pid of a container's first process; None if it has ended or was removed."""
    from docker.errors import NotFound

    with container_faults("a run"):
        try:
            state = inspect(engine, identity)["State"]
        except NotFound:
            return None
    return int(state["Pid"]) if state["Running"] else None


def last_output(engine: APIClient, identity: str) -> str:
    """Return the last lines that a container itself has printed, to append to a message."""
    with suppress(TestbedError), container_faults(AGENT):
        said = engine.logs(identity, tail=LAST_LINES).decode(errors="replace").strip()
        return f" It printed:\n{said}" if said else " It printed nothing."
    return ""


def image_of_run(engine: APIClient, folder: RunFolder, controller: str = "") -> str:
    """Return the image of a running run's containers: its agent's.

    The name, or the engine's identity if the name now refers to another image or to none.

    Raises:
        NodeError: the run has no agent any more.
    """
    agents = [one for one in containers_of(engine, folder, controller) if one.role == AGENT]
    if not agents:
        raise NodeError(f"the agent of {folder.name} has ended: its container was removed.")
    with container_faults(AGENT):
        told = inspect(engine, agents[0].identity)
        return reference_to(engine, str(told["Image"]), name=str(told["Config"]["Image"]))


def exit_status_of_agent(engine: APIClient, folder: RunFolder) -> int | None:
    """Return the exit status of a run's ended agent; None if its container was removed."""
    from docker.errors import NotFound

    for agent in containers_of(engine, folder):
        if agent.role == AGENT:
            with container_faults(AGENT), suppress(NotFound):
                return int(engine.wait(agent.identity)["StatusCode"])
    return None


def remove_run(
    engine: APIClient,
    folder: RunFolder,
    *,
    patience_seconds: float = STOP_SECONDS,
    controller: str = "",
) -> bool:
    """Remove every container of a run in any state; return whether there was any.

    Raises:
        HostError: some still exist, and none has gone for ``patience_seconds``; names one.
    """
    fewest, deadline, left = inf, inf, dict[str, str]()
    while found := containers_of(engine, folder, controller):
        if len(found) < fewest:  # another client may be removing them, too
            fewest, deadline = len(found), time.monotonic() + patience_seconds
        elif left and time.monotonic() > deadline:
            name, why = next(iter(left.items()))
            raise HostError(
                f"the container {name} of {folder.name} cannot be removed: {why}.",
                hint=f"Try `docker rm -f {name}`, then run `testbed down` again.",
            )
        agents = [one for one in found if one.role == AGENT]
        in_parallel(lambda one: _let_end(engine, one), agents)
        left = {}
        for some in (agents, [one for one in found if one.role != AGENT]):
            refusals = in_parallel(lambda one: remove(engine, one.identity), some)
            left |= {one.name: why for one, why in zip(some, refusals, strict=True) if why}
        if left:  # if not, only check that all are removed
            time.sleep(RETRY_SECONDS)
    return fewest < inf


@contextmanager
def keeping_first(engine: APIClient, folder: RunFolder) -> Iterator[None]:
    """If the body fails, end a run here, but keep one container: its labels name the hosts."""
    try:
        yield
    except TestbedError:
        found = containers_of(engine, folder)
        in_parallel(lambda one: _let_end(engine, one), found[:1])
        in_parallel(lambda one: remove(engine, one.identity), found[1:])
        raise


def _let_end(engine: APIClient, agent: FoundContainer) -> None:
    """Ask a run's agent to end, and give it time to kill and reap its roles.

    Roles end with their agent. If the engine kills the agent, reaping is left to the engine, which
    takes up to a second for each role while it is busy killing a container.
    """
    from docker.errors import APIError
    from requests.exceptions import ConnectionError as Silence
    from requests.exceptions import ReadTimeout

    if agent.state != "running":  # a paused one receives no signal
        return
    with container_faults("a run"), suppress(APIError):  # it has just ended
        engine.kill(agent.identity, "SIGTERM")
        with suppress(ReadTimeout, Silence):  # the engine's client has two kinds of timeout
            engine.wait(agent.identity, timeout=END_SECONDS)


def remove(engine: APIClient, identity: str, *, patient: bool = False) -> str:
    """Kill a container and remove it; return why it still exists, or an empty string.

    If ``patient``, and another client is removing it already, wait until it has: until then, the
    container's name is in use.
    """
    from docker.errors import APIError, NotFound

    with container_faults("a run"), suppress(NotFound):
        try:
            engine.remove_container(identity, v=True, force=True)
        except NotFound:
            return ""
        except APIError as error:  # another client is removing it; or it is busy for a short time
            if not (patient and error.is_client_error()):
                return str(error.explanation or error)
            engine.wait(identity, condition="removed")
    return ""


def _create(engine: APIClient, container: Container) -> str:
    """Create a container, replacing an ended one of the same node."""
    from docker.errors import APIError

    create = partial(engine.create_container_from_config, dict(container.body), container.name)
    try:
        return str(create()["Id"])
    except APIError as error:
        if error.status_code != CONFLICT and IN_USE not in str(error.explanation):
            raise
    holder = inspect(engine, container.name)
    _check_ended(container, holder["Config"]["Labels"] or {}, holder["State"]["Status"])
    remove(engine, holder["Id"], patient=True)
    return str(create()["Id"])


def _check_ended(container: Container, labels: Mapping[str, str], state: str) -> None:
    """Reject a name that belongs to another run, or is not ours, or is of a running node."""
    wanted = container.body["Labels"]
    if all(labels.get(name) == wanted.get(name) for name in (RUN, FOLDER, NODE, CONTROLLER)):
        if state in ("running", "paused"):
            raise NodeError(f"{container.whose} is already running.")
        return
    if FOLDER in labels:
        whose = f" of {labels[CONTROLLER]}" if CONTROLLER in labels else ""
        place = f"{labels[FOLDER]}{whose}"
        raise HostError(
            f"the container {container.name} exists: a run of that name is in {place}.",
            hint=f"End it with `testbed down {labels.get(RUN)}`, or choose another --name.",
        )
    raise HostError(
        f"the container {container.name} exists, and testbed did not create it.",
        hint=f"Remove it with `docker rm -f {container.name}`, or choose another --name.",
    )


def _container_from(entry: Mapping[str, Any]) -> FoundContainer:
    labels = entry["Labels"]
    index = labels.get(INDEX, "")
    return FoundContainer(
        identity=entry["Id"],
        name=str((entry["Names"] or ["/"])[0]).removeprefix("/"),
        node=labels.get(NODE, ""),
        run=labels[RUN],
        folder=Path(labels[FOLDER]),
        role=labels.get(ROLE, ""),
        index=int(index) if index.isdecimal() else 0,
        state=entry["State"],
        controller=labels.get(CONTROLLER, ""),
    )
