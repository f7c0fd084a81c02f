"""What a sweep records and prints about its runs, wherever they are executed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import NodeError, TestbedError
from testbed.studies.found import FoundRun, claim_run_name, examine, resumable_run
from testbed.studies.study import StudyRun
from testbed.telemetry.registry import Registry

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Failure:
    """Why a run did not finish."""

    message: str  # error message of its process, or how the process ended
    exit_code: int  # of the process, as that of ``testbed up``


@dataclass(frozen=True)
class Claim:
    """The name of a run that is about to be executed."""

    run: StudyRun
    name: str  # name of its folder
    resumes: bool  # whether it resumes from its checkpoint


@dataclass
class Progress:
    """The runs of a sweep that were started, and those that failed."""

    runs: Path  # the folder of runs
    registry: Registry
    tell: Tell  # receives a line for every start and end
    total: int  # number of runs to execute
    failed: dict[StudyRun, Failure] = field(default_factory=dict)  # why runs did not finish
    _begun: int = 0

    def claim(self, run: StudyRun) -> Claim | None:
        """Choose the name of a run that starts now; None if it fails, which is recorded."""
        self._begun += 1
        try:
            resumed = resumable_run(run, self.runs)
            name = resumed or claim_run_name(run, self.runs, self.registry)
        except TestbedError as error:
            self.fail(run, run.base_name, Failure(str(error), error.exit_code))
            return None
        self.tell(f"[{self._begun}/{self.total}] {name} {'resumes' if resumed else 'starts'}")
        return Claim(run, name, resumes=resumed is not None)

    def conclude(self, claim: Claim, *, status: int, said: str, note: str = "") -> None:
        """Record how a run has ended, from its folder.

        Args:
            claim: the run.
            status: exit status of its process; negative for a signal.
            said: what the process printed to standard error.
            note: text to append to the line of a run that has finished.
        """
        path = self.runs / claim.name
        try:
            found = examine(path)
        except TestbedError as error:
            found = FoundRun(path, "interrupted", error.message)
        if found.condition == "valid":
            self.tell(f"{claim.name} finished: {found.reason}{note}")
        elif found.condition == "invalid":
            self.tell(f"{claim.name} is INVALID, its folder is kept: {found.reason}{note}")
        else:
            ended = f"its process was killed by signal {-status}" if status < 0 else found.reason
            code = status if status > 0 else NodeError.exit_code
            self.fail(claim.run, claim.name, Failure(said or ended, code))

    def fail(self, run: StudyRun, name: str, failure: Failure) -> None:
        """Record that a run did not finish."""
        self.failed[run] = failure
        self.tell(f"{name} FAILED: {failure.message.partition(chr(10))[0]}")
