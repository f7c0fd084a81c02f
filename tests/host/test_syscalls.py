"""A fork whose parent is this process's parent."""

from __future__ import annotations

import ctypes
import os
import random

import pytest

from testbed.host import syscalls
from testbed.host.process import end_with

FOUND = 7


def test_a_sibling_is_a_child_of_the_parent_and_knows_its_own_thread() -> None:
    reader, writer = os.pipe()
    forking = os.fork()
    if forking == 0:
        end_with(lambda: _fork_sibling_into(writer))
    os.close(writer)
    assert os.waitpid(forking, 0)[1] == 0
    with os.fdopen(reader) as lines:
        sibling, parent, thread, drawn = map(float, lines.read().split())
    assert os.waitstatus_to_exitcode(os.waitpid(int(sibling), 0)[1]) == FOUND
    assert parent == os.getpid()
    assert thread == sibling  # glibc's number of the thread is that of the new one
    assert drawn != random.Random(0).random()  # what Python does after a fork was done


@pytest.mark.root
def test_a_sibling_is_the_first_process_of_a_new_pid_namespace() -> None:
    reader, writer = os.pipe()
    forking = os.fork()
    if forking == 0:
        end_with(lambda: _fork_first_into(writer))
    os.close(writer)
    assert os.waitpid(forking, 0)[1] == 0
    with os.fdopen(reader) as lines:
        sibling = int(lines.read())
    assert os.waitstatus_to_exitcode(os.waitpid(sibling, 0)[1]) == 1 + FOUND


def _fork_first_into(writer: int) -> int:
    """Fork into a new pid namespace, and write down the pid; the sibling's status has its own."""
    if (pid := syscalls.fork_sibling(syscalls.CLONE_NEWPID)) == 0:
        return os.getpid() + FOUND
    os.write(writer, str(pid).encode())
    return 0


def _fork_sibling_into(writer: int) -> int:
    """Fork, and have the sibling write down what it is."""
    random.seed(0)
    if syscalls.fork_sibling(0):
        return 0
    address = ctypes.c_void_p()
    syscalls.prctl(syscalls.PR_GET_TID_ADDRESS, ctypes.addressof(address))
    thread = ctypes.c_int.from_address(address.value or 0).value
    found = (os.getpid(), os.getppid(), thread, random.random())
    os.write(writer, " ".join(map(repr, found)).encode())
    return FOUND
