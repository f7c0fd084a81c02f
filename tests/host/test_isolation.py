"""Work in an isolated process: its result, and how early exits are reported."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import DataError, HostError, Problem, ScenarioError, TestbedError, UserCodeError
from testbed.host.isolation import PRINTED_BYTES, Opened, run_in_child, run_isolated
from testbed.host.process import has_ended
from testbed.runtimes.agent.logs import Log
from testbed.telemetry.untrusted import SpoiledError
from testbed.values.user_code import UserCode

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def in_child_unprinted(work: Callable[[Opened], Any], *, label: str) -> Any:
    log, writer = Log.open(Path(os.devnull))
    with closing(log), os.fdopen(writer, "wb"):
        return run_in_child(work, label=label, printed=log)


def test_plain_data_returns() -> None:
    assert run_isolated(lambda _: {"size": 7, "names": ["a", "b"]}, label="net.py") == {
        "size": 7,
        "names": ["a", "b"],
    }


def test_a_result_larger_than_a_pipe_returns() -> None:
    assert run_isolated(lambda _: "x" * 500_000, label="net.py") == "x" * 500_000


def test_the_work_runs_in_another_process_that_ends_with_it() -> None:
    pid = run_isolated(lambda _: os.getpid(), label="net.py")
    assert pid != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


class Garbage:
    """Part of a reference cycle; reports the process in which it is collected."""

    def __init__(self, collected_in: list[int]) -> None:
        self.itself, self.collected_in = self, collected_in

    def __del__(self) -> None:
        self.collected_in.append(os.getpid())


def test_garbage_of_the_parent_is_not_collected_in_the_child() -> None:
    """Finalizers may wait for threads, and a child has none of its parent's."""
    collected_in: list[int] = []

    def collect(_: Opened) -> list[int]:
        gc.collect()
        return collected_in

    gc.disable()
    try:
        Garbage(collected_in)
        assert run_isolated(collect, label="net.py") == []
    finally:
        gc.enable()
    gc.collect()
    assert collected_in == [os.getpid()]


def test_errors_return_with_their_attributes() -> None:
    problem = Problem("net.py", 3, "model", "this", "that", "Try it")

    def refuse(_: Opened) -> None:
        raise ScenarioError([problem])

    def lack(_: Opened) -> None:
        raise DataError("no data", hint="Fetch it.")

    with pytest.raises(ScenarioError) as refused:
        run_isolated(refuse, label="net.py")
    assert refused.value.problems == (problem,)
    with pytest.raises(DataError) as lacked:
        run_isolated(lack, label="net.py")
    assert (lacked.value.message, lacked.value.hint) == ("no data", "Fetch it.")


def test_errors_of_any_class_travel() -> None:
    def spoil(_: Opened) -> None:
        raise SpoiledError(Path("events.jsonl"), "ps", "a folder")

    def fail(_: Opened) -> None:
        raise UserCodeError("net.py:3: no", node="w1", trace="Traceback")

    with pytest.raises(SpoiledError, match=r"events\.jsonl: found a folder, written by ps"):
        run_isolated(spoil, label="net.py")
    with pytest.raises(UserCodeError) as failed:
        run_isolated(fail, label="net.py")
    assert (failed.value.node, failed.value.trace) == ("w1", "Traceback")


@pytest.mark.parametrize("how", [run_isolated, in_child_unprinted])
def test_a_failure_of_this_package_is_not_blamed_on_an_exit(how: Callable[..., Any]) -> None:
    with pytest.raises(TestbedError, match="testbed failed: TypeError: unhashable") as caught:
        how(lambda _: {[]}, label="net.py")
    assert caught.value.exit_code == 1
    assert "code of your own has returned something unexpected" in caught.value.hint


