"""The end of a run is always recorded, and never before the run is torn down."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from testbed.errors import HostError, NodeError, RunNotFound
from testbed.run.interrupts import Interrupted, Interrupts
from testbed.run.run import Execution, NotTornDown, first_line
from testbed.telemetry.record import Recorder
from testbed.telemetry.rows import UPDATE


@dataclass
class Lifeline:
    """Records its calls, and the state of the run's folder at each."""

    small: Any
    done: list[tuple[str, str]] = field(default_factory=list)
    happened: Any = None

    def explain(self) -> Any:
        return self.happened

    def stop(self) -> None:
        self.done.append(("stop", self.small.setup.folder.state().state))

    def close(self) -> None:
        self.done.append(("close", self.small.setup.folder.state().state))


@dataclass
class Driver:
    """Starts nothing, or fails."""

    lifeline: Any = None
    failure: BaseException | None = None
    started: int = 0

    def start(self, plan: Any, folder: Any, start: Any) -> Any:
        self.started += 1
        if self.failure is not None:
            raise self.failure
        return self.lifeline


@dataclass
class UntrainedExecution(Execution):
    """Replaces the training by what a test provides."""

    training: Any = None

    def _conduct(self, begun: float, lifeline: Any) -> str:
        ending = self.training.train()
        self.interrupts.sleep(0.0)
        return ending


@dataclass
class Training:
    """Runs in place of a training."""

    failure: BaseException | None = None
    signals: tuple[int, ...] = ()

    def train(self) -> str:
        for number in self.signals:
            os.kill(os.getpid(), number)
        if self.failure is not None:
            raise self.failure
        return "100 updates applied"


def unused(run: Any) -> Any:
    raise AssertionError("the training is replaced")


def execution(small: Any, driver: Driver, training: Training, interrupts: Interrupts) -> Execution:
    host: Any = driver
    return UntrainedExecution(
        small.setup, unused, host, small.recorder, interrupts, training=training
    )


def carry_out(small: Any, driver: Driver, training: Training) -> Any:
    with Interrupts() as interrupts:
        execution(small, driver, training, interrupts).carry_out()
    return small.setup.folder.state()


def test_success_is_reported_after_the_tear_down_and_before_the_lock_is_free(small: Any) -> None:
    lifeline = Lifeline(small)
    state = carry_out(small, Driver(lifeline), Training())
    assert (state.state, state.reason) == ("finished", "100 updates applied")
    assert lifeline.done == [("stop", "starting"), ("close", "finished")]
    assert [event["event"] for event in small.events()] == ["state", "torn_down", "state"]


def test_events_of_the_ps_until_its_end_are_recorded(small: Any) -> None:
    class Leaving(Lifeline):
        def stop(self) -> None:
            small.says("left", node="w1")
            super().stop()

    class FollowedExecution(UntrainedExecution):
        def _conduct(self, begun: float, lifeline: Any) -> str:
            self._followed = small.watch()
            return super()._conduct(begun, lifeline)

    host: Any = Driver(Leaving(small))
    with Interrupts() as interrupts:
        FollowedExecution(
            small.setup, unused, host, small.recorder, interrupts, training=Training()
        ).carry_out()
    assert [event["event"] for event in small.events()] == ["state", "left", "torn_down", "state"]


def test_a_failure_is_recorded_with_the_last_line_that_it_quotes(small: Any) -> None:
    lifeline = Lifeline(small)
    failure = NodeError("w1 exited with status 2; it printed:\n    oh no", hint="See the log.")
    with pytest.raises(NodeError):
        carry_out(small, Driver(lifeline), Training(failure))
    state = small.setup.folder.state()
    assert (state.state, state.reason) == ("failed", "w1 exited with status 2; it printed: oh no")
    assert lifeline.done == [("stop", "starting"), ("close", "failed")]


@pytest.mark.parametrize("kind", [HostError, NodeError])
def test_external_causes_follow_the_lost_nodes(small: Any, kind: Any) -> None:
    happened = kind("the engine was stopped.", hint="Start it.")
    lost = NodeError("the agent has ended.", hint="See its log.")
    with pytest.raises(kind) as failure:
        carry_out(small, Driver(Lifeline(small, happened=happened)), Training(lost))
    assert str(failure.value).startswith("the agent has ended: the engine was stopped.")
    assert failure.value.hint == "Start it. See its log."
    state = small.setup.folder.state()
    assert state.reason == "the agent has ended: the engine was stopped"
    assert state.exit_code == kind.exit_code


