"""The order of a start, the number of concurrent launches, and timeouts."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.errors import NodeError
from testbed.run.deploy import Deployment
from testbed.run.training_start import MOST_STARTING, TrainingStart
from testbed.runtimes.agent.client import AgentLateError
from testbed.runtimes.agent.launch import Exit, LaunchSpec
from testbed.telemetry.ps_events import Started

LINK = {"node": "w0", "differences": [], "left_out": [], "unseeded": False}


class UnmeasuredDeployment(Deployment):
    """Trusts its links without measuring: that would need a kernel."""

    def probe_links(self) -> None:
        pass

    def bring_up(self) -> None:
        watch: Any = self.watch
        TrainingStart(self, watch).bring_up()


def deployment(small: Any) -> UnmeasuredDeployment:
    return UnmeasuredDeployment(small.setup, small.driver, small.agent, small.watch(), small.clock)


def obey(small: Any, name: str) -> None:
    """The parameter server's events in a successful start."""
    if name == "ps":
        small.says("listening", port=5000)
    elif name != "evaluator":
        small.says("joined", node=name)
    if name == "w2":
        small.says("started")


def test_nodes_start_in_order(small: Any) -> None:
    small.agent.on_begin = lambda name: obey(small, name)
    small.agent.answers = [[LINK, {**LINK, "node": "w1"}]]
    deployment(small).bring_up()
    assert small.agent.launched == ["ps", "evaluator", "w0", "w1", "w2"]
    shown = small.shown.getvalue().splitlines()
    assert shown[:2] == ["starting the parameter server and 3 workers", "training"]
    launched = [event for event in small.events() if event["event"] == "launched"]
    assert [event["pid"] for event in launched] == [1001, 1002, 1003, 1004, 1005]


def test_a_start_ends_with_the_first_worker_for_which_the_agent_does_not_answer(small: Any) -> None:
    def answer(name: str) -> None:
        obey(small, name)
        if name == "w0":
            raise AgentLateError("the agent did not answer signal in time.")

    small.agent.on_begin = answer
    small.agent.answers = [[LINK]]
    with pytest.raises(AgentLateError):
        deployment(small).bring_up()
    assert small.agent.begun == ["ps", "evaluator", "w0"]


def test_containers_of_an_engine_exist_before_the_first_launch(make_small: Any) -> None:
    small = make_small("runtime=docker")
    small.driver.makes = True
    pids: dict[str, int | None] = {}

    def launch(launch: LaunchSpec) -> int:
        assert len(small.driver.contained) == 5
        pids[launch.node.name] = launch.container
        obey(small, launch.node.name)
        return 1

    small.agent.launch = launch
    small.agent.answers = [[LINK]]
    deployment(small).bring_up()
    assert pids == {"ps": 500, "evaluator": 501, "w0": 502, "w1": 503, "w2": 504}
    assert small.shown.getvalue().startswith("creating 5 containers\n")
    mounts = {cell.node.name: cell.mounts for cell in small.driver.contained}
    assert mounts["w0"] == small.setup.launch(small.setup.plan.node("w0")).mounts


def test_a_restarted_node_gets_a_new_container_if_the_engine_ended_its_own(make_small: Any) -> None:
    """The driver creates the first five with pids 500 to 504, and then one with pid 500."""
    small = make_small("runtime=docker")
    small.driver.makes = True
    tried: list[tuple[str, int | None]] = []

    def launch(launch: LaunchSpec) -> int:
        tried.append((launch.node.name, launch.container))
        if len(tried) == 6:
            raise NodeError("w1: its container has ended.")
        obey(small, launch.node.name)
        return 1000 + len(tried)

    small.agent.launch = launch
    small.agent.answers = [[LINK]]
    deploying = deployment(small)
    deploying.bring_up()
    assert deploying.launch(small.setup.plan.node("w1")) == 1007
    assert tried[5:] == [("w1", 503), ("w1", 500)]
    assert small.driver.discarded == ["w1"]
    assert [spec.node.name for spec in small.driver.contained[5:]] == ["w1"]


def test_a_restarted_node_is_told_which_of_its_processes_it_is(small: Any) -> None:
    told: list[tuple[str, str | None]] = []

    def launch(launch: LaunchSpec) -> int:
        told.append((launch.node.name, launch.arguments.get("process")))
        return 1000

    small.agent.launch = launch
    deploying = deployment(small)
    for name in ("w0", "w1", "w1", "w1", "w0"):
        deploying.launch(small.setup.plan.node(name))
    assert told == [("w0", None), ("w1", None), ("w1", "1"), ("w1", "2"), ("w0", "1")]


