"""Handling of the parameter server's records and of nodes that end."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import AlgorithmError, HostError, NodeError, TestbedError, UserCodeError
from testbed.run.run import first_line
from testbed.run.watch import Restarter, describe_exit, quote_log
from testbed.runtimes.agent.launch import Exit
from testbed.telemetry.ps_events import Joined, Listening
from testbed.telemetry.rows import UpdateRow
from testbed.telemetry.spool import SpoolWriter
from testbed.telemetry.untrusted import SpoiledError


def start(small: Any) -> Any:
    watch = small.watch()
    for worker in ("w0", "w1", "w2"):
        small.says("joined", node=worker)
    small.says("started")
    watch.look()
    return watch


def test_an_invalid_record_ends_the_run_at_once(small: Any) -> None:
    watch = start(small)
    small.setup.folder.ps_events.unlink()
    os.mkfifo(small.setup.folder.ps_events)
    with pytest.raises(SpoiledError, match=r"ps/events\.jsonl: found a named pipe, .* by ps\. "):
        watch.look()


def test_updates_of_unknown_workers_end_the_run(small: Any) -> None:
    values = dict.fromkeys(UpdateRow._fields, 0) | {"sequence": 1, "worker": 3}
    with closing(SpoolWriter(small.setup.folder.spool)) as spool:
        spool.append(UpdateRow(**values))  # there are w0, w1 and w2
    with pytest.raises(SpoiledError, match=r"an impossible update \(worker 3\), written by ps"):
        small.watch().look()


def test_the_parameter_server_cannot_speak_for_the_controller(small: Any) -> None:
    watch = start(small)
    small.says("state", state="finished", reason="all is well", exit_code=None)
    with pytest.raises(SpoiledError, match="expected an event of the parameter server"):
        watch.look()
    assert small.setup.folder.state().state == "created"


def test_the_training_is_announced_before_its_first_status(small: Any) -> None:
    watch = small.watch()
    small.says("listening", port=5000)
    small.says("joined", node="w1")
    watch.look()
    assert (watch.seen, watch.joined) == ({Listening, Joined}, {"w1"})
    assert small.shown.getvalue() == ""
    small.says("started")
    watch.look()
    training, status = small.shown.getvalue().splitlines()
    assert training == "training"
    assert status.startswith("0 updates (0%)")


def test_a_worker_that_ends_is_named_and_the_others_continue(small: Any) -> None:
    watch = start(small)
    small.agent.ended = [Exit("w1", -9)]
    watch.look()
    assert watch.lost == {"w1": "w1 was ended by SIGKILL"}
    assert small.shown.getvalue().splitlines()[-1] == (
        "w1 was ended by SIGKILL; the other nodes continue"
    )
    assert small.events()[-1]["event"] == "exited"
    assert small.events()[-1]["planned"] is False
    assert small.events()[-1]["how"] == "w1 was ended by SIGKILL"


def test_a_rejected_push_is_shown(small: Any) -> None:
    watch = start(small)
    small.says("rejected", node="w2", reason="a value is NaN")
    watch.look()
    assert small.shown.getvalue().splitlines()[-1] == "w2: rejected: a value is NaN"


def test_records_after_the_last_poll_are_read_once(small: Any) -> None:
    watch = start(small)
    small.says("rejected", node="w2", reason="a value is NaN")
    small.says("left", node="w2")
    watch.catch_up()
    assert [event["event"] for event in small.events()[-2:]] == ["rejected", "left"]
    assert small.shown.getvalue().splitlines()[-1] == "w2: rejected: a value is NaN"
    watch.catch_up()
    assert [event["event"] for event in small.events()].count("left") == 1


def test_without_workers_the_parameter_server_ends_the_training(small: Any) -> None:
    watch = start(small)
    small.setup.folder.log("w2").write_text("bye\n")
    small.agent.ended = [Exit("w0", 8), Exit("w1", 8), Exit("w2", 5)]
    watch.look()
    assert list(watch.lost) == ["w0", "w1", "w2"]
    said = small.shown.getvalue()
    assert said.endswith("w2 exited with status 5: no worker is left; it printed:\n    bye\n")


@pytest.mark.parametrize(
    ("statuses", "failure", "says"),
    [
        (
            (11, 11, 11),
            UserCodeError,
            "w2 exited with status 11; it printed:\n    w2: net",
        ),
        ((10, 5, 5), AlgorithmError, "w0 exited with status 10; it printed nothing"),
        (
            (7, 0, 0),
            UserCodeError,
            "w2: net.py: this code ended its process with status 0 before it returned (or was "
            "ended by SIGTERM); it printed:",
        ),
        ((99, 5, 5), UserCodeError, "w0: net.py: this code ended its process with status 99 "),
        ((-11, 5, 5), UserCodeError, "w0: net.py: the process of this code was ended by SIGSEGV;"),
    ],
)
def test_workers_ended_by_own_code(
    small: Any, statuses: tuple[int, ...], failure: type[TestbedError], says: str
) -> None:
    watch = start(small)
    watch.own_files = "net.py"
    small.setup.folder.log("w2").write_text("w2: net.py:7: no\n")
    small.agent.ended = [Exit(f"w{n}", status) for n, status in enumerate(statuses)]
    with pytest.raises(failure) as told:
        watch.look()
    assert told.value.message.startswith(says)


def test_reasons_are_whole_sentences() -> None:
    printed = NodeError("ps exited with status 1; it printed:\n    one\n    ps: two: three.")
    assert first_line(printed) == "ps exited with status 1; it printed: ps: two: three"
    assert first_line(NodeError("w0 is gone; it printed nothing.")) == (
        "w0 is gone; it printed nothing"
    )


@pytest.mark.parametrize("node", ["ps", "evaluator"])
def test_the_end_of_an_essential_node_ends_the_run(small: Any, node: str) -> None:
    watch = start(small)
    small.agent.ended = [Exit(node, 1)]
    with pytest.raises(NodeError, match=f"{node} exited with status 1; it printed nothing") as it:
        watch.look()
    assert it.value.hint == f"Full log: testbed logs small-1 {node}"


def test_a_node_that_ends_with_its_container_is_not_explained_by_its_log(small: Any) -> None:
    watch = start(small)
    small.setup.folder.log("ps").write_text("training\n")
    small.agent.ended = [Exit("ps", -9, container_ended=True)]
    with pytest.raises(NodeError) as it:
        watch.look()
    assert it.value.message == "ps: its container was stopped or removed."
    assert it.value.hint == "Run the scenario again, and do not stop or remove its containers."
    (exited,) = (event for event in small.events() if event["event"] == "exited")
    assert exited["container_ended"]


def start_again(small: Any) -> tuple[Any, list[str]]:
    """A watch that restarts the parameter server, and the nodes that it launched."""
    watch, launched = start(small), list[str]()

    def launch(node: Any) -> int:
        launched.append(node.name)
        return 4000 + len(launched)

    watch.restarter = Restarter("small-1", launch, small.clock, server=True)
    return watch, launched


@pytest.mark.parametrize(
    ("ended", "how"),
    [
        (Exit("ps", -9), "ps was ended by SIGKILL"),
        (Exit("ps", -9, container_ended=True), "ps: its container was stopped or removed"),
        (Exit("ps", 0), "ps exited with status 0"),  # by SIGTERM
        # by SIGTERM, before the role installed its handler
        (Exit("ps", 143), "ps exited with status 143"),
    ],
)
def test_a_killed_parameter_server_is_restarted(small: Any, ended: Exit, how: str) -> None:
    watch, launched = start_again(small)
    small.says("saved", version=500, size_bytes=1, held_seconds=0.1, seconds=0.2)
    watch.look()
    small.agent.ended = [ended]
    watch.look()
    small.says("restored", version=500, time_seconds=1.0, lost_updates=37)
    watch.look()
    assert launched == ["ps"]
    exited, started = small.events()[-3:-1]
    assert (exited["event"], exited["restarted"], exited["ends_run"]) == ("exited", True, False)
    assert (started["event"], started["node"], started["pid"]) == ("launched", "ps", 4001)
    assert small.shown.getvalue().splitlines()[-2:] == [
        f"{how}; restarted from its checkpoint",
        "resumed from update 500: 37 updates are lost",
    ]


@pytest.mark.parametrize("version", [0, 500])
def test_a_parameter_server_that_was_not_restarted_cannot_go_back(small: Any, version: int) -> None:
    """Any user who can write there could otherwise truncate the controller's record."""
    watch, _ = start_again(small)
    small.says("saved", version=500, size_bytes=1, held_seconds=0.1, seconds=0.2)
    small.says("restored", version=version, time_seconds=1.0, lost_updates=0)
    with pytest.raises(
        SpoiledError, match=f"restart from a checkpoint at update {version}, but the controller"
    ):
        watch.look()
    assert small.events()[-1]["event"] == "saved"


