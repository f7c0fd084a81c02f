"""Roles for tests. A node runs them as ``entries:<function>`` with its arguments as text."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from testbed.errors import RejectedError
from testbed.host.admission import await_admission
from testbed.host.confine import CLONE, REFUSED
from testbed.host.sockets import short_path

Arguments = Mapping[str, str]

COLUMN = int(platform.machine() != "x86_64")
"""Of the tables of system calls in ``testbed.host.confine``."""


def wait(arguments: Arguments) -> int:
    """Print a line, then wait to be ended."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)  # so that a signal before the read ends it too
    print("waiting", flush=True)
    while True:
        os.read(reader, 1)


def finish(arguments: Arguments) -> int:
    """Exit with the given status."""
    print("finishing")
    return int(arguments["status"])


def finish_once_admitted(arguments: Arguments) -> int:
    """Print a line, and exit with the given status, after admission if the node is held."""
    print("waiting", flush=True)
    await_admission()
    return int(arguments["status"])


def end_on_request(arguments: Arguments) -> int:
    """Wait for SIGTERM with a handler, and exit with 7."""

    def handle(number: int, frame: object) -> None:
        sys.exit(7)

    signal.signal(signal.SIGTERM, handle)
    return wait(arguments)


def reject(arguments: Arguments) -> int:
    """Fail as a role does whose input was refused."""
    raise RejectedError("w0: the push was refused.", hint="Ask why.")


def crash(arguments: Arguments) -> int:
    """Fail as a role with a bug does."""
    return {"x": 1}[arguments["missing"]]


def allocate(arguments: Arguments) -> int:
    """Allocate memory."""
    block = bytearray(int(arguments["bytes"]))
    block[::4096] = b"x" * len(block[::4096])
    return 0


def try_files(arguments: Arguments) -> int:
    """Report for each path whether it can list, read and write it."""
    print(json.dumps({path: _try(Path(path)) for path in arguments["paths"].split(":")}))
    return 0


def _try(path: Path) -> str:
    done = []
    try:
        if path.is_dir():
            done += [f"lists {sorted(entry.name for entry in path.iterdir())}"]
            (path / "new").write_text("x")
        else:
            done += [f"reads {len(path.read_bytes())}"]
            path.write_text("x")
    except OSError as error:
        return " ".join([*done, type(error).__name__])
    return " ".join([*done, "writes"])


def fill_scratch(arguments: Arguments) -> int:
    """Create empty files in /tmp until that fails; report how many, and the error."""
    made = 0
    try:
        for made in range(10**6):
            Path(f"/tmp/{made}").touch()
    except OSError as error:
        print(made, error.strerror)
    return 0


def import_late(arguments: Arguments) -> int:
    """Import modules not imported before, from the library and from next to this file."""
    import xmlrpc.client

    import late

    print(xmlrpc.client.__name__, late.GREETING)
    return 0


def start_programs(arguments: Arguments) -> int:
    """Start a thread's worth of ordinary programs, which must not be refused."""
    print(subprocess.run(["/bin/echo", "from a child"], capture_output=True, check=True).stdout)
    made = subprocess.run(["/usr/bin/unshare", "-U", "true"], capture_output=True, check=False)
    print("unshare", made.returncode)
    return 0


def try_to_rise(arguments: Arguments) -> int:
    """Try every way to gain privileges, and report the outcome of each."""
    libc = ctypes.CDLL(None, use_errno=True)
    all_capabilities = struct.pack("=6I", *[0xFFFF_FFFF] * 2, 0, *[0xFFFF_FFFF] * 2, 0)
    calls = {
        "capset": lambda: libc.capset(struct.pack("=Ii", 0x2008_0522, 0), all_capabilities),
        "securebits": lambda: libc.prctl(28, 0, 0, 0, 0),
        "new privileges": lambda: libc.prctl(38, 0, 0, 0, 0),
        "ambient": lambda: libc.prctl(47, 2, 21, 0, 0),
        "mount": lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
        "chroot": lambda: libc.chroot(b"/tmp"),
        "setns": lambda: libc.setns(os.open("/proc/self/ns/net", os.O_RDONLY), 0),
        "clone": lambda: libc.syscall(CLONE[COLUMN], 0x1000_0011, 0, 0, 0, 0),
        "setuid": lambda: libc.setresuid(4242, 4242, 4242),
        "setgroups": lambda: libc.setgroups(1, struct.pack("=I", 0)),
    }
    found = {
        name: errno.errorcode.get(ctypes.get_errno()) if call() else ""
        for name, call in calls.items()
    }
    for path in ("/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces"):
        found[path] = _try(Path(path))
    found["limit"] = Path("/proc/sys/user/max_user_namespaces").read_text().strip()
    for program in ("/bin/grep", sys.executable):
        script = "print(open('/proc/self/status').read())"
        command = (
            [program, "Cap", "/proc/self/status"] if "grep" in program else [program, "-c", script]
        )
        status = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        words = [line.split()[1] for line in status.splitlines() if line.startswith("Cap")]
        found[f"after {Path(program).name.rstrip('0123456789.')}"] = sorted(set(words))
    print(json.dumps(found))
    return 0


