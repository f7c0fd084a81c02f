"""Executes simulated runs of a sweep as tasks of a Ray cluster.

The nodes use their own copy of this package, or Ray brings it to all of them. It brings the user's
files with each task, and a data set once to each node. The finished run folder is the result of a
task.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed import datasets
from testbed.errors import HostError, NodeError, TestbedError
from testbed.run.data import known_size, prepare_dataset
from testbed.run.prepare import custom_files
from testbed.runtimes import Simulated
from testbed.runtimes.ray_cluster import alive_nodes, check_nodes, releases, summary
from testbed.scenario.dump import dump_data
from testbed.scenario.own_code import with_copies
from testbed.scenario.schema import Scenario
from testbed.simulation.outline import gradients_at_once, memory_bytes
from testbed.studies.cluster_task import ClusterResult, ClusterRun, archived, carry_out, extract
from testbed.studies.progress import Claim, Failure, Progress
from testbed.studies.study import StudyRun

RETRIES = 3
"""How often Ray repeats a task whose node or process was lost."""

CANCEL_SECONDS = 20.0
"""Time for the tasks of an interrupted sweep to end their processes."""


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Inside, SIGTERM ends the sweep as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass
class RayCluster:
    """The cluster that this process has joined."""

    progress: Progress
    environment: Mapping[str, str]  # of this process
    argv: tuple[str, ...]  # the command line, for the record of each run
    releases: Mapping[str, str] = field(default_factory=releases)
    _data: dict[Path, Any] = field(default_factory=dict)  # references to the data sets

    def check(self) -> None:
        """Check that every node can execute runs.

        Raises:
            HostError: some cannot; says which, and why.
        """
        check_nodes(self.releases)

    def carry_out(self, runs: Sequence[StudyRun], *, jobs: int | None) -> None:
        """Execute runs, up to ``jobs`` in parallel, or as many as the cluster has CPUs for."""
        import ray

        waiting, going = deque(runs), dict[Any, Claim]()
        processes = _processes(len(runs))
        try:
            while waiting or going:
                while waiting and len(going) < (jobs or _room(processes)):
                    self._begin(waiting.popleft(), processes, going)
                for ended in ray.wait(list(going))[0] if going else ():
                    self._conclude(going.pop(ended), ended)
        except BaseException:
            for one in going:
                ray.cancel(one)
            if going:
                ray.wait(list(going), num_returns=len(going), timeout=CANCEL_SECONDS)
            raise

    def _begin(self, run: StudyRun, processes: int, going: dict[Any, Claim]) -> None:
        import ray

        claim, scenario = self.progress.claim(run), run.scenario
        if claim is None:
            return
        assert isinstance(scenario, Scenario), "only trainings are simulated"
        try:
            data = prepare_dataset(scenario.dataset, self.environment, run.beside)
            needed = self._needs(scenario, data, processes)
            asked = self._asked(claim, scenario, data, processes)
        except (TestbedError, OSError) as error:
            code = error.exit_code if isinstance(error, TestbedError) else HostError.exit_code
            self.progress.fail(run, claim.name, Failure(str(error), code))
            return
        if data not in self._data:
            self._data[data] = ray.put(datasets.load(data))
        task = ray.remote(max_retries=RETRIES)(carry_out)
        going[task.options(name=claim.name, **needed).remote(asked, self._data[data])] = claim

    def _needs(self, scenario: Scenario, data: Path, processes: int) -> dict[str, float]:
        """Return the resources that a run needs, as Ray counts them.

        Raises:
            HostError: no node has that much.
        """
        parameters = known_size(scenario, data) or 0  # of a model of the user's: not known
        workers, at_once = scenario.workers.count, gradients_at_once(scenario)
        memory = memory_bytes(workers, parameters, processes=processes, at_once=at_once)
        on_gpu = isinstance(scenario.runtime, Simulated) and scenario.runtime.device == "cuda"
        needed = {"CPU": processes, "memory": memory, "GPU": int(on_gpu)}
        if not any(
            all(node["Resources"].get(one, 0) >= number for one, number in needed.items())
            for node in alive_nodes()
        ):
            gpu = " and a GPU" if on_gpu else ""
            raise HostError(
                f"no node of the Ray cluster has {processes} CPUs, {memory / 1e6:,.0f} MB{gpu}.",
                hint="`ray status --verbose` shows what each node has.",
            )
        return {"num_cpus": processes, "memory": memory, "num_gpus": int(on_gpu)}

    def _asked(self, claim: Claim, scenario: Scenario, data: Path, processes: int) -> ClusterRun:
        folder, beside = self.progress.runs / claim.name, claim.run.beside
        return ClusterRun(
            scenario=dump_data(with_copies(scenario), "scenario"),
            files={file.name: file.read_bytes() for file in custom_files(scenario, beside)},
            data=data.name,
            name=claim.name,
            argv=self.argv,
            processes=processes,
            resumed=archived(folder) if claim.resumes else b"",
            releases=self.releases,
        )

    def _conclude(self, claim: Claim, ended: Any) -> None:
        import ray

        folder = self.progress.runs / claim.name
        try:
            result: ClusterResult = ray.get(ended)
            if result.folder:
                extract(result.folder, folder)
                self.progress.registry.add(folder)
        except ray.exceptions.RayError as error:
            failure = Failure(f"lost by the cluster: {summary(error)}", NodeError.exit_code)
        except OSError as error:
            failure = Failure(f"{folder} cannot be written: {error.strerror}", HostError.exit_code)
        else:
            note = f"; on {result.host}"
            self.progress.conclude(claim, status=result.status, said=result.said, note=note)
            return
        self.progress.fail(claim.run, claim.name, failure)


def _processes(runs: int) -> int:
    """Return the number of processes of a run such that all runs together use all CPUs."""
    cpus = [int(node["Resources"]["CPU"]) for node in alive_nodes()]
    return max(1, min(sum(cpus) // max(1, runs), max(cpus, default=1)))


def _room(processes: int) -> int:
    """Return how many runs the cluster can execute at once."""
    return max(1, sum(int(node["Resources"]["CPU"]) // processes for node in alive_nodes()))
