"""``testbed init``, ``validate`` and ``schema``: files of scenarios and studies."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.options import overrides, print_json, settings_option
from testbed.errors import Problem, ScenarioError, UserCodeError

if TYPE_CHECKING:
    from testbed.scenario import Override, Scenario


@click.command("init")
@click.argument("name", required=False)
@click.option(
    "--from",
    "example",
    default="first",
    show_default=True,
    metavar="SCENARIO",
    help="Copy this scenario that ships with testbed, such as quickstart or adacomp/paper.",
)
@click.option(
    "--from-containerlab",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Convert a topology file of containerlab to a workload.",
)
@click.option(
    "--from-fogify",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Convert a model of Fogify, a Compose file.",
)
@click.option(
    "--from-kollaps",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Convert an experiment of Kollaps, an XML file.",
)
def init(name: str | None, example: str, **topologies: Path | None) -> None:
    """Create NAME.yaml in the current folder, a commented scenario that can be run unchanged.

    NAME, by default first, is also the name of the scenario. Python files that it uses are copied
    too. A topology of another tool becomes a workload, by default with the name of its file; what
    testbed cannot have of it is printed with its line.
    """
    from testbed.values.fields import check_name

    name = name and name.removesuffix(".yaml")
    given = {kind.removeprefix("from_"): path for kind, path in topologies.items() if path}
    for kind, path in given.items():
        if len(given) > 1:
            found = " and ".join(f"--from-{one}" for one in given)
            raise ScenarioError([Problem("testbed init", 0, "", found, "one of them")])
        _import(kind, path, name=name)
        return
    name = name or "first"
    check_name(name, option="NAME")
    _copy(name, example)


def _import(kind: str, path: Path, *, name: str | None) -> None:
    """Write the scenario that another tool's topology becomes, and what it does not have."""
    from testbed.scenario.imports import import_topology
    from testbed.values.fields import check_name

    name = name or re.sub(r"[^A-Za-z0-9_-]+", "-", path.name.split(".")[0]).strip("-_")[:40]
    check_name(name, option="NAME")
    file = Path(f"{name}.yaml")
    text, notes = import_topology(kind, path, name=name)
    _refuse_existing([file])
    file.write_text(text, encoding="utf-8")
    for note in notes:
        click.echo(note, err=True)
    _say_written([file])


def _refuse_existing(files: Iterable[Path]) -> None:
    for path in filter(os.path.lexists, files):
        expected = "an unused name: testbed init NAME"
        raise ScenarioError([Problem(str(path), 0, "", "an existing file", expected)])


def _say_written(files: Iterable[Path]) -> None:
    """Name the files that were written, and what to do with the first, the scenario."""
    first, *_ = files = list(files)
    for path in files:
        click.echo(f"wrote {path}")
    click.echo(f"  testbed plan {first}    show what it starts")
    click.echo(f"  testbed up {first}      run it")


def _copy(name: str, example: str) -> None:
    """Write a copy of a shipped scenario, with the files that it uses."""
    from testbed.scenario.source import shipped

    examples = shipped()
    if example not in examples:
        expected = f"one of {', '.join(examples)}"
        raise ScenarioError([Problem("--from", 0, "", repr(example), expected)])
    text = re.sub(
        r"^name: \S+", f"name: {name}", examples[example].read_text(encoding="utf-8"), flags=re.M
    )
    schema = f"$schema={examples['first'].with_name('schema.json')}"
    file = Path(f"{name}.yaml")
    files = {file: re.sub(r"\$schema=\S+", lambda _: schema, text, count=1)}
    for own, source in _own_files(examples[example]):
        files[own] = source.read_text(encoding="utf-8")
    _refuse_existing(files)
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    _say_written(files)


