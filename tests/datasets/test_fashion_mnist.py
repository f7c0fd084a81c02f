"""Differences from MNIST: checksums of the compressed files, and a separate folder."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from testbed.datasets import load
from testbed.datasets.fashion_mnist import TEST, TRAIN
from testbed.datasets.files import SourceFile
from testbed.datasets.mnist import Split, prepare_mnist
from testbed.errors import DataError

NOWHERE = ("http://127.0.0.1:9/fashion",)  # the discard port: nothing listens


def half(count: int, names: Split, folder: Path) -> Split:
    """Write compressed files with this many images, and return their expected contents."""
    pixels = np.random.default_rng(count).integers(0, 256, count * 784).astype(np.uint8)
    images = struct.pack(">4i", 2051, count, 28, 28) + pixels.tobytes()
    labels = struct.pack(">2i", 2049, count) + bytes(i % 10 for i in range(count))
    files = []
    for name, content in ((names.images.name, images), (names.labels.name, labels)):
        compressed = gzip.compress(content, mtime=0)
        (folder / f"{name}.gz").write_bytes(compressed)
        files.append(SourceFile(name, hashlib.sha256(compressed).hexdigest(), packed=True))
    return Split(*files)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "fashion-mnist"
    folder.mkdir(parents=True)
    return folder


def prepare(own: Path, train: Split, test: Split) -> Path:
    return prepare_mnist(
        own.parents[1] / "cache",
        environment={"TESTBED_DATA": str(own.parent)},
        train=train,
        test=test,
        urls=NOWHERE,
        dataset="fashion-mnist",
    )


def test_compressed_files_are_found_in_its_folder(own: Path) -> None:
    prepared = prepare(own, half(30, TRAIN, own), half(20, TEST, own))
    data = load(prepared)
    assert prepared.name.startswith("fashion-mnist-1-")
    assert (len(data.train_labels), len(data.test_labels)) == (30, 20)
    assert data.source["name"] == "fashion-mnist"


def test_files_of_mnist_next_to_its_folder_are_not_used(own: Path) -> None:
    train, test = half(30, TRAIN, own.parent), half(20, TEST, own.parent)
    with pytest.raises(DataError) as caught:
        prepare(own, train, test)
    expected = f"no train-images-idx3-ubyte, compressed, in {own} or {own.parents[1]}/cache/fashion"
    assert expected in caught.value.message


def test_a_recompressed_file_is_refused_as_damaged(own: Path) -> None:
    train, test = half(30, TRAIN, own), half(20, TEST, own)
    file = own / f"{TRAIN.images.name}.gz"
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()), 1, mtime=0))
    with pytest.raises(DataError, match=f"{file}: compressed file: found sha256 .*expected"):
        prepare(own, train, test)
