"""signSGD and Mem-SGD, worked by hand. All numbers are exact in float32."""

from __future__ import annotations

from typing import Any

from testbed.algorithms import MemSgd, SignSgd
from testbed.payloads import Dense, Signs

GroupOf = Any
"""Makes some workers and a server on two parameters that begin at 8 and 16; see conftest.py."""


def test_the_majority_of_the_signs_moves_every_copy(group_of: GroupOf) -> None:
    """η = 1/2: the votes are (+, -), (+, -), (-, +): (8, 16) moves to (7.5, 16.5)."""
    group = group_of(SignSgd(name="signsgd", learning_rate=0.5, momentum=0.0), 3)
    for index, gradient in enumerate([(3, -1), (1, -9), (-100, 5)]):
        group.push(index, *gradient)
    assert group.server.parameters.tolist() == [7.5, 16.5]
    for index in range(3):
        assert isinstance(group.pull(index).model, Signs)
        assert group.workers[index].parameters.tolist() == [7.5, 16.5]


def test_a_tie_is_positive_and_a_newcomer_gets_the_model(group_of: GroupOf) -> None:
    group = group_of(SignSgd(name="signsgd", learning_rate=0.5), 2)
    group.push(0, 1, 1)
    group.push(1, -1, -1)
    assert group.server.parameters.tolist() == [7.5, 15.5]
    group.server.join(1)  # it has lost its connection
    assert isinstance(group.pull(1).model, Dense)
    assert group.workers[1].parameters.tolist() == [7.5, 15.5]


def test_the_sign_is_that_of_the_momentum(group_of: GroupOf) -> None:
    """β = 1/2: v = 4, then 2 - 1 = 1, then 1/2 - 1 = -1/2."""
    group = group_of(SignSgd(name="signsgd", learning_rate=1.0, momentum=0.5), 1)
    signs = []
    for gradient in (4, -1, -1):
        update = group.step(0, gradient, 0)
        signs.append(update.payload.values()[0])
        group.server.push(0, update, 0.0)
        group.pull(0)
    assert signs == [1, 1, -1]


def test_what_is_not_sent_is_kept(group_of: GroupOf) -> None:
    """η = 1, one of two entries is sent.

    g        m + g     sent    m
    (4, 3)   (4, 3)    4 at 0  (0, 3)
    (2, 1)   (2, 4)    4 at 1  (2, 0)
    (-2, 0)  (0, 0)    none: zeros are not sent
    """
    group = group_of(MemSgd(name="mem-sgd", learning_rate=1.0, ratio=0.5), 1)
    sent = []
    for gradient in ((4, 3), (2, 1), (-2, 0)):
        update = group.step(0, *gradient)
        sent.append((update.payload.indices.tolist(), update.payload.values.tolist()))
        group.server.push(0, update, 0.0)
        group.pull(0)
    assert sent == [([0], [4]), ([1], [4]), ([], [])]
    assert group.server.parameters.tolist() == [4, 12]


def test_a_round_has_the_mean_of_the_sent_entries(group_of: GroupOf) -> None:
    """(4, 0) and (0, 6) of two workers: (8, 16) moves by (2, 3)."""
    group = group_of(MemSgd(name="mem-sgd", learning_rate=1.0, ratio=0.5), 2)
    group.push(0, 4, 1)
    group.push(1, 1, 6)
    assert group.server.parameters.tolist() == [6, 13]
