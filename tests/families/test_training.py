"""Algorithms, models, data sets, partitions, payloads and metrics: a file and an entry each."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow  # every command imports torch


def test_an_algorithm(copy: Any) -> None:
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
        before="| CompAsgd",
        entry="| Signed ",
    )
    copy.change("asgd", "signed")
    assert copy.train()["updates"]["total"] == 20


def test_a_model(copy: Any) -> None:
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
                from testbed.models.layers import CrossEntropy, LayeredNetwork, Linear

                plane = Linear("plane", prod(image_shape), classes, deviation=0.01, relu=False)
                return LayeredNetwork([plane], CrossEntropy())

            def parameters(self, image_shape: ImageShape, classes: int) -> int:
                return dense(prod(image_shape), classes)
        ''',
    )
    copy.enter(
        "models/__init__.py",
        "models.linear.LinearClassifier",
        before="| CharLstm",
        entry="| LinearClassifier ",
    )
    copy.change("digits-cnn", "linear")
    assert copy.train()["updates"]["total"] == 20


def test_a_data_set(copy: Any) -> None:
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
        before="| CustomDataset",
        entry="| Noise ",
    )
    copy.change("dataset: digits", "dataset: noise")
    assert copy.train()["updates"]["total"] == 20


def test_a_kind_of_payload(copy: Any) -> None:
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
        before="| CompAsgd",
        entry="| HalfAsgd ",
    )
    copy.change("asgd", "half-asgd")
    assert copy.train()["ingress"]["payload_bytes"] == 20 * 2 * 17_258


def test_a_partition(copy: Any) -> None:
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
        before="Iid\n    | ByLabel",
        entry="Alternating | ",
    )
    dataset = "dataset: {digits: {partition: alternating}}"
    copy.change("dataset: digits", dataset)
    assert copy.train()["updates"]["total"] == 20


def test_a_metric(copy: Any) -> None:
    """It is in the summary, and a measure of studies."""
    copy.add(
        "models/metrics/spread.py",
        '''
        """The greatest score."""

        from pathlib import Path
        from typing import Literal

        from testbed.models.metrics.base import Metric, MetricConfig, Outputs, Targets


        class Greatest(MetricConfig):
            """The greatest score of all images."""

            NAMES = "greatest"
            UNIT = ""

            name: Literal["greatest"]

            def start(self, classes: int, *, folder: Path | None) -> Metric:
                return _Greatest()


        class _Greatest(Metric):
            value = float("-inf")

            def update(self, outputs: Outputs, targets: Targets) -> None:
                self.value = max(self.value, float(outputs.max()))

            def values(self) -> tuple[float]:
                return (self.value,)
        ''',
    )
    copy.enter(
        "models/metrics/__init__.py",
        "models.metrics.spread.Greatest",
        before="Top1\n    | Top5",
        entry="Greatest\n    | ",
    )
    copy.change("images: 100", "images: 100, metrics: [greatest]")
    found = copy.train()["metrics"]
    assert list(found) == ["greatest"]
    assert found["greatest"]["best"] >= found["greatest"]["final"]
    study = "name: s\nscenario: scenario.yaml\nseeds: [1, 2]\n"
    study += "report: {tables: {t: {measures: [updates_to_greatest(0.001)]}}, figures: {}}\n"
    (copy.folder / "study.yaml").write_text(study)
    copy("sweep", "study.yaml")
    copy("report", "study.yaml")
    assert "updates to a greatest of 0.001" in (copy.folder / "runs/s/report.md").read_text()
