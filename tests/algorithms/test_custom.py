"""The user's own algorithm, named in a scenario."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from testbed.algorithms import CustomAlgorithm, configured
from testbed.algorithms.base import Reply, Stream, WorkerHalf
from testbed.algorithms.custom import open_config
from testbed.algorithms.frame.actions import Arrived, Computed, Step
from testbed.algorithms.frame.contract import examine
from testbed.algorithms.frame.worker import Shard, Worker
from testbed.errors import AlgorithmError, ScenarioError
from testbed.payloads import Dense, Vector
from testbed.payloads.layout import Layout
from testbed.run.prepare import custom_files
from testbed.scenario import Override, Scenario, dump, load, load_text
from testbed.values.user_code import UserCode

SHIPPED = Path(__file__).parents[2] / "scenarios" / "custom"

SOURCE = """\
from pathlib import Path; from typing import Literal
from testbed.algorithms.base import AlgorithmConfig, ServerHalf, WorkerHalf
from testbed.values.units import Duration

RAN = Path(__file__ + ".ran").write_text("x")

class Worker(WorkerHalf):
    def step(self, gradient, samples, now): ...

class Server(ServerHalf):
    def push(self, worker, update, now): ...

class Mine(AlgorithmConfig):
    every: Duration = Duration(2)
    clip: float | None = 1.0
    layers: tuple[int, ...] = (3,)
    def halves(self):
        return Worker, Server

class Named(Mine):
    name: Literal["named"]

class NoConfig(WorkerHalf): ...

class NoHalves(AlgorithmConfig): ...

class OneHalf(Mine):
    def halves(self):
        return Worker

class Swapped(Mine):
    def halves(self):
        return Server, Worker

class Bare(Mine):
    def halves(self):
        return WorkerHalf, Server

class Failing(Mine):
    def halves(self):
        return 1 / 0

class Disobedient(Mine):
    OBEYS = frozenset({"batch"})

class Lossy(Mine):
    every: int = 5
    def model_dump(self, **options):
        return {"every": 6}

class Odd(Mine):
    model_config = {"arbitrary_types_allowed": True}
    clip: object = object()