def test_a_parameter_server_that_dies_repeatedly_ends_the_run(small: Any) -> None:
    """Three times from the checkpoint at 500, then one at 600: three more times, and no fourth."""
    watch, launched = start_again(small)
    for version in (500, 600):
        small.says("saved", version=version, size_bytes=1, held_seconds=0.1, seconds=0.2)
        for _ in range(3):
            small.agent.ended = [Exit("ps", -9, out_of_memory=True)]
            watch.look()
    assert len(launched) == 6
    small.agent.ended = [Exit("ps", -9, out_of_memory=True)]
    with pytest.raises(NodeError, match=r"ps ran out of memory.*4th time .* at update 600") as it:
        watch.look()
    assert "ps.memory" in it.value.hint
    assert len(launched) == 6


@pytest.mark.parametrize("status", [-9, 1], ids=["before a checkpoint", "by an error of its own"])
def test_a_parameter_server_without_a_checkpoint_ends_the_run(small: Any, status: int) -> None:
    watch, launched = start_again(small)
    if status > 0:
        small.says("saved", version=500, size_bytes=1, held_seconds=0.1, seconds=0.2)
    watch.look()
    small.agent.ended = [Exit("ps", status)]
    with pytest.raises(NodeError, match=r"^ps "):
        watch.look()
    assert launched == []


