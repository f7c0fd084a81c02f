"""Prepared data sets: a folder of .npy files, created once and mapped read-only by every node.

train_images.npy  float32 (n, channels, height, width)      test_images.npy
train_labels.npy  int64 (n,)                                test_labels.npy
train_users.npy   int64 (n,), if the data set knows the user of each training sample
meta.json         {"format": 1, "classes": .., "image_shape": [..], "source": {..},
                   "sha256": {"train_images.npy": .., ..}}

Images may be raw, uint8, if the data set has a transform that makes them ready; or they are rows of
tokens, int32 (n, length). Labels may be numbers to predict, float32; then ``classes`` is 0. Or each
is a row of tokens, int64 (n, length), in which ``NOT_COUNTED`` is no part of the objective.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import DataError
from testbed.values.samples import Inputs, Targets, inputs_of

Images = NDArray[np.float32]
RawImages = NDArray[np.uint8] | Images
Tokens = NDArray[np.int32]
Labels = NDArray[np.int64] | NDArray[np.float32]

Transform = Callable[[NDArray[Any], np.random.Generator | None], Images]
"""Makes a batch of images ready, in the same shape: at random, or for testing without generator."""

FORMAT = 1
PARTS = ("train_images", "train_labels", "test_images", "test_labels")
USERS = "train_users"
TYPES: Mapping[Inputs, tuple[str, ...]] = {"images": ("float32", "uint8"), "tokens": ("int32",)}


@dataclass(frozen=True, eq=False)
class Prepared:
    """A data set, in memory or mapped from a prepared folder.

    Attributes:
        train_images: shape (n, channels, height, width), like test_images; raw with a transform. Or
            tokens, shape (n, length).
        train_labels: shape (n,), each in [0, classes), or numbers; like test_labels. Or tokens,
            shape (n, length), each in [0, classes) or NOT_COUNTED.
        classes: number of labels or tokens; 0 for numbers.
        source: origin, such as the checksums of the source files; for the record.
        transform: makes images ready; None if they are ready. It is not part of the folder.
        train_users: number of the user of each training sample, shape (n,); None if unknown.
    """

    train_images: RawImages | Tokens
    train_labels: Labels
    test_images: RawImages | Tokens
    test_labels: Labels
    classes: int
    source: Mapping[str, str]
    transform: Transform | None = None
    train_users: NDArray[np.int64] | None = None

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Channels, height, width; or the length of a row of tokens."""
        return self.train_images.shape[1:]

    @property
    def inputs(self) -> Inputs:
        """What a model gets."""
        return inputs_of(self.image_shape)

    @property
    def targets(self) -> Targets:
        """What a model predicts."""
        if not self.classes:
            return "numbers"
        return "tokens" if self.tokens else "labels"

    @property
    def tokens(self) -> int:
        """Number of tokens of a target; 0 for labels and numbers."""
        return self.train_labels.shape[1] if self.train_labels.ndim > 1 else 0

    def batch(self, samples: NDArray[np.int64], draw: int = 0) -> tuple[Images, Labels]:
        """Return training images and labels by indices (b,), in the shapes of the data set.

        All randomness of a transform comes from ``draw``.
        """
        images: Any = self.train_images[samples]
        if self.transform is not None:
            images = self.transform(images, np.random.default_rng(draw))
        return images, self.train_labels[samples]


def prepare_once(target: Path, make: Callable[[], Prepared]) -> Path:
    """Create a prepared folder unless it exists.

    It appears atomically, and only one of several concurrent processes creates it. Testbed also
    owns the folder around it.

    Raises:
        DataError: the folder cannot be created, or the existing folder is damaged.
    """
    with _failures_named(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = target.with_name(f".{target.name}.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            load(target)
        else:
            data = make()
            with _failures_named(target):
                _write(data, target)
    return target


def load(folder: Path) -> Prepared:
    """Map a prepared folder; the arrays are read-only, and all processes share their pages.

    Raises:
        DataError: a file in the folder is missing or damaged.
    """
    meta = _read_meta(folder / "meta.json")
    known = f"{USERS}.npy" in meta["sha256"]
    parts = (*PARTS, USERS) if known else PARTS
    arrays = {part: _map(folder / f"{part}.npy") for part in parts}
    types = TYPES[inputs_of(tuple(meta["image_shape"]))]
    label = ("int64" if meta["classes"] else "float32",)
    tokens = arrays["train_labels"].shape[1:]
    for part, array in arrays.items():
        half, _, what = part.partition("_")
        shape = (len(arrays[f"{half}_labels"]),)
        expects = {
            "images": ((*shape, *meta["image_shape"]), types),
            "labels": ((*shape, *tokens), label),
            "users": (shape, ("int64",)),
        }
        if array.shape != expects[what][0] or array.dtype.name not in expects[what][1]:
            expected = f"{expects[what][1][0]} {expects[what][0]}"
            found = f"found {array.dtype} {array.shape}, expected {expected}"
            raise _damaged(folder / f"{part}.npy", found)
    train, test = ([arrays[part] for part in PARTS[i : i + 2]] for i in (0, 2))
    return Prepared(
        *(train[0], train[1], test[0], test[1]),
        classes=meta["classes"],
        source=meta["source"],
        train_users=arrays.get(USERS),
    )


def checksums(folder: Path) -> str:
    """Return the digests of all files of a prepared folder, as ``sha256sum`` prints them.

    Raises:
        DataError: its list of files is missing or damaged.
    """
    meta = folder / "meta.json"
    sums = {**_read_meta(meta)["sha256"], meta.name: hashlib.sha256(meta.read_bytes()).hexdigest()}
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))


