"""With small IDX files made here; the real ones are tested if TESTBED_DATA leads to them."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from testbed.datasets import Mnist, load
from testbed.datasets.files import SourceFile
from testbed.datasets.mnist import TEST, TRAIN, Split, prepare_mnist
from testbed.errors import DataError

NOWHERE = ("http://127.0.0.1:9/mnist",)  # the discard port: nothing listens


def images(count: int) -> bytes:
    pixels = np.random.default_rng(count).integers(0, 256, count * 28 * 28).astype(np.uint8)
    return struct.pack(">4i", 2051, count, 28, 28) + pixels.tobytes()


def labels(count: int) -> bytes:
    return struct.pack(">2i", 2049, count) + bytes(i % 10 for i in range(count))


CONTENT = {
    TRAIN.images.name: images(30),
    TRAIN.labels.name: labels(30),
    TEST.images.name: images(20),
    TEST.labels.name: labels(20),
}
SMALL = {name: SourceFile(name, hashlib.sha256(c).hexdigest()) for name, c in CONTENT.items()}
SMALL_TRAIN = Split(SMALL[TRAIN.images.name], SMALL[TRAIN.labels.name])
SMALL_TEST = Split(SMALL[TEST.images.name], SMALL[TEST.labels.name])


def lay(folder: Path, *, compressed: bool = True, **changed: bytes) -> Path:
    """The four small files, with the contents of ``changed`` replaced: ``train_images=...``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, right in CONTENT.items():
        content = changed.get("_".join(name.split("-")[:2]), right)
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


@dataclass
class Preparer:
    """A private cache."""

    cache: Path

    def prepare(self, given: Path | None = None, *, urls: tuple[str, ...] = NOWHERE) -> Path:
        environment = {"TESTBED_DATA": str(given)} if given else {}
        return prepare_mnist(
            self.cache, environment=environment, train=SMALL_TRAIN, test=SMALL_TEST, urls=urls
        )


@pytest.fixture
def preparer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Preparer:
    for name in ("no_proxy", "NO_PROXY"):  # a proxy would not find this machine's loopback
        monkeypatch.setenv(name, "127.0.0.1")
    return Preparer(tmp_path / "cache")


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Keep standard error empty."""


class Stops(Handler):
    """Promises 5,000 bytes and sends 1,000."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5000")
        self.end_headers()
        self.wfile.write(gzip.compress(images(30))[:1000])


@contextmanager
def serving(handler: Callable[..., Handler]) -> Iterator[str]:
    """The URL of a server on the loopback interface."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the URL that serves it."""
    folder = tmp_path / "served"
    folder.mkdir()
    with serving(partial(Handler, directory=str(folder))) as url:
        yield folder, url


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("below", ["mnist", "."])
def test_found_where_testbed_data_leads(
    preparer: Preparer, tmp_path: Path, compressed: bool, below: str
) -> None:
    lay(tmp_path / "data" / below, compressed=compressed)
    data = load(preparer.prepare(tmp_path / "data"))
    assert data.train_images.shape == (30, 1, 28, 28)
    assert data.test_labels.tolist() == [i % 10 for i in range(20)]
    assert data.classes == 10
    raw = np.frombuffer(CONTENT[TEST.images.name], np.uint8, offset=16)[:784].astype(float)
    expected = (raw - raw.mean()) / raw.std()
    np.testing.assert_allclose(data.test_images[0].ravel(), expected, rtol=1e-5, atol=1e-6)


def test_found_in_the_cache(preparer: Preparer) -> None:
    lay(preparer.cache / "mnist")
    assert len(load(preparer.prepare()).train_labels) == 30


def test_files_missing_in_testbed_data_are_searched_in_the_cache(
    preparer: Preparer, tmp_path: Path
) -> None:
    given = lay(tmp_path / "data")
    lay(preparer.cache / "mnist")
    (given / f"{TEST.labels.name}.gz").unlink()
    assert len(load(preparer.prepare(given)).test_labels) == 20


