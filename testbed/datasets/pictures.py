"""Encoded pictures, such as PNG and JPEG, as arrays of bytes."""

from __future__ import annotations

import io
import warnings

import numpy as np
from numpy.typing import NDArray

from testbed.datasets.columns import Column

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
