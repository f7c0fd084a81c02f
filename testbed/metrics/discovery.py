"""Where a Prometheus finds the runs that go on: a folder with one file each, as file_sd reads them.

A file also names the process that controls the run. One that was killed leaves its file behind; the
next command that looks at runs removes it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.host.process import Process
from testbed.telemetry.files import write_atomically

CONTROLLER = "__meta_testbed_controller"
"""A label that Prometheus drops: the process that answers the scrapes."""


@dataclass(frozen=True)
class Targets:
    """The folder of the files, made when the first run registers."""

    folder: Path

    @classmethod
    def of_user(cls, environment: Mapping[str, str], home: Path) -> Targets:
        """That in the user's state folder (XDG base directories)."""
        state = environment.get("XDG_STATE_HOME", "")
        base = Path(state) if state.startswith("/") else home / ".local" / "state"
        return cls(base / "testbed" / "metrics")

    @contextmanager
    def registered(self, run: Path, target: str) -> Iterator[None]:
        """Have Prometheus scrape a run at ``target`` while the context lasts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tidy()
        labels = {"run": run.name, CONTROLLER: str(Process.of(os.getpid()))}
        file = self._file(run)
        write_atomically(file, json.dumps([{"targets": [target], "labels": labels}]) + "\n")
        try:
            yield
        finally:
            file.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove the files of runs whose controller is gone."""
        for file in self.folder.glob("*.json"):
            try:
                (entry,) = json.loads(file.read_text())
                controller = Process.parse(entry["labels"][CONTROLLER])
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue  # none of ours
            if controller is None or not controller.alive():
                file.unlink(missing_ok=True)

    def _file(self, run: Path) -> Path:
        path = str(run.absolute())
        return self.folder / f"{run.name}@{hashlib.sha256(path.encode()).hexdigest()[:12]}.json"
