"""Reused gradients. Those here have four values: 80 bytes with their inputs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from testbed.payloads import Vector
from testbed.simulation.gradients import COMPUTED, REUSED, Gradients, Reuse, count_reused, refused

AT = np.arange(4, dtype=np.float32)
IMAGES, TARGETS = np.ones((2, 1, 3, 3), np.float32), np.array([0, 1])


def opened(folder: Path, run: str, *, most_bytes: int = 1000, network: str = "net") -> Gradients:
    return Reuse(folder, run, most_bytes).open(network, processes=1)


def computing(value: float) -> Callable[[], Vector]:
    return lambda: np.full(4, value, np.float32)


def held(folder: Path, run: str) -> tuple[int, ...]:
    """The bytes that a run wrote, and those it linked."""
    parts = (folder / run / part for part in (COMPUTED, REUSED))
    return tuple(sum(file.stat().st_size for file in part.iterdir()) for part in parts)


def not_again() -> Vector:
    raise AssertionError("it was there")


def test_a_run_reuses_the_gradients_of_an_earlier_one(tmp_path: Path) -> None:
    first = opened(tmp_path, "first").gradient(AT, IMAGES, TARGETS, computing(0.1))
    second = opened(tmp_path, "second").gradient(AT, IMAGES, TARGETS, not_again)
    assert second.tobytes() == first.tobytes()
    third = opened(tmp_path, "third").gradient(AT, IMAGES, TARGETS, not_again)
    assert third.tobytes() == first.tobytes()
    assert [count_reused(tmp_path / run) for run in ("first", "second", "third")] == [0, 1, 1]
    assert len({file.stat().st_ino for file in tmp_path.glob("*/*/*")}) == 1  # of three links


def test_a_run_reuses_the_same_gradient_twice(tmp_path: Path) -> None:
    opened(tmp_path, "first").gradient(AT, IMAGES, TARGETS, computing(0.1))
    second = opened(tmp_path, "second")
    for _ in range(2):
        assert second.gradient(AT, IMAGES, TARGETS, not_again)[0] == np.float32(0.1)
    assert count_reused(tmp_path / "second") == 1


@pytest.mark.parametrize(
    ("at", "images", "targets", "network"),
    [
        (AT + 1, IMAGES, TARGETS, "net"),
        (AT, IMAGES + 1, TARGETS, "net"),
        (AT, IMAGES.reshape(2, 1, 9, 1), TARGETS, "net"),
        (AT, IMAGES, TARGETS[::-1], "net"),
        (AT, IMAGES, TARGETS.astype(np.float64), "net"),
        (AT, IMAGES, TARGETS, "another"),
    ],
    ids=["parameters", "pixels", "shape", "targets", "types", "network"],
)
def test_gradients_of_other_inputs_are_computed(
    at: Vector, images: Vector, targets: np.ndarray, network: str, tmp_path: Path
) -> None:
    opened(tmp_path, "first").gradient(AT, IMAGES, TARGETS, computing(0.1))
    second = opened(tmp_path, "second", network=network)
    assert second.gradient(at, images, targets, computing(0.2))[0] == np.float32(0.2)
    assert count_reused(tmp_path / "second") == 0


def test_the_size_limit_is_respected(tmp_path: Path) -> None:
    """200 bytes are two gradients, written or linked; two processes have 100 each: one."""
    first = opened(tmp_path, "first", most_bytes=200)
    for number in range(3):
        first.gradient(AT + number, IMAGES, TARGETS, computing(number))
    assert held(tmp_path, "first") == (160, 0)
    second = opened(tmp_path, "second", most_bytes=200)
    for number in (2, 1, 3):
        second.gradient(AT + number, IMAGES, TARGETS, computing(number))
    assert held(tmp_path, "second") == (80, 80)
    unlinked = second.gradient(AT, IMAGES, TARGETS, not_again)  # no room for a link
    assert unlinked[0] == 0
    assert held(tmp_path, "second") == (80, 80)
    assert Reuse(tmp_path, "run", 200).open("net", processes=2).room == 100


def test_deleted_gradients_are_computed(tmp_path: Path) -> None:
    opened(tmp_path, "first").gradient(AT, IMAGES, TARGETS, computing(0.1))
    second = opened(tmp_path, "second")
    for file in (tmp_path / "first/computed").iterdir():
        file.unlink()
    assert second.gradient(AT, IMAGES, TARGETS, computing(0.2))[0] == np.float32(0.2)


def entries(folder: Path) -> tuple[Path, Path]:
    """The two gradients computed by a first run, at AT and at AT + 1."""
    first = opened(folder, "first")
    first.gradient(AT, IMAGES, TARGETS, computing(0.1))
    (one,) = (folder / "first" / COMPUTED).iterdir()
    first.gradient(AT + 1, IMAGES, TARGETS, computing(0.2))
    (other,) = {*(folder / "first" / COMPUTED).iterdir()} - {one}
    return one, other


def zeros(one: Path, other: Path) -> None:
    one.write_bytes(bytes(80))


def zero_values(one: Path, other: Path) -> None:
    one.write_bytes(one.read_bytes()[:64] + bytes(16))


def cut_short(one: Path, other: Path) -> None:
    one.write_bytes(one.read_bytes()[:-4])


def symbolic_link(one: Path, other: Path) -> None:
    one.unlink()
    one.symlink_to(other)


def hard_link(one: Path, other: Path) -> None:
    one.unlink()
    one.hardlink_to(other)


def a_folder(one: Path, other: Path) -> None:
    one.unlink()
    one.mkdir()


def a_pipe(one: Path, other: Path) -> None:
    one.unlink()
    os.mkfifo(one)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (zeros, "found the gradient of other inputs"),
        (zero_values, "values that do not match their SHA-256"),
        (cut_short, "found 76 bytes, expected 80"),
        (symbolic_link, "Too many levels of symbolic links"),
        (hard_link, "found the gradient of other inputs"),
        (a_folder, "found something other than a regular file"),
        (a_pipe, "found something other than a regular file"),
    ],
)
def test_damaged_gradients_are_computed_again_and_recorded(
    damage: Callable[[Path, Path], None], told: str, tmp_path: Path
) -> None:
    one, other = entries(tmp_path)
    damage(one, other)
    second = opened(tmp_path, "second")
    assert second.gradient(AT, IMAGES, TARGETS, computing(0.3))[0] == np.float32(0.3)
    assert second.gradient(AT + 1, IMAGES, TARGETS, not_again)[0] == np.float32(0.2)
    (noted,) = refused(tmp_path / "second")
    assert noted.startswith(f"{one}: ")
    assert told in noted
    assert count_reused(tmp_path / "second") == 1
    third = opened(tmp_path, "third")  # the second wrote one that fits
    assert third.gradient(AT, IMAGES, TARGETS, not_again)[0] == np.float32(0.3)


@pytest.mark.root
def test_a_full_disk_stops_storing_and_ends_no_run(tmp_path: Path) -> None:
    """A disk of 32 KiB, where a gradient has 16 KB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k", "none", str(tmp_path)]
    subprocess.run(mount, check=True)
    try:
        first, large = opened(tmp_path, "first", most_bytes=10**6), np.ones(4000, np.float32)
        for number in range(4):
            assert first.gradient(AT + number, IMAGES, TARGETS, lambda: large) is large
        assert first.room == 0
        assert [file.stat().st_size for file in tmp_path.glob("first/**/*") if file.is_file()] == [
            16064
        ] * 2
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
