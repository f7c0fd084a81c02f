"""Every family grows by one file and its entry in a list; no other file of the package changes.

Each test copies the package to a temporary folder, adds a member, and uses it as a user would.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import testbed

pytestmark = pytest.mark.slow  # every command imports torch

PACKAGE = Path(testbed.__file__).parent
LONGEST_SECONDS = 120.0

SCENARIO = """\
name: grown
runtime: simulated
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2, batch_size: 10, classes: {fast: {speed: 20ms}}}
stop: {updates: 20}
evaluate: {every: 20, images: 100}
"""


class Copy:
    """A copy of the package, and a folder with a scenario in which it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "copy" / "testbed"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PACKAGE, self.package, ignore=ignored)
        self.scenario(SCENARIO)

    def scenario(self, text: str) -> None:
        (self.folder / "scenario.yaml").write_text(text)

    def add(self, file: str, text: str) -> None:
        """Add a file."""
        path = self.package / file
        assert not path.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text))

    def enter(self, file: str, member: str, *, before: str, entry: str) -> None:
        """Import a member (``module.Name``) in its family's list, and add its entry there."""
        path = self.package / file
        module, _, name = member.rpartition(".")
        head, imports, rest = path.read_text().partition("\nfrom testbed.")
        assert before in rest, f"{before!r} in {file}"
        rest = rest.replace(before, entry + before, 1)
        path.write_text(f"{head}\nfrom testbed.{module} import {name}{imports}{rest}")

    def __call__(self, *words: str, status: int | None = 0) -> str:
        """Run testbed; returns its output. It must exit with ``status``; None allows any."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "testbed", *words],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": str(self.package.parent),
                "XDG_STATE_HOME": str(self.folder / "state"),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_SECONDS,
        )
        assert status in (done.returncode, None), f"{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def train(self) -> Any:
        """Run the scenario; returns its summary."""
        self("up", "scenario.yaml", "--name", "r")
        return json.loads(self("report", "r", "--json"))


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_an_algorithm(copy: Copy) -> None:
    copy.add(
        "algorithms/signed.py",
        '''
        """Pushes the signs of its gradient."""

        from typing import Literal

        import numpy as np

        from testbed.algorithms.asgd import AsgdServer
        from testbed.algorithms.base import AlgorithmConfig, Halves, Update, WorkerHalf
        from testbed.algorithms.parts.options import LearningRate
        from testbed.payloads import Dense, Vector


        class Signed(AlgorithmConfig):
            """Options."""

            name: Literal["signed"]
            learning_rate: LearningRate = 0.001

            def halves(self) -> Halves:
                return SignedWorker, AsgdServer


        class SignedWorker(WorkerHalf[Signed]):
            """Pushes signs."""

            def step(self, gradient: Vector, samples: int, now: float) -> Update:
                return Update(Dense(np.sign(gradient)), self.version, samples)
        ''',
    )
    copy.enter(
        "algorithms/__init__.py",
        "algorithms.signed.Signed",
        before="Asgd\n        | CompAsgd",
        entry="Signed | ",
    )
    copy.scenario(SCENARIO.replace("asgd", "signed"))
    assert copy.train()["updates"]["total"] == 20


def test_a_model(copy: Copy) -> None:
    copy.add(
        "models/linear.py",
        '''
        """A linear classifier."""

        from math import prod
        from pathlib import Path
        from typing import Literal

        from testbed.models.base import ImageShape, ModelConfig, Network, dense


        class LinearClassifier(ModelConfig):
            """Scores are linear in the pixels."""

            name: Literal["linear"]

            def build(self, image_shape: ImageShape, classes: int, *, folder: Path) -> Network:
                from testbed.models.layers import LayeredNetwork, Linear
                from testbed.models.objectives import CrossEntropy

                plane = Linear("plane", prod(image_shape), classes, deviation=0.01, relu=False)
                return LayeredNetwork([plane], CrossEntropy())

            def parameters(self, image_shape: ImageShape, classes: int) -> int:
                return dense(prod(image_shape), classes)
        ''',
    )
    copy.enter(
        "models/__init__.py",
        "models.linear.LinearClassifier",
        before="AdaCompCnn | AdspCnn",
        entry="LinearClassifier | ",
    )
    copy.scenario(SCENARIO.replace("digits-cnn", "linear"))
    assert copy.train()["updates"]["total"] == 20


def test_a_data_set(copy: Copy) -> None:
    copy.add(
        "datasets/noise.py",
        '''
        """Images of noise with labels at random."""

        from collections.abc import Mapping
        from pathlib import Path
        from typing import Literal

        import numpy as np

        from testbed.datasets.base import DatasetConfig
        from testbed.datasets.prepared import Prepared, prepare_once
        from testbed.values.seeds import stream


        class Noise(DatasetConfig):
            """200 images of noise, half of them for testing."""

            images = ((1, 8, 8), 10)
            test_images = 100

            name: Literal["noise"]

            def prepare(
                self, cache: Path, *, environment: Mapping[str, str], folder: Path
            ) -> Path:
                return prepare_once(cache / "prepared" / "noise", _draw)


        def _draw() -> Prepared:
            rng = stream(0, "noise")
            images = rng.standard_normal((200, 1, 8, 8)).astype(np.float32)
            labels = np.repeat(np.arange(10), 20)
            rng.shuffle(labels)
            halves = images[:100], labels[:100], images[100:], labels[100:]
            return Prepared(*halves, classes=10, source={"name": "noise"})
        ''',
    )
    copy.enter(
        "datasets/__init__.py",
        "datasets.noise.Noise",
        before="Cifar10\n        |",
        entry="Noise | ",
    )
    copy.scenario(SCENARIO.replace("dataset: digits", "dataset: noise"))
    assert copy.train()["updates"]["total"] == 20


def test_a_kind_of_payload(copy: Copy) -> None:
    """An update has two bytes for each of the 17,258 values of digits-cnn."""
    copy.add(
        "payloads/half.py",
        '''
        """All entries in half precision."""

        from dataclasses import dataclass
        from typing import Any

        from numpy.typing import NDArray

        from testbed.payloads.base import Payload


        @dataclass(frozen=True, eq=False)
        class Half(Payload):
            """All N entries, float16."""

            values: NDArray[Any]

            NUMBER = 9
            TYPES = ("<f2",)

            def flaw(self, size: int) -> str:
                return "" if self.entries == size else f"{self.entries} values, expected {size}"
        ''',
    )
    copy.enter(
        "payloads/__init__.py", "payloads.half.Half", before="Dense, Sparse, Keyed", entry="Half, "
    )
    copy.add(
        "algorithms/half_asgd.py",
        '''
        """Pushes its gradient in half precision."""

        from collections.abc import Sequence
        from dataclasses import replace
        from typing import Literal

        import numpy as np

        from testbed.algorithms.asgd import Asgd, AsgdServer, AsgdWorker
        from testbed.algorithms.base import Applied, Halves, Update, expect
        from testbed.payloads import Dense, Vector
        from testbed.payloads.half import Half


        class HalfAsgd(Asgd):
            """Options."""

            name: Literal["half-asgd"]

            def halves(self) -> Halves:
                return HalfWorker, HalfServer


        class HalfWorker(AsgdWorker):
            """Rounds."""

            def step(self, gradient: Vector, samples: int, now: float) -> Update:
                return Update(Half(gradient.astype(np.float16)), self.version, samples)


        class HalfServer(AsgdServer):
            """Converts back."""

            def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
                values = expect(Half, update.payload).values.astype(np.float32)
                return super().push(worker, replace(update, payload=Dense(values)), now)
        ''',
    )
    copy.enter(
        "algorithms/__init__.py",
        "algorithms.half_asgd.HalfAsgd",
        before="Asgd\n        | CompAsgd",
        entry="HalfAsgd | ",
    )
    copy.scenario(SCENARIO.replace("asgd", "half-asgd"))
    assert copy.train()["ingress"]["payload_bytes"] == 20 * 2 * 17_258


def test_a_partition(copy: Copy) -> None:
    copy.add(
        "datasets/partitions/alternating.py",
        '''
        """Every n-th sample."""

        from typing import Literal

        import numpy as np

        from testbed.datasets.partitions.base import PartitionConfig, Samples


        class Alternating(PartitionConfig):
            """Worker i of n has the samples i, i + n, i + 2 n ..."""

            name: Literal["alternating"]

            def assign(
                self, chosen: Samples, labels: Samples, workers: int, *, rng: np.random.Generator
            ) -> list[Samples]:
                return [chosen[worker::workers] for worker in range(workers)]
        ''',
    )
    copy.enter(
        "datasets/partitions/__init__.py",
        "datasets.partitions.alternating.Alternating",
        before="Iid | ByLabel",
        entry="Alternating | ",
    )
    dataset = "dataset: {digits: {partition: alternating}}"
    copy.scenario(SCENARIO.replace("dataset: digits", dataset))
    assert copy.train()["updates"]["total"] == 20


def test_a_kind_of_node(copy: Copy) -> None:
    copy.add(
        "plan/nodes/witness.py",
        '''
        """A node that does nothing."""

        from collections.abc import Iterator

        from testbed.plan.nodes.base import Role
        from testbed.scenario.schema import Scenario
        from testbed.values.topology import NodeSpec


        class WitnessRole(Role):
            """It has no link."""

            name = "witness"
            entry = "testbed.roles.witness:main"
            end = "expected"

            def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
                yield NodeSpec("witness", self.name, 0, "", None, None, None, 1, 65_000)
        ''',
    )
    copy.enter(
        "plan/nodes/__init__.py",
        "plan.nodes.witness.WitnessRole",
        before="    EvaluatorRole(),",
        entry="    WitnessRole(),\n",
    )
    copy.scenario(SCENARIO.replace("simulated", "native"))
    nodes = json.loads(copy("plan", "scenario.yaml", "--json"))["nodes"]
    assert [node["name"] for node in nodes] == ["ps", "witness", "evaluator", "w0", "w1"]


def test_a_runtime(copy: Copy) -> None:
    """Its folder has all that the plan, the doctor and messages say about it."""
    copy.add(
        "runtimes/tower/__init__.py",
        '''
        """The native runtime on a host with a door."""

        from collections.abc import Iterator
        from typing import Literal

        from testbed.runtimes.base import Finding, RuntimeDriver
        from testbed.runtimes.config import Capabilities, ContainerRuntime
        from testbed.runtimes.native.driver import NativeDriver


        class Tower(ContainerRuntime):
            """Containers without an engine."""

            capabilities = Capabilities(gpus=True)

            name: Literal["tower"]

            def driver(self) -> RuntimeDriver:
                return TowerDriver()


        class TowerDriver(NativeDriver):
            def examine(self, *, workers: int, gpu: bool, broker: bool) -> Iterator[Finding]:
                yield Finding("door", "warning", f"closed to {workers} workers", "Open it.")
        ''',
    )
    copy.enter(
        "runtimes/__init__.py",
        "runtimes.tower.Tower",
        before="Native | Docker",
        entry="Tower | ",
    )
    copy.scenario(SCENARIO.replace("runtime: simulated", "runtime: tower"))
    assert json.loads(copy("plan", "scenario.yaml", "--json"))["runtime"] == "tower"
    findings = json.loads(copy("doctor", "scenario.yaml", "--json", status=None))
    assert ("door", "closed to 2 workers") in {(one["check"], one["found"]) for one in findings}
    copy.scenario(SCENARIO.replace("speed: 20ms", "speed: 20ms, gpus: 1"))
    assert "tower or docker does" in copy("validate", "scenario.yaml", status=2)
    assert "auto or tower or" in copy("doctor", "--runtime", "nothing", status=2)


def test_a_measure(copy: Copy) -> None:
    copy.add(
        "reports/samples.py",
        '''
        """The number of samples of all updates."""

        from testbed.reports.frames import Run


        def samples(run: Run) -> float:
            return float(run.updates["samples"].sum())
        ''',
    )
    copy.enter(
        "reports/registry.py",
        "reports.samples.samples",
        before='    "final_accuracy"',
        entry='    "samples": Definition("samples", "count", samples),\n',
    )
    study = "name: s\nscenario: scenario.yaml\nseeds: [1, 2]\n"
    study += "report: {tables: {t: {measures: [samples]}}}\n"
    (copy.folder / "study.yaml").write_text(study)
    copy("sweep", "study.yaml")
    copy("report", "study.yaml")
    assert "|     2 |     200 |" in (copy.folder / "runs" / "s" / "report.md").read_text()
