"""The spool of applied updates."""

from pathlib import Path

import numpy as np

from testbed.telemetry.spool import UPDATE, SpoolReader, SpoolWriter


def row(version: int) -> tuple[float, ...]:
    """A row whose staleness is its version."""
    values: list[float] = [0] * len(UPDATE)
    names = list(UPDATE.names or ())
    values[names.index("version_applied")] = version
    values[names.index("staleness")] = version
    values[names.index("step_scale")] = 0.25
    return tuple(values)


def test_rows_are_read_once_and_in_order(tmp_path: Path) -> None:
    reader = SpoolReader(tmp_path / "updates.bin")
    assert len(reader.read()) == 0  # no file yet
    with SpoolWriter(tmp_path / "updates.bin") as writer:
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


def test_a_full_buffer_is_written_without_being_asked(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path / "updates.bin", rows=3)
    for version in range(7):
        writer.append(row(version))
    assert (tmp_path / "updates.bin").stat().st_size == 6 * UPDATE.itemsize
    writer.close()
    writer.close()
    assert len(SpoolReader(tmp_path / "updates.bin").read()) == 7


def test_a_row_that_is_still_being_written_is_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "updates.bin"
    whole = np.array([row(0), row(1)], UPDATE).tobytes()
    path.write_bytes(whole[:-5])
    reader = SpoolReader(path)
    assert reader.read()["version_applied"].tolist() == [0]
    path.write_bytes(whole)
    assert reader.read()["version_applied"].tolist() == [1]


def test_a_writer_keeps_what_is_there(tmp_path: Path) -> None:
    for version in (0, 1):
        with SpoolWriter(tmp_path / "updates.bin") as writer:
            writer.append(row(version))
    rows = SpoolReader(tmp_path / "updates.bin").read()
    assert rows["version_applied"].tolist() == [0, 1]
