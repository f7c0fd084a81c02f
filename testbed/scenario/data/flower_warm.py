"""Runs a SuperNode or SuperLink whose processes are forks of one that has imported Flower already.

Flower starts a SuperExec, a ClientApp for every message, and a ServerApp, by its commands: a new
interpreter takes seconds of CPU time and 100 MB of memory each. Here, commands of these names come
first in PATH, and ask this process to fork. A fork calls the function that the command stands for.
This file runs with the user's Python, beside Flower, and needs nothing but the standard library.

Usage: flower_warm.py [--import STATEMENT ...] -- flower-supernode|flower-superlink [OPTION ...]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shlex
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

FORKED = {
    "flower-supernode": ("flower-superexec", "flwr-clientapp"),
    "flower-superlink": ("flower-superexec", "flwr-serverapp"),
}
"""What each of the two starts."""

MOST_BYTES = 128 * 1024
LONGEST_END_SECONDS = 1.0
READY_FOR_FORKS = "jemalloc_bg_thd"
"""The thread of an allocator that handles forks; pyarrow starts it."""

COMMAND = """\
#!/bin/sh
'''exec' {python} -IS "$0" "$@"
' '''
import json, os, socket, sys
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as warm:
    warm.connect({address!r})
    request = json.dumps([words, dict(os.environ)]).encode()
    socket.send_fds(warm, [request], [1, 2])
    warm.recv(1)
"""
"""Ends as soon as the fork exists. Flower does not wait for these commands.

A shell starts the interpreter, whose path may be long and have spaces, which `#!` does not allow.
"""


def main() -> int:
    """Start the SuperNode or SuperLink and serve its commands; exit with its status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--import", action="append", default=[], dest="statements")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    name = given.command[0]
    functions = {one: function_of(one) for one in (name, *FORKED[name])}
    for statement in given.statements:
        preload(statement)
    if threads := threads_after_fork():
        print(f"not forked, as the imports have started threads: {', '.join(threads)}", flush=True)
        os.execvp(name, given.command)
    gc.collect()
    gc.freeze()  # otherwise, collections would write into the pages that forks share
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    address = f"\0flower-{os.getpid()}"
    requests.bind(address)
    requests.listen(16)
    write_commands(Path(os.environ["FLWR_HOME"]) / "warm", FORKED[name], address)
    first = os.fork()
    if first == 0:
        requests.close()
        return run(given.command, functions[name])
    end_with(first)
    while True:
        try:
            words, environment, outputs = receive(requests)
        except ValueError as error:  # such as that of a command that was killed meanwhile
            print(f"not forked, as the request is incomplete: {error}", flush=True)
            continue
        if os.fork() == 0:
            requests.close()
            leave(environment, outputs)
            return run(words, functions[words[0]])
        for output in outputs:
            os.close(output)


def function_of(name: str) -> Callable[[], object]:
    """Import and return what a command of the environment calls."""
    (found,) = entry_points(group="console_scripts", name=name)
    function: Callable[[], object] = found.load()
    return function


def preload(statement: str) -> None:
    """Import what the app will import; the app itself reports what it cannot."""
    try:
        exec(statement, {})
    except (Exception, SystemExit) as error:  # noqa: BLE001 - of the imported modules, any
        print(f"not shared: {statement}: {error}", flush=True)


def threads_after_fork() -> list[str]:
    """Return the names of this process's threads whose locks a fork would keep.

    OpenBLAS ends its threads before a fork, and starts others when it needs them. The kernel lists
    a thread for another moment after it has ended.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about these threads
        child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    deadline = time.monotonic() + LONGEST_END_SECONDS
    while (found := other_threads()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def other_threads() -> list[str]:
    """Return the names of this process's other threads, without those that are ready for forks."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            name = (task / "comm").read_text(encoding="utf-8").strip()
            if task.name != str(os.getpid()) and name != READY_FOR_FORKS:
                names.append(name)
    return names


def write_commands(folder: Path, names: Sequence[str], address: str) -> None:
    """Let commands that ask for forks come first in PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        file = folder / name
        file.write_text(
            COMMAND.format(python=shlex.quote(sys.executable), address=address), encoding="utf-8"
        )
        file.chmod(0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def end_with(first: int) -> None:
    """Reap children, end with the first, and pass signals on to it."""

    def reap(*_: object) -> None:
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if child == 0:
                return
            if child == first:
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else 128 - code)

    signal.signal(signal.SIGCHLD, reap)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda caught, _: os.kill(first, caught))
    reap()  # it may have ended before


def receive(requests: socket.socket) -> tuple[list[str], dict[str, str], list[int]]:
    """Wait for a command; return its words, its environment, and where it prints.

    Raises:
        ValueError: the request is not complete.
    """
    connection, _ = requests.accept()
    with connection:
        data, outputs, _, _ = socket.recv_fds(connection, MOST_BYTES, 2)
    try:
        words, environment = json.loads(data)
    except ValueError:
        for output in outputs:
            os.close(output)
        raise
    return words, environment, list(outputs)


def leave(environment: dict[str, str], outputs: list[int]) -> None:
    """Give a fork the environment and the output of the command that has asked for it."""
    os.environ.clear()
    os.environ.update(environment)
    for output, standard in zip(outputs, (1, 2), strict=True):
        os.dup2(output, standard)
        os.close(output)
    if "numpy" in sys.modules:
        # Otherwise, all clients of a node would draw the same numbers, unless the app has a seed.
        sys.modules["numpy"].random.seed()


def run(words: list[str], function: Callable[[], object]) -> int:
    """Run a command in this fork, and return its exit status."""
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = words
    found = function()
    return found if isinstance(found, int) else 0


if __name__ == "__main__":
    sys.exit(main())
