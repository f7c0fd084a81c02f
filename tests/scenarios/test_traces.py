"""The recordings that come with testbed are those that the code beside them generates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.scenario import load
from testbed.scenario.traces import availabilities, followings

FOLDER = Path(__file__).parents[2] / "scenarios" / "traces"


def test_they_are_what_is_generated(tmp_path: Path) -> None:
    script = tmp_path / "generate.py"
    script.write_text((FOLDER / "generate.py").read_text())
    subprocess.run([sys.executable, script], check=True)
    for name in ("generated-walk.csv", "generated-bus.up", "generated-naps.csv"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


def test_every_slow_device_is_somewhere_else_in_them_and_at_one_place_in_both() -> None:
    found = followings(load(FOLDER / "traces.yaml"), FOLDER.joinpath)
    assert [(one.worker, one.direction) for one in found] == [
        (worker, direction) for worker in (9, 10, 11) for direction in ("up", "down")
    ]
    shares = [one.offset / one.trace.end for one in found]
    assert shares[::2] == pytest.approx(shares[1::2])
    assert len({round(share, 6) for share in shares}) == 3


def test_every_device_is_switched_on_and_off_from_a_place_of_its_own() -> None:
    """On for 25 of 35.8 s: 1.8, 8.9, 1.0, 5.8 and 7.5."""
    found = availabilities(load(FOLDER / "availability.yaml"), FOLDER.joinpath)
    assert len({one.offset for one in found}) == 12
    assert all(one.returns for one in found)
    assert found[0].trace.mean() == pytest.approx((1.8 + 8.9 + 1.0 + 5.8 + 7.5) / 35.8)
