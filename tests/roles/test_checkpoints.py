"""A parameter server refuses an unusable checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.algorithms.frame.stop import Schedule
from testbed.errors import DataError
from testbed.roles.checkpoints import Checkpoints
from testbed.telemetry.checkpoints import About, write_checkpoint
from testbed.values.state import PlainState, pack


@pytest.mark.parametrize(
    "state",
    [
        pack({"server": 1}),
        PlainState(
            ["dict", ["server", ["object", "testbed.values.user_code", "UserCode", {}]]], ()
        ),
        PlainState(["list"], ()),
    ],
    ids=["cut", "code", "list"],
)
def test_a_mismatched_checkpoint_is_named_and_changes_no_record(
    run: Callable[..., Any], tmp_path: Path, state: PlainState
) -> None:
    spool, path = tmp_path / "updates.bin", tmp_path / "checkpoint.safetensors"

    async def play(bench: Any) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.push(0, sequence=1, version=0)
        bench.spool.flush()
        before = spool.read_bytes()
        write_checkpoint(path, About("ps", "abc", 0, 0.0, {}), state)
        with pytest.raises(DataError, match=path.name) as error:
            Checkpoints(path, Schedule(1, None), "abc").resume(bench.training, spool)
        assert error.value.exit_code == 4
        assert spool.read_bytes() == before

    run(play)
