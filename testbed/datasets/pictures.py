"""Encoded pictures, such as PNG and JPEG, as arrays of bytes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from testbed.errors import DataError
from testbed.values.fields import Count

GREY = ("1", "L", "LA")
COLOUR = ("P", "RGB", "RGBA", "CMYK", "YCbCr")
"""Pillow's modes with 8 bits a value."""


Flaw = Callable[[str, str], DataError]
"""Returns the error for a picture, of what was found and what was expected."""


class PictureOptions(BaseModel):
    """Options of data sets that may have pictures.

    Attributes:
        image_size: height and width to which pictures are scaled; without, all must have one size.
        colour: whether pictures are in colour; by default as the first one.
    """

    image_size: tuple[Count, Count] | None = None
    colour: bool | None = None

    def picture_reader(self) -> PictureReader:
        """Return a reader of pictures, all of one size and colour."""
        return PictureReader(self.image_size, self.colour)


class PictureReader:
    """Decodes pictures to one size and to grey or colour: as stated, or as the first one is.

    Args:
        size: height and width; None for those of the first picture, which the others must have.
        colour: whether pictures become colour; None for those of the first picture.
    """

    def __init__(self, size: tuple[int, int] | None, colour: bool | None) -> None:
        self._stated = size, colour
        self._size, self._colour = size, colour

    def read(self, content: bytes, flaw: Flaw) -> NDArray[np.uint8]:
        """Return a picture, shape (channels, height, width).

        Raises:
            DataError: it is no picture, or another size, or in colour where the first is grey.
        """
        from PIL import Image

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # such as of a size that exhausts memory
                with Image.open(io.BytesIO(content)) as file:
                    file.load()
        except (OSError, ValueError, SyntaxError, Warning, Image.DecompressionBombError) as error:
            reason = str(error).partition(" <")[0]
            raise flaw(reason, "a picture: PNG, JPEG or what Pillow reads") from error
        if file.mode not in GREY + COLOUR:
            raise flaw(f"mode {file.mode}", "a picture with 8 bits a value")
        colour = file.mode in COLOUR
        if self._colour is None:
            self._colour = colour
        if colour and not self._colour and self._stated[1] is None:
            expected = "grey, as the pictures before; or set `colour`"
            raise flaw("a picture in colour", expected)
        image = file.convert("RGB" if self._colour else "L")
        height, width = self._size = self._size or (image.height, image.width)
        if self._stated[0]:
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        if (image.height, image.width) != self._size:
            found = f"a picture of {image.height}x{image.width}"
            expected = f"{height}x{width}, as before; or set `image_size: [{height}, {width}]`"
            raise flaw(found, expected)
        pixels = np.asarray(image)
        return pixels.transpose(2, 0, 1) if self._colour else pixels[None]
