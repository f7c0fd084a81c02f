"""``runtime: auto`` is resolved before anything else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import ScenarioError, TestbedError
from testbed.plan.make import plan
from testbed.plan.written import plan_text
from testbed.run.runtime import driver_for, drivers, runtime_of
from testbed.run.settle import Choice, settle
from testbed.runtimes import Docker, Native
from testbed.scenario import Scenario, load_text
from testbed.telemetry.folder import RunFolder

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


EVALUATOR = TEXT.replace("RUNTIME", "auto").replace("GPUS", "0") + "evaluate: {gpus: 0.5}\n"


def always(choice: Choice, *, gpu: bool = False) -> Callable[..., Choice]:
    def choose(*, gpu: bool, expected: bool = gpu) -> Choice:
        assert gpu is expected
        return choice

    return choose


def never(*, gpu: bool) -> Choice:
    raise AssertionError("the scenario sets this, it is not left to the host")


@pytest.mark.parametrize("name", ["native", "docker"])
def test_a_named_runtime_is_used(name: str) -> None:
    asked = scenario(name)
    settled = settle(asked, choose=never)
    assert (settled.scenario, settled.runtime.name, settled.choice) == (asked, name, None)
    assert type(settled.runtime.driver()) is type(drivers()[name])


@pytest.mark.parametrize("choice", [NATIVE, DOCKER], ids=["native", "docker"])
def test_the_scenario_names_the_resolved_runtime(choice: Choice) -> None:
    settled = settle(scenario("auto"), choose=always(choice))
    assert settled.scenario.runtime == settled.runtime == choice.runtime
    assert settled.choice == choice
    assert settled.scenario.model_dump(exclude={"runtime"}) == scenario("auto").model_dump(
        exclude={"runtime"}
    )


@pytest.mark.parametrize("asked", [scenario("auto", gpus=1), load_text(EVALUATOR)])
def test_docker_is_chosen_only_if_it_has_the_image_for_gpus(asked: Scenario) -> None:
    assert settle(asked, choose=always(DOCKER, gpu=True)).runtime.name == "docker"
    assert settle(asked, choose=always(NATIVE, gpu=True)).runtime.name == "native"


def test_the_message_of_a_choice() -> None:
    assert str(NATIVE) == "runtime native: no engine answers"


def run_with(place: Path, runtime: str, *, planned: bool = True) -> RunFolder:
    """The folder of a run, with a plan or without, as when a damaged one was deleted."""
    text = TEXT.replace("RUNTIME", runtime).replace("GPUS", "0")
    made = plan_text(plan(load_text(text), "r1")) if planned else ""
    return RunFolder.create(
        place, "r1", scenario="s", text=text, classes=["default"], now=0.0, plan=made
    )


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ("native", Native(name="native")),
        ("docker", Docker(name="docker")),
        ("{docker: {image: 'mine:1'}}", Docker(name="docker", image="mine:1")),
    ],
)
def test_the_runtime_of_a_run(
    tmp_path: Path, runtime: str, expected: Native | Docker, planned: bool
) -> None:
    assert runtime_of(run_with(tmp_path, runtime, planned=planned)) == expected


def test_a_folder_without_its_runtime(tmp_path: Path) -> None:
    assert runtime_of(RunFolder(tmp_path / "gone")) == Native(name="native")
    folder = run_with(tmp_path, "docker", planned=False)
    folder.scenario.write_text("runtime: [\n")
    assert runtime_of(folder) == Native(name="native")


def test_the_runtime_is_not_guessed_from_an_unreadable_plan(tmp_path: Path) -> None:
    folder = run_with(tmp_path, "docker")
    folder.plan.write_text("{")
    with pytest.raises(TestbedError, match=r"plan\.json: not a valid plan"):
        runtime_of(folder)


def test_a_simulated_run_has_no_driver(tmp_path: Path) -> None:
    text = TEXT.replace("RUNTIME", "simulated").replace("gpus: GPUS", "speed: 1s")
    made = plan(load_text(text), "r1")
    with pytest.raises(ScenarioError, match=r"plan\.json: runtime: found simulated"):
        driver_for(RunFolder(tmp_path), made)