def test_no_node_may_end_before_the_training(small: Any) -> None:
    watch = small.watch()
    small.agent.ended = [Exit("w0", 0)]
    with pytest.raises(NodeError, match="w0 exited with status 0"):
        watch.look()


def test_a_clean_exit_after_the_training_is_planned(small: Any) -> None:
    watch = start(small)
    small.says("finished", reason="100 updates applied", version=100)
    small.agent.ended = [Exit("evaluator", 0), Exit("w0", 0)]
    watch.look()
    assert (watch.ending, watch.lost) == ("100 updates applied", {})
    assert [event["planned"] for event in small.events()[-2:]] == [True, True]


def test_the_records_of_a_node_are_read_before_its_exit_is_classified(small: Any) -> None:
    """The evaluator may end right after the parameter server wrote that training has ended."""
    watch = start(small)
    asked = small.agent.exits

    def exits() -> list[Exit]:
        small.says("finished", reason="100 updates applied", version=100)
        return [*asked(), Exit("evaluator", 0)]

    small.agent.exits = exits
    watch.look()
    assert watch.ending == "100 updates applied"


def test_a_deleted_folder_ends_the_run(small: Any) -> None:
    watch = start(small)
    shutil.rmtree(small.setup.folder.path)
    with pytest.raises(HostError, match="was deleted while the run was active"):
        watch.look()


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (Exit("w2", 3), "w2 exited with status 3"),
        (Exit("w2", -15), "w2 was ended by SIGTERM"),
        (Exit("w2", -40), "w2 was ended by signal 40"),
        (Exit("w2", -9, out_of_memory=True), "w2 ran out of memory: .* limit of 64MiB"),
        (Exit("w2", -9, container_ended=True), "w2: its container was stopped or removed"),
        (Exit("w2", 3, container_ended=True), "w2 exited with status 3"),
    ],
)
def test_how_a_node_ended(small: Any, ended: Exit, words: str) -> None:
    assert re.fullmatch(words, describe_exit(small.setup.plan.node("w2"), ended))


