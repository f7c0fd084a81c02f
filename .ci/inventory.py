"""Prints what this host holds besides files, one thing a line; a run must leave nothing behind.

Interfaces and mounts of the host, named network namespaces, the testbed's cgroups and
containers, and the Python processes that come from this working tree.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def interfaces() -> Iterator[str]:
    for path in Path("/sys/class/net").iterdir():
        yield f"interface {path.name}"


def mounts() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        yield f"mount {line.split()[4]}"


def namespaces() -> Iterator[str]:
    for path in Path("/run/netns").glob("*"):
        yield f"network namespace {path.name}"


def cgroups() -> Iterator[str]:
    for path, folders, _ in os.walk("/sys/fs/cgroup"):
        if {"testbed", "testbed.lxc"} & {*Path(path).parts}:
            yield f"cgroup {path}"
        folders.sort()


def processes() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*"):
        if int(path.name) == os.getpid():
            continue
        try:
            here = (path / "cwd").readlink().is_relative_to(ROOT)
            python = (path / "exe").readlink().name.startswith("python")
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended meanwhile, or is a kernel thread
            continue
        if python and (here or f"{ROOT}/.venv/" in command):
            yield f"process {path.name} {command}"


def containers() -> Iterator[str]:
    ours = ["docker", "ps", "--all", "--filter", "label=org.edge-testbed.run"]
    listing = [*ours, "--format", "container {{.Names}} {{.Status}}"]
    found = subprocess.run(listing, check=True, capture_output=True, text=True)
    yield from found.stdout.splitlines()
    for path in Path("/var/lib/lxc").glob("testbed-*"):
        yield f"container {path}"


def main() -> None:
    for part in (interfaces, mounts, namespaces, cgroups, containers, processes):
        for line in sorted(part()):
            print(line)


if __name__ == "__main__":
    main()
