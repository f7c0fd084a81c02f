"""The template: a single-threaded process that has imported everything, and forks every node.

A node forked from it starts in milliseconds and shares its memory. It is a program of its own, so
that its environment exists before its first instruction, where glibc reads it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any

from testbed.errors import NodeError
from testbed.host import syscalls
from testbed.host.process import end_with
from testbed.host.reports import encode_error, report
from testbed.runtimes.agent.gaps import fill_gaps
from testbed.runtimes.agent.node_process import become_node
from testbed.runtimes.agent.role import end_on_signals, resolve
from testbed.runtimes.agent.settings import TEMPLATE, Template
from testbed.runtimes.agent.spawner import Received

HUGE_PAGE_BYTES = 2**21
"""Of x86-64, and of arm64 with pages of 4 KiB; elsewhere some memory stays in small pages."""

FORKS_WORTH_HUGE_PAGES = 30
"""For fewer nodes, moving 140 MB takes as long as copying the page tables."""


def main() -> int:
    """Prepare, report that on standard output, then fork a node for every request.

    Command line: descriptor of the socket that requests arrive on, and the Template as JSON.
    """
    end_on_signals()
    os.umask(0o022)  # the caller's could hide a node's mounts from the node's own uid
    channel = socket.socket(fileno=int(sys.argv[1]))
    said = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of imported modules is no report
    warmed = prepare(TEMPLATE.validate_json(sys.argv[2]))
    end_on_signals()  # whatever was imported; and every node, until its role installs its own
    report(said, ready=True)
    os.close(said)
    while (received := Received.next_of(channel)) is not None:
        fork_node(received, channel, warmed)
    return 0


def prepare(template: Template) -> Any:
    """Import and warm up, so that what every node needs is in pages that all of them share.

    Returns what the warm-up does.
    """
    gc.disable()  # nothing is garbage until all is imported
    for module in template.preload:
        importlib.import_module(module)
    warmed = resolve(template.warm_up)(template.arguments) if template.warm_up else None
    # Otherwise the garbage collector would write into the pages of all existing objects.
    gc.collect()
    gc.freeze()
    gc.enable()
    # Lookups of a node replace names in this cache, and so would write to pages of the imports.
    ctypes.pythonapi.PyType_ClearCache()
    fill_gaps()
    if template.forks >= FORKS_WORTH_HUGE_PAGES:
        use_huge_pages()
    return warmed


def use_huge_pages() -> None:
    """Put this process's own memory into huge pages, where the kernel supports that.

    A fork copies a page table entry for each page: 42,000 of them after importing torch,
    and 300 once they are huge. Pages that a node writes to are still copied as small pages.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions, _, _, inode, *path = line.split()
        if permissions.startswith("rw") and inode == "0" and path in ([], ["[heap]"]):
            start, end = (int(address, 16) for address in addresses.split("-"))
            start = ceil(start / HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
            end = end // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
            if start < end and not syscalls.collapse_pages(start, end):
                # Where memory is fragmented the kernel finds no room for some of them, and leaves
                # out all that follow in the range.
                for page in range(start, end, HUGE_PAGE_BYTES):
                    syscalls.collapse_pages(page, page + HUGE_PAGE_BYTES)


def fork_node(received: Received, channel: socket.socket, warmed: Any) -> None:
    """Fork a process that becomes a node.

    Nothing waits for it here: the next node can be forked meanwhile. One that has forked the role
    and ended is reaped after a later fork.
    """
    try:
        check_threads(received)
        if fork(received) == 0:
            channel.close()
            end_with(lambda: become_node(received.request(), warmed))
        _reap()
    except (OSError, NodeError) as error:
        report(received.request().report, error=encode_error(error))
    finally:
        for descriptor in received.descriptors:
            os.close(descriptor)


def fork(received: Received) -> int:
    """Fork; where possible the role itself, as the first process of its pid namespace."""
    if received.forks_role:
        with suppress(OSError):  # an unusual kernel
            return syscalls.fork_sibling(syscalls.CLONE_NEWPID)
    return os.fork()


def _reap() -> None:
    """Release the first processes that have ended."""
    with suppress(ChildProcessError):  # all have
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def check_threads(received: Received) -> None:
    """Check that this process has one thread, as the kernel counts them.

    A fork would keep the locks held by the threads that it leaves behind.
    """
    if len(os.listdir("/proc/self/task")) == 1:  # noqa: PTH208 - writes to fewer pages
        return
    if others := sorted(_other_threads()):
        name = received.request().name
        raise NodeError(
            f"{name}: the template has {len(others) + 1} threads, but only a process with one may "
            f"fork; the others are called {', '.join(others)}.",
            hint="An imported module or the warm-up has started a thread; use `launch: cold`. "
            "Threads called event_engine are gRPC's, which has not ended them within 10 s: is "
            "this host too busy?",
        )


def _other_threads() -> Iterator[str]:
    """Yield the names of this process's threads but its first."""
    process = Path("/proc/self").resolve()
    for thread in (process / "task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if thread.name != process.name:
                yield (thread / "comm").read_text().strip()


if __name__ == "__main__":
    end_with(main)
