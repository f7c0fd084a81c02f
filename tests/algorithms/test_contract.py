"""What every algorithm promises. A new member of the union is covered the moment it is listed."""

import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from pydantic import TypeAdapter

from testbed import algorithms
from testbed.algorithms import Algorithm
from testbed.algorithms.base import AlgorithmConfig, ServerHalf, Update, WorkerHalf
from testbed.frame.server import Server
from testbed.frame.stop import StopRule
from testbed.payloads import Vector
from testbed.payloads.layout import Layout

MEMBERS: tuple[type[AlgorithmConfig], ...] = get_args(get_args(Algorithm)[0])
NOT_ALGORITHMS = {"base", "messages", "parts"}
LAYOUT = Layout(("weight", "bias"), ((30, 4), (4,)))
WORKERS = 3

every_member = pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.__name__)


def name_of(member: type[AlgorithmConfig]) -> str:
    """What stands in a scenario."""
    (name,) = get_args(member.model_fields["name"].annotation)
    return str(name)


def configured(member: type[AlgorithmConfig]) -> AlgorithmConfig:
    """The member with its defaults, as a scenario that names it and nothing else has it."""
    return TypeAdapter[AlgorithmConfig](Algorithm).validate_python(name_of(member))


def server_half(member: type[AlgorithmConfig]) -> ServerHalf:
    rng = np.random.default_rng(0)
    parameters = rng.standard_normal(LAYOUT.size).astype(np.float32)
    return configured(member).server(LAYOUT, WORKERS, parameters=parameters, rng=rng)


def worker_halves(member: type[AlgorithmConfig]) -> list[WorkerHalf]:
    config = configured(member)
    return [
        config.worker(LAYOUT, WORKERS, rng=np.random.default_rng(index)) for index in range(WORKERS)
    ]


def gradient(seed: int) -> Vector:
    return np.random.default_rng(seed).standard_normal(LAYOUT.size).astype(np.float32)


def next_update(half: WorkerHalf, *, seed: int) -> Update:
    """Steps until the worker half pushes."""
    for local_step in range(1000):
        lent = gradient(seed + local_step)
        update = half.step(lent, 10, float(local_step))
        if update is not None:
            lent[:] = np.nan  # whoever held on to the gradient sends this
            return update
    raise AssertionError("1000 steps and nothing was pushed")


def unlisted(modules: set[str], members: tuple[type[AlgorithmConfig], ...]) -> list[str]:
    """What to add to the union for every module whose algorithm is not in it."""
    listed = {member.__module__ for member in members}
    lines = []
    for name in sorted(modules - NOT_ALGORITHMS):
        module = import_module(f"testbed.algorithms.{name}")
        own = [
            value.__name__
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, AlgorithmConfig)
            and value.__module__ == module.__name__
        ]
        if module.__name__ not in listed:
            line = f"from {module.__name__} import {', '.join(own) or '...'}"
            lines.append(
                f"add to testbed/algorithms/__init__.py: `{line}`, and name it in the union"
            )
    return lines


def test_every_module_is_in_the_union() -> None:
    modules = {module.name for module in pkgutil.iter_modules(algorithms.__path__)}
    lines = unlisted(modules, MEMBERS)
    assert not lines, "\n".join(lines)


def test_a_module_that_is_not_in_the_union_is_named() -> None:
    (line,) = unlisted({"base", "asgd", "adacomp"}, (algorithms.Asgd,))
    assert line == (
        "add to testbed/algorithms/__init__.py: "
        "`from testbed.algorithms.adacomp import AdaComp`, and name it in the union"
    )


@every_member
def test_the_name_in_a_scenario_is_that_of_the_module(member: type[AlgorithmConfig]) -> None:
    assert name_of(member) == member.__module__.rpartition(".")[2].replace("_", "-")


@every_member
def test_the_file_is_short_and_opens_like_a_paper(member: type[AlgorithmConfig]) -> None:
    module = sys.modules[member.__module__]
    assert module.__file__ is not None
    assert len(Path(module.__file__).read_text(encoding="utf-8").splitlines()) < 150
    opening = module.__doc__ or ""
    assert re.search(r"(19|20)\d\d", opening), "no citation with a year"
    assert "Symbols" in opening
    assert "Deviations:" in opening


@every_member
def test_options_have_defaults_and_unknown_ones_are_refused(member: type[AlgorithmConfig]) -> None:
    adapter = TypeAdapter[AlgorithmConfig](Algorithm)
    config = configured(member)
    assert isinstance(config, member)
    assert adapter.validate_python(config.model_dump()) == config
    with pytest.raises(ValueError, match="Extra inputs"):
        adapter.validate_python({"name": name_of(member), "learning_rat": 0.1})