def try_to_reach(arguments: Arguments) -> int:
    """Try to take what another process of the node has, and report how each way ends."""
    numbers = {name: both[COLUMN] for name, both in REFUSED.items()}
    libc = ctypes.CDLL(None, use_errno=True)
    other = os.fork()
    if other == 0:
        signal.pause()
    page = ctypes.create_string_buffer(8)
    vector = struct.pack("=QQ", ctypes.addressof(page), 8)
    attach, pidfd = 16, os.pidfd_open(other)
    calls = {
        "ptrace": (numbers["ptrace"], attach, other, 0, 0),
        "read": (numbers["process_vm_readv"], other, vector, 1, vector, 1, 0),
        "write": (numbers["process_vm_writev"], other, vector, 1, vector, 1, 0),
        "pidfd_getfd": (numbers["pidfd_getfd"], pidfd, 1, 0),
    }
    found = {
        name: errno.errorcode[ctypes.get_errno()] if libc.syscall(*call) < 0 else ""
        for name, call in calls.items()
    }
    os.kill(other, signal.SIGKILL)
    print(json.dumps(found))
    return 0


def try_to_connect(arguments: Arguments) -> int:
    """Report the outcome of connecting to each of the sockets."""
    found = {}
    for path in arguments["paths"].split(":"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            try:
                with short_path(Path(path)) as name:
                    peer.connect(name)
                found[path] = ""
            except OSError as error:
                found[path] = type(error).__name__
    print(json.dumps(found))
    return 0


def try_to_connect_later(arguments: Arguments) -> int:
    """Wait for a file that holds a socket's path, and report the outcome of connecting to it."""
    note = Path(arguments["note"])
    while not note.exists():
        time.sleep(0.01)
    return try_to_connect({"paths": note.read_text()})


def multiply(arguments: Arguments) -> int:
    """Start threads, which count as processes, until one is refused; print how many there are."""
    threading.stack_size(1 << 16)
    end = threading.Event()
    threads = []
    try:
        while True:
            threads.append(threading.Thread(target=end.wait))
            threads[-1].start()
    except RuntimeError:
        print(len(threads), flush=True)
    end.set()
    return 0


def flood(arguments: Arguments) -> int:
    """Print this many bytes."""
    line = b"x" * 1023 + b"\n"
    for _ in range(int(arguments["bytes"]) // len(line)):
        os.write(1, line)
    return 0


def ping(arguments: Arguments) -> int:
    """Send an echo request as ``ping`` does, and print the type of the reply."""
    checksum = 0xFFFF - (0x0800 + 1)  # of a request's type, and its sequence number
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as echo:
        echo.settimeout(10)
        echo.sendto(struct.pack("!BBHHH", 8, 0, checksum, 0, 1), (arguments["address"], 0))
        print(echo.recv(64)[0])
    return 0


def serve(arguments: Arguments) -> int:
    """Listen on the node's address and echo what one peer sends."""
    with socket.create_server((arguments["address"], 5000)) as server:
        print("listening", flush=True)
        peer, _ = server.accept()
        with peer:
            while data := peer.recv(65536):
                peer.sendall(data)
            return wait(arguments)


def call(arguments: Arguments) -> int:
    """Send bytes to ``serve`` and count those that return."""
    size = int(arguments["bytes"])
    with socket.create_connection((arguments["address"], 5000), timeout=180) as peer:
        peer.sendall(bytes(size))
        got = 0
        while got < size:
            got += len(peer.recv(65536))
        print("got", got, flush=True)
        return wait(arguments)


def show(arguments: Arguments) -> int:
    """Print its arguments and environment."""
    print(json.dumps({"arguments": dict(arguments), "environment": dict(os.environ)}))
    return 0


def look_for_gpus(arguments: Arguments) -> int:
    """Print the variables that select GPUs, and whether the GPU ``device`` can be opened."""
    names = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
    found = {name: os.environ.get(name) for name in names}
    # As a library sees it that calls the C library instead of Python.
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    encoded = {name: None if value is None else value.encode() for name, value in found.items()}
    assert encoded == {name: getenv(name.encode()) for name in names}
    try:
        os.close(os.open(arguments.get("device", "/dev/nvidia0"), os.O_RDWR))
        device = "opened"
    except OSError as error:
        device = errno.errorcode[error.errno or 0]
    print(json.dumps({**found, "device": device}))
    return 0
