"""From a fork of the template to a node: namespaces, control groups, mounts, privileges, role."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from testbed.errors import NodeError, TestbedError
from testbed.host import kernel_files, syscalls
from testbed.host.admission import hold
from testbed.host.confine import confine, keep_only
from testbed.host.environment import python
from testbed.host.group import enter
from testbed.host.process import Process, environment_of, has_ended
from testbed.host.reports import encode_error, report
from testbed.runtimes.agent.role import run_entry
from testbed.runtimes.agent.spawner import SpawnRequest
from testbed.runtimes.agent.view import View

ARGUMENTS_DESCRIPTOR = 3
SETUP_SECONDS = 30.0
FIRST = 1
"""The pid of a process that was forked into a new pid namespace."""

IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

PING_GROUPS = "/proc/sys/net/ipv4/ping_group_range"

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit statuses of a shell for commands that cannot be executed."""

GPU_VARIABLES = ("CUDA_", "NVIDIA_")
"""Prefixes of the variables that select GPUs for a process, and their capabilities."""


def become_node(request: SpawnRequest, warmed: Any) -> int:
    """Turn this process into a node and run its role; return the role's exit status.

    It enters the control groups, and makes or enters the namespaces. Unless it is the first process
    of a pid namespace already, its own does not change: then it forks the role, reports its pid,
    and ends.
    """
    with _reporting(request.report):
        environment = _environment(request)
        _enter(request)
        first = None
        if os.getpid() == FIRST:
            outside = os.readlink("/proc/self")  # noqa: PTH115  # its own /proc is not mounted yet
            report(request.report, pid=int(outside))
        else:
            first = os.pidfd_open(os.getpid())
            if role := os.fork():
                report(request.report, pid=role)
                return 0
        command = request.command
        there = bool(command) and _is_there(command[0], environment)
        _prepare(request, first)
        if request.home:
            os.chdir(request.home)
        program = _find_program(request, environment, hidden=there) if command else ""
        report(request.report, prepared=True)
    os.close(request.report)
    # The agent connects the link meanwhile. End of file: it gave up on the node, or has ended.
    if not os.read(request.gate, 1):
        return 1
    os.close(request.gate)
    if program:
        _become_program(program, request, environment)
    if request.cold:
        _execute(request, environment)
    if environment is not os.environ:
        os.environ.clear()
        os.environ.update(environment)
    return run_entry(request.entry, request.arguments, warmed)


@contextmanager
def _reporting(descriptor: int) -> Iterator[None]:
    """Report errors in the body to the agent, and end this process."""
    try:
        yield
    except (OSError, TestbedError) as error:
        report(descriptor, error=encode_error(error))
        os._exit(1)


def _environment(request: SpawnRequest) -> Mapping[str, str]:
    """Return the environment of the role: ``os.environ`` itself if nothing has to be changed.

    It is the agent's environment, with the GPU variables of the container's first process.

    A container of the user's image has the environment that the image defines.
    """
    container = Process.parse(request.container) if request.container else None
    if container is None or not (request.image or request.gpus):
        return {**os.environ, **request.environment} if request.environment else os.environ
    try:
        given = environment_of(container.pid)
    except OSError:
        raise NodeError(
            f"{request.name}: its container has ended.",
            hint="`docker logs` shows what its first process printed. An image whose environment "
            "sets LD_PRELOAD makes it load that library.",
        ) from None
    if request.image:
        environment = given
    else:
        mine = {name: value for name, value in os.environ.items() if not _is_of_gpus(name)}
        of_gpus = {name: value for name, value in given.items() if _is_of_gpus(name)}
        environment = {**mine, **of_gpus}
    return {**environment, **request.environment}


def _is_of_gpus(name: str) -> bool:
    return name.startswith(GPU_VARIABLES)


def _enter(request: SpawnRequest) -> None:
    """Enter the node's control groups and all its namespaces except the pid namespace."""
    container = Process.parse(request.container) if request.container else None
    score = "" if container is None else _oom_score_file(container.pid).read_text()
    for entrance in request.entrances:
        enter(entrance)
    if container is None:
        has_pids = os.getpid() == FIRST
        syscalls.unshare(syscalls.CONTAINER & ~(syscalls.CLONE_NEWPID if has_pids else 0))
        socket.sethostname(request.name)
        return
    _oom_score_file(os.getpid()).write_text(score)
    # One descriptor for all: after entering the mount namespace, the others cannot be opened.
    process = container.open()
    if process is None:
        raise NodeError(f"{request.name}: its container has ended.")
    syscalls.setns(process, namespaces_of(container))
    os.close(process)