def test_a_node_that_fails_at_first_is_not_retried(make_small: Any) -> None:
    small = make_small("runtime=docker")
    small.driver.makes = True

    def refuse(_: str) -> None:
        raise NodeError("ps: its container is paused.")

    small.agent.on_begin = refuse
    with pytest.raises(NodeError, match="paused"):
        deployment(small).bring_up()
    assert small.agent.launched == ["ps"]
    assert small.driver.discarded == []


def test_omissions_are_reported_once_per_class(small: Any) -> None:
    without = {**LINK, "left_out": ["class fast: up.delay 20ms"], "differences": ["up: rate"]}
    small.agent.on_begin = lambda name: obey(small, name)
    small.agent.answers = [[without, {**without, "node": "w1"}]]
    deployment(small).bring_up()
    (links,) = [event for event in small.events() if event["event"] == "links"]
    assert links["left_out"] == ["class fast: up.delay 20ms"]
    assert links["differences"] == ["w0: up: rate", "w1: up: rate"]
    assert links["checked"] == 2


def test_why_gradients_are_computed_one_by_one_is_recorded(make_small: Any) -> None:
    """The node that computes has written it before it accepts a worker; its text is escaped."""
    small = make_small("compute={shared: {vmap: 4}}", "workers.classes.slow.memory=null")
    file = small.setup.folder.one_by_one
    file.parent.mkdir(exist_ok=True)

    def launch(name: str) -> None:
        if name == "compute":
            file.write_text("no\x1bbatching rule")
        else:
            obey(small, name)

    small.agent.on_begin = launch
    small.agent.answers = [[LINK]]
    deployment(small).bring_up()
    (found,) = [one for one in small.events() if one["event"] == "computed_one_by_one"]
    assert found["reason"] == "no\\x1bbatching rule"
    said = "gradients are computed one by one, as vmap is not possible: no\\x1bbatching rule"
    assert said in small.shown.getvalue()


def test_links_are_compared_before_the_training_starts(small: Any) -> None:
    def links(*, as_created: bool) -> list[Any]:
        assert as_created
        small.says("started")  # which no other node prints here
        return [LINK]

    small.agent.on_begin = lambda name: name == "w2" or obey(small, name)
    small.agent.links = links
    small.tick = 5.0
    deploying = deployment(small)
    deploying.bring_up()
    assert Started in deploying.watch.seen


def test_the_number_of_concurrent_launches_is_limited(make_small: Any) -> None:
    small = make_small("workers.count=40")
    on_their_way: set[str] = set()
    most = 0

    def launch(name: str) -> None:
        nonlocal most
        if name == "ps":
            small.says("listening", port=5000)
        elif name != "evaluator":
            on_their_way.add(name)
            most = max(most, len(on_their_way))

    def exits() -> list[Exit]:
        """Called at each check of a start: one of the launching nodes joins."""
        if len(on_their_way) == MOST_STARTING["warm"] or len(small.agent.begun) == 42:
            small.says("joined", node=on_their_way.pop())
            if not on_their_way:
                small.says("started")
        return []

    small.agent.on_begin, small.agent.exits = launch, exits
    small.agent.answers = [[LINK]]
    deployment(small).bring_up()
    assert most == MOST_STARTING["warm"]
    assert len(small.agent.launched) == 42


def test_workers_begin_once_all_are_launched(small: Any) -> None:
    def begin(name: str) -> None:
        assert len(small.agent.launched) == (5 if name.startswith("w") else len(small.agent.begun))
        obey(small, name)

    small.agent.on_begin = begin
    small.agent.answers = [[LINK]]
    deployment(small).bring_up()
    assert small.agent.begun == ["ps", "evaluator", "w0", "w1", "w2"]


def test_a_worker_that_ended_before_it_began_is_reported(small: Any) -> None:
    def begin(name: str) -> None:
        if name == "w1":
            small.agent.ended = [Exit("w1", -9)]
            raise NodeError("w1 ended with status -9.")
        obey(small, name)

    small.agent.on_begin = begin
    small.agent.answers = [[LINK]]
    with pytest.raises(NodeError, match="w1 was ended by SIGKILL"):
        deployment(small).bring_up()


def test_a_parameter_server_that_does_not_listen(small: Any) -> None:
    small.tick = 10.0
    with pytest.raises(NodeError, match="ps not ready by the startup deadline") as late:
        deployment(small).bring_up()
    assert late.value.hint == "All logs: testbed logs small-1"


def test_workers_that_do_not_join_are_named(small: Any) -> None:
    small.setup.folder.log("w1").write_text("still loading\n")
    small.agent.on_begin = lambda name: name in ("w1", "w2") or obey(small, name)
    small.agent.answers = [[LINK]]
    small.tick = 5.0
    with pytest.raises(NodeError) as late:
        deployment(small).bring_up()
    assert late.value.message == (
        "w1 and 1 more not ready by the startup deadline. w1 is running; it printed:\n    still "
        "loading"
    )
