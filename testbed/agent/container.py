"""From a fork of the template to a node: namespaces, control groups, mounts, privileges, role."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from testbed.agent import syscalls
from testbed.agent.confine import confine, keep_only
from testbed.agent.launch import Launch
from testbed.agent.order import Delivery, Order
from testbed.agent.role import end_on_signals, resolve
from testbed.agent.view import make_view
from testbed.errors import NodeError, TestbedError
from testbed.runtimes.environment import python
from testbed.runtimes.process import has_ended
from testbed.runtimes.reports import encode_error, report

ARGUMENTS_DESCRIPTOR = 3
SETUP_SECONDS = 30.0


def become_node(delivery: Delivery) -> int:
    """Turn this process into a node and run its role; returns the role's exit status.

    Two processes come out of it. The first enters the control groups and makes or enters the
    namespaces; as its own pid namespace stays what it was, it forks the second, reports its pid,
    and ends.
    """
    launch = delivery.order.launch
    with _reporting(delivery.report):
        _enter(delivery.order)
        first = os.pidfd_open(os.getpid())
        role = os.fork()
        if role:
            report(delivery.report, pid=role)
            return 0
        _prepare(delivery, first)
        report(delivery.report, prepared=True)
    os.close(delivery.report)
    # The agent connects the link meanwhile. The end of the file: it gave the node up, or has ended.
    if not os.read(delivery.gate, 1):
        return 1
    os.close(delivery.gate)
    environment = {**os.environ, **launch.environment}
    if launch.mode == "cold":
        _execute(launch, environment)
    os.environ.update(environment)
    return resolve(launch.entry)(launch.arguments)


@contextmanager
def _reporting(descriptor: int) -> Iterator[None]:
    """Report what goes wrong in the body to the agent, and end this process."""
    try:
        yield
    except (OSError, TestbedError) as error:
        report(descriptor, error=encode_error(error))
        os._exit(1)


def _enter(order: Order) -> None:
    """Become a process of the node's control groups and, but for the pid's, of its namespaces."""
    container = order.way.container
    score = "" if container is None else _oom_score_file(container.pid).read_text()
    for entrance in order.way.entrances:
        entrance.write_text("0")
    if container is None:
        syscalls.unshare(syscalls.CONTAINER)
        socket.sethostname(order.launch.node.name)
        return
    _oom_score_file(os.getpid()).write_text(score)
    # One descriptor for all of them: after the mounts' there would be no way to the others.
    process = container.open()
    if process is None:
        raise NodeError(f"{order.launch.node.name}: its container has ended.")
    syscalls.setns(process, syscalls.GIVEN_CONTAINER)
    os.close(process)


def _prepare(delivery: Delivery, first: int) -> None:
    """Everything between the fork and the role, but the link.

    Args:
        delivery: see Delivery.
        first: pidfd of the process that has forked this one.
    """
    order = delivery.order
    launch = order.launch
    end_on_signals()
    syscalls.set_name(launch.node.name)
    os.chdir("/")
    keep_only(delivery.report, delivery.gate, delivery.log, first)
    _redirect(delivery.log)
    if order.way.container is None:
        syscalls.bring_loopback_up()
        make_view(
            launch.mounts, launch.node.uid, run_folder=order.run_folder, private=order.private
        )
    os.nice(order.way.nice)
    confine(launch.node.uid)
    if order.way.container is not None:
        _die_with_agent(first)
    os.close(first)


def _die_with_agent(first: int) -> None:
    """Have the kernel kill this process when the agent ends.

    Processes in a container of an engine's would outlive it otherwise. It is the parent from the
    moment on in which the process that has forked this one ends; had the agent ended before that,
    nobody would open the gate. A change of the uid would take this back, so it comes after that.
    """
    has_ended(first, SETUP_SECONDS)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def _oom_score_file(pid: int) -> Path:
    """Whom the kernel kills first when the host is out of memory; inherited from the parent."""
    return Path(f"/proc/{pid}/oom_score_adj")


def _redirect(log: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)


def _execute(launch: Launch, environment: Mapping[str, str]) -> None:
    """Replace this process by a fresh interpreter that runs the role."""
    arguments = os.memfd_create("arguments", 0)
    os.write(arguments, json.dumps(dict(launch.arguments)).encode())
    os.lseek(arguments, 0, os.SEEK_SET)
    if arguments != ARGUMENTS_DESCRIPTOR:
        os.dup2(arguments, ARGUMENTS_DESCRIPTOR)
        os.close(arguments)
    command = python("testbed.agent.role", launch.entry, str(ARGUMENTS_DESCRIPTOR))
    os.execve(sys.executable, command, environment)
