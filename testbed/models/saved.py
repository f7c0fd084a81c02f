"""Trained models as files: ``best.safetensors`` and ``final.safetensors`` in a run's ``model``.

A file holds the model's tensors under the names and shapes of its layout. The key ``testbed`` of
its metadata holds, as JSON, the point in training and the evaluation. Safetensors files contain
numbers and text only: reading a file executes no code.

The best model has the best value of the scenario's first metric, by default top-1 accuracy, of all
evaluations during training; among equals, and without a value, the lowest loss. The final model is
evaluated on other images, namely on all of them, so it is not compared with these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from math import inf, isfinite
from pathlib import Path
from sys import float_info
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from testbed.errors import DataError, TestbedError
from testbed.models.base import BoundModel, Evaluation, ImageShape, Network
from testbed.payloads import Vector
from testbed.payloads.layout import Layout
from testbed.telemetry.files import replacing
from testbed.telemetry.untrusted import read_untrusted

Which = Literal["best", "final"]

FORMAT = 1
KEY = "testbed"
UNDEFINED = -float_info.max
"""A value worse than any, but not infinitely: a model without one can still be the best."""

LARGEST_FILE = 2**28
"""Bytes: four times the largest model that can be sent, and its names."""


@dataclass(frozen=True)
class Measurement:
    """The point in training at which a model was saved, and its evaluation.

    Attributes:
        version: number of updates in it.
        time_seconds: emulated seconds since the start.
        evaluation: the result of the evaluation.
        final: whether training had ended.
    """

    version: int
    time_seconds: float
    evaluation: Evaluation
    final: bool


@dataclass
class ModelWriter:
    """Saves the best and the final model of one training.

    Attributes:
        folder: the folder for the files.
        layout: the model's layout.
        image_shape: channels, height, width of its images; or the length of rows of tokens.
        classes: number of its labels; 0 for numbers.
        lower: whether a lower value of the first metric is better.
        best: first metric and negative loss of the best model so far, a greater one being better.
    """

    folder: Path
    layout: Layout
    image_shape: ImageShape
    classes: int
    lower: bool = False
    best: tuple[float, float] = field(default=(-inf, -inf))

    def take(self, parameters: Vector, taken: Measurement) -> None:
        """Save an evaluated model if it is the final one, or better than all before.

        Args:
            parameters: the model, shape (N,); only borrowed.
            taken: its measurement.

        Raises:
            OSError: the file cannot be written.
        """
        if taken.final:
            self._write("final", parameters, taken)
            return
        loss = taken.evaluation.loss
        first = next(iter(taken.evaluation.metrics.values()), None)
        good = UNDEFINED if first is None else -first if self.lower else first
        goodness = (good, -loss if isfinite(loss) else -inf)
        if goodness > self.best:
            self._write("best", parameters, taken)
            self.best = goodness

    def _write(self, which: Which, parameters: Vector, taken: Measurement) -> None:
        about = {
            "format": FORMAT,
            "image_shape": self.image_shape,
            "classes": self.classes,
            **asdict(taken),
            "evaluation": taken.evaluation.written(),
        }
        parts = zip(self.layout.names, self.layout.slices(), self.layout.shapes, strict=True)
        tensors = {name: parameters[part].reshape(shape) for name, part, shape in parts}
        with replacing(_file(self.folder, which)) as fresh:
            fresh.write_bytes(save(tensors, metadata={KEY: json.dumps(about)}))
            fresh.chmod(0o644)  # whatever the umask: another user may read it


@dataclass(frozen=True)
class SavedModel:
    """The metadata of a file, available before its network is built.

    Attributes:
        path: the file.
        taken: the model's measurement.
        image_shape: channels, height, width of its images; or the length of rows of tokens.
        classes: number of its labels; 0 for numbers.
    """

    path: Path
    taken: Measurement
    image_shape: ImageShape
    classes: int

    @classmethod
    def open(cls, folder: Path, which: Which) -> SavedModel:
        """Read a file's metadata.

        Args:
            folder: ``model`` in a run folder.
            which: which of its models.

        Raises:
            TestbedError: the file does not exist.
            DataError: it is damaged.
        """
        path = _file(folder, which)
        metadata, _ = _read(path)
        try:
            about = json.loads(metadata[KEY])
            taken = {**about, "evaluation": Evaluation.read(about["evaluation"])}
            shape = tuple(int(size) for size in about["image_shape"])
            if len(shape) not in (1, 3):
                raise ValueError(f"image_shape {shape}")
            measurement = Measurement(**{one.name: taken[one.name] for one in fields(Measurement)})
            return cls(path, measurement, shape, int(about["classes"]))
        except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
            raise _damaged(path, f"its metadata is not that of a model ({error})") from None

    def load(self, network: Network) -> LoadedModel:
        """Load the model into its network.

        Raises:
            DataError: the file is damaged, or holds another network's tensors.
        """
        layout = network.layout
        parameters = np.empty(layout.size, np.float32)
        _, tensors = _read(self.path)
        if tensors.keys() != set(layout.names):
            found = ", ".join(sorted(tensors)[:5])
            raise _damaged(self.path, f"it holds {found}, expected {', '.join(layout.names)}")
        for name, part, shape in zip(layout.names, layout.slices(), layout.shapes, strict=True):
            tensor = tensors[name]
            if tensor.shape != shape or tensor.dtype != np.float32:
                found = f"{name} is {tensor.dtype} {tensor.shape}"
                raise _damaged(self.path, f"{found}, expected float32 {shape}")
            parameters[part] = tensor.reshape(-1)
        return LoadedModel(network.bind(parameters), layout, parameters, self.taken)


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A trained model, ready to compute.

    Attributes:
        bound: the network at the model's values: ``bound.scores(images)``, ``bound.evaluate``.
        layout: names and shapes of its tensors.
        parameters: all values, shape (N,); the network computes at their current values.
        taken: the model's measurement.
    """

    bound: BoundModel
    layout: Layout
    parameters: Vector
    taken: Measurement


def _file(folder: Path, which: Which) -> Path:
    return folder / f"{which}.safetensors"


def _read(path: Path) -> tuple[Mapping[str, str], Mapping[str, NDArray[Any]]]:
    """Return the metadata and the tensors of a file."""
    try:
        content = read_untrusted(path, node="evaluator", most=LARGEST_FILE)
    except (FileNotFoundError, NotADirectoryError):
        raise TestbedError(
            f"There is no model {path}.",
            hint="A run writes its best model from the first evaluation on, the final one at "
            "its end.",
        ) from None
    except PermissionError as error:
        raise _damaged(path, str(error.strerror)) from None
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise _damaged(path, f"not a safetensors file, or truncated ({error})") from None
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header.get("__metadata__", {}), tensors


def _damaged(path: Path, what: str) -> DataError:
    return DataError(f"{path}: not the model of a run: {what}.", hint="The file is damaged.")
