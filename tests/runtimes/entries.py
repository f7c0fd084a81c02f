"""Roles for tests. A node runs them as ``entries:<function>``; they get their arguments as text."""

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
from collections.abc import Mapping
from pathlib import Path

from testbed.errors import RejectedError
from testbed.host.confine import NUMBERS

Arguments = Mapping[str, str]


def wait(arguments: Arguments) -> int:
    """Say so, then do nothing until somebody ends it."""
    print("waiting", flush=True)
    while True:
        signal.pause()


def finish(arguments: Arguments) -> int:
    """End with the status that is asked for."""
    print("finishing")
    return int(arguments["status"])


def end_on_request(arguments: Arguments) -> int:
    """Wait for SIGTERM with a handler of its own, and end with 7."""

    def handle(number: int, frame: object) -> None:
        sys.exit(7)

    signal.signal(signal.SIGTERM, handle)
    return wait(arguments)


def reject(arguments: Arguments) -> int:
    """Fail as a role does that was refused."""
    raise RejectedError("w0: the push was refused.", hint="Ask why.")


def crash(arguments: Arguments) -> int:
    """Fail as a role does that has a bug."""
    return {"x": 1}[arguments["missing"]]


def allocate(arguments: Arguments) -> int:
    """Use memory."""
    block = bytearray(int(arguments["bytes"]))
    block[::4096] = b"x" * len(block[::4096])
    return 0


def try_files(arguments: Arguments) -> int:
    """Report what it can do with each path: list, read and write it."""
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


def import_late(arguments: Arguments) -> int:
    """Import what nobody has imported before, from the library and from next to this file."""
    import xmlrpc.client

    import late

    print(xmlrpc.client.__name__, late.GREETING)
    return 0


def start_programs(arguments: Arguments) -> int:
    """Start a thread's worth of ordinary programs, to see that no more is refused than must be."""
    print(subprocess.run(["/bin/echo", "from a child"], capture_output=True, check=True).stdout)
    made = subprocess.run(["/usr/bin/unshare", "-U", "true"], capture_output=True, check=False)
    print("unshare", made.returncode)
    return 0


def try_to_rise(arguments: Arguments) -> int:
    """Try every way to more rights than it has, and report how each of them ends."""
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
        "clone": lambda: libc.syscall(NUMBERS[platform.machine()].clone, 0x1000_0011, 0, 0, 0, 0),
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


def serve(arguments: Arguments) -> int:
    """Listen on the node's address and send back what one peer sends."""
    with socket.create_server((arguments["address"], 5000)) as server:
        print("listening", flush=True)
        peer, _ = server.accept()
        with peer:
            while data := peer.recv(65536):
                peer.sendall(data)
            return wait(arguments)


def call(arguments: Arguments) -> int:
    """Send bytes to ``serve`` and count what comes back."""
    size = int(arguments["bytes"])
    with socket.create_connection((arguments["address"], 5000), timeout=20) as peer:
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
    """Print what says which GPUs there are, and whether the first of them can be opened."""
    names = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
    found = {name: os.environ.get(name) for name in names}
    # As a library sees it that asks the C library, and not Python.
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    encoded = {name: None if value is None else value.encode() for name, value in found.items()}
    assert encoded == {name: getenv(name.encode()) for name in names}
    try:
        os.close(os.open("/dev/nvidia0", os.O_RDWR))
        device = "opened"
    except OSError as error:
        device = errno.errorcode[error.errno or 0]
    print(json.dumps({**found, "device": device}))
    return 0
