"""A data set that Hugging Face's ``datasets`` has saved to disk: ``save_to_disk(folder)``.

The folder of a ``DatasetDict`` has ``dataset_dict.json`` and a folder for each split; that of a
``Dataset`` has the files themselves: ``state.json`` lists Arrow streams, whose metadata describe
the columns. Nothing is downloaded, and the package ``datasets`` is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from testbed.datasets.rows import RowsDataset
from testbed.errors import DataError, ScenarioError

if TYPE_CHECKING:
    import pyarrow as pa


class HuggingFace(RowsDataset):
    """A data set that Hugging Face's `datasets` has saved to disk, with or without splits."""

    name: Literal["huggingface"]

    def files(self, folder: Path) -> tuple[Sequence[Path], Sequence[Path]]:
        """Return the Arrow files of both splits; those of a folder without splits to train on."""
        if not (folder / "dataset_dict.json").exists():
            return _data_files(folder), ()
        splits = _read(folder / "dataset_dict.json", "splits")
        wanted = {"train_split": self.train_split}
        if self.test_share is None:
            wanted["test_split"] = self.test_split
        for option, split in wanted.items():
            if split not in splits:
                expected = f"one of the splits of {folder.name}: {', '.join(map(str, splits))}"
                if option == "test_split":
                    expected += "; or `test_share`, such as 0.2, to test on a share of the training"
                raise ScenarioError.at(f"dataset.{option}", f"`{split}`", expected)
        found = [_data_files(folder / split) for split in wanted.values()]
        return found[0], found[1] if len(found) > 1 else ()

    def schema_of(self, file: Path) -> pa.Schema:
        import pyarrow as pa

        with pa.memory_map(str(file)) as content, pa.ipc.open_stream(content) as stream:
            return stream.schema

    def batches(self, file: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of a file in the batches in which they were written."""
        import pyarrow as pa

        with pa.memory_map(str(file)) as content, pa.ipc.open_stream(content) as stream:
            for batch in stream:
                yield batch.select(columns)


def _data_files(folder: Path) -> Sequence[Path]:
    """Return the files of a split, in order.

    Raises:
        DataError: the folder has none.
    """
    state = folder / "state.json"
    listed = _read(state, "_data_files")
    names = [one.get("filename") if isinstance(one, dict) else None for one in listed]
    if not names or not all(isinstance(name, str) for name in names):
        raise DataError(f"{state}: _data_files: found no file names, expected Arrow files.")
    return [folder / Path(str(name)).name for name in names]


def _read(file: Path, key: str) -> list[Any]:
    """Return a list in a JSON file."""
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        hint = "Save it with `dataset.save_to_disk(FOLDER)`; Parquet files are read by `parquet`."
        raise DataError(f"{file} does not exist.", hint=hint) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read: {error}.") from error
    listed = content.get(key) if isinstance(content, dict) else None
    if not isinstance(listed, list):
        raise DataError(f"{file}: found no list {key}, expected a data set saved to disk.")
    return listed
