"""The contract of every algorithm: checks that run its two halves on random gradients.

The gradients are random, the clock is virtual, and the model has two tensors, so a check takes
milliseconds. `testbed check` and the tests of this package run the same checks.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import AlgorithmConfig, ServerHalf, Update, WorkerHalf
from testbed.algorithms.frame.breach import breach
from testbed.algorithms.frame.trial import (
    LAYOUT,
    UPDATES,
    WORKERS,
    Trial,
    first_ready,
    next_update,
    pulled,
    server_half,
    worker_half,
)
from testbed.errors import TestbedError
from testbed.payloads.notes import equal
from testbed.values.state import PlainState
from testbed.values.user_code import own_failures

CONTRACT_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions that our own code may raise on invalid return values of a half."""


SAVED_AFTER, LOST = range(6, 12), (1, 4)
"""Pushes before a checkpoint, and from there until the server dies: at every position in a round of
three workers, and within one round or beyond it."""


@dataclass(frozen=True)
class CheckResult:
    """The result of a check.

    Attributes:
        promise: what was checked.
        problem: what was wrong, with file and line; empty if the check passed.
        trace: the traceback, if the algorithm's own code failed.
    """

    promise: str
    problem: str = ""
    trace: str = ""


Subject = TypeVar("Subject")


def examine(config: AlgorithmConfig) -> Iterator[CheckResult]:
    """Check the whole contract of an algorithm with these options."""
    return run_checks(CHECKS, config)


