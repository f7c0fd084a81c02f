"""Which gradients a sweep keeps for later runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from testbed.errors import HostError
from testbed.studies.sweep import FOLDER, ReusedGradients, reused_gradients


def write(gradients: ReusedGradients, run: str, *, at: int) -> None:
    """Let a run compute one gradient, or reuse it."""
    parameters, batch = np.full(4, at, np.float32), (np.ones(2, np.float32), np.zeros(2))
    opened = gradients.of(run).open("net", processes=1)
    opened.gradient(parameters, *batch, lambda: np.ones(4, np.float32))


def test_runs_with_the_same_training_reuse_gradients(tmp_path: Path) -> None:
    """The third run finds the gradients of the first through the links of the second."""
    with reused_gradients(tmp_path, 1000, side_by_side=1) as gradients:
        assert gradients is not None
        taken = []
        for run in ("a", "b", "c"):
            write(gradients, run, at=1)
            taken.append(gradients.end(run))
        assert taken == [0, 1, 1]
        assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["c"]
    assert not (tmp_path / FOLDER).exists()


def test_unused_gradients_are_dropped_with_the_next_run(tmp_path: Path) -> None:
    with reused_gradients(tmp_path, 1000, side_by_side=1) as gradients:
        assert gradients is not None
        for at, run in enumerate(("a", "b", "c")):
            write(gradients, run, at=at)
            assert gradients.end(run) == 0
        write(gradients, "d", at=0)  # as run a did
        assert gradients.end("d") == 0


def test_as_many_are_kept_as_run_concurrently(tmp_path: Path) -> None:
    with reused_gradients(tmp_path, 1000, side_by_side=2) as gradients:
        assert gradients is not None
        for at, run in enumerate(("a", "b", "c")):
            write(gradients, run, at=at)
            gradients.end(run)
        kept = sorted(path.name for path in (tmp_path / FOLDER).iterdir())
        assert kept == ["b", "c"]


def test_the_size_limit_is_shared(tmp_path: Path) -> None:
    """Two runs continue, and two have their gradients kept."""
    with reused_gradients(tmp_path, 1000, side_by_side=2) as gradients:
        assert gradients is not None
        assert gradients.of("a").most_bytes == 250


def test_a_run_without_gradients(tmp_path: Path) -> None:
    """A live run, or one with the user's own code."""
    with reused_gradients(tmp_path, 1000, side_by_side=1) as gradients:
        assert gradients is not None
        assert [gradients.end(run) for run in ("a", "b")] == [0, 0]


def test_gradients_left_by_a_killed_sweep_are_removed(tmp_path: Path) -> None:
    (tmp_path / FOLDER / "a").mkdir(parents=True)
    with reused_gradients(tmp_path, 0, side_by_side=1) as gradients:
        assert gradients is None
        assert not (tmp_path / FOLDER).exists()


def test_a_disk_with_less_space(tmp_path: Path) -> None:
    told = r"1000000000GB are needed for gradients in .*, which has [0-9.]+ GB of free space"
    with (
        pytest.raises(HostError, match=told),
        reused_gradients(tmp_path, 10**18, side_by_side=1),
    ):
        pass
    assert not (tmp_path / FOLDER).exists()


def test_gradients_that_could_not_be_reused_are_reported(tmp_path: Path) -> None:
    with reused_gradients(tmp_path, 1000, side_by_side=1) as gradients:
        assert gradients is not None
        write(gradients, "a", at=1)
        (entry,) = (tmp_path / FOLDER / "a" / "computed").iterdir()
        entry.write_bytes(bytes(entry.stat().st_size))
        write(gradients, "b", at=1)
        assert gradients.refused("b") == [f"{entry}: found the gradient of other inputs"]
        assert [gradients.end(run) for run in ("a", "b")] == [0, 0]
