"""What an image is built from where no registry answers: a base and wheels, made by this host."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import signal
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from testbed.errors import HostError
from testbed.runtimes.docker.sources import CONSTRAINTS, REQUIREMENTS

SUITE = "bookworm"
PYTHON_VERSION = "3.11"
"""The one that SUITE has."""

GLIBC_MINORS = range(17, 37)
"""The glibc 2.x that SUITE has, and all before it that wheels are built for."""

WHEEL_FOLDER = "srv"
INDEX_TIMEOUT_SECONDS = 3.0
GRACE_SECONDS = 10.0
SHOWN_LINES = 12

MMDEBSTRAP = (
    *("mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,tini,iperf3,iputils-ping"),
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    SUITE,
)

JAVA_MMDEBSTRAP = (
    *("mmdebstrap", "--quiet", "--variant=minbase", "--include=openjdk-17-jre-headless"),
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    SUITE,
)
"""Java's package makes links among the manuals, and fails where their folder is missing."""


def base_hash() -> str:
    """12 hexadecimal digits of how the base is made."""
    return _hash(MMDEBSTRAP)


def java_base_hash() -> str:
    """The same of the base of a broker's image."""
    return _hash(JAVA_MMDEBSTRAP)


def _hash(command: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(command).encode()).hexdigest()[:12]


def make_base(folder: Path, environment: Mapping[str, str]) -> Path:
    """A tar archive of a Debian with Python, tini, iperf3 and ping, made by mmdebstrap.

    It works in a folder that must be readable to everyone: mmdebstrap may run as another user.

    Raises:
        HostError: mmdebstrap is missing or failed.
    """
    return _bootstrap(MMDEBSTRAP, folder, environment)


def make_java_base(folder: Path, environment: Mapping[str, str]) -> Path:
    """A tar archive of a Debian with a Java; see ``make_base``."""
    return _bootstrap(JAVA_MMDEBSTRAP, folder, environment)


def _bootstrap(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Path:
    archive = folder / "base.tar"
    install = "sudo apt install mmdebstrap"
    if os.geteuid() != 0:
        install += " uidmap; it needs root, or user namespaces and a range in /etc/subuid"
    run_command(
        [*command, str(archive)],
        doing="making the image's base",
        environment={**environment, "TMPDIR": str(folder)},
        hint=f"No registry answers, so mmdebstrap has to make the base: {install}.",
    )
    return archive


def make_wheels(folder: Path, sources: Mapping[str, bytes], *, torch_index: str) -> Path:
    """A tar archive with the wheels of everything the nodes import, and pip.

    Args:
        folder: where to work.
        sources: the image's, which have requirements and constraints.
        torch_index: an index with CPU builds of torch, asked besides pip's own if it answers.

    Raises:
        HostError: pip is missing or failed.
    """
    wheels = folder / "wheels"
    constraints, requirements = folder / "constraints.txt", folder / "requirements.txt"
    constraints.write_bytes(sources[CONSTRAINTS])
    requirements.write_bytes(sources[REQUIREMENTS])
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--dest", str(wheels), *_target()),
        *("--constraint", str(constraints), "--requirement", str(requirements)),
        *("pip", _cpu_torch(sources[CONSTRAINTS].decode())),
    ]
    if _answers(torch_index):
        command += ["--extra-index-url", torch_index]
    run_command(
        command,
        doing="downloading what nodes import",
        environment={**os.environ, "TMPDIR": str(folder)},
        hint=f"It needs a package index with a CPU build of torch: {torch_index} or pip's own.",
    )
    archive = folder / "wheels.tar"
    with tarfile.open(archive, mode="w") as packed:
        for wheel in sorted(wheels.iterdir()):
            packed.add(wheel, f"{WHEEL_FOLDER}/{wheel.name}")
            wheel.unlink()  # or there would be two of everything
    return archive


def _target() -> list[str]:
    """Options of pip for packages that run in SUITE, whatever runs here."""
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in reversed(GLIBC_MINORS)]
    return [
        *("--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON_VERSION),
        *(
            word
            for name in (*platforms, f"manylinux2014_{machine}")
            for word in ("--platform", name)
        ),
    ]


def _cpu_torch(constraints: str) -> str:
    """The version in the constraints, and never one with gigabytes of CUDA."""
    pinned = re.search(r"^torch==([^\s+]+)", constraints, re.MULTILINE)
    if pinned is None:
        raise HostError(f"{CONSTRAINTS} pins no version of torch: expected torch==2.13.0.")
    return f"torch=={pinned[1]}+cpu"


def _answers(index: str) -> bool:
    try:
        with urllib.request.urlopen(f"{index}/torch/", timeout=INDEX_TIMEOUT_SECONDS):
            return True
    except OSError:
        return False


def run_command(
    command: Sequence[str], *, doing: str, environment: Mapping[str, str], hint: str = ""
) -> None:
    """Run a command to its end, silently; interrupted, it is ended with all its children.

    Raises:
        HostError: there is no such command, or it failed; the message has the end of what it said.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            env=environment,
            process_group=0,
        )
    except FileNotFoundError:
        raise HostError(f"There is no command {command[0]}, for {doing}.", hint=hint) from None
    with process:
        try:
            said, _ = process.communicate()
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        lines = [line for line in said.splitlines() if line.strip()][-SHOWN_LINES:]
        raise HostError("\n  ".join([f"`{command[0]}` failed {doing}:", *lines]), hint=hint)


def _end(process: subprocess.Popen[str]) -> None:
    """End a command and its children: it may clean up, but not for long."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
