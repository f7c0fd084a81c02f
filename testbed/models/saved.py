"""Trained models as files: ``best.safetensors`` and ``final.safetensors`` in a run's ``model``.

A file holds the model's tensors under the names and shapes of its layout, and under the key
``testbed`` of its metadata, as JSON, where in the training it was taken and how good it was found.
Safetensors hold numbers and text only: reading one executes nothing.

The best model is the one with the highest top-1 accuracy of all evaluations during the training; of
equal ones, and where there is no accuracy, that with the lowest loss. The final one is evaluated on
other images, all of them, so it is not compared with these.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from testbed.errors import TestbedError
from testbed.models.base import Bound, Evaluation, ImageShape, Network
from testbed.payloads import Vector
from testbed.payloads.layout import Layout
from testbed.telemetry.files import replacing
from testbed.telemetry.untrusted import read_untrusted

Which = Literal["best", "final"]

FORMAT = 1
KEY = "testbed"
LARGEST_FILE = 2**28
"""Bytes: four times the largest model that can be sent, and its names."""


@dataclass(frozen=True)
class Measurement:
    """Where in the training a model was taken, and how good it was found.

    Attributes:
        version: updates in it.
        time_seconds: emulated seconds since the start.
        evaluation: what was measured.
        final: whether the training had ended.
    """

    version: int
    time_seconds: float
    evaluation: Evaluation
    final: bool


@dataclass
class ModelWriter:
    """Saves the best and the final model of one training.

    Attributes:
        folder: where the files go.
        layout: of the model.
        image_shape: channels, height, width of the images it was made for.
        classes: number of labels it was made for; 0 for numbers.
        best: accuracy and negative loss of the best model so far.
    """

    folder: Path
    layout: Layout
    image_shape: ImageShape
    classes: int
    best: tuple[float, float] = field(default=(-inf, -inf))

    def take(self, parameters: Vector, taken: Measurement) -> None:
        """A model was evaluated: save it if it is the final one, or better than those before.

        Args:
            parameters: the model, shape (N,); only lent.
            taken: what is known of it.

        Raises:
            OSError: the file cannot be written.
        """
        if taken.final:
            self._write("final", parameters, taken)
            return
        loss = taken.evaluation.loss
        goodness = (taken.evaluation.top1 or 0.0, -loss if isfinite(loss) else -inf)
        if goodness > self.best:
            self._write("best", parameters, taken)
            self.best = goodness

    def _write(self, which: Which, parameters: Vector, taken: Measurement) -> None:
        about = {
            "format": FORMAT,
            "image_shape": self.image_shape,
            "classes": self.classes,
            **asdict(taken),
        }
        parts = zip(self.layout.names, self.layout.slices(), self.layout.shapes, strict=True)
        tensors = {name: parameters[part].reshape(shape) for name, part, shape in parts}
        with replacing(_file(self.folder, which)) as fresh:
            fresh.write_bytes(save(tensors, metadata={KEY: json.dumps(about)}))
            fresh.chmod(0o644)  # whatever the umask: its reader may be another user


@dataclass(frozen=True)
class SavedModel:
    """What a file says, before its network is built.

    Attributes:
        path: the file.
        taken: see Measurement.
        image_shape: channels, height, width of the images it was made for.
        classes: number of labels it was made for; 0 for numbers.
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
            which: of its models.

        Raises:
            TestbedError: there is no such file, or it is damaged.
        """
        path = _file(folder, which)
        with _opened(path) as file:
            try:
                about = json.loads((file.metadata() or {})[KEY])
                taken = {**about, "evaluation": Evaluation(**about["evaluation"])}
                height, width = (int(pixels) for pixels in about["image_shape"][1:])
                return cls(
                    path,
                    Measurement(**{name: taken[name] for name in Measurement.__dataclass_fields__}),
                    (int(about["image_shape"][0]), height, width),
                    int(about["classes"]),
                )
            except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
                raise _damaged(path, f"its metadata are not those of a model ({error})") from None

    def load(self, network: Network) -> LoadedModel:
        """The model in its network.

        Raises:
            TestbedError: the file is damaged, or holds another network's tensors.
        """
        layout = network.layout
        parameters = np.empty(layout.size, np.float32)
        with _opened(self.path) as file:
            if set(file.keys()) != set(layout.names):
                found = ", ".join(sorted(file.keys())[:5])
                raise _damaged(self.path, f"it holds {found}, expected {', '.join(layout.names)}")
            for name, part, shape in zip(layout.names, layout.slices(), layout.shapes, strict=True):
                tensor = file.get_tensor(name)
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
        parameters: all values, shape (N,); the network computes at them, whatever they become.
        taken: where in the training it was taken, and how good it was found.
    """

    bound: Bound
    layout: Layout
    parameters: Vector
    taken: Measurement


def _file(folder: Path, which: Which) -> Path:
    return folder / f"{which}.safetensors"


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A copy of the file, which a node has written and may cut short while it is read."""
    try:
        content = read_untrusted(path, node="evaluator", most=LARGEST_FILE)
    except (FileNotFoundError, NotADirectoryError):
        raise TestbedError(
            f"There is no model {path}.",
            hint="The final model is there when a run has come to its end, the best one from its "
            "first evaluation on.",
        ) from None
    except PermissionError as error:
        raise _damaged(path, str(error.strerror)) from None
    with os.fdopen(os.memfd_create("model", os.MFD_CLOEXEC), "wb", buffering=0) as copy:
        copy.write(content)
        try:
            with safe_open(f"/proc/self/fd/{copy.fileno()}", framework="numpy") as file:
                yield file
        except SafetensorError as error:
            raise _damaged(path, f"no safetensors, or cut short ({error})") from None


def _damaged(path: Path, what: str) -> TestbedError:
    return TestbedError(f"{path}: not the model of a run: {what}.", hint="The file is damaged.")
