"""Every check of the contract suite finds the half that violates it, by file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.algorithms.custom import open_config
from testbed.algorithms.frame.contract import CHECKS, examine
from testbed.algorithms.ssp import Ssp
from testbed.values.user_code import UserCode

SOUND = """\
import numpy as np
from testbed.algorithms.base import AlgorithmConfig, Applied, Reply, ServerHalf, Update, WorkerHalf
from testbed.payloads import Dense

class Mine(AlgorithmConfig):
    def halves(self):
        return Worker, Server

class Worker(WorkerHalf):
    def receive(self, reply, now):
        super().receive(reply, now)

    def step(self, gradient, samples, now):
        return Update(Dense(gradient.copy()), self.version, samples)

class Server(ServerHalf):
    def push(self, worker, update, now):
        self.parameters -= np.float32(0.1) * update.payload.values
        self.version += 1
        return [Applied(worker, self.version - 1, self.version - 1 - update.version)]

    def pull(self, worker, now):
        return Reply(Dense(self.parameters), self.version)

    def leave(self, worker, now):
        return ()

    def ready(self, worker):
        return True
"""


def problems(folder: Path, source: str) -> dict[str, str]:
    """The findings, by name of the check."""
    path = folder / "mine.py"
    path.write_text(source, encoding="utf-8")
    config = open_config(UserCode(path, "Mine", "algorithm"), {})
    names = [check.__name__ for check in CHECKS]
    findings = zip(names, examine(config), strict=True)
    return {name: finding.problem for name, finding in findings if finding.problem}


def test_a_correct_algorithm_passes_all_checks(tmp_path: Path) -> None:
    assert problems(tmp_path, SOUND) == {}


SAMPLING = """\

    def __post_init__(self):
        self.members, self.chosen = set(), {2}

    def join(self, worker):
        self.members.add(worker)

    def awaited(self):
        return self.chosen & self.members
