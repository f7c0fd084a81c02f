"""The record of a run as pandas tables."""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from testbed.errors import DataError, TestbedError
from testbed.reports.verdict import Verdict
from testbed.telemetry.entry import METRIC, Entry
from testbed.telemetry.events import read_events
from testbed.telemetry.files import LineReader, read_json, write_atomically
from testbed.telemetry.folder import ENDED, RunFolder, RunState
from testbed.telemetry.recovery import check_evaluations, check_updates, read_updates
from testbed.telemetry.registry import Registry, find_run
from testbed.telemetry.rows import EVALUATIONS, LINKS, OTHER_HOSTS, REQUIRED, TRAFFIC, Column, Rows

if TYPE_CHECKING:
    import pandas as pd

    from testbed.scenario.schema import Scenario


PART_BYTES = 1 << 26
"""How much of a table is read at once if it may be larger than memory."""


def find_folder(run: str | Path, *, runs: str | Path = "runs") -> RunFolder:
    """Return the folder of a run; arguments and errors are those of ``testbed.Run``."""
    if isinstance(run, Path):
        return RunFolder.open(run)
    return find_run(run, runs=Path(runs), registry=Registry.of_user(os.environ, Path.home()))


class RecordedRun(ABC):
    """What is recorded of any run, read from its folder; every table is read on first use.

    The arguments, and the errors that it raises, are those of ``testbed.Run``.
    """

    of_workload: ClassVar[bool] = False

    def __init__(self, run: str | Path, *, runs: str | Path = "runs") -> None:
        self.folder = find_folder(run, runs=runs)
        with suppress(DataError):  # its tables can be read although the scenario is damaged
            self._check_kind()

    def _check_kind(self) -> None:
        """Refuse a run of the other kind, whose missing tables would be read as empty."""
        from testbed.scenario.load_workload import is_workload_file

        file = self.folder.scenario
        if file.is_file() and is_workload_file(file) is not self.of_workload:
            kind, right = ("training", "Run") if self.of_workload else ("workload", "WorkloadRun")
            raise TestbedError(
                f"{self.folder.path} is the run of a {kind}.",
                hint=f"Open it as a {right}.",
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder.path)!r})"

    @property
    def name(self) -> str:
        """The run's name."""
        return self.folder.name

    @cached_property
    def state(self) -> RunState:
        """State of the run when this was first used."""
        return self.folder.state()

    @cached_property
    def alive(self) -> bool:
        """Whether the run was active when this was first used."""
        return self.state.state not in ENDED and self.folder.alive()

    @property
    def duration_seconds(self) -> float:
        """Real seconds from the creation of the folder to the last event, with pauses."""
        created = datetime.fromisoformat(self.state.created)
        return self.folder.events.stat().st_mtime - created.timestamp()

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """Summary of the run: ``summary.json``, or computed now if there is no such file yet."""
        return read_json(self.folder.summary) or self.summarise()

    @abstractmethod
    def summarise(self) -> Mapping[str, Any]:
        """Compute the summary, as far as there is data; docs/run-folder.md explains its keys."""

    def write_summary(self) -> Mapping[str, Any]:
        """Compute the summary and write it to the run folder, replacing an earlier one."""
        summary = self.summarise()
        text = json.dumps(summary, indent=2, allow_nan=False)
        write_atomically(self.folder.summary, f"{text}\n")
        return summary

    @property
    def verdict(self) -> Verdict:
        """Whether the measurements can be trusted, and if not, why."""
        return Verdict.of(self.summary)

    @cached_property
    def environment(self) -> Mapping[str, Any]:
        """Host, versions and command line; empty if the run did not get that far."""
        return read_json(self.folder.environment) or {}

    @cached_property
    def traffic(self) -> pd.DataFrame:
        """One row per reading of the kernel's counters, about one per second."""
        return read_csv(self.folder.traffic, TRAFFIC)

    @cached_property
    def entries(self) -> Sequence[Entry]:
        """All events, in order, as objects."""
        return read_events(self.folder.events)

    @cached_property
    def events(self) -> pd.DataFrame:
        """One row per event, in order; a column for every field that any event has."""
        import pandas as pd

        table = pd.DataFrame([entry.as_dict() for entry in self.entries])
        first = ["time", "elapsed_seconds", "event", "node", "source"]
        others = [name for name in table.columns if name not in first]
        return table.reindex(columns=[*first, *others])

    @cached_property
    def links(self) -> pd.DataFrame:
        """Configured and carried rates of links that follow recordings, about once per second."""
        return read_csv(self.folder.links, LINKS)

    @cached_property
    def hosts(self) -> pd.DataFrame:
        """One row per reading of another host of the run, about every five seconds."""
        return read_csv(self.folder.other_hosts, OTHER_HOSTS)


