"""Ordinary users that tests run commands as."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE_ROOT = Path(__file__).parents[2]
RECIPE = ("docker", "constraints.txt", "pyproject.toml")
PROJECT = ("testbed", "scenarios", "tests", *RECIPE)
SYSTEM_PYTHON = Path("/usr/bin/python3")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Account:
    """An ordinary user.

    Attributes:
        name: its name.
        home: its home folder, with a copy of the project in it.
    """

    name: str
    home: Path

    @property
    def python(self) -> str:
        """The user's Python interpreter."""
        return str(self.home / ".venv/bin/python")

    def command(self, *words: str) -> list[str]:
        """The prefix with which root runs a command as this user, without root's environment."""
        become = ["setpriv", f"--reuid={self.name}", f"--regid={self.name}", "--init-groups"]
        clean = ["env", "-i", f"HOME={self.home}", f"USER={self.name}", "PATH=/usr/bin:/bin"]
        return [*become, *clean, "LANG=C.UTF-8", *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command as this user in its home."""
        return subprocess.run(
            self.command(*words), cwd=self.home, capture_output=True, text=True, check=False
        )


def missing() -> str:
    """Why no such user can be created; empty if one can."""
    if lacking := [tool for tool in ("useradd", "userdel", "setpriv") if not shutil.which(tool)]:
        return f"needs {', '.join(lacking)}"
    show = "import sys; print('{0.major}.{0.minor}'.format(sys.version_info))"
    found = subprocess.run([SYSTEM_PYTHON, "-c", show], capture_output=True, text=True, check=False)
    if found.stdout.strip() != VERSION:
        return f"needs {SYSTEM_PYTHON} to be Python {VERSION}, whose packages the test lends to it"
    packages = Path(sysconfig.get_path("purelib"))
    closed = [str(folder) for folder in packages.parents if not folder.stat().st_mode & 0o001]
    return f"needs {packages} to be open to everybody: chmod o+x {closed[0]}" if closed else ""


def missing_ranges() -> str:
    """Why a user gets no subordinate uids; empty if it gets them."""
    lacking = [tool for tool in ("newuidmap", "newgidmap") if not shutil.which(tool)]
    return f"needs {' and '.join(lacking)} (Debian, Ubuntu: apt install uidmap)" if lacking else ""


@contextmanager
def account(*, ranges: bool) -> Iterator[Account]:
    """A user, with or without subordinate uids; removed afterwards with all its files.

    Its interpreter is the system's, in a separate environment that shares the packages of the
    environment running the tests: installing them again would take minutes.
    """
    if reason := missing() or (missing_ranges() if ranges else ""):
        pytest.skip(reason)
    where = Path(tempfile.mkdtemp(prefix="home-", dir="/var/tmp"))
    name = f"tb{os.getpid() % 100000}{'r' if ranges else 'o'}"
    where.chmod(0o755)
    made = Account(name, where / name)
    # A system account gets no subordinate uids.
    kind = ["--user-group"] if ranges else ["--system", "--user-group"]
    subprocess.run(["useradd", *kind, "--create-home", "--home-dir", made.home, name], check=True)
    try:
        _furnish(made)
        yield made
    finally:
        subprocess.run(["userdel", "--remove", name], capture_output=True, check=True)
        shutil.rmtree(where)


def _furnish(made: Account) -> None:
    made.home.chmod(0o700)
    for name in PROJECT:
        source, target = PACKAGE_ROOT / name, made.home / name
        if source.is_dir():
            shutil.copytree(source, target)  # including compiled files
        else:
            shutil.copy(source, target)
    subprocess.run(["chown", "-R", f"{made.name}:{made.name}", made.home], check=True)
    venv = made.run(str(SYSTEM_PYTHON), "-m", "venv", "--without-pip", ".venv")
    assert venv.returncode == 0, venv.stderr
    lent = made.home / f".venv/lib/python{VERSION}/site-packages/lent.pth"
    lent.write_text(f"{made.home}\n{sysconfig.get_path('purelib')}\n")
