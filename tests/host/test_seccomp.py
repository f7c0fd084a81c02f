"""The filter, under a real kernel and as the list of instructions that it is."""

from __future__ import annotations

import platform
import struct
import subprocess
import sys

import pytest

from testbed.host import confine
from testbed.host.confine import ARCHITECTURES, build_filter, seccomp_profile

ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026

UNDER_FILTER = """
import os, socket, subprocess, threading
from testbed.host import syscalls
from testbed.host.confine import filter_calls
syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
filter_calls()
thread = threading.Thread(target=print, args=("thread",), kwargs={"flush": True})
thread.start(); thread.join()
subprocess.run(["echo", "program"], check=True)
child = os.fork()
if child == 0:
    os._exit(4)
print("fork", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for flag in (syscalls.CLONE_NEWUSER, syscalls.CLONE_NEWNET, syscalls.CLONE_NEWTIME):
    try:
        syscalls.unshare(flag)
    except PermissionError as error:
        print("refused")
syscalls.unshare(0)
mine = os.pidfd_open(os.getpid())
try:
    syscalls.setns(mine, syscalls.CLONE_NEWUTS)
except PermissionError:
    print("refused")
try:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
except PermissionError:
    print("refused")
"""


def evaluate(program: bytes, *, architecture: int, number: int, argument: int = 0) -> int:
    """The result of the kernel's interpreter for such programs."""
    data = struct.pack("=IIQQ", number, architecture, 0, argument)
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator, position = 0, 0
    while True:
        code, if_true, if_false, value = instructions[position]
        position += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x06:
                return value
            case 0x15:
                position += if_true if accumulator == value else if_false
            case 0x35:
                position += if_true if accumulator >= value else if_false
            case 0x45:
                position += if_true if accumulator & value else if_false
            case _:
                raise AssertionError(code)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_it_refuses_namespaces_and_other_processes_and_nothing_else(machine: str) -> None:
    column, architecture = int(machine != "x86_64"), ARCHITECTURES[machine]
    refused = {numbers[column] for numbers in confine.REFUSED.values()}
    clone, unshare = confine.CLONE[column], confine.UNSHARE[column]
    socket, clone3 = confine.SOCKET[column], confine.CLONE3[column]
    program = build_filter(machine)

    def verdict(number: int, argument: int = 0) -> int:
        return evaluate(program, architecture=architecture, number=number, argument=argument)

    new_user, new_net, new_time, fork_flags = 0x10000000, 0x40000000, 0x80, 0x01200011
    assert {verdict(number) for number in refused} == {EPERM}
    assert confine.REFUSED["setns"] == (308, 268)
    assert verdict(clone3) == ENOSYS
    for flag in (new_user, new_net, new_user | fork_flags):
        assert verdict(unshare, flag) == EPERM
        assert verdict(clone, flag) == EPERM
    assert verdict(unshare, new_time) == EPERM
    assert verdict(unshare, 0x200) == ALLOW  # CLONE_FS
    assert verdict(clone, fork_flags) == ALLOW
    assert verdict(clone, 0x003D0F00) == ALLOW  # what glibc makes a thread with
    assert verdict(socket, 40) == EPERM  # AF_VSOCK
    assert verdict(425) == EPERM  # io_uring_setup
    assert {verdict(socket, family) for family in (1, 2, 10, 16)} == {ALLOW}
    others = set(range(470)) - {clone3, unshare, clone}
    others -= refused
    assert {verdict(number, new_user) for number in others} == {ALLOW}
    assert verdict(0x40000000 + unshare, new_user) == EPERM  # x32
    foreign = evaluate(program, architecture=0x40000003, number=1)  # 32-bit x86
    assert foreign == EPERM


def test_the_profile_for_engines_refuses_the_same() -> None:
    rules = seccomp_profile()["syscalls"]
    assert seccomp_profile()["defaultAction"] == "SCMP_ACT_ALLOW"
    always = {name: rule.get("errnoRet", 1) for rule in rules[:2] for name in rule["names"]}
    assert always == {**dict.fromkeys(confine.REFUSED, 1), "clone3": 38}
    flags = {"clone": 0, "unshare": 0}
    for rule in rules[2:-1]:
        (test,) = rule["args"]
        assert (test["index"], test["op"]) == (0, "SCMP_CMP_MASKED_EQ")
        assert test["value"] == test["valueTwo"]  # that bit is set
        flags[rule["names"][0]] += test["value"]
    # user, net, pid, ipc, uts, cgroup, mount and time
    assert flags == dict.fromkeys(flags, 0x7C000000 | 0x02000000 | 0x00020000 | 0x80)
    assert rules[-1]["args"] == [{"index": 0, "value": 40, "valueTwo": 0, "op": "SCMP_CMP_EQ"}]


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ARCHITECTURES,
    reason="needs Linux on an architecture with a filter",
)
def test_threads_forks_and_programs_work_under_the_filter() -> None:
    done = subprocess.run([sys.executable, "-c", UNDER_FILTER], capture_output=True, check=True)
    assert done.stdout.decode().split() == [
        *("thread", "program", "fork", "4", *5 * ("refused",)),
    ], done.stderr.decode()
