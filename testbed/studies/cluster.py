"""Executes simulated runs of a sweep as tasks of a Ray cluster.

Ray brings this package to the nodes with its runtime environment, the user's files with each task,
and a data set once to each node. The finished run folder is the result of a task.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import testbed
from testbed import datasets
from testbed.errors import HostError, NodeError, TestbedError
from testbed.run.data import known_size, prepare_dataset
from testbed.run.prepare import custom_files
from testbed.runtimes import Simulated
from testbed.scenario.dump import dump_data
from testbed.scenario.own_code import with_copies
from testbed.scenario.schema import Scenario
from testbed.simulation.outline import memory_bytes
from testbed.studies.cluster_task import (
    SAME,
    ClusterResult,
    ClusterRun,
    archived,
    carry_out,
    extract,
    lacks,
    release_of,
)
from testbed.studies.progress import Claim, Failure, Progress
from testbed.studies.study import StudyRun

RETRIES = 3
"""How often Ray repeats a task whose node or process was lost."""

CONNECT_SECONDS = 10.0

CANCEL_SECONDS = 20.0
"""Time for the tasks of an interrupted sweep to end their processes."""


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Join a Ray cluster, and bring this package to its nodes.

    Raises:
        HostError: Ray is not installed, or there is no cluster of its version at the address.
    """
    try:
        import ray
    except ImportError:
        raise HostError(
            "--ray needs the package ray, which is not installed.",
            hint="pip install 'edge-testbed[ray]'",
        ) from None
    if ray.is_initialized():
        raise HostError("this process uses a Ray cluster already.", hint="ray.shutdown()")
    package = str(Path(testbed.__file__).parent)
    try:
        _call(address)
        ray.init(
            address,
            runtime_env={"py_modules": [package], "excludes": ["**/__pycache__"]},
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise HostError(
            f"no Ray cluster can be joined at {address}: {_summary(error)}",
            hint="`ray status` shows the cluster of this machine. Expected auto, HOST:PORT, or "
            "ray://HOST:10001 from outside the cluster.",
        ) from None
    try:
        with _interrupted_by_sigterm():
            yield
    finally:
        ray.shutdown()


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Inside, SIGTERM ends the sweep as Ctrl-C does; Ray would print a stack and abort."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _call(address: str) -> None:
    """Check that a server answers at an address; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


def _summary(error: BaseException) -> str:
    """Return an error of Ray's or the system's on one line: of a trace, the last."""
    import ray

    lines = [line.strip() for line in str(error).strip().splitlines()]
    if isinstance(error, ray.exceptions.RayTaskError):
        return lines[-1]
    return (error.strerror if isinstance(error, OSError) else None) or " ".join(lines)


@dataclass
class RayCluster:
    """The cluster that this process has joined; see ``connected``."""

    progress: Progress
    environment: Mapping[str, str]  # of this process
    argv: tuple[str, ...]  # the command line, for the record of each run
    releases: Mapping[str, str] = field(default_factory=lambda: {one: version(one) for one in SAME})
    _data: dict[Path, Any] = field(default_factory=dict)  # references to the data sets

    def check(self) -> None:
        """Check that every node can execute runs.

        Raises:
            HostError: some cannot; says which, and why.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        examine = ray.remote(num_cpus=0)(lacks)
        asked = []
        for node in _nodes():
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            found = examine.options(scheduling_strategy=there).remote(self.releases)
            asked.append((node["NodeManagerHostname"], found))
        problems = []
        for host, found in asked:
            try:
                lacking = ray.get(found)
            except ray.exceptions.RayError as error:
                lacking = _summary(error)
            if lacking:
                problems.append(f"{host}: {lacking}")
        if problems:
            raise HostError(
                f"{len(problems)} of {len(asked)} nodes of the Ray cluster cannot execute runs: "
                f"{'; '.join(problems)}.",
                hint=f"On these nodes: pip install 'edge-testbed[ray]=={version('edge-testbed')}' "
                + " ".join(f"{one}=={release_of(wanted)}" for one, wanted in self.releases.items()),
            )

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
        memory = memory_bytes(scenario.workers.count, parameters, processes=processes)
        on_gpu = isinstance(scenario.runtime, Simulated) and scenario.runtime.device == "cuda"
        needed = {"CPU": processes, "memory": memory, "GPU": int(on_gpu)}
        if not any(
            all(node["Resources"].get(one, 0) >= number for one, number in needed.items())
            for node in _nodes()
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
            failure = Failure(f"lost by the cluster: {_summary(error)}", NodeError.exit_code)
            self.progress.fail(claim.run, claim.name, failure)
            return
        except OSError as error:
            failure = Failure(f"{folder} cannot be written: {error.strerror}", HostError.exit_code)
            self.progress.fail(claim.run, claim.name, failure)
            return
        self.progress.conclude(
            claim, status=result.status, said=result.said, note=f"; on {result.host}"
        )


def _nodes() -> list[dict[str, Any]]:
    import ray

    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in known if node["Alive"] and node["Resources"].get("CPU")]


def _processes(runs: int) -> int:
    """Return the number of processes of a run such that all runs together use all CPUs."""
    cpus = [int(node["Resources"]["CPU"]) for node in _nodes()]
    return max(1, min(sum(cpus) // max(1, runs), max(cpus, default=1)))


def _room(processes: int) -> int:
    """Return how many runs the cluster can execute at once."""
    return max(1, sum(int(node["Resources"]["CPU"]) // processes for node in _nodes()))
