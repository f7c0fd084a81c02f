"""A data set in Parquet files, by whatever tool they were written.

A split is the files whose names, or whose folders' names, begin with its own: ``train.parquet``,
``data/train-00000-of-00002.parquet`` as on Hugging Face's hub, ``train/part-0.parquet``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from testbed.datasets.rows import RowsDataset
from testbed.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 1024


class Parquet(RowsDataset):
    """A data set in Parquet files, of which each split has some."""

    name: Literal["parquet"]

    def files(self, folder: Path) -> tuple[Sequence[Path], Sequence[Path]]:
        """Return the files of both splits; with ``test_share``, no test files."""
        all_files = sorted(folder.rglob("*.parquet"))
        train = _of_split(all_files, folder, self.train_split)
        if not train:
            listed = ", ".join(str(one.relative_to(folder)) for one in all_files[:10]) or "none"
            expected = f"files or folders with names that begin with {self.train_split}"
            hint = "`train_split` and `test_split` name others."
            raise DataError(
                f"{folder}: found Parquet files: {listed}; expected {expected}.", hint=hint
            )
        return train, _of_split(all_files, folder, self.test_split) if not self.test_share else ()

    def schema_of(self, file: Path) -> pa.Schema:
        import pyarrow.parquet as pq

        return pq.read_schema(file)

    def batches(self, file: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of a file."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(file) as content:
            yield from content.iter_batches(ROWS_AT_ONCE, columns=list(columns))


def _of_split(files: Sequence[Path], folder: Path, split: str) -> Sequence[Path]:
    begins = re.compile(rf"{re.escape(split)}(?![A-Za-z0-9])")
    return [
        file for file in files if any(begins.match(part) for part in file.relative_to(folder).parts)
    ]
