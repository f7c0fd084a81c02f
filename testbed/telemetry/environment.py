"""The host and software of a run: the content of ``environment.json``."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.telemetry.files import write_atomically
from testbed.telemetry.folder import FORMAT, RunFolder
from testbed.telemetry.host import PROC, parse_cpu_model, parse_meminfo

DISTRIBUTION = "edge-testbed"
LIBRARIES = ("torch", "numpy", "grpcio", "pyroute2", "pydantic")
GIT_SECONDS = 10.0


@dataclass(frozen=True)
class Circumstances:
    """Properties of a run that only the code that starts it knows."""

    argv: Sequence[str]  # the command line
    time_scale: float  # emulated seconds per real second
    launch: str  # ``warm`` or ``cold``
    runtime: str
    uid_mode: str  # the uids of the roles, such as ``own uid per worker``
    offload: str  # the links' segmentation offloads, as configured
    left_out: Sequence[str] = ()  # network features missing because the kernel lacks netem


def write_environment(
    folder: RunFolder, circumstances: Circumstances, *, package: Path, proc: Path = PROC
) -> None:
    """Write ``environment.json``, with the commit of the checkout that holds the ``package``."""
    software = {  # without importing any of it
        "testbed": _version(DISTRIBUTION),
        "commit": describe_commit(package.parent),
        "python": platform.python_version(),
        **{name: _version(name) for name in LIBRARIES},
        "torch_build": torch_build(),
    }
    host = describe_host(proc)
    content = {"format": FORMAT, "host": host, "software": software, **asdict(circumstances)}
    write_atomically(folder.environment, json.dumps(content, indent=2) + "\n")


def describe_host(proc: Path = PROC) -> Mapping[str, Any]:
    """Return CPU, cores, memory and kernel; None for values that the kernel does not report."""
    return {
        "name": platform.node(),
        "cpu": parse_cpu_model((proc / "cpuinfo").read_text()),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": parse_meminfo((proc / "meminfo").read_text()).get("MemTotal"),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "system": _distribution(),
    }


def describe_commit(checkout: Path) -> Mapping[str, Any] | None:
    """Return a checkout's git commit and whether files were changed; None without a checkout."""
    if not (checkout / ".git").exists():
        return None
    commit = _git(checkout, "rev-parse", "HEAD")
    changes = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    if commit is None:
        return None
    return {"hash": commit, "changed": None if changes is None else bool(changes)}


def torch_build() -> str | None:
    """Return the build of the installed torch, such as ``cpu`` or ``cuda 12.8``; None without it.

    Importing torch takes seconds, so its version file is read instead.
    """
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    version = Path(found.origin).with_name("version.py")
    return parse_torch_build(version.read_text()) if version.is_file() else None


def parse_torch_build(text: str) -> str:
    """Parse the build from the text of torch's ``version.py``."""
    for variable, name in (("cuda", "cuda"), ("hip", "rocm"), ("xpu", "xpu")):
        match = re.search(rf"^{variable}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        if match:
            return f"{name} {match[1]}"
    return "cpu"


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _git(checkout: Path, *arguments: str) -> str | None:
    """Return git's output; None without git, a commit, or git's trust in the folder."""
    command = ["git", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