def test_the_last_lines_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "w0.log"
    assert quote_log(log) == "; it printed nothing."
    log.write_text("".join(f"line {n}\n" for n in range(20)))
    quoted = quote_log(log).splitlines()
    assert quoted[0] == "; it printed:"
    assert quoted[1:] == [f"    line {n}" for n in range(8, 20)]


def restarting(small: Any) -> tuple[Any, list[str]]:
    """A watch over a run whose w2 is suspended and has to be restarted."""
    watch, launched = start(small), list[str]()
    plan, aside = watch.plan, replace(watch.plan.node("w2"), part="aside", end="restarted")
    watch.plan = replace(plan, nodes=(*plan.nodes[:-1], aside))

    def launch(node: Any) -> int:
        launched.append(node.name)
        return 5000

    watch.restarter = Restarter("small-1", launch, small.clock)
    return watch, launched


def test_a_killed_node_is_restarted_if_configured(small: Any) -> None:
    watch, launched = restarting(small)
    small.agent.ended = [Exit("w2", -9)]
    watch.look()
    assert launched == ["w2"]
    exited, started = small.events()[-2:]
    assert (exited["how"], exited["restarted"]) == ("w2 was ended by SIGKILL", True)
    assert (started["event"], started["node"], started["pid"]) == ("launched", "w2", 5000)
    assert watch.lost == {}


def test_kills_by_faults_do_not_count_towards_the_restart_limit(small: Any) -> None:
    """Three unplanned kills within a minute would reach the limit."""
    watch, launched = restarting(small)
    for _ in range(5):
        watch.planned_exits.ending.add("w2")
        small.agent.ended = [Exit("w2", -9)]
        watch.look()
    assert launched == ["w2"] * 5
    exited = [event for event in small.events() if event["event"] == "exited"]
    assert all(event["planned"] and event["restarted"] for event in exited)


@pytest.mark.parametrize("end", ["restarted", "fatal", "noticed"])
def test_a_node_killed_temporarily_by_a_fault_is_restarted_only_by_the_fault(
    small: Any, end: Any
) -> None:
    watch, launched = restarting(small)
    aside = replace(watch.plan.node("w2"), end=end)
    watch.plan = replace(watch.plan, nodes=(*watch.plan.nodes[:-1], aside))
    watch.planned_exits.restarting.add("w2")
    watch.planned_exits.ending.add("w2")
    small.agent.ended = [Exit("w2", -9)]
    watch.look()
    exited = small.events()[-1]
    assert (exited["planned"], exited["restarted"], exited["ends_run"]) == (True, False, False)
    assert (launched, watch.lost, watch.planned_exits.ending) == ([], {}, set())


def test_a_node_that_ended_by_itself_is_not_restarted(small: Any) -> None:
    watch, launched = restarting(small)
    small.agent.ended = [Exit("w2", 1)]
    with pytest.raises(NodeError, match="w2 exited with status 1"):
        watch.look()
    assert launched == []


def test_a_node_is_not_restarted_a_fourth_time_within_a_minute(small: Any) -> None:
    """At 0, 10 and 20 s it is restarted, and at 61 s too: the first was over a minute before."""
    watch, launched = restarting(small)
    begun = small.now
    for at in (0.0, 10.0, 20.0, 61.0):
        small.now = begun + at
        small.agent.ended = [Exit("w2", -9)]
        watch.look()
    assert launched == ["w2"] * 4
    small.now = begun + 65.0
    small.agent.ended = [Exit("w2", -9)]
    with pytest.raises(NodeError, match="SIGKILL, for the 4th time within 60 s"):
        watch.look()


def test_a_node_is_not_restarted_after_the_training(small: Any) -> None:
    watch, launched = restarting(small)
    small.says("finished", reason="500 updates", version=500)
    watch.look()
    small.agent.ended = [Exit("w2", -9)]
    watch.look()
    assert launched == []
    assert small.events()[-1]["planned"] is True
