"""The source of the uids of a run's nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.host.users import IdRange, Users, find_users, read_range

SUBUID = """\
# name:start:count
alice:100000:65536
bob:165536:65536
bob:300000:131072
1007:500000:65536
carol:600000:1000
dave:x:65536
"""


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({"alice", "1000"}, IdRange(100000, 65536)),
        ({"bob", "1001"}, IdRange(300000, 131072)),  # the largest
        ({"grace", "1007"}, IdRange(500000, 65536)),  # by number
        ({"carol", "1002"}, None),  # too few for all nodes
        ({"dave", "1003"}, None),
        ({"nobody"}, None),  # codespell:ignore nobody
    ],
)
def test_a_range_is_read_by_name_or_number(
    tmp_path: Path, names: set[str], found: IdRange | None
) -> None:
    (tmp_path / "subuid").write_text(SUBUID)
    assert read_range(tmp_path / "subuid", names) == found


def test_without_the_file_there_is_no_range(tmp_path: Path) -> None:
    assert read_range(tmp_path / "subuid", {"alice"}) is None


def test_only_root_needs_no_namespace() -> None:
    kinds = ("root", "range", "one")
    assert [Users(kind).namespace for kind in kinds] == [False, True, True]
    assert len({Users(kind).mode for kind in kinds}) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="is about root")
def test_root_has_every_uid() -> None:
    assert find_users() == Users("root")
