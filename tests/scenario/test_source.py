"""Paths that are not text files are refused at once, without blocking and without a traceback."""

import os
from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.scenario import load
from testbed.scenario.source import LARGEST_BYTES, read_text


def refusal(path: Path | str) -> str:
    with pytest.raises(ScenarioError) as refused:
        load(path)
    (problem,) = refused.value.problems
    return str(problem)


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "quickstart.yaml").touch()
    message = refusal(tmp_path / "quikstart.yaml")
    assert message.endswith(
        f"found no such file, expected a scenario file. Did you mean {tmp_path}/quickstart.yaml?"
    )


def test_a_missing_folder() -> None:
    message = refusal("/no/such/folder/scenario.yaml")
    assert message.endswith("expected a scenario file. `testbed init` creates one that can be run")


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/tty", "/dev/null"])
def test_a_device_is_not_opened(path: str) -> None:
    assert refusal(path) == f"{path}: found a pipe or a device, expected a regular file"


def test_a_pipe_without_a_writer_does_not_block(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    assert "found a pipe or a device" in refusal(pipe)


def test_a_folder(tmp_path: Path) -> None:
    assert "found a folder, expected a scenario file" in refusal(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.touch(mode=0)
    assert "found a file you may not read" in refusal(secret)


def test_a_link_to_itself(tmp_path: Path) -> None:
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    assert "cannot be read" in refusal(loop)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_impossible_file_names(path: str) -> None:
    assert "cannot be read" in refusal(path)


def test_a_large_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    with large.open("wb") as stream:
        stream.truncate(10**8)
    assert refusal(large).endswith(
        "found 100,000,000 bytes, expected a scenario file of at most 1,048,576 bytes"
    )


def test_a_file_without_a_size_is_read_up_to_the_limit() -> None:
    with pytest.raises(ScenarioError):
        load("/proc/self/maps")


def test_a_long_scalar_gives_a_short_message(tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    file.write_text("a" * (LARGEST_BYTES - 10), encoding="utf-8")
    assert len(refusal(file)) < 300


def test_a_utf8_byte_order_mark_is_removed(tmp_path: Path, small: str) -> None:
    file = tmp_path / "marked.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + small.encode())
    assert read_text(file) == small
    assert load(file).name == "small"


def test_windows_line_ends(tmp_path: Path, small: str) -> None:
    file = tmp_path / "windows.yaml"
    file.write_bytes(small.replace("\n", "\r\n").encode())
    assert load(file).name == "small"


def test_a_name_that_is_not_text_is_shown(tmp_path: Path) -> None:
    name = os.fsdecode(bytes(tmp_path) + b"/\xff\x1b.yaml")
    message = refusal(name)
    assert message.isprintable()
    message.encode("utf-8")
