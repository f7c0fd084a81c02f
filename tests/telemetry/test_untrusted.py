"""Files that a node can plant in place of its records are neither followed nor waited for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from testbed.errors import TestbedError
from testbed.host.reports import read_tail
from testbed.run.down import own_end
from testbed.telemetry.events import follow_ps_events
from testbed.telemetry.files import LONGEST_LINE, read_json
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.recovery import Recovered, read_updates, recover
from testbed.telemetry.rows import UPDATE, UpdateRow
from testbed.telemetry.spool import SpoolReader, SpoolWriter, header
from testbed.telemetry.untrusted import SpoiledError, read_untrusted

HUGE = 100 * 2**30
SECRET = "root:$6$secret"


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    (path.parents[1] / "shadow").write_text(SECRET)
    path.symlink_to(path.parents[1] / "shadow")


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listener(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def holes(path: Path) -> None:
    path.touch()
    os.truncate(path, HUGE)


PUT = {
    pipe: "found a named pipe, expected a regular file, written by ps",
    link: "found a symbolic link, expected a regular file, written by ps",
    device: "found a symbolic link, expected a regular file, written by ps",
    listener: "found a socket, expected a regular file, written by ps",
    Path.mkdir: "found a folder, expected a regular file, written by ps",
}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path, "r", scenario="s", text="", classes=["a", "b"], now=0.0)
    with closing(SpoolWriter(made.spool)) as spool:
        for sequence in (1, 2, 3):
            spool.append(row(sequence=sequence))
    return made


def row(**values: float) -> UpdateRow:
    return UpdateRow(**{**dict.fromkeys(UpdateRow._fields, 0), "sequence": 1, **values})


@pytest.mark.parametrize("put", PUT)
@pytest.mark.parametrize("name", ["updates.bin", "events.jsonl"])
def test_only_an_ordinary_file_is_opened(
    folder: RunFolder, name: str, put: Callable[[Path], None]
) -> None:
    file = folder.ps / name
    file.unlink(missing_ok=True)
    put(file)
    with pytest.raises(SpoiledError) as refusal:
        recover(folder, time_scale=1.0)
    assert refusal.value.message == f"{file}: {PUT[put]}."
    assert refusal.value.exit_code == 5
    assert SECRET not in str(refusal.value)
    if name == "events.jsonl":
        assert own_end(folder) is None  # `down` continues


@pytest.mark.parametrize("name", ["updates.bin", "events.jsonl"])
def test_a_file_without_an_end_takes_no_memory(folder: RunFolder, name: str) -> None:
    (folder.ps / name).unlink(missing_ok=True)
    holes(folder.ps / name)
    if name == "updates.bin":  # a file of zeros holds no update, whatever its length
        assert len(SpoolReader(folder.spool).read()) == 0
        assert len(read_updates(folder)) == 0
    else:
        with pytest.raises(SpoiledError, match=r"found 107,374,182,400 bytes, expected at most"):
            follow_ps_events(folder.ps_events).read()


def test_no_part_of_the_path_is_a_link(tmp_path: Path) -> None:
    mine = tmp_path / "ps"
    (mine / "checkpoints").mkdir(parents=True)
    (mine / "checkpoints/1").write_bytes(b"model")
    (mine / "elsewhere").symlink_to(mine / "checkpoints")

    def read(name: str) -> bytes:
        return read_untrusted(mine / name, node="ps", most=5, folder=mine)

    assert read("checkpoints/1") == b"model"
    with pytest.raises(SpoiledError, match=r"ps/elsewhere: found a symbolic link, expected a fold"):
        read("elsewhere/1")
    with pytest.raises(SpoiledError, match=r"1: found 6 bytes, expected at most 5, written by ps"):
        (mine / "checkpoints/1").write_bytes(b"models")
        read("checkpoints/1")
    with pytest.raises(ValueError, match="points outside"):
        read("checkpoints/../../ps/checkpoints/1")
    with pytest.raises(FileNotFoundError):
        read("checkpoints/2")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "expected an event"),
        (b"[" * 50_000, "expected an event"),
        (b"x" * (LONGEST_LINE + 1), "a line of 262,145 bytes, expected at most 262,144"),
        (b'{"event": "evaluated"}', "is wrong: "),
        (b'{"event": "started"}', "is wrong: "),
        (b'{"event": "started", "time": 1e999}', "its time is missing"),
        (b'{"event": "started", "time": -1}', "its time is missing"),
        (b'{"event": "joined", "time": 1, "node": "\\u001b[2J"}', "its node is out of range"),
        (b'{"event": "joined", "time": 1, "node": "\\ud800"}', "its node is "),
        (b'{"event": "state", "time": 1, "state": "finished"}', "expected an event of the para"),
        (b'{"event": "finished", "time": 1, "reason": "", "version": -1}', "its version is out"),
        (b'{"event": "done", "time": 1, "evaluated": true, "applied": 9223372036854775808}', "its"),
    ],
)
def test_every_field_of_an_event_is_checked(folder: RunFolder, line: bytes, why: str) -> None:
    folder.ps_events.write_bytes(b'{"event": "started", "time": 1}\n' + line + b"\n")
    with pytest.raises(SpoiledError) as refusal:
        follow_ps_events(folder.ps_events).read()
    assert why in refusal.value.message
    assert "written by ps" in refusal.value.message


@pytest.mark.parametrize("metric", ['"top1": NaN', '"top1": 1e999', '"top 1": 0.5', '"\\u001b": 1'])
def test_an_evaluation_is_checked(folder: RunFolder, metric: str) -> None:
    folder.ps_events.write_text(
        '{"event": "evaluated", "time": 1, "time_seconds": 1, "version": 1, "loss": null, '
        f'"payload_up_bytes": 1, {metric}, "top5": 1, "images": 1, "final": false}}\n'
    )
    with pytest.raises(SpoiledError, match=r"its metric .* is out of range"):
        follow_ps_events(folder.ps_events).read()


@pytest.mark.parametrize(
    "values",
    [{"worker": -1}, {"worker": 2}, {"sequence": 0}, {"samples": -1}, {"staleness": -1}]
    + [{"time_seconds": value} for value in (-1.0, np.nan, np.inf)],
)
def test_every_column_of_an_update_is_checked(folder: RunFolder, values: dict[str, float]) -> None:
    with closing(SpoolWriter(folder.spool)) as spool:
        spool.append(row(**{"samples": 1, **values}))  # the workers are 0 and 1
    with pytest.raises(SpoiledError, match=r"updates\.bin: found an impossible update .* by ps"):
        SpoolReader(folder.spool, workers=2).read()
    with pytest.raises(SpoiledError):
        recover(folder, time_scale=1.0)


def test_random_bytes_are_not_updates(folder: RunFolder) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        folder.spool.write_bytes(header() + rng.bytes(50 * UPDATE.itemsize))
        with pytest.raises(SpoiledError):
            SpoolReader(folder.spool, workers=2).read()
        folder.spool.write_bytes(header()[:8] + rng.bytes(2000))
        with pytest.raises(TestbedError):
            SpoolReader(folder.spool, workers=2).read()


def test_zeros_left_by_a_power_loss_are_not_updates(folder: RunFolder) -> None:
    with folder.spool.open("ab") as file:
        file.write(bytes(43 * UPDATE.itemsize + 7))
    folder.ps_events.write_bytes(b'{"event": "started", "time": 1}\n' + bytes(2**20))
    assert recover(folder, time_scale=1.0) == Recovered(updates=3, events=1)
    assert read_updates(folder)["sequence"].tolist() == [1, 2, 3]
    assert not recover(folder, time_scale=1.0)


def test_the_end_of_a_log_of_any_size(folder: RunFolder) -> None:
    log = folder.log("w0")
    holes(log)
    with log.open("ab") as file:
        file.write(b"\nthe\nend\n")
    assert read_tail(log, lines=2) == ["the", "end"]


def test_the_state_of_another_users_run_may_be_anything(folder: RunFolder) -> None:
    kinds = {
        "a pipe or a device, expected a regular file": pipe,
        "[0-9,]* bytes, expected at most 16,777,216": holes,
        "a folder, expected a regular file": Path.mkdir,
    }
    for kind, put in kinds.items():
        folder.run_file.unlink()
        put(folder.run_file)
        with pytest.raises(TestbedError, match=rf"run\.json: not JSON \({kind}\)"):
            read_json(folder.run_file)