def _own_files(example: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files that an example refers to: relative to the copy, and where they are."""
    from testbed.run.prepare import custom_files
    from testbed.run.prepare_workload import with_files
    from testbed.scenario.load_flower import app_folder
    from testbed.scenario.load_workload import load_any
    from testbed.scenario.workload import Workload

    beside = example.parent
    if app := app_folder(example):  # not loaded, which takes an environment with flwr
        found = sorted(
            path for path in (beside / app).rglob("*") if path.suffix in (".py", ".toml")
        )
        yield from ((path.relative_to(beside), path) for path in found)
        return
    scenario = load_any(example)
    if isinstance(scenario, Workload):
        copied = with_files(scenario, beside)[1]
    else:
        copied = custom_files(scenario, beside)
    yield from ((Path(own.name), own) for own in copied)


Checked = tuple[dict[str, Any], str, int]
"""The result for a file: as data, in words, and as an exit code."""


@click.command("validate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@settings_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list with an entry per file.")
def validate(files: tuple[str, ...], settings: tuple[str, ...], as_json: bool) -> int:
    """Check files of scenarios and studies, and print all errors.

    Exits with 2 if a file is invalid, with 11 if files are valid but custom code failed.
    """
    changes = overrides(settings)
    checked = [_check(file, changes) for file in files]
    if as_json:
        print_json([data for data, _, _ in checked])
    else:
        for _, told, code in checked:
            click.echo(told, err=code != 0)
    return min({code for _, _, code in checked} - {0}, default=0)


@click.command("schema")
def schema() -> None:
    """Print the JSON schema of scenario and study files.

    Editors complete and check a file that starts with the line
    "# yaml-language-server: $schema=schema.json".
    """
    from testbed.studies import json_schema_text

    click.echo(json_schema_text(), nl=False)


def _check(file: str, changes: Sequence[Override]) -> Checked:
    from testbed.scenario.load import with_source_lines
    from testbed.scenario.load_workload import load_any
    from testbed.scenario.source import display_name, find_scenario
    from testbed.scenario.workload import Workload
    from testbed.studies import is_study, load_study

    shown = display_name(Path(file))
    try:
        if is_study(file):
            if changes:
                expected = "a scenario: the study itself defines what varies"
                raise ScenarioError([Problem(shown, 0, "", "a study and --set", expected)])
            study = load_study(file)
            pairs = [(run.scenario, run.beside) for run in study.runs]
            _try_models([(one, where) for one, where in pairs if not isinstance(one, Workload)])
            cases, runs = len(study.cases), len(study.runs)
            told = f"a study of {cases:,} cases, {runs:,} runs"
            return _valid(shown, study.name, told, cases=cases, runs=runs)
        scenario = load_any(file, overrides=changes)
        if isinstance(scenario, Workload):
            programs, nodes = len(scenario.workload), len(scenario.node_names())
            told = f"a workload of {programs} programs in {nodes:,} nodes"
            return _valid(shown, scenario.name, told, programs=programs, nodes=nodes)
        with with_source_lines(file, changes):
            _try_models([(scenario, find_scenario(Path(file)).parent)])
    except (ScenarioError, UserCodeError) as error:
        own = [Problem(shown, 0, "", "", "", str(error))]
        found = error.problems if isinstance(error, ScenarioError) else own
        problems = [{**asdict(problem), "message": str(problem)} for problem in found]
        told = "\n".join(map(str, found))
        return {"file": shown, "ok": False, "problems": problems}, told, error.exit_code
    workers, updates = scenario.workers.count, scenario.stop.updates
    length = "no limit on updates" if updates is None else f"{updates} updates"
    told = f"{workers} workers, {length}"
    return _valid(shown, scenario.name, told, workers=workers, updates=updates)


def _valid(file: str, name: str, told: str, **numbers: int | None) -> Checked:
    return {"file": file, "ok": True, "name": name, **numbers}, f"ok  {file}: {name}, {told}", 0


def _try_models(scenarios: Sequence[tuple[Scenario, Path]]) -> None:
    """Build each custom model once, if the shape of the images is known."""
    from testbed.models import CustomModel

    tried = set()
    for scenario, beside in scenarios:
        model, shape = scenario.model, scenario.dataset.images
        if not isinstance(model, CustomModel) or shape is None:
            continue
        from testbed.run.data import try_model  # takes a while, and few scenarios need it

        known = (repr(model), beside, shape, scenario.workers.batch_size)
        if known not in tried:
            tried.add(known)
            tokens = shape[0][0] if scenario.dataset.targets == "tokens" else 0
            try_model(scenario, model, beside, shape, tokens=tokens)