def test_missing_everywhere(preparer: Preparer, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(DataError) as caught:
        preparer.prepare(tmp_path / "data")
    text = str(caught.value)
    for expected in (
        "no train-images-idx3-ubyte",
        f"{tmp_path}/data/mnist, {tmp_path}/data or {preparer.cache}/mnist",
        "http://127.0.0.1:9/mnist/train-images-idx3-ubyte.gz",
        "Set TESTBED_DATA",
        f"curl -fL --create-dirs -o {preparer.cache}/mnist/train-images-idx3-ubyte.gz http://127",
    ):
        assert expected in text
    with pytest.raises(DataError, match=r"\$TESTBED_DATA, which is not set, or "):
        preparer.prepare()


def test_testbed_data_that_is_not_a_folder(preparer: Preparer, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"TESTBED_DATA is .*/nowhere, which is not a readable folder"
    ):
        preparer.prepare(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("changed", "content"),
    [
        ("train_images", images(30)[:-5]),
        ("train_images", labels(30)),
        ("train_labels", labels(30)[:-1] + b"\x0b"),
        ("train_labels", labels(29)),
        ("t10k_images", images(20)[:-1] + b"\x7f"),
        ("t10k_images", b""),
    ],
    ids=["truncated", "labels for images", "label 11", "a label less", "another pixel", "empty"],
)
@pytest.mark.parametrize("prepared_before", [False, True])
def test_damaged_files_are_named_and_not_skipped(
    preparer: Preparer,
    tmp_path: Path,
    changed: str,
    content: bytes,
    prepared_before: bool,
    served: tuple[Path, str],
) -> None:
    folder, url = served
    lay(folder)
    if prepared_before:
        preparer.prepare(urls=(url,))
    given = lay(tmp_path / "data", compressed=False, **{changed: content})
    name = next(one for one in CONTENT if changed == "_".join(one.split("-")[:2]))
    found = hashlib.sha256(content).hexdigest()
    expected = f"found sha256 {found}, expected {SMALL[name].sha256}; the file is damaged"
    with pytest.raises(DataError, match=f"{given}/{name}: uncompressed content: {expected}") as bad:
        preparer.prepare(given, urls=(url,))
    assert bad.value.exit_code == 4
    assert bad.value.hint.startswith("Replace it with a good copy, or remove it")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"plain", "found b'pl', expected a gzip file"),
        (gzip.compress(images(30))[:-20], "gzip: found .*expected a complete gzip file"),
        (gzip.compress(images(30))[:200] + b"x" * 200, "gzip: found "),
        (gzip.compress(images(30))[:-8] + bytes(8), "gzip: found CRC"),
    ],
    ids=["plain", "truncated", "garbage inside", "wrong sum"],
)
def test_damaged_compression_is_named(
    preparer: Preparer, tmp_path: Path, content: bytes, expected: str
) -> None:
    given = lay(tmp_path / "data")
    (given / f"{TRAIN.images.name}.gz").write_bytes(content)
    with pytest.raises(DataError, match=f"{given}/train-images-idx3-ubyte.gz: .*{expected}"):
        preparer.prepare(given)


def test_a_file_that_cannot_be_read_is_named(preparer: Preparer, tmp_path: Path) -> None:
    given = lay(tmp_path / "data")
    (given / TRAIN.images.name).symlink_to(tmp_path / "gone")
    with pytest.raises(DataError, match="train-images-idx3-ubyte cannot be read: No such file"):
        preparer.prepare(given)


def test_download(preparer: Preparer, served: tuple[Path, str]) -> None:
    folder, url = served
    lay(folder)
    assert len(load(preparer.prepare(urls=(url,))).train_labels) == 30
    kept = sorted(path.name for path in (preparer.cache / "mnist").iterdir())
    assert kept == sorted(f"{name}.gz" for name in CONTENT)


def test_the_next_server_is_tried(preparer: Preparer, served: tuple[Path, str]) -> None:
    folder, url = served
    lay(folder)
    assert len(load(preparer.prepare(urls=(*NOWHERE, f"{url}/nowhere", url))).train_labels) == 30


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (gzip.compress(images(31)), "uncompressed content: found sha256 .*expected"),
        (gzip.compress(images(30))[:-1000], "gzip: found .*expected a complete gzip file"),
        (b"<html>log in first</html>", "byte 0: found b'<h', expected a gzip file"),
        (None, "404"),
    ],
    ids=["other content", "truncated", "a login page", "missing"],
)
def test_a_bad_download_is_refused_and_not_kept(
    preparer: Preparer, served: tuple[Path, str], content: bytes | None, expected: str
) -> None:
    folder, url = served
    lay(folder)
    bad = folder / f"{TRAIN.images.name}.gz"
    bad.unlink()
    if content is not None:
        bad.write_bytes(content)
    with pytest.raises(DataError, match=f"the download failed: {url}/train-images.*{expected}"):
        preparer.prepare(urls=(url,))
    assert list((preparer.cache / "mnist").iterdir()) == []
    lay(folder)
    assert len(load(preparer.prepare(urls=(url,))).train_labels) == 30


def test_an_interrupted_connection(preparer: Preparer) -> None:
    with serving(Stops) as url, pytest.raises(DataError, match=f"download failed: {url}/train-im"):
        preparer.prepare(urls=(url,))
    assert list((preparer.cache / "mnist").iterdir()) == []


def test_the_real_files(tmp_path: Path, testbed_data: dict[str, str]) -> None:
    if not testbed_data:
        pytest.skip("needs MNIST: set TESTBED_DATA to a folder that has it")
    config = Mnist(name="mnist")
    data = load(config.prepare(tmp_path, environment=testbed_data, folder=tmp_path))
    expected = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(data.train_labels).tolist() == expected
    assert data.test_images.shape == (10_000, 1, 28, 28)
