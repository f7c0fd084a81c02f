"""From a fork of the template to a node: namespaces, control groups, mounts, privileges, role."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from testbed.agent import syscalls
from testbed.agent.confine import confine, keep_only
from testbed.agent.launch import Launch
from testbed.agent.order import Delivery
from testbed.agent.role import end_on_signals, resolve
from testbed.agent.view import make_view
from testbed.errors import TestbedError
from testbed.runtimes.environment import python
from testbed.runtimes.reports import encode_error, report

ARGUMENTS_DESCRIPTOR = 3


def become_node(delivery: Delivery) -> int:
    """Turn this process into a node and run its role; returns the role's exit status.

    Two processes come out of it. The first enters the control groups and makes the namespaces; as
    its own pid namespace stays what it was, it forks the second, reports its pid, and ends.
    """
    launch = delivery.order.launch
    with _reporting(delivery.report):
        for entrance in delivery.order.entrances:
            entrance.write_text("0")
        syscalls.unshare(syscalls.CONTAINER)
        socket.sethostname(launch.node.name)
        role = os.fork()
        if role:
            report(delivery.report, pid=role)
            return 0
        _prepare(delivery)
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


def _prepare(delivery: Delivery) -> None:
    """Everything between the fork and the role, but the link."""
    launch = delivery.order.launch
    end_on_signals()
    syscalls.set_name(launch.node.name)
    os.chdir("/")
    keep_only(delivery.report, delivery.gate, delivery.log)
    _redirect(delivery.log)
    syscalls.bring_loopback_up()
    order = delivery.order
    make_view(launch.mounts, launch.node.uid, run_folder=order.run_folder, private=order.private)
    os.nice(order.nice)
    confine(launch.node.uid)


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