@pytest.mark.parametrize(
    ("failure", "state", "reason", "exit_code"),
    [
        (None, "finished", "100 updates applied", None),
        (NodeError("w1 failed."), "failed", "w1 failed", HostError.exit_code),
        (Interrupted("SIGINT"), "interrupted", "by SIGINT", None),
    ],
)
def test_remains_are_reported_with_the_reason_for_the_end(
    small: Any, failure: Any, state: str, reason: str, exit_code: int | None
) -> None:
    class Stuck(Lifeline):
        def stop(self) -> None:
            raise HostError("No engine answers.", hint="Start it.")

    lifeline = Stuck(small)
    with pytest.raises(NotTornDown) as left:
        carry_out(small, Driver(lifeline), Training(failure))
    assert left.value.message == (
        f"the run has ended ({state}: {reason}), but parts of it remain on this host: No engine "
        "answers."
    )
    assert left.value.hint == "Start it. Then: testbed down small-1"
    found = small.setup.folder.state()
    assert (found.state, found.reason, found.exit_code) == (state, reason, exit_code)
    assert lifeline.done == [("close", state)]


def test_an_agent_that_does_not_start(small: Any) -> None:
    with pytest.raises(HostError):
        carry_out(small, Driver(failure=HostError("no cgroups.")), Training())
    state = small.setup.folder.state()
    assert (state.state, state.reason) == ("failed", "no cgroups")


def test_an_unexpected_error_tears_the_run_down_too(small: Any) -> None:
    lifeline = Lifeline(small)
    with pytest.raises(ZeroDivisionError):
        carry_out(small, Driver(lifeline), Training(ZeroDivisionError("oops")))
    assert small.setup.folder.state().reason == "ZeroDivisionError('oops')"
    assert lifeline.done[-1] == ("close", "failed")


def test_a_closed_pipe_does_not_fail_the_run(small: Any) -> None:
    lifeline = Lifeline(small)
    with pytest.raises(BrokenPipeError):
        carry_out(small, Driver(lifeline), Training(BrokenPipeError()))
    state = small.setup.folder.state()
    assert (state.state, state.reason) == ("interrupted", "the reader of its output is gone")
    assert lifeline.done[-1] == ("close", "interrupted")


@pytest.mark.parametrize(
    "failure",
    [NodeError("ps exited with status 1."), FileNotFoundError(2, "no"), RunNotFound("no run.json")],
    ids=lambda failure: type(failure).__name__,
)
def test_a_deleted_folder_is_the_reported_reason_whichever_error_is_first(
    small: Any, failure: Exception
) -> None:
    """Also with updates that wait to be written into it."""
    folder = small.setup.folder

    class Deletion(Training):
        def train(self) -> str:
            small.recorder.updates(np.zeros(3, UPDATE))
            shutil.rmtree(folder.path)
            return super().train()

    small = replace(small, recorder=Recorder.into(folder, time_scale=1.0))
    with pytest.raises(HostError) as failed:
        carry_out(small, Driver(), Deletion(failure))
    assert failed.value.message.startswith(f"{folder.path} was deleted while the run was active")


def test_a_signal_during_the_training_and_more_during_the_tear_down(small: Any) -> None:
    class Impatient(Lifeline):
        def stop(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            super().stop()

    lifeline = Impatient(small)
    with pytest.raises(Interrupted):
        carry_out(small, Driver(lifeline), Training(signals=(signal.SIGTERM,)))
    state = small.setup.folder.state()
    assert (state.state, state.reason) == ("interrupted", "by SIGTERM")
    assert lifeline.done == [("stop", "starting"), ("close", "interrupted")]


def test_a_signal_before_the_start_starts_nothing(small: Any) -> None:
    driver = Driver(Lifeline(small))
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted):
            execution(small, driver, Training(), interrupts).carry_out()
    assert driver.started == 0
    assert small.setup.folder.state().state == "interrupted"


def test_an_agent_killed_by_down_is_not_a_failure(small: Any) -> None:
    lifeline = Lifeline(small)
    (small.setup.folder.control / "down").touch()
    with pytest.raises(Interrupted, match="stopped by `testbed down`"):
        carry_out(small, Driver(lifeline), Training(NodeError("the agent has ended.")))
    state = small.setup.folder.state()
    assert (state.state, state.reason) == ("interrupted", "stopped by `testbed down`")


def test_the_first_line_of_an_error() -> None:
    assert first_line(NodeError("w1 failed. It printed:\n  a\n  b")) == "w1 failed. It printed: b"
    assert first_line(NodeError("the agent has ended.")) == "the agent has ended"
