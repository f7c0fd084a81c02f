"""A fork whose parent is this process's parent."""

from __future__ import annotations

import ctypes
import os
import random

import pytest

from testbed.host import syscalls

FOUND = 7


def test_a_sibling_is_a_child_of_the_parent_and_knows_its_own_thread() -> None:
    reader, writer = os.pipe()
    forking = os.fork()
    if forking == 0:
        _fork_sibling_into(writer)
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
    forking = os.fork()
    if forking == 0:
        pid = syscalls.fork_sibling(syscalls.CLONE_NEWPID)
        os._exit(0 if pid else os.getpid() + FOUND)
    assert os.waitpid(forking, 0)[1] == 0
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 1 + FOUND


def _fork_sibling_into(writer: int) -> None:
    """Fork, and have the sibling write down what it is."""
    random.seed(0)
    if syscalls.fork_sibling(0):
        os._exit(0)
    address = ctypes.c_void_p()
    syscalls.prctl(syscalls.PR_GET_TID_ADDRESS, ctypes.addressof(address))
    thread = ctypes.c_int.from_address(address.value or 0).value
    found = (os.getpid(), os.getppid(), thread, random.random())
    os.write(writer, " ".join(map(repr, found)).encode())
    os._exit(FOUND)
