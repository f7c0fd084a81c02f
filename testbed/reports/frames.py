"""A run folder as pandas tables; ``testbed.Run`` is this module's Run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.errors import TestbedError
from testbed.events.entry import plain
from testbed.events.rows import EVALUATIONS, LINKS, REQUIRED, TRAFFIC, Column
from testbed.reports.summary import summarise
from testbed.reports.verdict import Verdict
from testbed.telemetry.events import read_events
from testbed.telemetry.files import LineReader, read_json
from testbed.telemetry.folder import ENDED, RunFolder, RunState
from testbed.telemetry.recovery import read_updates
from testbed.telemetry.registry import Registry, find_run

if TYPE_CHECKING:
    import pandas as pd

    from testbed.models.saved import LoadedModel, Which
    from testbed.scenario.schema import Scenario


class Run:
    """One run, read from its folder; finished, failed, killed or still going on.

        run = testbed.Run("quickstart-1")
        run.evaluations.plot("payload_up_bytes", "top1")
        run.updates.groupby("device_class")["staleness"].mean()

    Every table is read when it is first used, and then kept. docs/run-folder.md has the columns.

    Args:
        run: its name, or the path of its folder, as every command takes it; a ``Path`` is always
            the folder's.
        runs: where a name is looked for first.

    Raises:
        RunNotFound: there is no such run.
        TestbedError: it is damaged, or a newer testbed wrote it, or several have that name.
    """

    def __init__(self, run: str | Path, *, runs: str | Path = "runs") -> None:
        if isinstance(run, Path):
            self.folder = RunFolder.open(run)
        else:
            registry = Registry.of_user(os.environ, Path.home())
            self.folder = find_run(run, runs=Path(runs), registry=registry)

    def __repr__(self) -> str:
        return f"Run({str(self.folder.path)!r})"

    @property
    def name(self) -> str:
        """The run's name."""
        return self.folder.name

    @cached_property
    def state(self) -> RunState:
        """How far the run had come when this was first used."""
        return self.folder.state()

    @cached_property
    def alive(self) -> bool:
        """Whether the run was still going on when this was first used."""
        return self.state.state not in ENDED and self.folder.alive()

    @cached_property
    def scenario(self) -> Scenario:
        """The resolved scenario."""
        from testbed.scenario.load import load_text
        from testbed.scenario.source import read_text

        path = self.folder.scenario
        return load_text(read_text(path), file=str(path))

    @cached_property
    def environment(self) -> Mapping[str, Any]:
        """The host, versions and command line; empty if the run did not come that far."""
        return read_json(self.folder.environment) or {}

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The run in numbers: ``summary.json``, or worked out now where there is none yet."""
        return read_json(self.folder.summary) or plain(summarise(self))

    @property
    def verdict(self) -> Verdict:
        """Whether what it measured can be trusted, and if not, why."""
        verdict = self.summary["verdict"]
        told = (tuple(verdict.get(name, ())) for name in ("reasons", "unchecked", "warnings"))
        return Verdict(verdict["valid"], *told)

    def model(self, which: Which = "best") -> LoadedModel:
        """The trained model in its network: ``run.model().bound.scores(images)``.

        Args:
            which: ``best`` of all evaluations during the training, or ``final``.

        Raises:
            TestbedError: there is no such model yet, or it is damaged.
            ScenarioError: the user's own model file in the run's folder is wrong.
        """
        from testbed.experiment import load_model

        return load_model(self.folder.path, which)

    @cached_property
    def updates(self) -> pd.DataFrame:
        """A row for every applied update, in order, with its ``node`` and ``device_class``.

        Rows that the controller did not live to write down come from the parameter server's spool.
        """
        import pandas as pd

        table = pd.DataFrame(read_updates(self.folder))
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
        """A row for every evaluation, in order, with the ``samples`` and ``steps`` until then."""
        table = read_csv(self.folder.evaluations, EVALUATIONS)
        for name in ("samples", "steps"):
            done = np.concatenate([[0], self.updates[name].to_numpy().cumsum(dtype=np.int64)])
            table[name] = done[np.minimum(table["version"].to_numpy(), len(done) - 1)]
        return table

    @cached_property
    def traffic(self) -> pd.DataFrame:
        """A row for every reading of the kernel's counters, about one a second."""
        return read_csv(self.folder.traffic, TRAFFIC)

    @cached_property
    def links(self) -> pd.DataFrame:
        """What links that follow recordings were asked for and carried, about once a second."""
        return read_csv(self.folder.links, LINKS)

    @cached_property
    def events(self) -> pd.DataFrame:
        """A row for every event, in order; a column for every field that any event has."""
        import pandas as pd

        table = pd.DataFrame([entry.as_dict() for entry in read_events(self.folder.events)])
        first = ["time", "elapsed_seconds", "event", "node", "source"]
        others = [name for name in table.columns if name not in first]
        return table.reindex(columns=[*first, *others])


def read_csv(path: Path, columns: Mapping[str, Column]) -> pd.DataFrame:
    """The complete lines of a CSV file, with the types that its columns are to have."""
    import io

    import pandas as pd

    lines = LineReader(path).read() or [",".join(columns).encode()]
    try:
        file = io.BytesIO(b"\n".join(lines) + b"\n")
        types = {name: column.type for name, column in columns.items()}
        table = pd.read_csv(file, usecols=lambda name: name in types, dtype=types)
        for name, column in columns.items():
            if name not in table:
                if column.default is REQUIRED:
                    raise ValueError(f"it has no column {name}")
                table[name] = pd.Series(column.default, table.index, dtype=column.type)
    except ValueError as error:
        raise TestbedError(
            f"{path}: not the table that it should be: {error}.",
            hint="The file is damaged; docs/run-folder.md has its columns.",
        ) from error
    return table[list(columns)]