def namespaces_of(container: Process) -> int:
    """Return the namespaces that a container does not share with this process.

    Without rights on the host, this process could not enter the host's cgroup namespace again.
    """
    theirs, mine = (Path(f"/proc/{pid}/ns/cgroup").readlink() for pid in (container.pid, "self"))
    return syscalls.CONTAINER | (0 if theirs == mine else syscalls.CLONE_NEWCGROUP)


def _prepare(request: SpawnRequest, first: int | None) -> None:
    """Do all steps between fork and role, except the link.

    Until the role installs handlers, signals end this process, as they would the template.

    ``first`` is the pidfd of the process that has forked this one; None if that is the template.
    """
    syscalls.set_name(request.name)
    os.chdir("/")
    parents = () if first is None else (first,)
    keep_only(request.report, request.gate, request.log, *parents)
    _redirect(request.log)
    if not request.container:
        syscalls.bring_loopback_up()
        _allow_ping(request.uid)
        View.of(request.view).make()
    os.nice(request.nice)
    confine(request.uid, processes=request.processes)
    if request.held:
        hold()
    if first is not None:
        # From then on the agent is the parent: the controller looks for this process as its child.
        has_ended(first, SETUP_SECONDS)
        os.close(first)
    if request.container:
        _die_with_agent()


def _allow_ping(gid: int) -> None:
    """Let the node's group send echo requests, which otherwise requires a capability.

    The setting belongs to the network namespace.
    """
    kernel_files.write(PING_GROUPS, b"%d %d" % (gid, gid))


def _die_with_agent() -> None:
    """Have the kernel kill this process when its parent, the agent, ends.

    Otherwise processes in an engine's container would outlive it. Had the agent ended before, the
    gate would never open. A change of the uid clears this setting, so it is made afterwards.
    """
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def _oom_score_file(pid: int) -> Path:
    """Return the file that ranks a process for the OOM killer; the rank is inherited."""
    return Path(f"/proc/{pid}/oom_score_adj")


def _redirect(log: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)


def _execute(request: SpawnRequest, environment: Mapping[str, str]) -> None:
    """Replace this process with a fresh interpreter that runs the role."""
    arguments = os.memfd_create("arguments", 0)
    os.write(arguments, json.dumps(request.arguments).encode())
    os.lseek(arguments, 0, os.SEEK_SET)
    if arguments != ARGUMENTS_DESCRIPTOR:
        os.dup2(arguments, ARGUMENTS_DESCRIPTOR)
        os.close(arguments)
    command = python("testbed.runtimes.agent.role", request.entry, str(ARGUMENTS_DESCRIPTOR))
    os.execve(sys.executable, command, environment)


def _is_there(name: str, environment: Mapping[str, str]) -> bool:
    """Return whether this program exists in the file system that this process sees."""
    return shutil.which(name, path=environment.get("PATH", os.defpath)) is not None


def _find_program(request: SpawnRequest, environment: Mapping[str, str], *, hidden: bool) -> str:
    """Return the path of a node's program in the file system that this process sees now.

    ``hidden``: whether it existed before this process saw the file system as a node does.
    """
    name, path = request.command[0], environment.get("PATH", os.defpath)
    found = shutil.which(name, path=path)
    if found is not None:
        return found
    lack = "not executable" if os.sep in name and os.path.lexists(name) else "no such program"
    if request.image:
        raise NodeError(
            f"{name}: {lack} in the image {request.image}.",
            hint=f"Give its path in the image, or one of the programs in {path}. `command` takes "
            "the place of the image's entrypoint, and there is no shell unless it names one. It is "
            "executed by the node's uid, not by the image's USER, in the node's home.",
        )
    if hidden and not os.path.lexists(name):
        raise NodeError(
            f"{name}: hidden in the node. Nodes have a /tmp and /dev/shm of their own, and see no "
            "run folder and no folder that is closed to other users, such as a home.",
            hint="Name the folder in programs.NAME.folders, readable for all users, or move it.",
        )
    raise NodeError(
        f"{name}: {lack} in the node.",
        hint="Native nodes have the host's programs, LXC containers those in /usr, and Docker "
        "containers those of their image. A workload names a Python environment as `python`.",
    )


def _become_program(path: str, request: SpawnRequest, environment: Mapping[str, str]) -> NoReturn:
    """Replace this process with a program, with signal handling as a shell would leave it."""
    if request.home:
        os.umask(0)  # the run's owner, who has another uid, must be able to remove its files
    for number in (*IGNORED_BY_PYTHON, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(path, list(request.command), environment)
    except OSError as error:
        why = error.strerror
        if isinstance(error, FileNotFoundError):
            why = "the interpreter in its first line, or the loader of its libraries, is missing"
        os.write(sys.stderr.fileno(), f"{path}: {why}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)