@contextmanager
def _failures_named(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{target} cannot be created: {error.strerror or error}.",
            hint="Set XDG_CACHE_HOME to a writable folder with enough space.",
        ) from error


def _write(data: Prepared, target: Path) -> None:
    """Write to a temporary folder, then rename it; the caller holds the target's lock."""
    for left_over in target.parent.glob(f".{target.name}.*.tmp"):  # from a process that was killed
        shutil.rmtree(left_over, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        sums = {}
        for part in PARTS if data.train_users is None else (*PARTS, USERS):
            file = folder / f"{part}.npy"
            np.save(file, getattr(data, part))
            with file.open("rb") as written:
                sums[file.name] = hashlib.file_digest(written, "sha256").hexdigest()
        meta = {
            "format": FORMAT,
            "classes": data.classes,
            "image_shape": data.image_shape,
            "source": dict(data.source),
            "sha256": sums,
        }
        (folder / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        for file in folder.iterdir():
            file.chmod(0o644)  # whatever the umask: nodes run under other users
        folder.chmod(0o755)
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read_meta(file: Path) -> dict[str, Any]:
    try:
        meta = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(file, str(error)) from error
    found = meta.get("format") if isinstance(meta, dict) else None
    if found != FORMAT:
        raise _damaged(file, f"found format {found}, expected {FORMAT}")
    if missing := {"classes", "image_shape", "source", "sha256"} - meta.keys():
        raise _damaged(file, f"it lacks {', '.join(sorted(missing))}")
    return dict(meta)


def _map(file: Path) -> NDArray[Any]:
    """Map a file as a plain array: NumPy's memmap class makes every use slower."""
    try:
        mapped: NDArray[Any] = np.load(file, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(file, str(error)) from error
    return mapped.view(np.ndarray)


def _damaged(file: Path, reason: str) -> DataError:
    return DataError(
        f"The prepared data set is damaged: {file}: {reason}.",
        hint=f"Remove it and run again, which prepares it again: rm -r {file.parent}",
    )


_AT_ONCE = 1000


def standardised(
    images: NDArray[np.uint8] | NDArray[np.float32],
) -> NDArray[np.float32]:
    """Standardise each image as (x - mean) / max(std, 1 / sqrt(pixels)), with its own mean and std.

    This is the method of the AdaComp paper's authors.

    Args:
        images: raw pixels, shape (n, channels, height, width), or (n, height, width) if grey.

    Returns:
        Shape (n, channels, height, width); the channels of an image have one mean and std.
    """
    if images.ndim == 3:
        images = images[:, None]
    out = np.empty(images.shape, np.float32)
    smallest = 1 / np.sqrt(images[0].size)
    for start in range(0, len(images), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        raw = images[part].astype(np.float64)
        mean = raw.mean(axis=(1, 2, 3), keepdims=True)
        deviation = raw.std(axis=(1, 2, 3), keepdims=True)
        out[part] = (raw - mean) / np.maximum(deviation, smallest)
    return out


def distorted(images: NDArray[np.uint8], rng: np.random.Generator | None) -> NDArray[np.float32]:
    """Flip, brighten and contrast raw images at random, then standardise them.

    For each image, as in TensorFlow's CIFAR-10 tutorial: it is flipped from left to right with a
    probability of 1/2, U(-63, 63) is added to all of its pixels, and the distance of each pixel to
    the mean of its channel is multiplied by U(0.2, 1.8).

    Args:
        images: shape (b, channels, height, width).
        rng: generator of the draws; None to disable the distortion.
    """
    if rng is None:
        return standardised(images)
    count = len(images)
    flipped = rng.random(count) < 0.5
    added = rng.uniform(-63, 63, count).astype(np.float32)
    factors = rng.uniform(0.2, 1.8, count).astype(np.float32)
    pixels = images.astype(np.float32)
    pixels[flipped] = pixels[flipped, :, :, ::-1]
    pixels += added[:, None, None, None]
    means = pixels.mean(axis=(2, 3), keepdims=True)
    return standardised((pixels - means) * factors[:, None, None, None] + means)
