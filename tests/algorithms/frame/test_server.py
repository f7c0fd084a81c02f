"""The server's loop, called by hand: order, repeats, refusals, the end."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from vectors import floats

from testbed.algorithms import AdaComp, Asgd, FedAvg
from testbed.algorithms.base import Applied, Measured, Update
from testbed.algorithms.frame.effects import Effects, Release
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.stop import StopRule, Target
from testbed.errors import RejectedError
from testbed.payloads import Dense, Indices, Sparse
from testbed.payloads.layout import Layout

N = 8
LAYOUT = Layout(("weight",), ((N,),))
RNG = np.random.default_rng(0)
A, B, STRANGER = 0, 1, 7
NAN = float("nan")


def server(stop: StopRule | None = None, *, adacomp: bool = False) -> Server:
    """A and B have joined, at a model of zeros; learning rate 1/2."""
    config = (
        AdaComp(name="adacomp", learning_rate=0.5)
        if adacomp
        else Asgd(name="asgd", learning_rate=0.5)
    )
    half = config.server(LAYOUT, 2, parameters=np.zeros(N, np.float32), rng=RNG)
    subject = Server(half, stop or StopRule())
    subject.join(A)
    subject.join(B)
    return subject


def dense(version: int, value: float = 1.0, *, samples: int = 10) -> Update:
    return Update(Dense(np.full(N, value, np.float32)), version, samples)


def indices(*values: int) -> Indices:
    return np.array(values, np.int32)


def versions(releases: Sequence[Release]) -> list[tuple[int, int | None]]:
    """The recipients of the replies and the version they carry; None for the end."""
    return [(r.worker, None if r.reply is None else r.reply.version) for r in releases]


def push(subject: Server, worker: int, sequence: int, update: Update) -> Applied | None:
    """The result of applying it; None if it was not accepted."""
    effects = subject.push(worker, sequence, update=update, now=0.0)
    assert effects.accepted == bool(effects.applied)
    return effects.applied[0] if effects.applied else None


def evaluate(subject: Server, now: float, *, loss: float, accuracy: float = 0.0) -> None:
    """The evaluator reports on the current model."""
    measured = Measured(now, subject.version, loss)
    subject.measured(measured, metrics={"top1": accuracy}, now=now)


def test_a_pull_is_answered_and_a_push_brings_the_next_model() -> None:
    subject = server()
    assert versions(subject.pull(A, 0.0).releases) == [(A, 0)]
    effects = subject.push(A, 1, update=dense(0), now=0.0)
    assert effects.applied == [Applied(A, 0)]
    assert versions(effects.releases) == [(A, 1)]
    assert effects.releases[0].reply is not None
    assert effects.releases[0].reply.model.values.tolist() == [-0.5] * N
    assert subject.version == 1


def test_a_repeat_is_applied_once_and_answered_by_a_fresh_pull() -> None:
    subject = server()
    subject.pull(A, 0.0)
    subject.pull(B, 0.0)
    push(subject, A, 1, dense(0))
    push(subject, B, 1, dense(0))
    effects = subject.push(A, 1, update=dense(0), now=0.0)  # its reply was lost
    assert not effects.accepted
    assert versions(effects.releases) == [(A, 2)]
    assert subject.version == 2
    assert subject.half.parameters.tolist() == [-1.0] * N
    applied = push(subject, A, 2, dense(2))  # continues from the fresh pull
    assert applied is not None
    assert applied.staleness == 0


def test_the_contents_of_a_repeated_push_are_ignored() -> None:
    subject = server()
    subject.pull(A, 0.0)
    push(subject, A, 1, dense(0))
    assert push(subject, A, 1, dense(0, NAN)) is None


def test_a_repeated_pull_moves_the_version_that_a_push_builds_on() -> None:
    subject = server()
    subject.pull(A, 0.0)
    subject.pull(B, 0.0)
    push(subject, B, 1, dense(0))
    assert versions(subject.pull(A, 0.0).releases) == [(A, 1)]
    with pytest.raises(
        RejectedError, match="builds on version 0, the worker's last pull brought 1"
    ):
        push(subject, A, 1, dense(0))
    assert push(subject, A, 1, dense(1)) is not None


@pytest.mark.parametrize("sequence", [-1, 0, 1, 2, 5, 10**12])
def test_a_push_out_of_order_is_refused(sequence: int) -> None:
    subject = server()
    subject.pull(A, 0.0)
    for done in (1, 2, 3):
        push(subject, A, done, dense(done - 1))
    with pytest.raises(RejectedError, match=r"w0: push .* is out of order, expected 4"):
        push(subject, A, sequence, dense(3))
    assert subject.version == 3


@pytest.mark.parametrize("sequence", [0, -1])
def test_a_number_below_the_first_is_not_a_repeat(sequence: int) -> None:
    subject = server()
    subject.pull(A, 0.0)
    with pytest.raises(RejectedError, match="out of order, expected 1"):
        push(subject, A, sequence, dense(0))


def test_an_unknown_worker_is_refused() -> None:
    subject = server()
    for attempt in (
        lambda: subject.pull(STRANGER, 0.0),
        lambda: subject.push(STRANGER, 1, update=dense(0), now=0.0),
    ):
        with pytest.raises(RejectedError, match="worker 7 is unknown"):
            attempt()
    assert subject.leave(STRANGER, 0.0) == Effects()


def test_a_push_without_a_pull_is_refused() -> None:
    subject = server()
    with pytest.raises(RejectedError, match="the worker's last pull brought none"):
        push(subject, A, 1, dense(0))


REFUSED = {
    "a version from the future": (dense(1), "version 1 is from the future, the model is at 0"),
    "a version before any": (dense(-1), "builds on version -1"),
    "no samples": (dense(0, samples=0), "0 samples, expected at least 1"),
    "NaN": (dense(0, NAN), "NaN or infinite"),
    "infinite": (dense(0, -float("inf")), "NaN or infinite"),
    "too few values": (Update(Dense(floats(1, 2)), 0, 10), "2 values for a model of 8"),
    "no values": (Update(Dense(floats()), 0, 10), "0 values for a model of 8"),
    "too many values": (Update(Dense(np.zeros(9, "f4")), 0, 10), "9 values for a model of 8"),
    "fewer values than indices": (
        Update(Sparse(indices(1, 2), floats(1)), 0, 10),
        "2 indices with 1 values",
    ),
    "an index too large": (Update(Sparse(indices(1, 8), floats(1, 1)), 0, 10), r"within \[0, 8\)"),
    "a negative index": (Update(Sparse(indices(-1, 3), floats(1, 1)), 0, 10), "increase strictly"),
    "unsorted": (Update(Sparse(indices(3, 1), floats(1, 1)), 0, 10), "increase strictly"),
    "repeated": (Update(Sparse(indices(3, 3), floats(1, 1)), 0, 10), "increase strictly"),
    "differences that wrap in int32": (
        Update(Sparse(indices(5, -(2**31) + 4, -(2**31) + 100, 7), floats(1, 1, 1, 1)), 0, 10),
        "increase strictly",
    ),
    "a sparse NaN": (Update(Sparse(indices(3), floats(NAN)), 0, 10), "NaN or infinite"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_an_invalid_push_is_refused_and_changes_nothing(why: str) -> None:
    update, reason = REFUSED[why]
    subject = server(adacomp=True)
    subject.pull(A, 0.0)
    with pytest.raises(RejectedError, match=f"w0: .*{reason}"):
        push(subject, A, 1, update)
    assert subject.version == 0
    assert subject.half.parameters.tolist() == [0] * N
    good = Update(Sparse(indices(0, 7), floats(1, 2)), 0, samples=10)
    assert push(subject, A, 1, good) is not None  # the number was not used up


def test_an_empty_update_is_applied() -> None:
    subject = server(adacomp=True)
    subject.pull(A, 0.0)
    assert push(subject, A, 1, Update(Sparse(indices(), floats()), 0, 10)) is not None
    assert subject.version == 1


def test_a_worker_that_rejoins_keeps_its_sequence_number() -> None:
    subject = server(adacomp=True)
    subject.pull(A, 0.0)
    push(subject, A, 1, Update(Sparse(indices(2), floats(1)), 0, 10))
    subject.join(A)  # it reconnects after losing its connection
    assert push(subject, A, 1, Update(Sparse(indices(2), floats(1)), 0, 10)) is None
    subject.join(A)
    assert push(subject, A, 2, Update(Sparse(indices(2), floats(1)), 1, 10)) is not None
    assert subject.version == 2


def test_a_worker_that_left_starts_from_scratch() -> None:
    subject = server(adacomp=True)
    subject.pull(A, 0.0)
    push(subject, A, 1, Update(Sparse(indices(2), floats(1)), 0, 10))
    subject.leave(A, 0.0)
    with pytest.raises(RejectedError, match="unknown"):
        push(subject, A, 2, Update(Sparse(indices(2), floats(1)), 1, 10))
    subject.join(A)
    with pytest.raises(RejectedError, match="brought none"):
        push(subject, A, 1, Update(Sparse(indices(2), floats(1)), 1, 10))
    subject.pull(A, 0.0)
    assert push(subject, A, 1, Update(Sparse(indices(2), floats(1)), 1, 10)) is not None


def test_training_stops_exactly_after_the_configured_updates() -> None:
    subject = server(StopRule(updates=2))
    subject.pull(A, 0.0)
    subject.pull(B, 0.0)
    push(subject, A, 1, dense(0))
    effects = subject.push(A, 2, update=dense(1), now=0.0)
    assert effects.accepted
    assert subject.finished == "2 updates applied"
    assert versions(effects.releases) == [(A, None)]
    effects = subject.push(B, 1, update=dense(0), now=0.0)  # was in flight
    assert not effects.accepted
    assert versions(effects.releases) == [(B, None)]
    assert versions(subject.pull(B, 0.0).releases) == [(B, None)]
    assert subject.version == 2
    assert subject.half.parameters.tolist() == [-1.0] * N


def test_training_stops_at_its_time_limit_whichever_call_notices_first() -> None:
    by_push, by_pull, by_tick = (server(StopRule(time=10.0)) for _ in range(3))
    for subject in (by_push, by_pull, by_tick):
        assert versions(subject.pull(A, 9.9).releases) == [(A, 0)]
        assert not subject.finished
    effects = by_push.push(A, 1, update=dense(0), now=10.0)
    assert not effects.accepted
    assert versions(effects.releases) == [(A, None)]
    assert versions(by_pull.pull(B, 10.0).releases) == [(B, None)]
    by_tick.begin(0.0)
    assert by_tick.next_tick(9.9) == 10.0
    assert by_tick.tick(10.0) == Effects(releases=[])
    for subject in (by_push, by_pull, by_tick):
        assert subject.finished == "10 s of emulated time passed"
        assert subject.version == 0


def test_training_stops_at_an_accuracy_and_keeps_the_first_reason() -> None:
    subject = server(StopRule(time=10.0, targets=(Target("top1", 0.9, shown="accuracy"),)))
    subject.tick(1.0)
    evaluate(subject, 2.0, loss=0.5, accuracy=0.8999)
    assert subject.finished == ""
    evaluate(subject, 3.0, loss=0.4, accuracy=0.9)
    assert subject.finished == "accuracy 0.9000 reached 0.9"
    evaluate(subject, 11.0, loss=0.4, accuracy=0.95)
    assert subject.finished == "accuracy 0.9000 reached 0.9"


@pytest.mark.parametrize("loss", [NAN, float("inf")])
def test_a_loss_that_is_not_finite_ends_the_training(loss: float) -> None:
    subject = server(StopRule(updates=100))
    subject.pull(A, 0.0)
    push(subject, A, 1, dense(0))
    evaluate(subject, 1.0, loss=1e30, accuracy=0.1)
    assert not subject.finished
    evaluate(subject, 2.0, loss=loss, accuracy=0.0)
    assert subject.finished == f"diverged: loss is {loss} at version 1"


def test_training_ends_when_most_workers_push_values_that_are_not_finite() -> None:
    """One of two may have bad data, with the second it is the model; the second gets the end."""
    subject = server()
    for worker in (A, B):
        subject.pull(worker, 0.0)
    with pytest.raises(RejectedError, match="w0: a value is NaN or infinite"):
        push(subject, A, 1, dense(0, NAN))
    subject.leave(A, 0.0)
    assert not subject.finished
    effects = subject.push(B, 1, update=dense(0, NAN), now=0.0)
    assert not effects.accepted
    assert versions(effects.releases) == [(B, None)]
    expected = "diverged: pushes of 2 of 2 workers are NaN or infinite at version 0"
    assert subject.finished == expected


def test_any_push_after_the_end_is_answered_by_the_end() -> None:
    subject = server()
    subject.pull(A, 0.0)
    evaluate(subject, 1.0, loss=NAN)
    effects = subject.push(A, 1, update=dense(0, NAN), now=2.0)
    assert not effects.accepted
    assert versions(effects.releases) == [(A, None)]


def test_a_rule_without_limits_never_stops() -> None:
    subject = server(StopRule())
    subject.pull(A, 0.0)
    for sequence in range(1, 50):
        push(subject, A, sequence, dense(sequence - 1))
    evaluate(subject, 1e9, loss=0.0, accuracy=1.0)
    assert not subject.finished


def test_a_crash_counts_the_push_and_never_sends_the_reply() -> None:
    """A crashes with its second push: it is in the model, and A does not return."""
    drawn = iter([False, True, False])
    subject = server()
    subject.crashes = lambda worker: worker == A and next(drawn)
    subject.begin(0.0)
    for worker in (A, B):
        subject.pull(worker, 0.0)
    assert not subject.push(A, 1, update=dense(0), now=1.0).crashed
    crashed = subject.push(A, 2, update=dense(1), now=2.0)
    assert (crashed.accepted, crashed.crashed, crashed.releases) == (True, True, [])
    assert subject.version == 2
    repeated = subject.push(A, 2, update=dense(1), now=3.0)  # of a call that was lost
    assert (repeated.accepted, repeated.crashed, repeated.releases) == (False, False, [])
    assert subject.wake(A, 4.0).releases == []
    assert subject.pull(A, 5.0).releases == []
    assert subject.is_silent(A)
    assert versions(subject.push(B, 1, update=dense(0), now=6.0).releases) == [(B, 3)]


def test_all_crashed_is_stalled_unless_a_worker_is_going_to_join() -> None:
    subject = server()
    subject.crashes, subject.to_come = lambda worker: True, [2]
    subject.begin(0.0)
    for worker in (A, B):
        subject.pull(worker, 0.0)
    for worker in (A, B):
        subject.push(worker, 1, update=dense(0), now=1.0)
    assert not subject.finished
    subject.join(2)
    subject.pull(2, 2.0)
    subject.push(2, 1, update=dense(2), now=3.0)
    assert subject.stalled
    assert subject.finished.startswith("stalled: no worker is left that could push (3 silent")


def test_the_run_is_not_stalled_while_an_absent_worker_will_return() -> None:
    """B leaves and returns, A has crashed; no worker can push once B has crashed as well."""
    subject = server()
    subject.returning = {B}
    subject.begin(0.0)
    for worker in (A, B):
        subject.pull(worker, 0.0)
    subject.leave(B, 1.0)
    subject.crashes = lambda worker: True
    subject.push(A, 1, update=dense(0), now=2.0)
    assert not subject.finished
    subject.join(B)
    subject.pull(B, 3.0)
    subject.push(B, 1, update=dense(1), now=4.0)
    assert subject.stalled


def test_a_worker_that_is_silent_for_too_long_is_removed() -> None:
    """A and B get their replies at 0, B pushes at 5: A is removed at 10, B at 15."""
    subject = server()
    subject.dead_after = 10.0
    subject.begin(0.0)
    for worker in (A, B):
        subject.pull(worker, 0.0)
    subject.push(B, 1, update=dense(0), now=5.0)
    assert subject.next_tick(5.0) == 10.0
    assert subject.tick(9.9).removed == ()
    assert subject.tick(10.0).removed == (A,)
    assert subject.next_tick(10.0) == 15.0
    with pytest.raises(RejectedError, match="unknown"):
        subject.push(A, 1, update=dense(0), now=11.0)
    assert subject.tick(15.0).removed == (B,)
    assert subject.stalled


def test_steps_of_a_dropped_update_are_not_in_the_model() -> None:
    """The first of two ends the round; the other's two steps come late, and are dropped."""
    options = {"fraction": 0.5, "rounds": {"over_selection": 2.0}}
    config = FedAvg.model_validate({"name": "fedavg", **options})
    half = config.server(LAYOUT, 2, parameters=np.zeros(N, np.float32), rng=RNG)
    subject, steps = Server(half, StopRule()), {A: 3, B: 2}
    for worker in (A, B):
        subject.join(worker)
    subject.begin(0.0)
    for worker in (A, B):
        subject.pull(worker, 0.0)
    for worker, sequence, version in ((A, 1, 0), (B, 1, 0), (A, 2, 1)):
        update = replace(dense(version), steps=steps[worker])
        effects = subject.push(worker, sequence, update=update, now=1.0)
    assert [one.step_scale for one in effects.applied] == [1, 0]
    assert subject.steps == 3 + 3
