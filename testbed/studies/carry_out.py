"""Executes one run of a sweep in a separate process: ``python -m testbed.studies.carry_out``.

The request is JSON on standard input. The process exits when its parent process does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.host import syscalls
from testbed.scenario import dump
from testbed.scenario.load import load_text
from testbed.simulation.gradients import Reuse
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.wall import WALL

if TYPE_CHECKING:
    from testbed.run.prepare import RunRequest
    from testbed.studies.study import StudyRun

ENTRY = "testbed.studies.carry_out"
INTERRUPTED = 130


@dataclass(frozen=True)
class StudyRunRequest:
    """Request to execute one run.

    Attributes:
        scenario: resolved, as YAML.
        beside: base folder for paths of the user's own files.
        runs: folder of all runs.
        name: name of the run.
        argv: the command line, for the record.
        home: the user's home.
        cpus: CPUs that it may use.
        sweep: pid of the parent process.
        resumes: whether it resumes from its checkpoint.
        gradients: folder of gradients that simulated runs reuse; empty for no reuse.
        gradient_bytes: maximum size of all these gradients.
    """

    scenario: str
    beside: str
    runs: str
    name: str
    argv: tuple[str, ...]
    home: str
    cpus: tuple[int, ...]
    sweep: int
    resumes: bool = False
    gradients: str = ""
    gradient_bytes: int = 0

    @classmethod
    def of(
        cls,
        run: StudyRun,
        *,
        name: str,
        runs: Path,
        argv: Sequence[str],
        home: Path,
        cpus: Sequence[int],
        resumes: bool = False,
        reuse: Reuse | None = None,
    ) -> StudyRunRequest:
        """Create the request for a run of a study."""
        return cls(
            scenario=dump(run.scenario),
            beside=str(run.beside.absolute()),
            runs=str(runs.absolute()),
            name=name,
            argv=tuple(argv),
            home=str(home),
            cpus=tuple(cpus),
            sweep=os.getpid(),
            resumes=resumes,
            gradients=str(reuse.folder.absolute()) if reuse else "",
            gradient_bytes=reuse.most_bytes if reuse else 0,
        )

    def text(self) -> str:
        """Return the request as JSON."""
        return json.dumps(asdict(self))

    def request(self) -> RunRequest:
        """Return the request in the form that ``testbed up`` uses."""
        from testbed.run.prepare import RunRequest

        return RunRequest(
            scenario=load_text(self.scenario, file=self.name),
            beside=Path(self.beside),
            runs=Path(self.runs),
            name=self.name,
            argv=tuple(self.argv),
            environment=os.environ,
            home=Path(self.home),
            now=WALL.read(),
        )

    def reuse(self) -> Reuse | None:
        """Return the gradients to reuse, for ``up_simulated``."""
        if not self.gradients:
            return None
        return Reuse(Path(self.gradients), self.name, self.gradient_bytes)


def main() -> int:
    """Execute the request on standard input; return the exit status of ``testbed up``."""
    from testbed.run.simulated import resume, up_simulated
    from testbed.run.up import RunListener, up

    errand = StudyRunRequest(**json.load(sys.stdin))
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != errand.sweep:  # the sweep exited before PDEATHSIG was set
        return INTERRUPTED
    os.sched_setaffinity(0, errand.cpus)
    reuse = errand.reuse()
    try:
        if errand.resumes:
            folder = RunFolder(Path(errand.runs) / errand.name)
            return 0 if resume(folder, RunListener(), environment=os.environ, reuse=reuse) else 6
        request = errand.request()
        if request.scenario.simulated:
            return 0 if up_simulated(request, RunListener(), reuse=reuse) else 6
        return 0 if up(request, RunListener()) else 6
    except TestbedError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
