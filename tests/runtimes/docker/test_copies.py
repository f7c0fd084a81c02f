"""What other hosts get of this one; this host's engine is that of the other one here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.datasets import Prepared, checksums
from testbed.datasets.prepared import prepare_once
from testbed.errors import HostError
from testbed.runtimes.docker.copies import (
    DATA,
    WHOLE,
    copy_data,
    counted,
    data_volume,
)
from testbed.runtimes.docker.engine import DEFAULT_ADDRESS, connect
from testbed.values.topology import HostSpec

HOST = HostSpec("b", "10.0.0.2", DEFAULT_ADDRESS, controller="a-of-tests")


def test_what_is_copied_is_counted() -> None:
    announced: list[int] = []
    assert [*counted([b"abc", b"", b"de"], announced.append, every=0.0)] == [b"abc", b"", b"de"]
    assert announced == [3, 3, 5]
    assert [*counted([b"abc"], announced.append)] == [b"abc"]
    assert announced == [3, 3, 5]  # too early


def make(samples: int) -> Prepared:
    images = np.arange(samples, dtype=np.float32).reshape(samples, 1, 1, 1)
    labels = np.zeros(samples, dtype=np.int64)
    return Prepared(images, labels, images[:2], labels[:2], classes=2, source={})


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A prepared data set of 12 MB, whose copies are removed at the end."""
    folder = prepare_once(tmp_path / "small", lambda: make(10**6))
    yield folder
    with connect() as engine:
        found = engine.volumes(filters={"label": f"{DATA}={folder}"})["Volumes"] or []
        for volume in found:
            engine.remove_volume(volume["Name"])
        assert engine.containers(all=True, filters={"label": f"{DATA}={folder}"}) == []


def copied(data: Path) -> Path:
    """Where the engine has the copy."""
    with connect() as engine:
        return Path(engine.inspect_volume(data_volume(engine, HOST, data))["Mountpoint"])


def content_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != WHOLE}


@pytest.mark.docker
@pytest.mark.root
def test_a_data_set_is_copied_once_and_compared(data: Path, image: str) -> None:
    said: list[str] = []
    with connect() as engine:
        for _ in range(2):
            copy_data(engine, HOST, data, image, phase=said.append)
    assert said == ["copying the data set small (12 MB) to b"]
    assert content_of(copied(data)) == content_of(data)
    assert (copied(data) / WHOLE).read_text() == checksums(data)


@pytest.mark.docker
@pytest.mark.root
def test_a_copy_that_differs_is_not_used(data: Path, image: str) -> None:
    file, said = data / "train_images.npy", list[str]()
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"?")
    with connect() as engine:
        with pytest.raises(HostError, match=r"differs from .*\n.*train_images.npy: FAILED") as told:
            copy_data(engine, HOST, data, image, phase=said.append)
        assert f"rm -r {data}" in told.value.hint
        assert not (copied(data) / WHOLE).exists()
        file.write_bytes(whole)
        copy_data(engine, HOST, data, image, phase=said.append)
    assert len(said) == 2
    assert content_of(copied(data)) == content_of(data)


COPY = """
import sys
from pathlib import Path
from typing import Any
from testbed.runtimes.docker.copies import copy_data
from testbed.runtimes.docker.engine import connect
from testbed.values.topology import HostSpec

class Interrupted:  # an engine to which a third of an archive is sent
    def __init__(self, engine):
        self.engine = engine

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def put_archive(self, container, path, pieces):
        return self.engine.put_archive(container, path, self.cut(pieces))

    def cut(self, pieces):
        sent = 0
        for piece in pieces:
            yield piece
            sent += len(piece)
            if sent > 4e6:
                print("cut", flush=True)
                sys.stdin.read()

with connect() as engine:
    copy_data(Interrupted(engine), HostSpec("b", "", "", controller=sys.argv[1]),
              Path(sys.argv[2]), sys.argv[3], phase=lambda said: None)
"""


@pytest.mark.docker
@pytest.mark.root
def test_a_copy_of_a_killed_controller_is_made_again(
    data: Path, image: str, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    arguments = (HOST.controller, str(data), image)
    there = copied(data)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", COPY, *arguments], **pipes) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == b"cut\n"
        eventually(lambda: any(there.iterdir()))
        controller.kill()
    assert content_of(there) != content_of(data)
    assert not (there / WHOLE).exists()
    with connect() as engine:
        copy_data(engine, HOST, data, image, phase=print)
    assert (there / WHOLE).read_text() == checksums(data)
    assert content_of(there) == content_of(data)