"""

TEXT = """\
name: own
algorithm: {custom: {file: mine.py, class: Mine}}
model: digits-cnn
dataset: digits
workers: {count: 2}
stop: {updates: 5}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A scenario next to a file with algorithms."""
    (tmp_path / "mine.py").write_text(SOURCE, encoding="utf-8")
    path = tmp_path / "own.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def loaded(file: Path, *settings: str) -> Scenario:
    return load(file, overrides=[Override.parse(setting) for setting in settings])


def in_run_folder(scenario: Scenario, folder: Path, beside: Path) -> Scenario:
    """The config as a node reads it from the scenario."""
    (folder / "custom").mkdir(parents=True)
    for own in custom_files(scenario, beside):
        shutil.copy(own, folder / "custom")
    (folder / "scenario.yaml").write_text(dump(scenario), encoding="utf-8")
    return load(folder / "scenario.yaml", custom_files=folder / "custom")


def test_options_are_stored_with_their_defaults(file: Path) -> None:
    algorithm = loaded(file, "algorithm.layers=[1, 2]").algorithm
    assert isinstance(algorithm, CustomAlgorithm)
    assert algorithm.options == {"every": "2s", "clip": 1.0, "layers": (1, 2)}


@pytest.mark.parametrize("kind", ["Mine", "Named"])
def test_a_node_builds_the_checked_config(file: Path, kind: str, tmp_path: Path) -> None:
    scenario = loaded(file, f"algorithm.class={kind}", "algorithm.every=30ms", "algorithm.clip=")
    read = in_run_folder(scenario, tmp_path / "run", file.parent)
    assert read == scenario
    config = configured(read.algorithm, tmp_path / "run").model_dump()
    assert config.pop("name", "named") == "named"
    assert config == {"every": "30ms", "clip": None, "layers": (3,)}


def test_reading_a_run_folder_executes_nothing(file: Path, tmp_path: Path) -> None:
    """The folder may belong to another user."""
    in_run_folder(loaded(file), tmp_path / "run", file.parent)
    assert not (tmp_path / "run" / "custom" / "mine.py.ran").exists()
    assert (tmp_path / "mine.py.ran").exists()
    (tmp_path / "mine.py.ran").unlink()
    load_text(TEXT, locate=lambda name: tmp_path / name)
    assert not (tmp_path / "mine.py.ran").exists()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Gone", r"algorithm.class: found no Gone in mine.py, which defines .*Mine"),
        ("RAN", r"found RAN, a int, expected a subclass of testbed.algorithms.base.AlgorithmConf"),
        ("NoConfig", r"mine.py:23: algorithm: found NoConfig, a ABCMeta, expected a subclass of"),
        ("NoHalves", r"mine.py:25: algorithm: found NoHalves without halves\(\), expected all"),
        ("OneHalf", r"mine.py:28: algorithm: found <class .*Worker'> from OneHalf.halves\(\), ex"),
        ("Swapped", r"mine.py:32: algorithm: .* expected \(a subclass of WorkerHalf, a subclass"),
        ("Bare", r"mine.py: algorithm: found WorkerHalf without step\(\), expected all methods"),
        ("Failing", r"mine.py:41: algorithm: found Failing.halves\(\) raised ZeroDivisionError"),
        ("Disobedient", r"mine.py:43: algorithm: found batch in OBEYS, expected some of batch_s"),
        (
            "Lossy",
            r"mine.py:46: algorithm: found options that change when written .*every.: 6",
        ),
        ("Odd", r"mine.py: algorithm: found writing the options of Odd raised Pydantic.*object"),
    ],
)
def test_errors_in_the_class_are_reported(file: Path, kind: str, expected: str) -> None:
    with pytest.raises(ScenarioError, match=expected):
        loaded(file, f"algorithm.class={kind}")


def test_an_old_method_name_is_refused(file: Path) -> None:
    """It would be ignored, and the training would use other batches than intended."""
    file.with_name("mine.py").write_text(
        SOURCE.replace("now): ...", "now): ...\n    def demand(self, stream, now): return 1", 1)
    )
    told = r"mine.py:7: algorithm: found Worker.demand\(\), .* expected its new name, next_batch_si"
    with pytest.raises(ScenarioError, match=told):
        loaded(file, "algorithm.class=Mine")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = = 1\n", r"mine.py:1: algorithm: found SyntaxError: .*expected valid Python"),
        ("import gone\n", r"mine.py:1: algorithm: found an import of gone, which is not installed"),
        (
            "import sys\nclass Mine: ...\nsys.exit(0)\n",
            r"mine.py:3: algorithm: found the file raised SystemExit",
        ),
    ],
)
def test_a_file_that_cannot_be_imported_is_an_error(file: Path, source: str, expected: str) -> None:
    (file.parent / "mine.py").write_text(source, encoding="utf-8")
    with pytest.raises(ScenarioError, match=expected):
        load(file)


def test_the_shipped_algorithm_keeps_the_contract(tmp_path: Path) -> None:
    scenario = load(SHIPPED / "dc-asgd.yaml")
    read = in_run_folder(scenario, tmp_path, SHIPPED)
    findings = list(examine(configured(read.algorithm, tmp_path)))
    assert [one for one in findings if one.problem] == []


def test_the_documented_algorithm_keeps_the_contract(tmp_path: Path) -> None:
    document = (SHIPPED.parents[1] / "docs/guides/own-algorithm.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^```python \S+\n(.*?)^```", document, re.MULTILINE | re.DOTALL)
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    config = open_config(UserCode(tmp_path / "mine.py", "Mine", "algorithm"), {})
    assert [one for one in examine(config) if one.problem] == []


class Quiet(WorkerHalf):
    """As that of Mine, but no code of the user's own."""

    def step(self, gradient: Vector, samples: int, now: float) -> None:
        return None


def train_locally(half: WorkerHalf, *, own: int) -> None:
    """Give a worker with this many samples 10,001 gradients of two samples each."""
    shard = Shard(np.arange(own), np.random.default_rng(0))
    loop = Worker(half, Stream(2, own=own), shard, think=lambda: 0.0).loop()
    next(loop)
    action = loop.send(Arrived(0.0, Reply(Dense(np.zeros(2, np.float32)), 0)))
    for _ in range(10_001):
        assert isinstance(action, Step)
        action = loop.send(Computed(0.0, np.ones(2, np.float32)))


def test_a_worker_that_never_pushes_breaks_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.algorithms.frame.worker.MOST_STEPS", 10_000)
    (tmp_path / "mine.py").write_text(SOURCE, encoding="utf-8")
    config = open_config(UserCode(tmp_path / "mine.py", "Mine", "algorithm"), {})
    given = Layout(("weight",), ((2,),)), 1, np.random.default_rng(0)
    mine, _ = config.halves()
    with pytest.raises(AlgorithmError, match=r"mine\.py:8: .* the first 10,000 gradients of w0"):
        train_locally(mine(config, *given), own=40)
    train_locally(mine(config, *given), own=42)  # 500 epochs are 10,500 steps
    train_locally(Quiet(config, *given), own=40)
