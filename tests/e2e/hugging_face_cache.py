"""Prepares a cache of Hugging Face's data sets from the files of MNIST and CIFAR-10, offline.

python hugging_face_cache.py DATA CACHE [IMAGES]

It runs in an environment with `datasets`, on DATA as TESTBED_DATA names it, and writes the first
IMAGES of each training set, and a fifth as many of each test set, under the names that Flower's
examples load.
"""

import gzip
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from datasets import ClassLabel, DatasetInfo, Features, Image
from datasets.arrow_writer import ArrowWriter
from datasets.splits import SplitDict, SplitInfo

VERSION, REVISION = "0.0.0", "0" * 40
SPLITS = {"train": 1.0, "test": 0.2}
Rows = Iterator[dict[str, Any]]


def mnist(folder: Path, split: str, count: int) -> Rows:
    """Yield images of 28 x 28 grey pixels, and their digits."""
    prefix = {"train": "train", "test": "t10k"}[split]
    read = [
        np.frombuffer(gzip.decompress((folder / f"{prefix}-{kind}-ubyte.gz").read_bytes()), "u1")
        for kind in ("images-idx3", "labels-idx1")
    ]
    for image, label in zip(read[0][16:].reshape(-1, 28, 28)[:count], read[1][8:], strict=False):
        yield {"image": image, "label": int(label)}


def cifar10(folder: Path, split: str, count: int) -> Rows:
    """Yield images of 32 x 32 pixels with three colours, and their classes."""
    name = {"train": "data_batch_1", "test": "test_batch"}[split]
    with tarfile.open(folder / "cifar-10-binary.tar.gz") as archive:
        member = archive.extractfile(f"cifar-10-batches-bin/{name}.bin")
        assert member is not None
        read = np.frombuffer(member.read(3073 * count), "u1").reshape(-1, 3073)
    for row in read:
        yield {"img": row[1:].reshape(3, 32, 32).transpose(1, 2, 0), "label": int(row[0])}


def write(cache: Path, name: str, config: str, features: Features, splits: dict[str, Rows]) -> None:
    """Write a data set where `datasets` looks for one of that name if there is no internet."""
    folder = cache / name.replace("/", "___") / config / VERSION / REVISION
    folder.mkdir(parents=True)
    short = name.rpartition("/")[2]
    written = SplitDict(dataset_name=short)
    for split, rows in splits.items():
        with ArrowWriter(path=str(folder / f"{short}-{split}.arrow"), features=features) as writer:
            for row in rows:
                writer.write(features.encode_example(row))
            examples, size = writer.finalize()
        written[split] = SplitInfo(split, size, examples, dataset_name=short)
    info = DatasetInfo(features=features, splits=written, version=VERSION)
    info.builder_name, info.dataset_name, info.config_name = "parquet", short, config
    info.write_to_directory(str(folder))


def main(data: Path, cache: Path, images: int) -> None:
    """Write both sets."""
    counts = {split: int(images * share) for split, share in SPLITS.items()}
    digits = Features({"image": Image(), "label": ClassLabel(names=[str(n) for n in range(10)])})
    things = Features({"img": Image(), "label": ClassLabel(num_classes=10)})
    for name in ("mnist", "ylecun/mnist"):
        splits = {split: mnist(data / "mnist", split, count) for split, count in counts.items()}
        write(cache, name, "mnist", digits, splits)
    splits = {split: cifar10(data / "cifar10", split, count) for split, count in counts.items()}
    write(cache, "uoft-cs/cifar10", "plain_text", things, splits)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int((*sys.argv[3:], "10000")[0]))
