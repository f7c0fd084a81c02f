"""Which models are saved, the contents of their files, and invalid files."""

from __future__ import annotations

import json
import os
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from testbed.errors import DataError, NodeError, TestbedError
from testbed.models import Evaluation, Mlp
from testbed.models.saved import Measurement, ModelWriter, SavedModel

NETWORK = Mlp(name="mlp", hidden=(2,)).build((1, 2, 2), 3, folder=Path())
SIZE = 4 * 2 + 2 + 2 * 3 + 3


@pytest.fixture
def writer(tmp_path: Path) -> ModelWriter:
    return ModelWriter(tmp_path, NETWORK.layout, (1, 2, 2), 3)


def take(writer: ModelWriter, version: int, top1: float, loss: float, final: bool = False) -> None:
    """A model whose values all equal its version."""
    evaluation = Evaluation(loss, {"top1": top1, "top5": 1.0}, images=10)
    values = np.full(SIZE, version, np.float32)
    writer.take(values, Measurement(version, version / 2, evaluation, final))


def version(writer: ModelWriter, which: str = "best") -> int:
    return SavedModel.open(writer.folder, which).taken.version  # type: ignore[arg-type]


def test_the_best_is_the_most_accurate_and_then_the_one_of_lowest_loss(writer: ModelWriter) -> None:
    seen = []
    for number, (top1, loss) in enumerate(
        [(0.0, nan), (0.0, 5.0), (0.5, 2.0), (0.5, 1.0), (0.5, 1.0), (0.4, 0.1), (0.5, inf)]
    ):
        take(writer, number, top1, loss)
        seen.append(version(writer))
    assert seen == [0, 1, 2, 3, 3, 3, 3]


def test_without_accuracies_the_best_has_the_lowest_loss(writer: ModelWriter) -> None:
    for number, loss in enumerate([3.0, 1.0, 2.0]):
        evaluation = Evaluation(loss, {"top1": None, "top5": None}, images=10)
        taken = Measurement(number, 0.0, evaluation, final=False)
        writer.take(np.full(SIZE, number, np.float32), taken)
    assert version(writer) == 1
    assert SavedModel.open(writer.folder, "best").taken.evaluation.metrics == {
        "top1": None,
        "top5": None,
    }


def test_the_final_model_is_kept_and_never_replaces_the_best(
    writer: ModelWriter,
) -> None:
    take(writer, 1, 0.5, 1.0)
    take(writer, 2, 0.9, 0.5, final=True)
    assert (version(writer), version(writer, "final")) == (1, 2)
    assert sorted(path.name for path in writer.folder.iterdir()) == [
        "best.safetensors",
        "final.safetensors",
    ]


def test_a_saved_model_computes_the_same(writer: ModelWriter) -> None:
    values = NETWORK.initial(np.random.default_rng(1))
    images = np.random.default_rng(2).standard_normal((5, 1, 2, 2)).astype(np.float32)
    before = NETWORK.bind(values).scores(images)
    taken = Measurement(7, 3.5, Evaluation(0.1, {"top1": 0.9}, 10), final=True)
    writer.take(values, taken)
    loaded = SavedModel.open(writer.folder, "final").load(NETWORK)
    assert loaded.taken == taken
    assert np.array_equal(loaded.parameters, values)
    assert np.array_equal(loaded.bound.scores(images), before)


def test_any_reader_of_safetensors_finds_the_tensors_by_name(writer: ModelWriter) -> None:
    take(writer, 3, 0.5, 1.0)
    tensors = load_file(writer.folder / "best.safetensors")
    shapes = dict(zip(NETWORK.layout.names, NETWORK.layout.shapes, strict=True))
    assert {name: tensor.shape for name, tensor in tensors.items()} == shapes
    assert all((tensor == 3).all() for tensor in tensors.values())


def test_files_are_reproducible(writer: ModelWriter) -> None:
    take(writer, 3, 0.5, 1.0)
    content = (writer.folder / "best.safetensors").read_bytes()
    writer.best = (-inf, -inf)
    take(writer, 3, 0.5, 1.0)
    assert (writer.folder / "best.safetensors").read_bytes() == content


def test_a_missing_model(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"There is no model .*/final\.safetensors.* its end"):
        SavedModel.open(tmp_path / "nowhere", "final")


def test_an_invalid_model_file_is_refused_without_blocking(writer: ModelWriter) -> None:
    take(writer, 3, 0.5, 1.0)
    file = writer.folder / "best.safetensors"
    whole = file.read_bytes()
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    tensors = load_file(file)

    def refusal(kind: type[TestbedError] = DataError) -> str:
        with pytest.raises(kind) as refused:
            SavedModel.open(writer.folder, "best").load(NETWORK)
        return str(refused.value)

    for content in (whole[:-1], whole[:40], b"", b"\xff" * 100):
        file.write_bytes(content)
        assert "not a safetensors file, or truncated" in refusal()
    save_file(tensors, file)
    assert "its metadata is not that of a model" in refusal()
    about = header["__metadata__"]
    save_file({**tensors, "more": tensors[NETWORK.layout.names[0]]}, file, metadata=about)
    assert "expected dense1.weight, dense1.bias" in refusal()
    doubled = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    save_file(doubled, file, metadata=about)
    assert "is float64 " in refusal()
    file.unlink()
    file.symlink_to("/etc/passwd")
    assert "found a symbolic link, expected a regular file, written by evaluator" in refusal(
        NodeError
    )
    file.unlink()
    os.mkfifo(file)
    assert "found a named pipe, expected a regular file, written by evaluator" in refusal(NodeError)


def test_a_failed_write_raises_the_error_of_the_system(writer: ModelWriter) -> None:
    writer.folder.rmdir()
    with pytest.raises(FileNotFoundError):
        take(writer, 1, 0.5, 1.0)
