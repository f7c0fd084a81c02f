"""The contract of every algorithm. New members of the union are tested automatically."""

import pkgutil
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from annotated_types import Ge, Le, Lt
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from testbed import algorithms
from testbed.algorithms import Algorithm, CustomAlgorithm
from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.frame.contract import CHECKS, examine
from testbed.algorithms.frame.trial import LAYOUT, WORKERS, next_update, server_half, worker_half
from testbed.algorithms.parts.local_training import LocalTraining
from testbed.errors import RejectedError
from testbed.payloads import Dense, Factors, Keyed, Payload, Quantized, Signs, Sparse
from testbed.payloads.keyed import signature_of
from testbed.values.units import Duration

MEMBERS: tuple[type[AlgorithmConfig], ...] = tuple(
    member for member in get_args(get_args(Algorithm)[0]) if member is not CustomAlgorithm
)
"""Those of this package; test_custom.py tries one of a user's."""

NOT_ALGORITHMS = {"base", "config", "custom", "frame", "optimizers", "parts", "selection"}

every_member = pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.__name__)


def name_of(member: type[AlgorithmConfig]) -> str:
    """The algorithm's text in a scenario."""
    (name,) = get_args(member.model_fields["name"].annotation)
    return str(name)


def configured(member: type[AlgorithmConfig]) -> AlgorithmConfig:
    """The member with its defaults, as in a scenario that only names it."""
    return TypeAdapter[AlgorithmConfig](Algorithm).validate_python(name_of(member))


def unlisted(modules: set[str], members: tuple[type[AlgorithmConfig], ...]) -> list[str]:
    """The lines to add to the union for modules whose algorithm is missing."""
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


def test_a_module_missing_from_the_union_is_named() -> None:
    (line,) = unlisted({"base", "asgd", "adacomp"}, (algorithms.Asgd,))
    assert line == (
        "add to testbed/algorithms/__init__.py: "
        "`from testbed.algorithms.adacomp import AdaComp`, and name it in the union"
    )


@every_member
def test_the_name_in_a_scenario_equals_the_module_name(member: type[AlgorithmConfig]) -> None:
    assert name_of(member) == member.__module__.rpartition(".")[2].replace("_", "-")


@every_member
def test_the_file_is_short_and_cites_its_paper(member: type[AlgorithmConfig]) -> None:
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


ENDS: dict[str, tuple[object, ...]] = {
    "decay": (0.01, 1.0),
    "clip": (None, {"norm": 1e-6}, {"value": 0.5}),
    "decay_steps": (1, 30),
    "alpha": (0.05, 1.0),
    "check_period": ("1s", "2min"),
    "commit_rate": (None, 0.5, 100.0),
    "local_epochs": (1, 10),
    "local_steps": (1, 10),
    "milestones": ((), (1, 2)),
    "optimizer": (
        "adamw",
        "adagrad",
        {"sgd": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}},
        {"rmsprop": {"momentum": 0.9}},
    ),
    "rounds": (
        {"over_selection": 1.5, "deadline": "5s", "late": "damp", "max_staleness": 2},
        {"deadline": "3s"},
    ),
    "select": ("oort", "loss", {"availability": {"prefer": "least"}}),
    "schedule": (
        {"step": {"every": 1, "by": "updates"}},
        {"cosine": {"over": 9, "warm_up": 3, "by": "updates"}},
        {"constant": {"warm_up": 5, "by": "seconds"}},
    ),
    "min_commit_interval": (None, "1s", "2min"),
}
"""Of options whose ends are not those of their type, or are too far off to be reached in small."""

TOGETHER: dict[str, dict[str, object]] = {
    "alpha": {"beta": 0.5, "epsilon": 0.0},
    "beta": {"alpha": 0.5},
    "check_period": {"epoch": "100h"},
    "decay": {"decay_steps": 5},
    "decay_steps": {"decay": 0.5},
    "delta": {"ratio": 0.1},
    "epoch": {"check_period": "500ms"},
    "epsilon": {"alpha": 1.0},
    "max_batch": {"min_batch": 1},
    "milestones": {"epoch": 100},
    "min_batch": {"max_batch": 100},
    "norm": {"ratio": 0.1},
    "rounds": {"fraction": 0.6, "select": "oort"},
    "select": {"fraction": 0.6},
}
"""What an option needs, or is without effect without; of the algorithms that have it too."""

SHARED = LocalTraining.model_fields.keys() - {"learning_rate"} | {"rounds", "select"}
WITH_SHARED = (algorithms.FedAvg, algorithms.FedBuff)
"""The only ones, with and without rounds, whose options of local training are varied."""

FEW_STEPS: dict[str, object] = {"local_steps": 3, "check_period": "10s"}
"""Algorithms that take this many steps, or this long, for each push: 40 by default."""


