"""The spool of applied updates."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.errors import TestbedError
from testbed.telemetry.rows import UPDATE, UpdateRow
from testbed.telemetry.spool import SpoolReader, SpoolWriter, header
from testbed.telemetry.untrusted import SpoiledError


def row(version: int) -> UpdateRow:
    """A row whose staleness equals its version."""
    values: dict[str, Any] = dict.fromkeys(UpdateRow._fields, 0)
    return UpdateRow(
        **values
        | {"sequence": 1, "version_applied": version, "staleness": version, "step_scale": 0.25}
    )


def test_rows_are_read_once_and_in_order(tmp_path: Path) -> None:
    reader = SpoolReader(tmp_path / "updates.bin")
    assert len(reader.read()) == 0  # no file yet
    with closing(SpoolWriter(tmp_path / "updates.bin")) as writer:
        writer.append(row(0))
        writer.append(row(1))
        assert len(reader.read()) == 0  # buffered
        writer.flush()
        rows = reader.read()
        assert rows["version_applied"].tolist() == [0, 1]
        assert rows["step_scale"].tolist() == [0.25, 0.25]
        assert len(reader.read()) == 0
        writer.append(row(2))
    assert reader.read()["staleness"].tolist() == [2]


def test_a_full_buffer_is_flushed_automatically(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path / "updates.bin", rows=3)
    for version in range(7):
        writer.append(row(version))
    assert (tmp_path / "updates.bin").stat().st_size == len(header()) + 6 * UPDATE.itemsize
    writer.close()
    writer.close()
    assert len(SpoolReader(tmp_path / "updates.bin").read()) == 7


def test_a_partial_row_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "updates.bin"
    whole = header() + np.array([row(0), row(1)], UPDATE).tobytes()
    path.write_bytes(whole[:-5])
    reader = SpoolReader(path)
    assert reader.read()["version_applied"].tolist() == [0]
    path.write_bytes(whole)
    assert reader.read()["version_applied"].tolist() == [1]


def test_a_writer_appends_to_existing_rows(tmp_path: Path) -> None:
    for version in (0, 1):
        with closing(SpoolWriter(tmp_path / "updates.bin")) as writer:
            writer.append(row(version))
    rows = SpoolReader(tmp_path / "updates.bin").read()
    assert rows["version_applied"].tolist() == [0, 1]


def test_a_spool_of_another_version_is_read_by_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "updates.bin"
    other = np.dtype(
        [("colour", "<i8"), *((name, UPDATE[name]) for name in reversed(UPDATE.names or ()))]
    )
    rows = np.zeros(3, other)
    rows["sequence"] = 1
    rows["version_applied"] = [5, 6, 7]
    path.write_bytes(header(other) + rows.tobytes())
    assert SpoolReader(path).read()["version_applied"].tolist() == [5, 6, 7]
    assert SpoolReader(path).read().dtype == UPDATE


def test_an_unreadable_spool_is_named(tmp_path: Path) -> None:
    path = tmp_path / "updates.bin"
    for damaged in (header()[:20], header(np.dtype([("worker", "O")]))):
        path.write_bytes(damaged)
        with pytest.raises(TestbedError, match=r"updates\.bin: found a header that cannot be re"):
            SpoolReader(path).read()
    path.write_bytes(b"time_seconds,worker")
    with pytest.raises(SpoiledError, match=r"updates\.bin: found no record of updates, written by"):
        SpoolReader(path).read()
    path.write_bytes(header(np.dtype([("worker", "<i4")])))
    with pytest.raises(TestbedError, match=r"updates\.bin: found no column 'time_seconds'"):
        SpoolReader(path).read()
