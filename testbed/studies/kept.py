"""Kept runs: the numbers of a run in a file next to its study, where its folder is too large.

With them, a study in a repository can be reported and continued without its run folders.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf, isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError
from testbed.reports.any_run import AnyRun
from testbed.reports.frames import Run
from testbed.reports.record import metric_columns, metric_names
from testbed.reports.run_measure import Measure
from testbed.scenario import dump
from testbed.scenario.load import load_text
from testbed.telemetry.files import read_json, write_atomically

if TYPE_CHECKING:
    import pandas as pd

    from testbed.scenario.schema import Scenario

ENDING = ".run.json"
FOLDER = "results"
"""Next to the study file."""

FORMAT = 1
CURVES = ("version", "time_seconds", "payload_up_bytes", "steps", "loss", "final")
"""Columns of the evaluations to keep, besides those of the metrics."""


@dataclass(frozen=True)
class KeptRun:
    """The kept numbers of a run.

    Attributes:
        path: its file.
        content: content of the file.
    """

    path: Path
    content: Mapping[str, Any]

    @classmethod
    def open(cls, path: Path) -> KeptRun:
        """Read a file of kept numbers.

        Raises:
            TestbedError: not such a file, or written by a newer version of testbed.
        """
        content = read_json(path) or {}
        wanted = {
            "format",
            "scenario",
            "verdict",
            "reason",
            "measures",
            "evaluations",
            "duration_seconds",
        }
        if content.get("format") != FORMAT or not wanted <= set(content):
            raise TestbedError(
                f"{path}: not a file written by `testbed report STUDY --keep` (format {FORMAT}).",
                hint="Remove it, or restore it from the repository.",
            )
        return cls(path, content)

    @cached_property
    def scenario(self) -> Scenario:
        """The resolved scenario."""
        return load_text(self.content["scenario"], file=str(self.path))

    @property
    def duration_seconds(self) -> float:
        """Real seconds from its creation to its last event, with pauses."""
        return float(self.content["duration_seconds"])

    def value(self, measure: Measure) -> float:
        """Return a measure; NaN if it was neither kept nor can be computed from the evaluations."""
        value = self.content["measures"].get(str(measure))
        if value is None:
            return measure.of_evaluations(self)
        return inf if value == "never" else float(value)

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        """A row per evaluation: ``CURVES`` and the metrics, with NaN for those not kept."""
        import pandas as pd

        kept = pd.DataFrame(self.content["evaluations"])
        metrics = (*metric_columns(kept), *metric_names(self.scenario))
        return kept.reindex(columns=[*dict.fromkeys((*CURVES, *metrics))])


StudyResult = AnyRun | KeptRun


def kept_runs(folder: Path) -> list[KeptRun]:
    """Return all kept runs of a folder, sorted by name.

    Raises:
        TestbedError: a file is damaged.
    """
    return [KeptRun.open(path) for path in sorted(folder.glob(f"*{ENDING}"))]


def keep(run: Run, measures: Iterable[Measure], folder: Path) -> Path:
    """Keep the numbers of an ended run, in addition to those already kept. Return the file.

    Raises:
        TestbedError: the existing file of that name is of another run, or damaged.
    """
    path = folder / f"{run.name}{ENDING}"
    text = dump(run.scenario)
    values = {str(measure): _plain(measure.of(run)) for measure in measures}
    if path.exists():
        before = KeptRun.open(path)
        if dump(before.scenario) != text:
            raise TestbedError(
                f"{path} contains the kept numbers of another run.", hint="Move it elsewhere."
            )
        values = {**before.content["measures"], **values}
    columns = (*CURVES[:-1], *metric_columns(run.evaluations), CURVES[-1])
    content = {
        "format": FORMAT,
        "run": run.name,
        "verdict": run.summary["verdict"],
        "reason": run.state.reason,
        "created": run.state.created,
        "duration_seconds": round(run.duration_seconds, 1),
        "host": run.environment.get("host"),
        "software": run.environment.get("software"),
        "measures": dict(sorted(values.items())),
        "evaluations": {name: run.evaluations[name].tolist() for name in columns},
        "scenario": text,
    }
    folder.mkdir(exist_ok=True)
    write_atomically(path, _text(content))
    return path


def _text(content: Mapping[str, Any]) -> str:
    """Return JSON with a line per field, and a line per field of nested mappings."""
    lines = []
    for name, value in content.items():
        if isinstance(value, dict):
            inner = [f"  {json.dumps(key)}: {json.dumps(one)}" for key, one in value.items()]
            lines.append(f"{json.dumps(name)}: {{\n" + ",\n".join(inner) + "\n}")
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _plain(value: float) -> float | str | None:
    return None if value != value else "never" if isinf(value) else value  # noqa: PLR0124 - NaN