@every_member
def test_training_stays_finite_and_in_float32(member: type[AlgorithmConfig]) -> None:
    server = Server(server_half(member), StopRule(updates=60))
    before = server.half.parameters.copy()
    halves = worker_halves(member)
    for index in range(WORKERS):
        server.join(index)
    server.begin(0.0)
    released = [release for index in range(WORKERS) for release in server.pull(index, 0.0).releases]
    sequences = [0] * WORKERS
    while not server.finished:
        release = released.pop(0)  # whoever has had a reply for the longest time goes on
        assert release.reply is not None
        half = halves[release.worker]
        half.receive(release.reply, 0.0)
        update = next_update(half, seed=server.version)
        sequences[release.worker] += 1
        effects = server.push(release.worker, sequences[release.worker], update=update, now=0.0)
        assert effects.accepted
        for applied in effects.applied:
            assert applied.version < server.version
            assert 0 <= applied.sigma_mean <= applied.sigma_max <= max(applied.staleness, 0)
            assert 0 < applied.step_scale <= 1
        released.extend(effects.releases)
    for vector in (server.half.parameters, *(half.parameters for half in halves)):
        assert vector.dtype == np.float32
        assert vector.shape == (LAYOUT.size,)
        assert np.isfinite(vector).all()
    assert not np.array_equal(server.half.parameters, before)


@every_member
def test_an_update_does_not_alias_the_gradient(member: type[AlgorithmConfig]) -> None:
    server = server_half(member)
    half = worker_halves(member)[0]
    server.join(0)
    half.receive(server.pull(0, 0.0), 0.0)
    update = next_update(half, seed=0)  # which overwrites the gradient with NaN afterwards
    assert np.isfinite(update.payload.values).all()


@every_member
def test_a_worker_keeps_a_copy_of_the_model(member: type[AlgorithmConfig]) -> None:
    server = server_half(member)
    half = worker_halves(member)[0]
    server.join(0)
    half.receive(server.pull(0, 0.0), 0.0)
    pulled = half.parameters.copy()
    assert np.array_equal(pulled, server.parameters)
    server.parameters[:] = 0
    assert np.array_equal(half.parameters, pulled)


@every_member
def test_a_gradient_that_is_not_finite_reaches_the_server(member: type[AlgorithmConfig]) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        server = server_half(member)
        half = worker_halves(member)[0]
        server.join(0)
        half.receive(server.pull(0, 0.0), 0.0)
        lent = gradient(0)
        lent[77] = bad
        update = half.step(lent, 10, 0.0)
        while update is None:
            update = half.step(lent, 10, 0.0)
        assert not np.isfinite(update.payload.values).all()


@every_member
def test_joining_twice_and_leaving_twice_are_harmless(member: type[AlgorithmConfig]) -> None:
    server = server_half(member)
    for index in range(WORKERS):
        server.join(index)
        server.join(index)
        server.pull(index, 0.0)
    server.leave(1, 0.0)
    server.leave(1, 0.0)
    server.leave(99, 0.0)
    server.join(1)
    server.pull(1, 0.0)
    server.join(1)
    half = worker_halves(member)[1]
    half.receive(server.pull(1, 0.0), 0.0)
    applied = server.push(1, next_update(half, seed=0), 0.0)
    assert server.version == len(applied)
    assert np.isfinite(server.parameters).all()


@every_member
def test_a_pull_that_is_repeated_brings_the_same(member: type[AlgorithmConfig]) -> None:
    """Its first answer may have been lost."""
    server = server_half(member)
    half = worker_halves(member)[0]
    server.join(0)
    for sequence in range(3):
        first = server.pull(0, 0.0)
        arrays = [array.copy() for array in first.model.arrays]
        again = server.pull(0, 0.0)
        assert (again.version, again.orders, again.note) == (
            first.version,
            first.orders,
            first.note,
        )
        for one, other in zip(arrays, again.model.arrays, strict=True):
            assert np.array_equal(one, other)
        half.receive(again, 0.0)
        server.push(0, next_update(half, seed=sequence), 0.0)


@every_member
def test_who_is_ready_is_awaited_by_nobody(member: type[AlgorithmConfig]) -> None:
    """Before the first push all are ready; after one, those that are not have somebody to await."""
    server, halves = server_half(member), worker_halves(member)
    for index in range(WORKERS):
        server.join(index)
    for index in range(WORKERS):
        assert server.ready(index)
        halves[index].receive(server.pull(index, 0.0), 0.0)
    server.push(0, next_update(halves[0], seed=0), 0.0)
    if not server.ready(0):
        assert set(server.awaited()) == {1, 2}
    for index in (1, 2):
        server.leave(index, 0.0)
    assert server.ready(0)


@every_member
def test_the_same_streams_give_the_same_updates(member: type[AlgorithmConfig]) -> None:
    def first_update() -> Update:
        half, server = worker_halves(member)[2], server_half(member)
        server.join(2)
        half.receive(server.pull(2, 0.0), 0.0)
        return next_update(half, seed=4)

    one, other = first_update(), first_update()
    assert one.payload.values.tobytes() == other.payload.values.tobytes()


def test_reading_a_scenario_does_not_import_torch() -> None:
    code = "import sys, testbed.algorithms; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("options", [{"ratio": 0}, {"ratio": 1.01}, {"ratio": "0.1"}])
@pytest.mark.parametrize("name", ["comp-asgd", "adacomp"])
def test_a_ratio_is_a_share_above_zero(name: str, options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="ratio"):
        TypeAdapter(Algorithm).validate_python({"name": name, **options})


@pytest.mark.parametrize("learning_rate", [0, -0.1, float("inf"), float("nan"), True])
@every_member
def test_a_learning_rate_is_a_number_above_zero(
    member: type[AlgorithmConfig], learning_rate: float
) -> None:
    with pytest.raises(ValueError, match="learning_rate"):
        TypeAdapter(Algorithm).validate_python(
            {"name": name_of(member), "learning_rate": learning_rate}
        )
