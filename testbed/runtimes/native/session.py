"""Runs one command in a node: with a terminal of its own, or with pipes.

This process's own streams stay outside. Other processes of the node can reach a command's input:
they could read what is typed later, or type themselves.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from json import dumps
from typing import Any

from testbed.host.environment import python
from testbed.host.terminal import STDERR, STDIN, STDOUT, is_terminal, raw, write

CHUNK_BYTES = 65536
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_in(where: Mapping[str, Any], command: Sequence[str]) -> int:
    """Run a command in a node; return its exit status.

    Args:
        where: as testbed.runtimes.agent.enter takes it.
        command: program and arguments.
    """
    return _run_with_terminal(where, command) if is_terminal() else _run(where, command)


def _run(where: Mapping[str, Any], command: Sequence[str]) -> int:
    with ExitStack() as held:
        entering = held.enter_context(_enter(where, command, stdin=subprocess.PIPE))
        assert entering.stdin is not None
        assert entering.stdout is not None
        assert entering.stderr is not None
        held.enter_context(_passing_signals_on(entering))
        outputs = {entering.stdout.fileno(): STDOUT, entering.stderr.fileno(): STDERR}
        sink = os.dup(entering.stdin.fileno())
        entering.stdin.close()
        _StreamRelay(sink, outputs, entering.pid).carry()
        return entering.wait()


def _run_with_terminal(where: Mapping[str, Any], command: Sequence[str]) -> int:
    mine, its = socket.socketpair()
    terminal = {
        "size": termios.tcgetwinsize(STDOUT),
        "term": os.environ.get("TERM", "dumb"),
        "descriptor": its.fileno(),
    }
    with mine, ExitStack() as held:
        with its:
            entering = held.enter_context(
                _enter({**where, "terminal": terminal}, command, pass_fds=(its.fileno(),))
            )
        assert entering.stderr is not None
        held.enter_context(_passing_signals_on(entering))
        _, descriptors, _, _ = socket.recv_fds(mine, 1, 1)
        for master in descriptors:
            _show(master, entering.pid)
        status = entering.wait()
        write(STDERR, entering.stderr.read())  # why no terminal could be opened
        return status


def _show(master: int, pid: int) -> None:
    """Show a command's terminal in this one, for as long as process ``pid`` lives."""

    def resize() -> None:
        termios.tcsetwinsize(master, termios.tcgetwinsize(STDOUT))

    try:
        with raw(resize):
            _StreamRelay(os.dup(master), {master: STDOUT}, pid).carry()
    finally:
        os.close(master)


def _enter(
    where: Mapping[str, Any],
    command: Sequence[str],
    *,
    stdin: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        python("testbed.runtimes.agent.enter", dumps(dict(where)), *command),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=pass_fds,
        start_new_session=True,  # else the node would have this terminal as /dev/tty
    )


@contextmanager
def _passing_signals_on(entering: subprocess.Popen[bytes]) -> Iterator[None]:
    """Inside, Ctrl-C and the signals that ask this process to end are passed to the command.

    Signals that this process was started to ignore, as by nohup, are not.
    """
    with ExitStack() as held:
        for number in PASSED_ON:
            if signal.getsignal(number) == signal.SIG_IGN:
                continue
            usual = signal.signal(number, lambda number, frame: entering.send_signal(number))
            held.callback(signal.signal, number, usual)
        yield


class _StreamRelay:
    """Carries this process's input to a command, and its outputs back.

    Args:
        sink: descriptor of the command's input; closed in the end.
        outputs: descriptors of the command's output, and where in this process each goes.
        pid: of the process that ends with the command.
    """

    def __init__(self, sink: int, outputs: Mapping[int, int], pid: int) -> None:
        self._sink = sink
        self._outputs = dict(outputs)
        self._ended = os.pidfd_open(pid)
        self._pending = b""
        self._poller = select.poll()
        for descriptor in (STDIN, self._ended, *outputs):
            self._poller.register(descriptor, select.POLLIN)
        os.set_blocking(sink, False)

    def carry(self) -> None:
        """Run until the command has ended and all its output has been read."""
        try:
            while self._outputs:
                ready = {descriptor for descriptor, _ in self._poller.poll()}
                speaking = ready & self._outputs.keys()
                if self._ended in ready and not speaking:
                    return  # other processes may keep the streams open
                for descriptor in speaking:
                    self._listen(descriptor)
                if STDIN in ready:
                    self._read()
                elif self._sink in ready:
                    self._say()
        finally:
            os.close(self._ended)
            self._hang_up()

    def _listen(self, descriptor: int) -> None:
        data = b""
        with suppress(OSError):  # of a terminal that no process has open any more
            data = os.read(descriptor, CHUNK_BYTES)
        if data:
            write(self._outputs[descriptor], data)
        else:
            self._poller.unregister(descriptor)
            del self._outputs[descriptor]

    def _read(self) -> None:
        """Read input, and no more until the command has taken it."""
        self._poller.unregister(STDIN)
        with suppress(OSError):  # of a terminal whose window is closed
            self._pending = os.read(STDIN, CHUNK_BYTES)
        if self._pending and self._sink >= 0:
            self._poller.register(self._sink, select.POLLOUT)
        else:
            self._hang_up()

    def _say(self) -> None:
        try:
            self._pending = self._pending[os.write(self._sink, self._pending) :]
        except BlockingIOError:
            return
        except OSError:  # the command has stopped reading
            self._hang_up()
            return
        if not self._pending:
            self._poller.unregister(self._sink)
            self._poller.register(STDIN, select.POLLIN)

    def _hang_up(self) -> None:
        """End the command's input."""
        if self._sink >= 0:
            with suppress(KeyError):
                self._poller.unregister(self._sink)
            os.close(self._sink)
            self._sink = -1
