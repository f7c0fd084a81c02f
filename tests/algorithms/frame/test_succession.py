"""A server that replaces a dead one: what is lost, and which workers continue unaffected."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pydantic import TypeAdapter

from testbed.algorithms import Algorithm, Asgd
from testbed.algorithms.base import AlgorithmConfig, Update
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.stop import StopRule
from testbed.errors import RejectedError
from testbed.payloads import Dense
from testbed.payloads.layout import Layout
from testbed.values.state import PlainState

LAYOUT = Layout(("weight",), ((2,),))
A, B = 0, 1


def server() -> Server:
    """A server with a model of zeros; learning rate 1/2."""
    half = Asgd(name="asgd", learning_rate=0.5).server(
        LAYOUT, 2, parameters=np.zeros(2, np.float32), rng=np.random.default_rng(0)
    )
    return Server(half, StopRule())


def ones(version: int) -> Update:
    return Update(Dense(np.ones(2, np.float32)), version, samples=1)


def successor(state: PlainState) -> Server:
    subject = server()
    subject.restore(PlainState(json.loads(json.dumps(state.tree)), state.arrays))
    subject.take_over()
    return subject


@pytest.fixture
def state() -> PlainState:
    """A and B have joined; A has pushed once and got version 1, B has version 0."""
    subject = server()
    for worker in (A, B):
        subject.join(worker)
        subject.pull(worker, 0.0)
    subject.begin(0.0)
    subject.push(A, 1, update=ones(0), now=1.0)
    return subject.state()


def test_a_push_on_a_model_from_before_the_checkpoint_is_applied(state: PlainState) -> None:
    subject = successor(state)
    assert subject.half.parameters.tolist() == [-0.5, -0.5]
    effects = subject.push(B, 1, update=ones(0), now=2.0)
    assert (effects.accepted, effects.lost, subject.version) == (True, 0, 2)
    # Staleness 1 divides the rate by 1: -0.5 - 0.5
    assert subject.half.parameters.tolist() == [-1.0, -1.0]


def test_a_push_on_a_lost_model_is_counted_and_answered(state: PlainState) -> None:
    """A pushed its 2nd and 3rd to the dead server, and now sends its 4th."""
    subject = successor(state)
    effects = subject.push(A, 4, update=ones(7), now=2.0)
    assert (effects.accepted, effects.lost, effects.applied) == (False, 3, ())
    (release,) = effects.releases
    assert release.reply is not None
    assert (release.worker, release.reply.version) == (A, 1)
    assert subject.half.parameters.tolist() == [-0.5, -0.5]
    effects = subject.push(A, 5, update=ones(1), now=3.0)  # built on that reply
    assert (effects.accepted, effects.lost, subject.version) == (True, 0, 2)


@pytest.mark.parametrize("name", ["quant-dp", "slim-dp"])
def test_a_worker_with_a_lost_model_gets_the_whole_one(name: str) -> None:
    """This server did not send the worker's model: an update or a part of it would not fit."""
    config = TypeAdapter[AlgorithmConfig](Algorithm).validate_python(name)

    def fresh() -> Server:
        parameters = np.zeros(2, np.float32)
        half = config.server(LAYOUT, 1, parameters=parameters, rng=np.random.default_rng(0))
        return Server(half, StopRule())

    first, worker = fresh(), config.worker(LAYOUT, 1, rng=np.random.default_rng(1))
    first.join(A)
    (release,) = first.pull(A, 0.0).releases
    first.begin(0.0)
    for sequence in (1, 2, 3):
        assert release.reply is not None
        worker.receive(release.reply, 0.0)
        update = worker.step(np.ones(2, np.float32), 1, 0.0)
        assert update is not None
        if sequence == 2:
            state = first.state()
        (release,) = first.push(A, sequence, update=update, now=1.0).releases
        assert release.reply is not None
        assert not isinstance(release.reply.model, Dense)
    second = fresh()
    second.restore(PlainState(json.loads(json.dumps(state.tree)), state.arrays))
    second.take_over()
    (release,) = second.push(A, 3, update=update, now=2.0).releases
    assert release.reply is not None
    assert isinstance(release.reply.model, Dense)
    assert release.reply.model.values.tolist() == second.half.parameters.tolist()


def test_a_repeat_of_a_push_in_the_checkpoint_is_not_a_loss(state: PlainState) -> None:
    subject = successor(state)
    effects = subject.push(A, 1, update=ones(0), now=2.0)
    assert (effects.accepted, effects.lost) == (False, 0)
    assert [release.worker for release in effects.releases] == [A]


def test_only_the_first_push_may_be_out_of_order(state: PlainState) -> None:
    subject = successor(state)
    subject.push(A, 4, update=ones(7), now=2.0)
    with pytest.raises(RejectedError, match="out of order, expected 5"):
        subject.push(A, 9, update=ones(1), now=3.0)


def test_orders_are_newer_than_any_lost_orders(state: PlainState) -> None:
    subject = successor(state)
    assert subject.standing(A).number == 2**20
