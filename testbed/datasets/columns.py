"""Values of a column of an Arrow or Parquet file, as arrays; errors name file, row and column.

A column may have encoded pictures, such as PNG and JPEG.
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from testbed.datasets.custom import LARGEST_INTEGER, MOST_CLASSES
from testbed.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

CHANNELS = (1, 3, 4)
"""A last dimension of this size is that of channels, unless the first one is."""


@dataclass(frozen=True)
class Column:
    """Values of a column in consecutive rows of a file, of which ``start`` is the first."""

    name: str
    values: pa.Array
    file: Path
    start: int

    def flaw(self, row: int, found: str, expected: str) -> DataError:
        """Return the error for a row of these values."""
        place = f"{self.file}: row {self.start + row}, column {self.name}"
        return DataError(f"{place}: found {found}, expected {expected}.")

    @property
    def is_pictures(self) -> bool:
        """Whether it has encoded pictures."""
        return is_pictures(self.values.type)

    def encoded(self) -> list[bytes]:
        """Return the pictures' encoded bytes."""
        import pyarrow.compute as pc

        values = self.values
        if values.type.num_fields:  # a struct, with bytes or the path of a file
            values = pc.struct_field(values, "bytes")
        self._require_all(values, "no bytes of a picture", "the bytes: a path is not followed")
        found: list[bytes] = values.to_pylist()
        return found

    def numbers(self) -> NDArray[Any]:
        """Return numbers, or lists of numbers of one shape, as an array of shape (n, ...)."""
        values, shape = self.values, [len(self.values)]
        while is_list(values.type):
            values, length = self._items(values, int(np.prod(shape[1:])))
            shape.append(length)
        inner = max(1, int(np.prod(shape[1:])))
        if not is_number(values.type):
            raise self.flaw(0, f"{values.type}", "numbers, or pictures")
        self._require_all(values, "null", "a number", inner)
        array = np.asarray(values)
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):  # refused as infinite
                array = array.astype(np.float32)
            fits, expected = np.isfinite(array), "a finite number within the range of float32"
        else:
            fits = np.abs(array.astype(np.float64)) <= LARGEST_INTEGER
            expected = f"integers of at most {LARGEST_INTEGER:,}, which float32 represents exactly"
        if not fits.all():
            place = int(np.argmin(fits))
            raise self.flaw(place // inner, f"{array[place]}", expected)
        array = array.reshape(shape)
        if array.ndim == 4 and shape[3] in CHANNELS and shape[1] not in CHANNELS:
            array = array.transpose(0, 3, 1, 2)
        return array

    def _items(self, lists: pa.Array, inner: int) -> tuple[pa.Array, int]:
        """Return the items of all lists, and their number in each of them."""
        import pyarrow.compute as pc

        self._require_all(lists, "null", "a list of numbers", inner)
        lengths = np.asarray(pc.list_value_length(lists))
        if len(different := np.flatnonzero(lengths != lengths[:1])):
            found = f"a list of {lengths[different[0]]:,}"
            expected = f"{lengths[0]:,} items, as in the lists before"
            raise self.flaw(int(different[0]) // inner, found, expected)
        return lists.flatten(), int(lengths[0]) if len(lengths) else 0

    def labels(self, classes: int) -> NDArray[Any]:
        """Return labels: whole numbers from 0, below ``classes`` unless 0; text; or floats."""
        from pyarrow import types

        if types.is_floating(self.values.type):
            return self.numbers().astype(np.float64)
        if not (types.is_integer(self.values.type) or types.is_boolean(self.values.type)):
            return self.names()
        self._require_all(self.values, "null", "a label")
        labels = np.asarray(self.values).astype(np.int64)
        below = classes or MOST_CLASSES
        if len(odd := np.flatnonzero((labels < 0) | (labels >= below))):
            expected = f"a label from 0 to {below - 1:,}"
            raise self.flaw(int(odd[0]), f"{labels[odd[0]]:,}", expected)
        return labels

    def names(self) -> NDArray[Any]:
        """Return text, or numbers as text."""
        from pyarrow import types

        values = self.values
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        readable = (types.is_string, types.is_large_string, types.is_integer)
        if not any(reads(values.type) for reads in readable):
            raise self.flaw(0, f"{values.type}", "text or whole numbers")
        self._require_all(values, "null", "a name")
        return np.array(values.to_pylist(), str)

    def _require_all(self, values: pa.Array, found: str, expected: str, inner: int = 1) -> None:
        """Refuse nulls; a row has ``inner`` of these values."""
        if values.null_count:
            row = int(np.argmax(np.asarray(values.is_null()))) // max(1, inner)
            raise self.flaw(row, found, expected)


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists."""
    from pyarrow import types

    return any((types.is_list(kind), types.is_large_list(kind), types.is_fixed_size_list(kind)))


def is_number(kind: pa.DataType) -> bool:
    """Whether values are numbers."""
    from pyarrow import types

    return any((types.is_integer(kind), types.is_floating(kind)))


def is_pictures(kind: pa.DataType) -> bool:
    """Whether values are encoded pictures: bytes, or a struct with them."""
    from pyarrow import types

    if types.is_struct(kind):
        place = kind.get_field_index("bytes")
        return place >= 0 and is_pictures(kind.field(place).type)
    return any((types.is_binary(kind), types.is_large_binary(kind)))


GREY = ("1", "L", "LA")
COLOUR = ("P", "RGB", "RGBA", "CMYK", "YCbCr")
"""Pillow's modes with 8 bits a value."""


class PictureReader:
    """Decodes pictures to one size and to grey or colour: as stated, or as the first one is.

    Args:
        size: height and width; None for those of the first picture, which the others must have.
        colour: whether pictures become colour; None for those of the first picture.
    """

    def __init__(self, size: tuple[int, int] | None, colour: bool | None) -> None:
        self._stated = size, colour
        self._size, self._colour = size, colour

    def read(self, column: Column) -> NDArray[np.uint8]:
        """Return the pictures of a column, shape (n, channels, height, width).

        Raises:
            DataError: one is no picture, or another size, or in colour where the first is grey.
        """
        return np.stack([self._decoded(*one, column) for one in enumerate(column.encoded())])

    def _decoded(self, row: int, content: bytes, column: Column) -> NDArray[np.uint8]:
        from PIL import Image

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # such as of a size that exhausts memory
                with Image.open(io.BytesIO(content)) as file:
                    file.load()
        except (OSError, ValueError, SyntaxError, Warning, Image.DecompressionBombError) as error:
            reason = str(error).partition(" <")[0]
            raise column.flaw(row, reason, "a picture: PNG, JPEG or what Pillow reads") from error
        if file.mode not in GREY + COLOUR:
            raise column.flaw(row, f"mode {file.mode}", "a picture with 8 bits a value")
        colour = file.mode in COLOUR
        if self._colour is None:
            self._colour = colour
        if colour and not self._colour and self._stated[1] is None:
            expected = "grey, as the pictures before; or set `colour`"
            raise column.flaw(row, "a picture in colour", expected)
        image = file.convert("RGB" if self._colour else "L")
        height, width = self._size = self._size or (image.height, image.width)
        if self._stated[0]:
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        if (image.height, image.width) != self._size:
            found = f"a picture of {image.height}x{image.width}"
            expected = f"{height}x{width}, as before; or set `image_size: [{height}, {width}]`"
            raise column.flaw(row, found, expected)
        pixels = np.asarray(image)
        return pixels.transpose(2, 0, 1) if self._colour else pixels[None]