class RunRecord(RecordedRun):
    """What was recorded of a training."""

    @cached_property
    def scenario(self) -> Scenario:
        """The resolved scenario."""
        from testbed.scenario.load import load_text
        from testbed.scenario.run_file import of_run
        from testbed.scenario.source import read_text

        path = self.folder.scenario
        with of_run(path):
            return load_text(read_text(path), file=str(path))

    @cached_property
    def devices(self) -> pd.DataFrame:
        """One row per device: its class, step times, and the rates and delays of its link.

        The columns are those of ``devices.csv``; NaN for a value that is not set.
        """
        import pandas as pd

        from testbed.scenario.devices import COLUMNS, devices, rows

        return pd.DataFrame(rows(devices(self.scenario)), columns=list(COLUMNS))

    def update_rows(self) -> Rows:
        """Read all applied updates, in order, shape (n,).

        Rows that the controller did not write before it died come from the PS's spool.

        Raises:
            DataError: a part is damaged, or the run has finished and rows are missing.
        """
        finished = self.state.state == "finished"  # asked first: it may finish meanwhile
        rows = read_updates(self.folder)
        if finished:
            check_updates(self.folder, self.entries, found=len(rows))
        return rows

    @cached_property
    def updates(self) -> pd.DataFrame:
        """One row per applied update, in order, with its ``node`` and ``device_class``."""
        import pandas as pd

        table = pd.DataFrame(self.update_rows())
        classes = np.array([*self.state.classes, ""], dtype=object)
        index = table["worker"].to_numpy()
        known = np.where(index < len(self.state.classes), index, len(self.state.classes))
        table["node"] = pd.Categorical("w" + table["worker"].astype(str))
        table["device_class"] = pd.Categorical(
            classes[known], categories=list(dict.fromkeys(self.state.classes))
        )
        return table

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        """One row per evaluation, in order, with the ``samples`` and ``steps`` until then.

        It has a column for every metric of the scenario, also before the first evaluation.
        """
        finished = self.state.state == "finished"
        read = read_csv(self.folder.evaluations, EVALUATIONS, metrics=True)
        if finished:
            check_evaluations(self.folder, self.entries, found=len(read))
        metrics = [*dict.fromkeys((*metric_columns(read), *metric_names(self.scenario)))]
        before, after = [*EVALUATIONS][:-2], [*EVALUATIONS][-2:]
        table = read.reindex(columns=[*before, *metrics, *after])
        for name in ("samples", "steps"):
            done = np.concatenate([[0], self.updates[name].to_numpy().cumsum(dtype=np.int64)])
            table[name] = done[np.minimum(table["version"].to_numpy(), len(done) - 1)]
        return table


def metric_names(scenario: Scenario) -> list[str]:
    """Return the names of a scenario's metrics, without those that depend on the classes."""
    return [name for one in scenario.evaluate.metrics for name in one.names(0)]


def metric_columns(evaluations: pd.DataFrame) -> list[str]:
    """Return the names of the metrics in a table of evaluations."""
    others = {*EVALUATIONS, "samples", "steps"}
    return [str(name) for name in evaluations.columns if name not in others]


def read_csv(path: Path, columns: Mapping[str, Column], *, metrics: bool = False) -> pd.DataFrame:
    """Read the complete lines of a CSV file, with the given column types.

    Other columns are left out, but those of numbers if they are ``metrics``.
    """
    lines = LineReader(path).read()
    if not lines:
        import pandas as pd

        types: dict[str, Any] = {name: column.type for name, column in columns.items()}
        return pd.DataFrame({name: pd.array([], kind) for name, kind in types.items()})
    return _table(b"\n".join(lines) + b"\n", columns, path=path, metrics=metrics)


def read_csv_parts(
    path: Path, columns: Mapping[str, Column], *, part_bytes: int = PART_BYTES
) -> Iterator[pd.DataFrame]:
    """Read the same in parts of about ``part_bytes``, in order: for files larger than memory."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        heading = file.readline()
        while lines := file.readlines(part_bytes):
            if not lines[-1].endswith(b"\n"):
                lines.pop()
            if lines:
                yield _table(heading + b"".join(lines), columns, path=path)


def _table(
    text: bytes, columns: Mapping[str, Column], *, path: Path, metrics: bool = False
) -> pd.DataFrame:
    """Return a CSV text as a table; see ``read_csv``. The path is for the error."""
    import io

    import pandas as pd

    try:
        file = io.BytesIO(text)
        types = {name: column.type for name, column in columns.items()}
        pattern = re.compile(METRIC if metrics else "(?!)")

        def wanted(name: Any) -> bool:
            return name in types or pattern.fullmatch(name) is not None

        table = pd.read_csv(file, usecols=wanted, dtype=types)
        others = table.drop(columns=[*types], errors="ignore").select_dtypes("number")
        table = table.assign(**{str(name): others[name].astype("float64") for name in others})
        for name, column in columns.items():
            if name not in table:
                if column.default is REQUIRED:
                    raise ValueError(f"it has no column {name}")
                table[name] = pd.Series(column.default, table.index, dtype=column.type)
    except ValueError as error:
        raise DataError(
            f"{path}: unexpected table: {error}.",
            hint="The file is damaged; docs/run-folder.md lists its columns.",
        ) from error
    return table[[*columns, *others]]
