"""The list of known runs: those in a folder of runs, and those created elsewhere.

The registry is a folder with one symbolic link per run, so that ``down --all`` and ``ps`` find runs
that were created with another ``--runs``. It is used for nothing else.
"""

from __future__ import annotations

import difflib
import errno
import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError, RunNotFound
from testbed.telemetry.folder import RunFolder


@dataclass(frozen=True)
class Registry:
    """The known runs: links to them in a folder, which is created with the first link."""

    folder: Path

    @classmethod
    def of_user(cls, environment: Mapping[str, str], home: Path) -> Registry:
        """Return the registry in the user's state folder (XDG base directories)."""
        return cls(state_folder(environment, home) / "runs")

    def check(self) -> None:
        """Check that its folder exists or can be created. Creates nothing.

        Raises:
            HostError: it cannot be created or written to.
        """
        there = next(place for place in (self.folder, *self.folder.parents) if place.exists())
        if not there.is_dir():
            raise self._refused(os.strerror(errno.ENOTDIR))
        if not os.access(there, os.W_OK | os.X_OK):
            raise self._refused(os.strerror(errno.EACCES))

    def _make(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from None

    def _refused(self, reason: str) -> HostError:
        return HostError(
            f"{self.folder}, the list of your runs, cannot be created or written: {reason}.",
            hint="Set XDG_STATE_HOME to a writable folder.",
        )

    def add(self, run: Path) -> None:
        """Add a run folder, and remove links to deleted ones. Idempotent."""
        self._make()
        for link in self.folder.iterdir():
            if link.is_symlink() and not link.exists():
                link.unlink(missing_ok=True)
        link = self._link(run)
        if not link.is_symlink():
            link.symlink_to(run.absolute(), target_is_directory=True)

    def remove(self, run: Path) -> None:
        """Remove a run folder; does nothing if it is unknown."""
        with suppress(FileNotFoundError, NotADirectoryError):
            self._link(run).unlink()

    def runs(self) -> list[Path]:
        """Return the run folders that still exist, by name."""
        if not self.folder.is_dir():
            return []
        targets = [link.readlink() for link in self.folder.iterdir() if link.is_symlink()]
        return sorted((path for path in targets if _is_run(path)), key=_by_name)

    def _link(self, run: Path) -> Path:
        return self.folder / unique_name(run)


def state_folder(environment: Mapping[str, str], home: Path) -> Path:
    """Return our folder in the user's state folder (XDG base directories)."""
    state = environment.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else home / ".local" / "state"
    return base / "testbed"


def unique_name(run: Path) -> str:
    """Return a run's name with a digest of its path, as names in other folders may repeat."""
    return f"{run.name}@{hashlib.sha256(str(run.absolute()).encode()).hexdigest()[:12]}"


def list_runs(runs: Path, registry: Registry) -> list[Path]:
    """List all run folders, under ``runs`` or in the registry, each once, by name."""
    here = [path.absolute() for path in runs.iterdir()] if runs.is_dir() else []
    found = [path for path in here if _is_run(path)] + registry.runs()
    return sorted({path.resolve(): path for path in reversed(found)}.values(), key=_by_name)


def find_run(text: str, *, runs: Path, registry: Registry) -> RunFolder:
    """Find a run by its name, or by the path of its folder.

    Of several runs with that name, the one directly in ``runs`` is meant: guides that are followed
    in folders of their own use the same names.

    Raises:
        RunNotFound: no such run exists, and it names the nearest; or several in other folders do.
    """
    if os.sep in text or text in (".", ".."):
        return RunFolder.open(Path(text))
    known = list_runs(runs, registry)
    matches = [path for path in known if path.name == text]
    here = [path for path in matches if path.parent == runs.absolute()]
    if len(here or matches) == 1:
        return RunFolder.open((here or matches)[0])
    if matches:
        where = " and ".join(str(path) for path in matches)
        raise RunNotFound(
            f"There is no run named {text} in {runs}, and {len(matches)} elsewhere: {where}.",
            hint="Give the path of one of them.",
        )
    if _is_run(Path(text)):
        return RunFolder.open(Path(text))
    if (runs / text).is_dir():  # left by a command that was killed before it started anything
        return RunFolder.open(runs / text)
    raise _unknown(text, [path.name for path in known], runs=runs, registry=registry)


def _unknown(text: str, names: list[str], *, runs: Path, registry: Registry) -> RunNotFound:
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.5)
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    elif names:
        hint = "`testbed ps --all` lists the runs."
    else:
        hint = "There are no runs yet; `testbed up SCENARIO` starts one."
    message = f"There is no run named {text} (searched {runs} and {registry.folder})."
    return RunNotFound(message, hint=hint)


def _is_run(path: Path) -> bool:
    try:
        return (path / "run.json").is_file()
    except PermissionError:  # another user's private folder
        return False


def _by_name(path: Path) -> tuple[str, str]:
    return path.name, str(path)
