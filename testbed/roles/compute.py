"""The node that computes the gradients of all workers, in one process for each core.

This process accepts the workers' connections and passes them to its children, which all wait for
requests on all of them. The first child that is free takes the next request; workers that wait are
served in turn, and each has at most one request.

With GPUs, each child computes on one. If a child ends, so does the node. The controller starts it
again, and the workers ask again.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hmac import compare_digest
from pathlib import Path

from testbed.errors import HostError, NodeError
from testbed.host import syscalls
from testbed.host.isolation import early_exit
from testbed.host.process import end_with
from testbed.host.sockets import short_path
from testbed.roles.arguments import Arguments
from testbed.roles.compute_process import serve
from testbed.roles.process import run
from testbed.roles.segment import MESSAGE_BYTES, WELCOME, worker_bytes
from testbed.rpc.tokens import token_of
from testbed.scenario.experiment import Experiment
from testbed.scenario.settings import Shared

HELLO_SECONDS = 1.0
"""How long a worker may take to introduce itself."""

FIRST_OF_SIGNALS = 128
"""Added to a signal's number: exit status of the node if the signal ended a child."""


Work = Callable[[socket.socket, int], None]
"""What a child does, given its channel and its number, until the channel is closed."""


@dataclass(frozen=True)
class Child:
    """A process that computes."""

    pid: int
    pidfd: int  # readable once it has ended
    channel: socket.socket  # connections are passed through it


def main(arguments: Mapping[str, str], opened: Experiment | None = None) -> int:
    """Compute until SIGTERM, or until a child is killed. Return the exit status."""
    node, killed_by = arguments.get("node", "compute"), list[int]()
    status = run(node, lambda: killed_by.append(_main(Arguments.parse(arguments), opened)))
    return FIRST_OF_SIGNALS + killed_by[0] if killed_by else status


def _main(arguments: Arguments, opened: Experiment | None) -> int:
    """Accept workers until a child ends; return the number of the signal that ended it.

    Raises:
        NodeError: the child ended by itself.
        UserCodeError: the user's own code made it end.
    """
    experiment = arguments.experiment(opened)
    workers = {
        token_of(arguments.token, f"w{index}"): index
        for index in range(experiment.scenario.workers.count)
    }
    given = experiment.scenario.compute
    shared = given if isinstance(given, Shared) else Shared(name="shared")  # chosen by the plan
    processes = shared.process_count

    def work(channel: socket.socket, number: int) -> None:
        serve(experiment, channel, arguments=arguments, number=number, at_once=shared.vmap)

    with (
        _children(work, processes) as children,
        _listening(arguments.compute_socket) as listener,
    ):
        poll = select.poll()
        for descriptor in (listener.fileno(), *(child.pidfd for child in children)):
            poll.register(descriptor, select.POLLIN)
        while {descriptor for descriptor, _ in poll.poll()} == {listener.fileno()}:
            _accept(listener, workers, children)
        ended = next(filter(None, (os.waitpid(one.pid, os.WNOHANG)[1] for one in children)), 0)
        status = os.waitstatus_to_exitcode(ended)
    if status < 0:
        sys.stderr.write(f"one of its {processes} processes was ended by signal {-status}\n")
        return -status
    if experiment.own_files and status != HostError.exit_code:
        raise early_exit(experiment.own_files, status)
    raise NodeError(f"one of its {processes} processes ended with status {status}.")


@contextmanager
def _children(work: Work, count: int) -> Iterator[Sequence[Child]]:
    """Fork the processes that compute; they are killed at the end."""
    children: list[Child] = []
    try:
        for number in range(count):
            children.append(_fork(work, number))
        yield children
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
            with suppress(ChildProcessError):  # waited for before
                os.waitpid(child.pid, 0)
            os.close(child.pidfd)
            child.channel.close()


def _fork(work: Work, number: int) -> Child:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        ours.close()
        end_with(lambda: _begin(partial(work, theirs, number), parent))
    theirs.close()
    return Child(pid, os.pidfd_open(pid), ours)


def _begin(work: Callable[[], None], parent: int) -> int:
    """Compute in this process until its parent ends."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:
        work()
    return 0


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """Listen on a unix socket that every uid may connect to; its folder is closed to others."""
    new = path.with_suffix(".new")  # not seen by workers until it accepts them
    new.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        with short_path(new) as name:
            listener.bind(name)
        new.chmod(0o666)
        listener.listen(socket.SOMAXCONN)
        new.replace(path)
        yield listener


def _accept(listener: socket.socket, workers: Mapping[str, int], children: Sequence[Child]) -> None:
    """Pass a worker's connection and its memory to every child; close those of others."""
    with ExitStack() as opened:
        peer, _ = listener.accept()
        opened.enter_context(peer)
        peer.settimeout(HELLO_SECONDS)
        try:
            hello, memory, _, _ = socket.recv_fds(peer, MESSAGE_BYTES, 1)
        except OSError:  # it has ended, or says nothing
            return
        for descriptor in memory:
            opened.callback(os.close, descriptor)
        known = [index for token, index in workers.items() if compare_digest(token.encode(), hello)]
        if not known or not memory:
            return
        with suppress(ConnectionError):  # a child has ended, and so will this node; or the worker
            for child in children:
                socket.send_fds(child.channel, [worker_bytes(known[0])], [peer.fileno(), *memory])
            for child in children:  # the kernel limits how many descriptors are on their way
                child.channel.recv(MESSAGE_BYTES)
            peer.send(WELCOME)
