"""Data sets whose samples are rows of Arrow or Parquet files: which columns are used.

Inputs are one column of pictures (PNG, JPEG and others that Pillow reads: bytes, or a struct with
``bytes``, as Hugging Face writes them), one column of lists of numbers, all of one shape, or some
columns of numbers, which become a row. Lists of three dimensions may have the channels last.
Labels are whole numbers from 0, class labels, text, or floats to predict.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from testbed.datasets.columns import Column, PictureReader, is_list, is_number, is_pictures
from testbed.datasets.folders import FolderDataset, Samples
from testbed.errors import DataError, ScenarioError
from testbed.values.fields import Count, Word

if TYPE_CHECKING:
    import pyarrow as pa

LABELS = ("label", "labels", "target", "y")
"""Usual names of the column of labels."""


class RowsDataset(FolderDataset):
    """Base of data sets whose samples are rows of files.

    Attributes:
        inputs: the column of pictures or lists of numbers, or several of numbers; by default the
            only one of pictures, or the only one of lists, or all others if all are numbers.
        label: the column of labels or of numbers to predict; by default the only one of class
            labels, or the first of label, labels, target and y.
        user: the column that says which user a sample is of, for the partition by_user.
        train_split: the split to train on.
        test_split: the split to test on.
        image_size: height and width to which pictures are scaled; without, all must have one size.
        colour: whether pictures are in colour; by default as the first one.
    """

    inputs: Word | tuple[Word, ...] | None = None
    label: Word | None = None
    user: Word | None = None
    train_split: Word = "train"
    test_split: Word = "test"
    image_size: tuple[Count, Count] | None = None
    colour: bool | None = None

    @abstractmethod
    def schema_of(self, file: Path) -> pa.Schema:
        """Return the columns of a file, with Hugging Face's metadata if it has some."""

    @abstractmethod
    def batches(self, file: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of a file in batches of rows."""

    def read(self, files: Sequence[Path]) -> Samples:
        """Read the rows of all files."""
        import pyarrow as pa

        found: list[Samples] = []
        reader = PictureReader(self.image_size, self.colour)
        for file in files:
            try:
                inputs, label, classes = self._columns(self.schema_of(file), file)
                named = [*inputs, label, *([self.user] if self.user else [])]
                start = 0
                for batch in filter(len, self.batches(file, named)):
                    of = {name: Column(name, batch.column(name), file, start) for name in named}
                    images = _inputs([of[name] for name in inputs], reader)
                    users = of[self.user].names() if self.user else None
                    found.append(Samples(images, of[label].labels(classes), classes, users))
                    start += len(batch)
            except (pa.ArrowException, OSError, json.JSONDecodeError) as error:
                raise DataError(f"{file} cannot be read: {error}.") from error
        if not found:
            raise DataError(f"{files[0]}: found no rows, expected samples.")
        return _joined(found, files)

    def _columns(self, schema: pa.Schema, file: Path) -> tuple[Sequence[str], str, int]:
        """Return the columns of inputs, that of labels, and the number of classes it states."""
        stated = (self.inputs,) if isinstance(self.inputs, str) else self.inputs or ()
        for option, names in (("inputs", stated), ("label", [self.label]), ("user", [self.user])):
            for name in names:
                if name is not None and name not in schema.names:
                    expected = f"one of the columns of {file.name}: {', '.join(schema.names)}"
                    raise ScenarioError.at(f"dataset.{option}", f"`{name}`", expected)
        counts = class_counts(schema)
        usual = [name for name in LABELS if name in schema.names][:1]
        label = self.label or _only(list(counts) or usual)
        if label is None:
            raise _unknown("label", "the column of labels", schema, file)
        inputs = stated or _inputs_of([one for one in schema if one.name not in (label, self.user)])
        if not inputs:
            expected = "the column of pictures or of lists, or columns of numbers"
            raise _unknown("inputs", expected, schema, file)
        return inputs, label, counts.get(label, 0)


def class_counts(schema: pa.Schema) -> dict[str, int]:
    """Return the number of classes of each column of class labels, by Hugging Face's metadata."""
    text = (schema.metadata or {}).get(b"huggingface", b"{}")
    features = json.loads(text).get("info", {}).get("features", {})
    return {
        name: len(feature["names"])
        for name, feature in features.items()
        if name in schema.names and isinstance(feature, Mapping)
        if feature.get("_type") == "ClassLabel"
    }


def _inputs_of(fields: Sequence[pa.Field]) -> Sequence[str]:
    """Return the only column of pictures or of lists, or all columns if all are numbers."""
    own = [field for field in fields if not field.name.startswith("__index_level_")]  # of pandas
    for fits in (is_pictures, is_list):
        if fitting := [field.name for field in own if fits(field.type)]:
            return fitting if len(fitting) == 1 else ()
    return [field.name for field in own] if all(is_number(field.type) for field in own) else ()


def _inputs(columns: Sequence[Column], reader: PictureReader) -> NDArray[Any]:
    """Return the inputs of some rows, shape (n, ...)."""
    if len(columns) == 1 and columns[0].is_pictures:
        return reader.read(columns[0])
    arrays = [column.numbers() for column in columns]
    if len(arrays) == 1 and arrays[0].ndim > 1:
        return arrays[0]
    shapes = {str(one.shape[1:]) for one in arrays}
    if len(shapes) > 1:
        found = f"columns of {' and '.join(sorted(shapes))} numbers a row"
        raise ScenarioError.at("dataset.inputs", found, "columns of one shape")
    return np.stack(arrays, axis=1)


def _joined(parts: Sequence[Samples], files: Sequence[Path]) -> Samples:
    """Return the samples of all parts, if they have one shape."""
    shapes = sorted({one.images.shape[1:] for one in parts})
    if len(shapes) > 1:
        found = f"samples of {shapes[0]} and of {shapes[1]} numbers"
        raise DataError(f"{files[0].parent}: found {found}, expected one shape.")
    users = [one.users for one in parts if one.users is not None]
    return Samples(
        np.concatenate([one.images for one in parts]),
        np.concatenate([one.labels for one in parts]),
        parts[0].classes,
        np.concatenate(users) if users else None,
    )


def _only(names: Sequence[str]) -> str | None:
    return names[0] if len(names) == 1 else None


def _unknown(option: str, which: str, schema: pa.Schema, file: Path) -> ScenarioError:
    columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
    found = f"no `{option}`, and no single choice in {file.name}, which has {columns[:300]}"
    return ScenarioError.at(f"dataset.{option}", found, f"`{option}`: {which}")