def test_too_little_memory_is_a_fault_of_the_host() -> None:
    with pytest.raises(HostError, match="out of memory: 8 TiB"):
        run_isolated(lambda _: _raise(MemoryError("8 TiB")), label="net.py")


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda: os._exit(0), "net.py: this code ended its process with status 0"),
        (lambda: os._exit(3), "ended its process with status 3"),
        (
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            "was ended by SIGKILL. If it ran out of mem",
        ),
        (os.abort, "was ended by SIGABRT"),
        (lambda: os.closerange(3, 1000), "has closed descriptors that are not its own"),
    ],
)
@pytest.mark.parametrize("how", [run_isolated, in_child_unprinted])
def test_an_early_exit_is_reported(
    how: Callable[..., Any], end: Callable[[], None], told: str
) -> None:
    with pytest.raises(UserCodeError, match=told):
        how(lambda _: end(), label="net.py")


def descriptors() -> set[str]:
    """This process's descriptors from 3 on, with what they refer to."""
    links = [one for one in Path("/proc/self/fd").iterdir() if int(one.name) > 2]
    return {f"{one.name} {one.readlink()}" for one in links if one.is_symlink()}


def write_into_its_pipes(data: bytes, *, others: set[str]) -> None:
    """Write into all descriptors that the process of the work has and its parent had not."""
    for one in descriptors() - others:
        with suppress(OSError):  # not open for writing
            os.write(int(one.partition(" ")[0]), data)


@pytest.mark.parametrize("data", [b"hello", b"\0\0\0\5hello", b"\x80\x04.", b"(((((((((("])
def test_what_user_code_writes_into_the_pipe_of_the_result_is_no_result(data: bytes) -> None:
    others = descriptors()

    def work(_: Opened) -> None:
        write_into_its_pipes(data, others=others)
        os._exit(3)

    with pytest.raises(UserCodeError, match=r"net\.py: this code ended its process with status 3"):
        run_isolated(work, label="net.py")


@pytest.mark.slow
def test_a_child_that_has_sent_part_of_a_result_and_hangs_is_killed() -> None:
    others = descriptors()

    def work(_: Opened) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        write_into_its_pipes(b"hello", others=others)
        signal.pause()

    with pytest.raises(UserCodeError, match=r"net\.py: this code still runs after 0\.1 s"):
        run_isolated(work, label="net.py", within_seconds=0.1)


def test_code_that_hangs_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import time\n\ntime.sleep(1000)\n")
    code = UserCode(tmp_path / "net.py", "Net", "model")
    with pytest.raises(UserCodeError, match=r"^net.py:3: this code still runs after 1 s"):
        run_isolated(lambda _: code.load("a class"), label="net.py", within_seconds=1.0)


def test_the_limit_ends_once_the_files_are_read() -> None:
    def work(opened: Opened) -> int:
        opened()
        opened()  # idempotent
        time.sleep(1.2)  # more than its limit
        return 5

    assert run_isolated(work, label="net.py", within_seconds=1.0) == 5


@pytest.mark.slow
def test_a_child_that_ignores_signals_is_killed() -> None:
    def work(_: Opened) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        time.sleep(1000)

    with pytest.raises(UserCodeError, match=r"still runs after 1 s, and ignores"):
        run_isolated(work, label="net.py", within_seconds=1.0)


def test_output_is_shown_up_to_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    def work(_: Opened) -> None:
        print("x" * 2 * PRINTED_BYTES)
        os.write(1, b"the end")

    run_isolated(work, label="net.py")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"{'x' * PRINTED_BYTES}\n(more than 1,048,576 bytes were printed)\n"


def test_control_sequences_in_the_output_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    run_isolated(lambda _: print("\x1b]0;owned\x07"), label="net.py")
    assert capsys.readouterr().err == "\\x1b]0;owned\\x07\n"


def test_the_process_has_no_input_and_leaves_no_processes() -> None:
    def work(_: Opened) -> list[object]:
        left = os.fork()
        if not left:
            time.sleep(1000)
        return [sys.stdin.read(), left]

    read, left = run_isolated(work, label="net.py")
    assert read == ""
    with suppress(ProcessLookupError):  # already ended
        descriptor = os.pidfd_open(left)
        assert has_ended(descriptor, 20)
        os.close(descriptor)
