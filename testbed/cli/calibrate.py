"""``testbed calibrate``: measures this machine and writes a device's profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from testbed.models import ImageShape
    from testbed.run.calibrate import Subject

SHAPE = "1x28x28"


@click.command("calibrate")
@click.argument("model")
@click.option(
    "--shape", default=SHAPE, metavar="CxHxW", help=f"Shape of a sample, or its tokens; {SHAPE}."
)
@click.option("--classes", type=click.IntRange(0), default=10, help="Number of classes; 10.")
@click.option("--batch", type=click.IntRange(1), default=32, help="Samples of a step; 32.")
@click.option(
    "--seconds", type=click.FloatRange(0.1, 600), default=5.0, help="How long to measure; 5."
)
@click.option("--threads", type=click.IntRange(1), help="Threads; by default all usable CPUs.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="File to write; else printed."
)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
def command(
    model: str,
    shape: str,
    classes: int,
    out: Path | None,
    force: bool,
    **measuring: Any,
) -> None:
    """Measure training steps of MODEL on this machine, and write a device's profile.

    MODEL is a built-in model, or a scenario, whose model and data set determine the rest. On
    another machine, such as a board, the same command gives the profile of that one.
    """
    from testbed.host.requirements import usable_cpus
    from testbed.run.calibrate import calibrate, cpu_name
    from testbed.scenario.dump import dump_data
    from testbed.telemetry.files import moment, write_atomically, writing
    from testbed.telemetry.wall import WALL

    if out is not None and out.exists() and not force:
        raise click.UsageError(f"{out} exists: --force overwrites it.")
    measuring["threads"] = measuring["threads"] or usable_cpus()
    subject = _subject(model, _parsed(shape), classes, **measuring)
    found = calibrate(subject, date=moment(WALL.read())[:10], machine=cpu_name())
    text = dump_data(found.profile.model_dump(), "profile")
    if out is None:
        click.echo(text, nl=False)
        return
    with writing(out):
        write_atomically(out, text)
    measured, predicted = found.step_seconds * 1e3, found.predicted(subject.batch) * 1e3
    click.echo(f"measured {measured:.4g} ms a step; the profile gives {predicted:.4g} ms")
    click.echo(f"wrote {out}: speed: {{profile: {_as_file(out)}}}")


def _as_file(out: Path) -> str:
    return str(out) if out.is_absolute() or len(out.parts) > 1 else f"./{out}"


def _parsed(shape: str) -> ImageShape:
    parts = shape.lower().split("x")
    if len(parts) not in (1, 3) or not all(part.isdecimal() and int(part) for part in parts):
        expected = f"CxHxW, like {SHAPE}, or a number of tokens"
        raise click.UsageError(f"--shape: found {shape!r}, expected {expected}")
    return tuple(map(int, parts))


def _subject(model: str, shape: ImageShape, classes: int, **measuring: Any) -> Subject:
    """Return what to measure: a built-in model, or that of a scenario."""
    from testbed.errors import Problem, ScenarioError
    from testbed.models import CustomModel
    from testbed.run.calibrate import Subject
    from testbed.scenario import load
    from testbed.scenario.schema import Scenario
    from testbed.scenario.schema_node import SchemaNode
    from testbed.scenario.source import find_scenario
    from testbed.scenario.synonyms import nearest
    from testbed.values.samples import inputs_of

    members = SchemaNode(Scenario).fields["model"].members
    if model in members and members[model].bare is not CustomModel:
        config = members[model].bare.model_validate({"name": model})
        if inputs_of(shape) != config.reads:
            expected = "a number, like 80" if config.reads == "tokens" else f"CxHxW, like {SHAPE}"
            raise click.UsageError(f"--shape: {model} reads {config.reads}, expected {expected}")
        return Subject(model, config, shape, classes, Path(), **measuring)
    if not find_scenario(Path(model)).is_file():
        expected = f"a scenario, or one of {', '.join(sorted(members))}"
        hint = nearest(model, list(members))
        raise ScenarioError([Problem("MODEL", 0, "", repr(model), expected, hint)])
    scenario = load(model)
    images = scenario.dataset.images
    if images is None:
        expected = "a data set with samples of a known shape"
        raise ScenarioError([Problem(model, 0, "dataset", scenario.dataset.name, expected)])
    beside = find_scenario(Path(model)).parent
    return Subject(scenario.model.name, scenario.model, *images, beside, **measuring)