def run_checks(
    checks: Iterable[Callable[[Subject], None]], subject: Subject
) -> Iterator[CheckResult]:
    """Yield the results of the checks, each of which raises an error if it fails."""
    for check in checks:
        promise = (check.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        try:
            with own_failures(""):
                check(subject)
        except TestbedError as error:
            yield CheckResult(promise, error.message, getattr(error, "trace", ""))
        except CONTRACT_ERRORS as error:
            reason = f"{type(error).__name__}: {error}"
            yield CheckResult(promise, reason, "".join(traceback.format_exception(error)))
        else:
            yield CheckResult(promise)


def check_training(config: AlgorithmConfig) -> None:
    """A training of 60 updates stays finite, in float32, and changes the model."""
    trial = Trial.of(config)
    server, halves = trial.server, [worker.half for worker in trial.workers]
    before = server.half.parameters.copy()
    trial.run()
    if server.stalled:
        raise breach(server.half, "ready", f"the training stalled: {server.finished}")
    all_halves: list[WorkerHalf[Any] | ServerHalf[Any]] = [server.half, *halves]
    for half in all_halves:
        found = f"its parameters are {half.parameters.dtype} of shape {half.parameters.shape}"
        if half.parameters.dtype != np.float32 or half.parameters.shape != (LAYOUT.size,):
            raise breach(half, "__init__", f"{found}, expected float32 of shape {(LAYOUT.size,)}")
        if not np.isfinite(half.parameters).all():
            raise breach(half, _changes(half), "its parameters became NaN or infinite")
    if np.array_equal(server.half.parameters, before):
        raise breach(server.half, "push", f"after {UPDATES} updates the model is the initial one")


def check_aliases(config: AlgorithmConfig) -> None:
    """An update does not alias the gradient, which is only lent."""
    server, half, index = pulled(config)
    update = next_update(half, seed=0, server=server, index=index)
    if not update.payload.finite:
        raise breach(half, "step", "its update changes with the gradient: copy the gradient")


def check_copy(config: AlgorithmConfig) -> None:
    """A worker copies the model from a reply, whose arrays change after `receive` returns."""
    server, half, _ = pulled(config)
    kept = half.parameters.copy()
    server.parameters[:] = 0
    if not np.array_equal(half.parameters, kept):
        what = "its parameters change with the server's; `receive` must copy them from the reply"
        raise breach(half, "receive", what)


def check_not_finite(config: AlgorithmConfig) -> None:
    """A gradient that is not finite reaches the server, which ends diverged training."""
    for bad in (np.nan, np.inf, -np.inf):
        server, half, index = pulled(config)
        update = next_update(half, seed=0, bad=bad, server=server, index=index)
        if update.payload.finite:
            raise breach(half, "step", f"the gradient contained {bad}, but its update is finite")


def check_presence(config: AlgorithmConfig) -> None:
    """Joining twice, leaving twice and leaving without having joined have no effect."""
    server = server_half(config)
    for index in range(WORKERS):
        server.join(index)
        server.join(index)
    for index in filter(server.ready, range(WORKERS)):
        server.pull(index, 0.0)
    for index in (1, 1, 99):
        server.leave(index, 0.0)
    server.join(1)
    server.join(1)
    index = first_ready(server, 1)
    half = worker_half(config, index)
    half.receive(server.pull(index, 0.0), 0.0)
    applied = server.push(index, next_update(half, seed=0), 0.0)
    if server.version != len(applied):
        found = f"version {server.version} after {len(applied)} applied updates"
        raise breach(server, "push", found)


def check_repeats(config: AlgorithmConfig) -> None:
    """A repeated pull returns the same reply, as the first one may have been lost."""
    server, half, index = pulled(config)
    for sequence in range(3):
        first = server.pull(index, 0.0)
        arrays = [array.copy() for array in first.model.arrays]
        again = server.pull(index, 0.0)
        rest = [(one.version, one.orders) for one in (first, again)]
        same = rest[0] == rest[1] and equal(first.note, again.note)
        if not same or not _equal(arrays, again.model.arrays):
            raise breach(server, "pull", "a repeated pull returned another reply")
        half.receive(again, 0.0)
        server.push(index, next_update(half, seed=sequence, server=server, index=index), 0.0)


def check_waits(config: AlgorithmConfig) -> None:
    """A worker that is not ready waits for something, and not for workers that have left."""
    server = server_half(config)
    for index in range(WORKERS):
        server.join(index)
    first = first_ready(server)
    half = worker_half(config, first)
    half.receive(server.pull(first, 0.0), 0.0)
    _check_waiting(server)
    server.push(first, next_update(half, seed=0), 0.0)
    _check_waiting(server)
    for index in range(WORKERS):
        if index != first:
            server.leave(index, 0.0)
    if not (server.ready(first) or _may_progress(server)):
        raise breach(server, "leave", f"w{first} still waits for workers that have left")


def _check_waiting(server: ServerHalf[Any]) -> None:
    """Check that every waiting worker waits for another worker, a tick or a measurement."""
    for index in range(WORKERS):
        if not (server.ready(index) or _may_progress(server) or server.awaited()):
            raise breach(server, "awaited", f"w{index} is not ready, but waits for no worker")


def check_streams(config: AlgorithmConfig) -> None:
    """The same random streams give the same updates."""
    one, other = (_first_update(config) for _ in range(2))
    if not _equal(list(one.payload.arrays), other.payload.arrays):
        what = "its update is not reproducible: draw from `rng` only"
        raise breach(worker_half(config), "step", what)


def check_restored(config: AlgorithmConfig) -> None:
    """A half restored from its state continues identically, as after a checkpoint."""
    whole = Trial.of(config)
    whole.run()
    for renew in (Trial.renew_server, Trial.renew_workers):
        trial, renewed = Trial.of(config), False
        for _ in trial.turns():
            if not renewed and trial.server.version >= UPDATES // 2:
                renewed = True
                renew(trial)
        of_server = renew is Trial.renew_server
        half: Any = trial.server.half if of_server else trial.workers[0].half
        if whole.now != trial.now or not _equal(_models(whole), _models(trial)):
            differs = "restored from its state, it did not continue identically"
            raise breach(half, "state", differs)


def check_succession(config: AlgorithmConfig) -> None:
    """A server restored from a checkpoint takes over from one that has died since."""
    for saved, lost in product(SAVED_AFTER, LOST):
        trial = Trial.of(config, updates=2 * (saved + lost))
        state: PlainState | None = None
        died = False
        for _ in trial.turns():
            if state is None and trial.pushes >= saved:
                state = trial.server.state()
            if state is not None and not died and trial.pushes >= saved + lost:
                died = True
                trial.take_over(state)
        if trial.server.stalled:
            stalled = f"after another server took over, training {trial.server.finished}"
            raise breach(trial.server.half, "join", stalled)


CHECKS: tuple[Callable[[AlgorithmConfig], None], ...] = (
    check_training,
    check_aliases,
    check_copy,
    check_not_finite,
    check_presence,
    check_repeats,
    check_waits,
    check_streams,
    check_restored,
    check_succession,
)


def _first_update(config: AlgorithmConfig) -> Update:
    """Return the first push of a worker that trains alone."""
    server, half, index = pulled(config, 2)
    return next_update(half, seed=4, server=server, index=index)


def _may_progress(server: ServerHalf[Any]) -> bool:
    """Whether a tick or a measurement may end a wait."""
    return server.next_tick(0.0) < inf or server.wants_loss()


def _models(trial: Trial) -> list[NDArray[Any]]:
    """Return the models of the server and all workers."""
    return [trial.server.half.parameters, *(one.half.parameters for one in trial.workers)]


def _changes(half: WorkerHalf[Any] | ServerHalf[Any]) -> str:
    return "step" if isinstance(half, WorkerHalf) else "push"


def _equal(ones: list[NDArray[Any]], others: Any) -> bool:
    return len(ones) == len(others) and all(map(np.array_equal, ones, others))
