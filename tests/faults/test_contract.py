"""The contract of every fault. New members of the union are tested automatically."""

from pathlib import Path
from typing import get_args

import pytest

from testbed import faults
from testbed.faults import Fault
from testbed.faults.base import FaultConfig, PassingFault, TimedFault
from testbed.faults.timeline import Timeline

MEMBERS: tuple[type[FaultConfig], ...] = get_args(get_args(Fault)[0])
REQUIRED: dict[str, dict[str, object]] = {
    "kill": {"nodes": ("broker",), "workers": ("*",)},
    "slow": {"factor": 2.0},
    "link": {"up": {"rate": "1mbit"}},
}

every_member = pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.__name__)


@every_member
def test_it_is_named_in_the_readme_and_offered_by_the_package(member: type[FaultConfig]) -> None:
    (name,) = get_args(member.model_fields["name"].annotation)
    assert f"`{name}`" in (Path(faults.__file__).parent / "README.md").read_text(encoding="utf-8")
    assert getattr(faults, member.__name__) is member


class Doings:
    """An actuator that records its calls."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str, int]] = []

    def begin(self, fault: TimedFault, target: int) -> None:
        self.done.append(("begin", fault.kind, target))

    def end(self, fault: PassingFault, target: int) -> None:
        self.done.append(("end", fault.kind, target))


@every_member
def test_each_begins_once_and_ends_once_if_it_can_be_undone(member: type[FaultConfig]) -> None:
    if not issubclass(member, TimedFault):
        return
    (name,) = get_args(member.model_fields["name"].annotation)
    given = {"name": name, "at": {"time": "1s"}, "workers": ("w3",), **REQUIRED.get(name, {})}
    passing = issubclass(member, PassingFault)
    fault = member.model_validate(given | ({"for": "1s"} if passing else {}))
    others = ("broker",)
    doings, targets = Doings(), 4 if name == "kill" else 3
    timeline = Timeline.of([fault], ["fast"] * 4, seed=0, others=others)  # type: ignore[list-item]
    if name == "join":
        assert timeline.population.absent == {3}
    for action in timeline.due(9.0):
        timeline.carry_out(action, doings, lambda: 9.0)
    ends = [("end", name, targets)] if passing else []
    assert doings.done == [("begin", name, targets), *ends]
