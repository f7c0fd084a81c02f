"""``runtime: auto`` is settled before anything else is done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testbed.errors import HostError
from testbed.orchestrator.runtime import Choose, settle
from testbed.runtimes import Docker, Native
from testbed.runtimes.choose import Choice, driver_of, drivers
from testbed.scenario import Scenario, load_text

TEXT = """\
name: any
algorithm: asgd
model: digits-cnn
dataset: digits
runtime: RUNTIME
workers: {count: 2, classes: {strong: {gpus: GPUS}}}
stop: {updates: 10}
"""
NATIVE = Choice(Native(name="native"), "no engine answers")
DOCKER = Choice(Docker(name="docker"), "it has the image")


def scenario(runtime: str, gpus: int = 0) -> Scenario:
    return load_text(TEXT.replace("RUNTIME", runtime).replace("GPUS", str(gpus)))


def always(choice: Choice, *, gpu: bool = False) -> Choose:
    def choose(*, gpu: bool, expected: bool = gpu) -> Choice:
        assert gpu is expected
        return choice

    return choose


def never(*, gpu: bool) -> Choice:
    raise AssertionError("nobody left that to the host")


@pytest.mark.parametrize("name", ["native", "docker"])
def test_a_runtime_that_is_named_is_taken(name: str) -> None:
    asked = scenario(name)
    settled = settle(asked, choose=never)
    assert (settled.scenario, settled.runtime.name, settled.choice) == (asked, name, None)
    assert type(settled.driver) is type(drivers()[name])


@pytest.mark.parametrize("choice", [NATIVE, DOCKER], ids=["native", "docker"])
def test_the_scenario_names_what_auto_came_to(choice: Choice) -> None:
    settled = settle(scenario("auto"), choose=always(choice))
    assert settled.scenario.runtime == settled.runtime == choice.runtime
    assert settled.choice == choice
    assert settled.scenario.model_dump(exclude={"runtime"}) == scenario("auto").model_dump(
        exclude={"runtime"}
    )


def test_gpus_are_had_from_docker_or_not_at_all() -> None:
    asked = scenario("auto", gpus=1)
    assert settle(asked, choose=always(DOCKER, gpu=True)).runtime.name == "docker"
    with pytest.raises(HostError, match=r"class strong has GPUs.*native here: no engine answers"):
        settle(asked, choose=always(NATIVE, gpu=True))


def test_what_a_choice_says() -> None:
    assert str(NATIVE) == "runtime native: no engine answers"


@pytest.mark.parametrize("make", [lambda: Native(name="native"), lambda: Docker(name="docker")])
def test_drivers_plan_without_asking_anybody(make: Callable[[], Native | Docker]) -> None:
    from testbed.orchestrator.plan import plan

    made = plan(scenario("docker"), "any-1")
    requests = driver_of(make()).requests(made)
    assert [request.node for request in requests] == ["ps", "evaluator", "w0", "w1"]
    assert {request.options["hostname"] for request in requests} == {"ps", "evaluator", "w0", "w1"}
