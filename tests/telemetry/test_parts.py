from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from numpy.typing import NDArray

from testbed.errors import TestbedError
from testbed.telemetry.parts import PartWriter, part_paths, read_parts
from testbed.telemetry.rows import UPDATE, joined


def numbered(first: int, count: int) -> NDArray[Any]:
    rows = np.zeros(count, UPDATE)
    rows["version_applied"] = np.arange(first, first + count)
    rows["sigma_mean"] = 0.5
    return rows


def lengths(folder: Path) -> list[int]:
    return [pyarrow.parquet.read_metadata(path).num_rows for path in part_paths(folder)]


def test_a_part_is_closed_after_five_seconds(tmp_path: Path) -> None:
    writer = PartWriter(tmp_path)
    writer.add(numbered(0, 2), now=100.0)
    writer.add(numbered(2, 1), now=104.9)
    assert lengths(tmp_path) == []
    writer.add(numbered(3, 0), now=105.0)
    assert lengths(tmp_path) == [3]
    writer.add(numbered(3, 1), now=200.0)
    assert lengths(tmp_path) == [3]
    writer.close()
    writer.close()
    assert lengths(tmp_path) == [3, 1]
    assert list(joined(read_parts(tmp_path))["version_applied"]) == [0, 1, 2, 3]


def test_a_part_with_too_few_rows_is_not_closed_by_time(tmp_path: Path) -> None:
    writer = PartWriter(tmp_path, least_rows=3)
    writer.add(numbered(0, 2), now=0.0)
    writer.add(numbered(2, 0), now=60.0)
    assert lengths(tmp_path) == []
    writer.add(numbered(2, 2), now=61.0)
    assert lengths(tmp_path) == [4]
    writer.add(numbered(4, 1), now=62.0)
    writer.close()
    assert lengths(tmp_path) == [4, 1]


def test_a_part_is_closed_at_ten_thousand_updates(tmp_path: Path) -> None:
    writer = PartWriter(tmp_path)
    writer.add(numbered(0, 9_999), now=0.0)
    assert lengths(tmp_path) == []
    writer.add(numbered(9_999, 10_002), now=1.0)
    assert lengths(tmp_path) == [10_000, 10_000]
    writer.close()
    assert lengths(tmp_path) == [10_000, 10_000, 1]
    assert np.array_equal(joined(read_parts(tmp_path))["version_applied"], np.arange(20_001))


def test_the_types_match_the_record(tmp_path: Path) -> None:
    writer = PartWriter(tmp_path)
    writer.add(numbered(0, 1), now=0.0)
    writer.close()
    schema = pyarrow.parquet.read_schema(tmp_path / "part-0000.parquet")
    assert schema.names == list(UPDATE.names or ())
    assert str(schema.field("time_seconds").type) == "double"
    assert str(schema.field("worker").type) == "int32"
    assert str(schema.field("payload_up_bytes").type) == "int64"
    assert str(schema.field("step_scale").type) == "float"
    assert schema.metadata[b"format"] == b"1"
    assert joined(read_parts(tmp_path)).dtype == UPDATE


def test_an_existing_folder_is_continued(tmp_path: Path) -> None:
    for first in (0, 1):
        writer = PartWriter(tmp_path)
        writer.add(numbered(first, 1), now=0.0)
        writer.close()
    assert [path.name for path in part_paths(tmp_path)] == [
        "part-0000.parquet",
        "part-0001.parquet",
    ]


def test_parts_are_ordered_by_number(tmp_path: Path) -> None:
    for number in range(10_001):
        (tmp_path / f"part-{number:04d}.parquet").touch()
    assert part_paths(tmp_path)[-1].name == "part-10000.parquet"


def test_no_parts(tmp_path: Path) -> None:
    assert len(joined(read_parts(tmp_path))) == 0
    assert joined(read_parts(tmp_path)).dtype == UPDATE


def test_a_part_of_another_table(tmp_path: Path) -> None:
    table = pyarrow.table({"time_seconds": [1.0]})
    pyarrow.parquet.write_table(table, tmp_path / "part-0000.parquet")
    with pytest.raises(TestbedError, match=r"part-0000\.parquet: the part has no column"):
        joined(read_parts(tmp_path))
    (tmp_path / "part-0000.parquet").write_bytes(b"PAR1")
    with pytest.raises(TestbedError, match=r"part-0000\.parquet: the part cannot be read"):
        joined(read_parts(tmp_path))


def test_a_part_is_written_without_pandas(tmp_path: Path) -> None:
    # It takes a second of CPU, which is long for a controller next to 200 busy workers.
    program = (
        "import sys; from pathlib import Path; import numpy as np;"
        "from testbed.telemetry.parts import PartWriter;"
        "from testbed.telemetry.spool import UPDATE;"
        "writer = PartWriter(Path(sys.argv[1])); writer.add(np.zeros(3, UPDATE), now=0.0);"
        "writer.close(); print('pandas' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == "False\n"
    assert len(joined(read_parts(tmp_path))) == 3
