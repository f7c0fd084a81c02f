"""The IDX format of MNIST: a big-endian header, then one byte per pixel or label.

images: int32 2051, int32 count, int32 rows, int32 columns, then count x rows x columns bytes
labels: int32 2049, int32 count, then count bytes
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from testbed.errors import DataError

IMAGES = 2051
LABELS = 2049


def read_images(content: bytes, *, file: str) -> NDArray[np.uint8]:
    """Pixels, shape (count, rows, columns), of a whole uncompressed file of that name.

    Raises:
        DataError: not such a file, or not all of it; names the position.
    """
    return _read(content, IMAGES, ("images", "rows", "columns"), file=file)


def read_labels(content: bytes, *, file: str, classes: int) -> NDArray[np.uint8]:
    """Labels, shape (count,), each in [0, classes), of a whole uncompressed file of that name.

    Raises:
        DataError: not such a file, not all of it, or a label out of range; names the position.
    """
    labels = _read(content, LABELS, ("labels",), file=file)
    (wrong,) = np.nonzero(labels >= classes)
    if wrong.size:
        found = f"label {labels[wrong[0]]}"
        raise damaged(file, f"byte {8 + wrong[0]}", found, f"0 to {classes - 1}")
    return labels


def damaged(file: str, where: str, found: str, expected: str) -> DataError:
    """The error for a file that is not what it should be."""
    return DataError(
        f"{file}: {where}: found {found}, expected {expected}; the file is damaged.",
        hint="Replace it with a good copy, or remove it so that it is downloaded.",
    )


def _read(
    content: bytes, magic: int, dimensions: tuple[str, ...], *, file: str
) -> NDArray[np.uint8]:
    start = 4 + 4 * len(dimensions)
    if len(content) < start:
        raise damaged(file, "end", f"{len(content)} bytes", f"a header of {start} bytes")
    first, *shape = (int(value) for value in np.frombuffer(content[:start], ">i4"))
    if first != magic:
        raise damaged(
            file, "byte 0", f"magic number {first}", f"{magic}, a file of {dimensions[0]}"
        )
    for i, (name, value) in enumerate(zip(dimensions, shape, strict=True)):
        if value < 1:
            raise damaged(file, f"byte {4 + 4 * i}", f"{value} {name}", "at least 1")
    if len(content) - start != prod(shape):
        found = f"{len(content) - start} bytes after the header"
        expected = f"{prod(shape)} for {' x '.join(map(str, shape))} ({', '.join(dimensions)})"
        raise damaged(file, f"byte {min(len(content), start + prod(shape))}", found, expected)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
