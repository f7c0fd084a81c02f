"""Service discovery of active runs: a folder with one file per run, in Prometheus's file_sd format.

A file also names the controller process of its run. A killed controller leaves its file behind;
the next command that lists runs removes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.host.process import Process
from testbed.telemetry.files import write_atomically
from testbed.telemetry.registry import state_folder, unique_name

CONTROLLER = "__meta_testbed_controller"
"""Label of the controller's pid. Prometheus drops labels with the prefix `__`."""


@dataclass(frozen=True)
class Targets:
    """The folder of target files, created when the first run registers."""

    folder: Path

    @classmethod
    def of_user(cls, environment: Mapping[str, str], home: Path) -> Targets:
        """Return the folder in the user's state folder (XDG base directories)."""
        return cls(state_folder(environment, home) / "metrics")

    @contextmanager
    def registered(self, run: Path, target: str) -> Iterator[None]:
        """Register a run at ``target`` for scraping while the context is active."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tidy()
        labels = {"run": run.name, CONTROLLER: str(Process.of(os.getpid()))}
        file = self.folder / f"{unique_name(run)}.json"
        write_atomically(file, json.dumps([{"targets": [target], "labels": labels}]) + "\n")
        try:
            yield
        finally:
            file.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove the files of runs whose controller has exited."""
        for file in self.folder.glob("*.json"):
            try:
                (entry,) = json.loads(file.read_text())
                controller = Process.parse(entry["labels"][CONTROLLER])
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue  # not written by testbed
            if controller is None or not controller.alive():
                file.unlink(missing_ok=True)