def ends(name: str, field: FieldInfo) -> tuple[object, ...]:
    """Both ends of an option: the allowed numbers, up to 30; otherwise all values."""
    if name in ENDS:
        return ENDS[name]
    kind, metadata = field.annotation, list(field.metadata)
    if type(None) in get_args(kind):  # an Annotated with its own bounds
        inner = next(one for one in get_args(kind) if one is not type(None))
        metadata = list(get_args(inner)[1:])
        metadata = [bound for one in metadata for bound in getattr(one, "metadata", [one])]
        return (None, *numbers(get_args(inner)[0], metadata))
    if kind is bool:
        return (False, True)
    return get_args(kind) or numbers(kind, metadata)


def numbers(kind: object, metadata: list[Any]) -> tuple[object, ...]:
    if kind is Duration:
        return ("1s", "1h")
    least = next((one.ge for one in metadata if isinstance(one, Ge)), 1e-6)
    below = any(isinstance(one, Lt) for one in metadata)
    most = next((one.le for one in metadata if isinstance(one, Le)), 0.99 if below else 1.0)
    return (least, min(most, 30))


def companions(member: type[AlgorithmConfig], name: str) -> dict[str, object]:
    """The options that must be set together with an extreme value."""
    fields = member.model_fields
    few = {
        key: one
        for key, one in FEW_STEPS.items()
        if key in fields and isinstance(fields[key].default, int | Duration)
    }
    return few | {key: one for key, one in TOGETHER.get(name, {}).items() if key in fields}


EXTREMES = [
    pytest.param(member, {**needed, name: end}, id=f"{member.__name__}-{name}-{end}")
    for member in MEMBERS
    for name, field in member.model_fields.items()
    if name != "name" and (name not in SHARED or member in WITH_SHARED)
    for end in ends(name, field)
    for needed in [companions(member, name)]
]


@pytest.mark.slow  # there are hundreds
@pytest.mark.parametrize(("member", "options"), EXTREMES)
def test_the_contract_holds_with_options_at_either_end(
    member: type[AlgorithmConfig], options: dict[str, object]
) -> None:
    adapter = TypeAdapter[AlgorithmConfig](Algorithm)
    config = adapter.validate_python({"name": name_of(member), **options})
    assert [one for one in examine(config) if one.problem] == []


@every_member
def test_every_algorithm_keeps_the_contract(member: type[AlgorithmConfig]) -> None:
    findings = list(examine(configured(member)))
    assert len(findings) == len(CHECKS)
    assert [one for one in findings if one.problem] == []


@every_member
def test_a_worker_that_is_not_ready_awaits_another(member: type[AlgorithmConfig]) -> None:
    """Before the first push all are ready; after one, those that are not await some worker."""
    config = configured(member)
    server = server_half(config)
    halves = [worker_half(config, index) for index in range(WORKERS)]
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


TAKEN: dict[str, set[type[Payload]]] = {
    "comp-asgd": {Sparse},
    "adacomp": {Sparse},
    "scadles": {Dense, Sparse},
    "quant-dp": {Quantized},
    "slim-dp": {Keyed},
    "signsgd": {Signs},
    "mem-sgd": {Sparse},
    "powersgd": {Factors},
}
"""Kinds of payload that a push may be; of the others, Dense."""

FORGED: tuple[Payload, ...] = (
    Dense(np.ones(LAYOUT.size, np.float32)),
    Sparse(np.array([3], np.int32), np.ones(1, np.float32)),
    Keyed(
        signature_of(np.array([3], np.int32)),
        *(np.array([3], np.int32), np.ones(1, np.float32)),
        *(np.array([5], np.int32), np.ones(1, np.float32)),
    ),
    Quantized(np.ones(2, np.float32), np.ones(LAYOUT.size, np.int8)),  # a bucket for each tensor
    Signs.of_values(np.ones(LAYOUT.size, np.float32)),
    Factors(np.ones(60, np.float32)),  # two columns of P for 30 rows
)


@every_member
def test_a_payload_of_another_kind_is_refused_on_arrival(member: type[AlgorithmConfig]) -> None:
    """None of it remains when the others push: their round is as if it had never arrived."""
    config, taken = configured(member), set()
    for payload in FORGED:
        server = server_half(config)
        halves = [worker_half(config, index) for index in range(WORKERS)]
        for index in range(WORKERS):
            server.join(index)
        updates = []
        for index, half in enumerate(halves):
            half.receive(server.pull(index, 0.0), 0.0)
            updates.append(next_update(half, seed=index))
        forged = replace(updates[0], payload=payload)
        try:
            server.push(0, forged, 0.0)
        except RejectedError as error:
            assert type(payload).__name__ in error.message
            server.push(0, updates[0], 0.0)
        else:
            taken.add(type(payload))
        for index in (1, 2):
            server.push(index, updates[index], 0.0)
        assert np.isfinite(server.parameters).all()
    assert taken == TAKEN.get(name_of(member), {Dense})


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
