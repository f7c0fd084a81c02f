"""A run folder in Python; ``testbed.Run`` is this module's Run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from testbed.reports.record import RunRecord
from testbed.reports.summary import summarise
from testbed.reports.verdict import Verdict
from testbed.telemetry.entry import plain
from testbed.telemetry.files import read_json

if TYPE_CHECKING:
    from testbed.models.saved import LoadedModel, Which


class Run(RunRecord):
    """One run, read from its folder, in any state: active, finished, failed or killed.

        run = testbed.Run("quickstart-1")
        run.evaluations.plot("payload_up_bytes", "top1")
        run.updates.groupby("device_class")["staleness"].mean()

    Every table is read on first use and then cached. docs/run-folder.md describes the columns.

    Args:
        run: its name, or the path of its folder, as all commands accept it; a ``Path`` is always
            a path.
        runs: folder in which a name is looked up first.

    Raises:
        RunNotFound: there is no such run.
        TestbedError: damaged, written by a newer version of testbed, or the name is ambiguous.
    """

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """Summary of the run: ``summary.json``, or computed now if there is no such file yet."""
        return read_json(self.folder.summary) or plain(summarise(self))

    @property
    def verdict(self) -> Verdict:
        """Whether the measurements can be trusted, and if not, why."""
        verdict = self.summary["verdict"]
        told = (tuple(verdict.get(name, ())) for name in ("reasons", "unchecked", "warnings"))
        return Verdict(verdict["valid"], *told)

    def model(self, which: Which = "best") -> LoadedModel:
        """Return the trained model with its network: ``run.model().bound.scores(images)``.

        Args:
            which: ``best`` of all evaluations during the training, or ``final``.

        Raises:
            TestbedError: there is no such model yet, or it is damaged.
            ScenarioError: the user's own model file in the run folder is invalid.
        """
        from testbed.scenario.experiment import load_model

        return load_model(self.folder.path, which)
