"""The command as a user types it, in a separate folder, and what it leaves on the host."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from polling import LONGEST_SECONDS, wait_until
from warm_commands import Command, CommandRunner

from testbed.errors import HostError
from testbed.run.prepare import RunRequest
from testbed.run.simulated import up_simulated
from testbed.run.up import RunListener
from testbed.runtimes.docker.engine import connect
from testbed.runtimes.docker.image import check_image
from testbed.studies.study import StudyRun
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Launched
from testbed.telemetry.events import read_events
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.spool import SpoolReader

NUMBERS = itertools.count()

SCENARIO = """\
name: tiny
seed: 1
algorithm: {adacomp: {ratio: 0.1}}
model: digits-cnn
dataset: digits
workers:
  count: 3
  classes:
    fast: {share: 0.67}
    slow: {share: 0.33}
stop: {updates: 150}
evaluate: {every: 50, images: 100}
"""
"""Nothing paces it, so that however busy the host is, the verdict does not depend on it."""

LINKED = SCENARIO.replace(
    "fast: {", "fast: {link: {up: {rate: 50mbit}, down: {rate: 100mbit}}, "
).replace("slow: {", "slow: {link: {up: {rate: 20mbit}, down: {rate: 50mbit}}, ")
"""The same on links that are shaped: it takes longer to start, for they are measured first."""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Up:
    """``testbed up`` in a child process."""

    folder: RunFolder
    process: Command

    @property
    def name(self) -> str:
        return self.folder.name

    def events(self) -> list[str]:
        """The kinds of events so far."""
        with suppress(FileNotFoundError):
            return [entry.name for entry in read_events(self.folder.events)]
        return []

    def wait_for(self, look: Callable[[], Any]) -> Any:
        """Poll until the result is true; the run must not end before."""

        def seen() -> Any:
            found = look()
            assert found or self.process.poll() is None, self.end()
            return found

        return wait_until(seen)

    def wait_for_event(self, event: str) -> None:
        self.wait_for(lambda: event in self.events())

    def reach(self, moment: str) -> None:
        """Wait for a phase: an event, ``created`` or ``recorded``; and up to 0.4 s longer."""
        files = {"created": self.folder.run_file, "recorded": self.folder.control / "agent.pid"}
        self.wait_for(files[moment].exists if moment in files else lambda: moment in self.events())
        delay = random.uniform(0, 0.4)
        print(f"{moment} + {delay:.3f} s")
        time.sleep(delay)

    def wait_for_updates(self, count: int) -> None:
        """Wait until the parameter server has applied this many updates."""
        spool = self.folder.spool
        self.wait_for(lambda: spool.exists() and len(SpoolReader(spool).read()) >= count)

    def end(self, *, within: float = LONGEST_SECONDS) -> Done:
        """Wait for its end, with a timeout in case the run hangs."""
        out, err = self.process.communicate(timeout=within)
        return Done(self.process.returncode, out, err)

    def signal(self, number: signal.Signals) -> Done:
        self.process.send_signal(number)
        return self.end()


@dataclass
class Bed:
    """Where a test runs its commands: its own runs, home and registry, and a scenario to run.

    Attributes:
        path: the current folder of every command.
        cache: of prepared data sets, which all tests share.
    """

    path: Path
    cache: Path
    run_command: CommandRunner
    started: list[Up] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scenario("tiny.yaml", SCENARIO)
        self.scenario("linked.yaml", LINKED)

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def environment(self) -> dict[str, str]:
        state, cache = str(self.path / "state"), str(self.cache)
        own = {"HOME": str(self.path), "XDG_STATE_HOME": state, "XDG_CACHE_HOME": cache}
        return {**own, "PATH": os.environ["PATH"], "COLUMNS": "200"}

    def scenario(self, name: str, text: str) -> str:
        (self.path / name).write_text(text)
        return name

    def new_name(self) -> str:
        """A name that no run on this host has."""
        return f"e2e-{os.getpid()}-{next(NUMBERS)}"

    def run(self, *arguments: str, **environment: str) -> Done:
        """Run a command to its end."""
        given = {**self.environment, **environment}
        done = self.run_command(
            arguments, cwd=self.path, environment=given, timeout=LONGEST_SECONDS
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def up(self, *options: str, file: str = "tiny.yaml") -> Up:
        """Start a run with a new name."""
        return self.start("up", file, "--name", self.new_name(), *options)

    def start(self, *arguments: str, **environment: str) -> Up:
        """Start a run whose name, and possibly ``--runs``, are among the arguments."""
        options = dict(pairwise(arguments))
        runs = Path(options.get("--runs", self.runs))
        given = {**self.environment, **environment}
        process = self.run_command.start(arguments, cwd=self.path, environment=given)
        self.started.append(Up(RunFolder(runs / options["--name"]), process))
        return self.started[-1]

    def nodes(self, run: str) -> dict[str, Any]:
        """The output of ``testbed ps RUN``, by node."""
        return {row["node"]: row for row in self.run("ps", run, "--json").json}

    @staticmethod
    def kill_node(up: Up, node: str, number: int = signal.SIGKILL) -> None:
        """Signal a node's process, whose pid a command might look up too late."""
        launched = only(read_events(up.folder.events), Launched)
        (pid,) = (event.pid for event in launched if event.node == node)
        os.kill(pid, number)

    def remains(self, run: str) -> list[str]:
        """Everything of a run on the host other than its folder."""
        needle = run.encode()
        found = [
            f"process {pid}: {text.decode(errors='replace')}"
            for pid in Path("/proc").glob("[0-9]*")
            if needle in (text := _read(pid / "cmdline") + _read(pid / "cgroup"))
        ]
        found += [
            f"cgroup {path}"
            for hierarchy in ("", "*/")
            for path in Path("/sys/fs/cgroup").glob(f"{hierarchy}testbed*/{run}")
        ]
        found += [
            f"mount {line}"
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if run in line
        ]
        names = {path.name for path in Path("/sys/class/net").iterdir()}
        return found + [f"interface {name}" for name in names & {"ps", "w0", "w1", "w2", "switch"}]


