"""Files of a data set, and whatever may be in their place."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from testbed.datasets.files import uncompressed
from testbed.errors import DataError


def test_a_path_that_is_not_a_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # no writer: a read would block forever
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(DataError, match=rf"{name}: type: found a folder or a special file"):
            uncompressed(tmp_path / name)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(1_000_000)))  # about 1,000 bytes
    (tmp_path / "large").write_bytes(bytes(2_001))
    with pytest.raises(DataError, match=r"uncompressed content: found more bytes, .*2,000"):
        uncompressed(tmp_path / "bomb.gz", most_bytes=2_000)
    with pytest.raises(DataError, match="large: file: found more bytes, expected at most 2,000"):
        uncompressed(tmp_path / "large", most_bytes=2_000)
    assert uncompressed(tmp_path / "large", most_bytes=2_001) == bytes(2_001)
