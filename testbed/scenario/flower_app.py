"""A Flower app and the Python environment that is to run it, as they are found on this host."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from testbed.errors import InvalidValue
from testbed.scenario.flower import OLDEST

PROJECT = "pyproject.toml"
PATIENCE_SECONDS = 120
_LISTING = (
    "import json, importlib.metadata as m; "
    "print(json.dumps([[d.metadata['Name'], d.version] for d in m.distributions()]))"
)
_FRAME = re.compile(r"[╭╮╰╯│─]+(?: Error )?")


@dataclass(frozen=True)
class App:
    """What the pyproject.toml of an app says.

    Attributes:
        folder: absolute path.
        name: of the project.
        requires: its dependencies.
        config: its configuration, with dots between the keys of nested tables.
        client: its ClientApp, as `module:name`.
        server: its ServerApp.
    """

    folder: Path
    name: str
    requires: tuple[str, ...]
    config: Mapping[str, Any]
    client: str = ""
    server: str = ""

    @classmethod
    def read(cls, folder: Path) -> App:
        """Read an app.

        Raises:
            InvalidValue: the folder contains no app.
        """
        expected = "the folder of a Flower app, with a pyproject.toml that has [tool.flwr.app]"
        try:
            content = tomllib.loads((folder / PROJECT).read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidValue(f"no app ({PROJECT}: {error.strerror})", expected) from None
        except ValueError as error:
            raise InvalidValue(f"a {PROJECT} that is not TOML ({error})", expected) from None
        project, flower = content.get("project", {}), content.get("tool", {}).get("flwr", {})
        if "app" not in flower:
            raise InvalidValue(f"a {PROJECT} without [tool.flwr.app]", expected)
        components = flower["app"].get("components", {})
        return cls(
            folder=folder.resolve(),
            name=str(project.get("name", folder.resolve().name)),
            requires=tuple(map(str, project.get("dependencies", ()))),
            config=dict(_flat(flower["app"].get("config", {}))),
            client=str(components.get("clientapp", "")),
            server=str(components.get("serverapp", "")),
        )


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@dataclass(frozen=True)
class Environment:
    """A Python environment.

    Attributes:
        python: its interpreter.
        packages: versions of what is installed, by normalized name.
    """

    python: Path
    packages: Mapping[str, str]

    @classmethod
    def of(cls, folder: Path | None) -> Environment:
        """Ask an environment what is installed.

        Args:
            folder: the environment; None for that of the `python` in PATH.

        Raises:
            InvalidValue: there is no interpreter, or it does not work.
        """
        expected = "a Python environment, as `python -m venv` creates it, with bin/python"
        found = shutil.which("python") if folder is None else str(folder.absolute() / "bin/python")
        if found is None or not Path(found).exists():
            raise InvalidValue(f"no {found or 'python in PATH'}", expected)
        done = _run([found, "-c", _LISTING])
        if done.returncode:
            raise InvalidValue(f"{found}, which fails: {_last_line(done.stderr)}", expected)
        # Of two with one name, Python imports the first in its path.
        listed = reversed(json.loads(done.stdout))
        return cls(Path(found), {str(canonicalize_name(name)): given for name, given in listed})

    def flwr(self) -> Version:
        """Return the version of flwr.

        Raises:
            InvalidValue: it is missing, or its version is not supported.
        """
        cure = f"python3 -m venv flower-env && flower-env/bin/pip install 'flwr>={OLDEST}'"
        given = self.packages.get("flwr")
        if given is None:
            found = f"the environment of {self.python}, which has no flwr"
            raise InvalidValue(found, f"one with flwr, apart from that of testbed: {cure}")
        try:
            version = Version(given)
        except InvalidVersion:
            raise InvalidValue(f"flwr {given}", f"a release, {OLDEST} or newer") from None
        if not OLDEST <= version < Version("2"):
            raise InvalidValue(f"flwr {given}", f"{OLDEST} or newer, below 2; {cure}")
        return version

    def lacks(self, app: App) -> Iterator[tuple[str, str]]:
        """Yield the requirements of an app that are not met, and what is installed instead."""
        for text in app.requires:
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                yield text, "which is no valid requirement"
                continue
            if requirement.marker is not None and not requirement.marker.evaluate():
                continue
            given = self.packages.get(canonicalize_name(requirement.name))
            if given is None:
                yield text, "which is not installed"
            elif not requirement.specifier.contains(given, prereleases=True):
                yield text, f"but {given} is installed"

    def build(self, app: App) -> str:
        """Let Flower check and pack an app; return what it complains about, empty if nothing."""
        command = [str(self.python.with_name("flwr")), "build", "--app", str(app.folder)]
        done = _run(command)
        words = _FRAME.sub(" ", done.stderr or done.stdout)
        return " ".join(words.split()) if done.returncode else ""


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command of the user's environment in an empty folder, which is also Flower's home."""
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "NO_COLOR": "1"}
        try:
            return subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "FLWR_HOME": folder, "COLUMNS": "1000", **quiet},
                check=False,
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(command, 1, "", str(error))


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["without a message"])[-1]
