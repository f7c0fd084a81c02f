"""With a small archive made here; the real one is tested if TESTBED_DATA leads to it."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from testbed.datasets import Cifar10, load
from testbed.datasets.cifar10 import ARCHIVE, prepare_cifar10
from testbed.datasets.files import Archive
from testbed.errors import DataError

NOWHERE = ("http://127.0.0.1:9/cifar10",)  # the discard port: nothing listens
NAME = f"{ARCHIVE.name}.gz"


def records(seed: int, count: int) -> bytes:
    """Labels 0, 1, 2 ... with random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 3072)).astype(np.uint8)
    labels = (np.arange(count) % 10).astype(np.uint8)
    return np.concatenate([labels[:, None], pixels], axis=1).tobytes()


CONTENT = {
    "batches/a.bin": records(1, 12),
    "batches/b.bin": records(2, 8),
    "test.bin": records(3, 5),
}
SMALL = Archive(ARCHIVE.name, {n: hashlib.sha256(c).hexdigest() for n, c in CONTENT.items()})


def packed(content: dict[str, bytes]) -> bytes:
    """A tar archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in content.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def prepare(folder: Path, data: Path, *, batches: int = 5, raw: bool = False) -> Path:
    return prepare_cifar10(
        folder / "cache",
        environment={"TESTBED_DATA": str(data)},
        archive=SMALL,
        urls=NOWHERE,
        batches=batches,
        raw=raw,
    )


@pytest.mark.parametrize("below", ["cifar10", "."])
@pytest.mark.parametrize("compressed", [True, False])
def test_found_where_testbed_data_leads(tmp_path: Path, below: str, compressed: bool) -> None:
    place = tmp_path / "data" / below
    place.mkdir(parents=True)
    content = packed({**CONTENT, "batches.meta.txt": b"airplane"})
    if compressed:
        (place / NAME).write_bytes(gzip.compress(content))
    else:
        (place / ARCHIVE.name).write_bytes(content)
    data = load(prepare(tmp_path, tmp_path / "data"))
    assert data.train_labels.tolist() == [*range(10), 0, 1, *range(8)]
    assert data.test_labels.tolist() == [0, 1, 2, 3, 4]
    assert (data.image_shape, data.classes) == ((3, 32, 32), 10)
    raw = np.frombuffer(CONTENT["test.bin"], np.uint8)[1:3073].astype(float)
    expected = ((raw - raw.mean()) / raw.std()).reshape(3, 32, 32)  # red, green, blue, by rows
    np.testing.assert_allclose(data.test_images[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("augment", [False, True])
def test_pixels_have_the_bytes_that_the_options_say(tmp_path: Path, augment: bool) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ARCHIVE.name).write_bytes(packed(CONTENT))
    images = load(prepare(tmp_path, tmp_path / "data", raw=augment)).train_images
    assert images.itemsize == Cifar10(name="cifar10", augment=augment).pixel_bytes


def test_only_the_first_batches(tmp_path: Path) -> None:
    """Of two batches, the first has 12 images; the test set is unchanged."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ARCHIVE.name).write_bytes(packed(CONTENT))
    both = prepare(tmp_path, tmp_path / "data")
    one = prepare(tmp_path, tmp_path / "data", batches=1)
    assert one != both
    assert load(one).train_labels.tolist() == [*range(10), 0, 1]
    np.testing.assert_array_equal(load(one).test_images, load(both).test_images)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            gzip.compress(packed({**CONTENT, "test.bin": records(4, 5)})),
            "test.bin: found sha256 .*expected",
        ),
        (
            gzip.compress(packed({"test.bin": CONTENT["test.bin"]})),
            "archive: found filename 'batches/a.bin' not found, expected a complete tar archive",
        ),
        (gzip.compress(packed(CONTENT)[:20_000]), "archive: found .*, expected a complete tar"),
        (gzip.compress(b"no archive" * 1000), "archive: found .*, expected a complete tar archive"),
        (gzip.compress(packed(CONTENT))[:-500], "gzip: found .*expected a complete gzip file"),
        (b"<html>", "byte 0: found b'<h', expected a gzip file"),
    ],
    ids=["other pixels", "a member less", "cut short", "no archive", "cut short by gzip", "a page"],
)
def test_a_damaged_archive_is_named_and_nothing_is_written(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(DataError, match=f"{tmp_path}/{NAME}: .*{expected}"):
        prepare(tmp_path, tmp_path)
    assert not [one for one in (tmp_path / "cache").rglob("*") if one.name.startswith("cifar")]


def test_missing_everywhere(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cifar10: no cifar-10-binary\.tar, compressed or not, in"):
        prepare(tmp_path, tmp_path)


@pytest.mark.slow
def test_the_real_archive(tmp_path: Path, testbed_data: dict[str, str]) -> None:
    if not Path(testbed_data.get("TESTBED_DATA", ""), "cifar10").is_dir():
        pytest.skip("needs CIFAR-10: set TESTBED_DATA to a folder that has it")
    config = Cifar10(name="cifar10")
    data = load(config.prepare(tmp_path, environment=testbed_data, folder=tmp_path))
    assert np.bincount(data.train_labels).tolist() == [5000] * 10
    assert np.bincount(data.test_labels).tolist() == [1000] * 10
    assert data.train_images.shape == (50_000, 3, 32, 32)
    assert data.train_labels[:5].tolist() == [6, 9, 9, 4, 1]  # a frog, two trucks, a deer, a car