def _read(path: Path) -> bytes:
    with suppress(OSError):
        return path.read_bytes()
    return b""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def simulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[StudyRun, Path], bool]:
    """Executes a simulated run of a study in this process; returns whether it is valid.

    Importing torch in a sweep's children would outlast the runs of a test.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def carry_out(run: StudyRun, runs: Path) -> bool:
        request = RunRequest(
            run.scenario,
            beside=run.beside.absolute(),
            runs=runs,
            name=run.base_name,
            argv=("testbed",),
            environment=os.environ,
            home=tmp_path,
            now=time.time(),
        )
        return up_simulated(request, RunListener())

    return carry_out


@pytest.fixture
def bed(tmp_path: Path, cache: Path, run_command: CommandRunner) -> Iterator[Bed]:
    bed = Bed(tmp_path, cache, run_command)
    yield bed
    _end_all(bed)


@pytest.fixture(scope="session")
def shared_bed(
    tmp_path_factory: pytest.TempPathFactory, cache: Path, run_command: CommandRunner
) -> Iterator[Bed]:
    """For tests that only look at the results of other commands."""
    bed = Bed(tmp_path_factory.mktemp("bed"), cache, run_command)
    yield bed
    _end_all(bed)


@pytest.fixture(scope="session")
def finished(shared_bed: Bed) -> tuple[Up, Done]:
    """A run that ended, and how."""
    up = shared_bed.up(file="linked.yaml")
    return up, up.end()


@pytest.fixture(
    params=[
        pytest.param("native", marks=pytest.mark.root),
        pytest.param("docker", marks=pytest.mark.docker),
    ]
)
def runtime(request: pytest.FixtureRequest) -> str:
    """Every runtime that makes containers; Docker's where the image exists."""
    if request.param == "docker":
        request.getfixturevalue("engine")
    return str(request.param)


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """The Docker engine of this host, which has the image of nodes; else tests are skipped."""
    with ExitStack() as opened:
        try:
            engine = opened.enter_context(connect())
            check_image(engine)
        except HostError as lacking:
            pytest.skip(f"needs an engine with the image: {lacking}")
        yield engine


def _end_all(bed: Bed) -> None:
    """Ends what a failed test left running."""
    for up in bed.started:
        if up.process.poll() is None:
            up.process.kill()
        up.process.communicate()  # which closes its streams too
        if bed.remains(up.name):
            bed.run("down", up.name)


UNITS = {
    "percentunit": (-1e-9, 1 + 1e-9),
    "Bps": (0, 1e9),
    "bytes": (0, 1e12),
    "ops": (0, 1e5),
    "decbytes": (0, 1e12),
    "suffix:p/s": (0, 1e6),
    "s": (-1, 1e4),
    "none": (0, 1e6),
    "cps": (0, 1e5),
}
"""The least and the greatest that a panel of that unit can show of this run."""


@dataclass(frozen=True)
class Query:
    """The query of a panel or an annotation."""

    place: str
    expression: str
    unit: str


def queries(file: Path) -> Iterator[Query]:
    page = json.loads(file.read_text())
    for note in page["annotations"]["list"]:
        yield Query(f"{file.stem}: {note['name']}", note["expr"], "none")
    for panel in (inner for one in page["panels"] for inner in (one, *one.get("panels", ()))):
        for target in panel.get("targets", ()):
            config = panel["fieldConfig"]
            own = {
                one["matcher"]["options"]: one["properties"][0]["value"]
                for one in config["overrides"] or ()
            }
            unit = own.get(target["legendFormat"], config["defaults"]["unit"])
            yield Query(f"{file.stem}: {panel['title']}", target["expr"], unit)


@dataclass(frozen=True)
class Prometheus:
    """A real Prometheus server."""

    url: str

    def answers(self, path: str) -> bool:
        """Whether it accepts queries."""
        with suppress(URLError, ConnectionError), urlopen(f"{self.url}{path}", timeout=5):
            return True
        return False

    def ask(self, what: str, **parameters: str) -> list[dict[str, Any]]:
        try:
            with urlopen(f"{self.url}/api/v1/{what}?{urlencode(parameters)}") as answer:
                data = json.load(answer)["data"]
        except HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None
        found: list[dict[str, Any]] = data["result"]
        return found

    def check_panels(
        self, run: str, files: Sequence[Path], lacking: Collection[str], **window: str
    ) -> None:
        """Run every query of panels and annotations, except those in ``lacking``."""
        asked, step = [one for file in files for one in queries(file)], f"{window['step']}s"
        assert asked
        for query in asked:
            expression = query.expression.replace("$run", run).replace("$__interval", step)
            for name, value in (("$class", ".*"), ("$worker", ".*"), ("$__rate_interval", "20s")):
                expression = expression.replace(name, value)
            assert "$" not in expression, query
            found = self.ask("query_range", query=expression, **window)
            if any(part in expression for part in lacking):
                continue
            assert found, (query, expression)
            values = [float(value) for series in found for _, value in series["values"]]
            numbers = [value for value in values if math.isfinite(value)]
            least, greatest = UNITS[query.unit]
            assert numbers, query
            assert least <= min(numbers) <= max(numbers) <= greatest, (query, numbers)


@pytest.fixture(scope="session")
def prometheus_at() -> Callable[[str], Prometheus]:
    """The Prometheus at a URL."""
    if shutil.which("prometheus") is None:
        pytest.skip("needs prometheus: apt install prometheus")
    return Prometheus
