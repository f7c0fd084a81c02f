"""The contract of every fault. New members of the union are tested automatically."""

import pkgutil
from importlib import import_module
from typing import get_args

import pytest

from testbed import faults
from testbed.faults import Fault
from testbed.faults.base import FaultConfig, LinkChange, PassingFault, TimedFault

MEMBERS: tuple[type[FaultConfig], ...] = get_args(get_args(Fault)[0])
NOT_FAULTS = {"availability", "base", "check", "population", "timeline"}

REQUIRED: dict[str, dict[str, object]] = {
    "kill": {"nodes": ("broker",)},
    "slow": {"factor": 2.0},
    "link": {"up": {"rate": "1mbit"}},
}

every_member = pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.__name__)


class Doings:
    """An actuator that records its calls."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []

    def freeze(self, worker: int, *, for_good: bool) -> None:
        self.done.append(("freeze for good" if for_good else "freeze", worker))

    def thaw(self, worker: int) -> None:
        self.done.append(("thaw", worker))

    def kill(self, worker: int, *, for_good: bool) -> None:
        self.done.append(("kill", worker))

    def leave(self, worker: int) -> None:
        self.done.append(("leave", worker))

    def join(self, worker: int) -> None:
        self.done.append(("join", worker))

    def partition(self, worker: int) -> None:
        self.done.append(("partition", worker))

    def heal(self, worker: int) -> None:
        self.done.append(("heal", worker))

    def slow(self, worker: int, factor: float) -> None:
        self.done.append(("slow" if factor > 1 else "as fast as before", worker))

    def change_link(self, worker: int, up: LinkChange, down: LinkChange) -> None:
        self.done.append(("link", worker))

    def reset_link(self, worker: int) -> None:
        self.done.append(("reset", worker))


def test_every_file_is_a_member_of_the_union() -> None:
    modules = {one.name for one in pkgutil.iter_modules(faults.__path__)} - NOT_FAULTS
    listed = {member.__module__.rpartition(".")[2] for member in MEMBERS}
    missing = [f"import it in testbed/faults/__init__.py: {name}" for name in modules - listed]
    assert not missing


@every_member
def test_the_file_is_named_like_the_fault(member: type[FaultConfig]) -> None:
    (name,) = get_args(member.model_fields["name"].annotation)
    assert import_module(f"testbed.faults.{name}").__dict__[member.__name__] is member


@every_member
def test_each_fault_does_one_thing_and_undoes_it(member: type[FaultConfig]) -> None:
    if not issubclass(member, TimedFault):
        return
    (name,) = get_args(member.model_fields["name"].annotation)
    given = {"name": name, "at": {"time": "1s"}, **REQUIRED.get(name, {})}
    passing = issubclass(member, PassingFault)
    fault = member.model_validate(given | ({"for": "1s"} if passing else {}))
    doings = Doings()
    fault.apply(doings, 3)
    assert doings.done == [(name, 3)]
    if isinstance(fault, PassingFault):
        fault.undo(doings, 3)
        assert len(doings.done) == 2