"""
"""A round is one worker, the third at first; then the one after it that is there."""


def test_rounds_of_some_workers_pass(tmp_path: Path) -> None:
    source = SOUND + SAMPLING
    source = source.replace("return True", "return worker in self.chosen")
    source = source.replace(
        "return ()",
        "self.members.discard(worker)\n"
        "        self.chosen &= self.members\n"
        "        self.chosen |= set(sorted(self.members)[: not self.chosen])\n"
        "        return ()",
    )
    source = source.replace(
        "self.version += 1",
        "self.version += 1\n"
        "        order = sorted(self.members, key=lambda one: (one <= worker, one))\n"
        "        self.chosen = set(order[:1])",
    )
    assert problems(tmp_path, source) == {}


def test_a_reply_is_the_state_of_the_server_half_when_it_was_sent() -> None:
    """With a slack of 10, a worker may get a reply only after pushes of others."""
    outcomes = examine(Ssp(name="ssp", slack=10, learning_rate=0.1))
    assert [outcome.problem for outcome in outcomes if outcome.problem] == []


@pytest.mark.slow
def test_rare_pushes_pass(tmp_path: Path) -> None:
    """One push in 500 steps: 10,000 steps give 20 updates, which is enough."""
    source = SOUND.replace(
        "        return Update(",
        "        self.steps = getattr(self, 'steps', 0) + 1\n"
        "        if self.steps % 500: return None\n"
        "        return Update(",
    )
    assert problems(tmp_path, source) == {}


@pytest.mark.parametrize(
    ("was", "becomes", "check", "line", "words"),
    [
        ("gradient.copy()", "gradient", "check_aliases", 13, "changes with the gradient"),
        (
            "super().receive(reply, now)",
            "self.parameters, self.version = reply.model.values, reply.version",
            "check_copy",
            10,
            "change with the server's",
        ),
        (
            "gradient.copy()",
            "np.nan_to_num(gradient)",
            "check_not_finite",
            13,
            "the gradient contained nan, but its update is finite",
        ),
        (
            "gradient.copy()",
            "gradient * np.float32('nan')",
            "check_training",
            13,
            "is refused: w0: a value is",
        ),
        ("np.float32(0.1)", "0", "check_training", 17, "after 60 updates the model is the initial"),
        (
            "self.version += 1",
            "self.version += 2",
            "check_training",
            17,
            "version is 2 after 1 applied",
        ),
        ("- update.version)]", "+ 1, 0.0, 9)]", "check_training", 17, "sigma_max <= staleness"),
        ("return [Applied", "[Applied", "check_training", 17, "push returned None, expected a seq"),
        (
            "return Reply(",
            "return (",
            "check_training",
            22,
            "pull returned (Dense(",
        ),
        (
            "return Reply(Dense(self.parameters),",
            "return Reply(Dense(np.tile(self.parameters, 2)),",
            "check_training",
            22,
            "a reply with 248 values for a model of 124",
        ),
        (
            "Dense(self.parameters)",
            "self.parameters",
            "check_training",
            22,
            "expected one of Dense",
        ),
        (
            "self.parameters), self.version)",
            "self.parameters), self.version + 1)",
            "check_training",
            22,
            "a reply at version 1, the model is at 0",
        ),
        (
            "return Update(Dense(gradient.copy()), self.version, samples)",
            "return 3",
            "check_aliases",
            13,
            "step returned 3, expected an Update or None",
        ),
        pytest.param(
            "return Update(Dense(gradient.copy()), self.version, samples)",
            "return None",
            "check_training",
            17,
            "fewer than 6 updates in 10,000 steps and ticks",
            marks=pytest.mark.slow,
        ),
        (
            "return ()",
            "self.left = {*getattr(self, 'left', ()), worker}; 1 / (worker != 99)",
            "check_presence",
            26,
            "ZeroDivisionError",
        ),
        (
            "self.parameters), self.version)",
            "self.parameters), self.version, note={'n': np.random.default_rng().random()})",
            "check_repeats",
            22,
            "a repeated pull returned another reply",
        ),
        (
            "return True",
            "return self.version == 0\n\n    def awaited(self):\n        return ()",
            "check_waits",
            31,
            "w0 is not ready, but waits for no worker",
        ),
        (
            "return True",
            "return self.version == 0\n\n    def awaited(self):\n        return [1]",
            "check_waits",
            25,
            "w0 still waits for workers that have left",
        ),
        (
            "gradient.copy()",
            "gradient + np.float32(np.random.default_rng().random())",
            "check_streams",
            13,
            "its update is not reproducible",
        ),
        (
            "super().receive(reply, now)",
            "newest = max(self.version, reply.version); "
            "super().receive(reply, now); self.version = newest",
            "check_succession",
            13,
            "is from the future, the model is at",
        ),
    ],
)
def test_a_violation_is_found(
    was: str, becomes: str, check: str, line: int, words: str, tmp_path: Path
) -> None:
    assert was in SOUND
    found = problems(tmp_path, SOUND.replace(was, becomes))
    assert words in found[check]
    assert found[check].startswith(f"mine.py:{line}: ")


@pytest.mark.parametrize(
    ("added", "found"),
    [
        ("__init__(self, config):", r"Worker.__init__\(\) takes 2 positional arguments but 5 were"),
        ("__init__(self, *given):", r"Worker.__init__\(\) has not set `config`"),
        (
            "__init__(self, config, *given):\n        self.config = config",
            r"Worker.__init__\(\) has not set `parameters`",
        ),
        ("__post_init__(self):", r"Worker.__post_init__\(\) has not set `parameters`"),
    ],
)
def test_a_half_that_its_base_could_not_set_up_is_named(
    added: str, found: str, tmp_path: Path
) -> None:
    was = "class Worker(WorkerHalf):\n"
    own = f"{was}    def {added}\n        self.mine = 0\n\n"
    broken = problems(tmp_path, SOUND.replace(was, own))
    assert re.match(rf"mine\.py:10: {found}", broken["check_training"])


def test_a_half_may_replace_its_config_at_its_creation(tmp_path: Path) -> None:
    was = "class Worker(WorkerHalf):\n"
    own = (
        f"{was}    def __post_init__(self):\n"
        "        super().__post_init__()\n"
        "        self.config = self.config.model_copy()\n\n"
    )
    assert not problems(tmp_path, SOUND.replace(was, own))
