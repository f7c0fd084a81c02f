"""``testbed validate``: checks the files of scenarios and studies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.options import overrides, print_json, settings_option

if TYPE_CHECKING:
    from testbed.scenario import Override, Scenario


@click.command("validate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@settings_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list with an entry per file.")
def command(files: tuple[str, ...], settings: tuple[str, ...], as_json: bool) -> int:
    """Check files of scenarios and studies, and print all errors.

    Exits with 2 if a file is invalid, with 11 if files are valid but custom code failed.
    """
    changes = overrides(settings)
    checked = [_check(file, changes) for file in files]
    results = [result for result, _ in checked]
    if as_json:
        print_json(results)
    else:
        for result in results:
            _show(result)
    return min({code for _, code in checked} - {0}, default=0)


def _check(file: str, changes: Sequence[Override]) -> tuple[dict[str, Any], int]:
    """Return the result for a file, and its exit code."""
    from dataclasses import asdict

    from testbed.errors import Problem, ScenarioError, UserCodeError
    from testbed.scenario import load
    from testbed.scenario.load import with_source_lines
    from testbed.scenario.source import display_name, find_scenario
    from testbed.studies import is_study, load_study

    shown = display_name(Path(file))
    try:
        if is_study(file):
            if changes:
                expected = "a scenario: the study itself defines what varies"
                raise ScenarioError([Problem(shown, 0, "", "a study and --set", expected)])
            study = load_study(file)
            _try_models([(run.scenario, run.beside) for run in study.runs])
            numbers = {"cases": len(study.cases), "runs": len(study.runs)}
            return {"file": shown, "ok": True, "name": study.name, **numbers}, 0
        scenario = load(file, overrides=changes)
        with with_source_lines(file, changes):
            _try_models([(scenario, find_scenario(Path(file)).parent)])
    except (ScenarioError, UserCodeError) as error:
        own = [Problem(shown, 0, "", "", "", str(error))]
        found = error.problems if isinstance(error, ScenarioError) else own
        problems = [{**asdict(problem), "message": str(problem)} for problem in found]
        return {"file": shown, "ok": False, "problems": problems}, error.exit_code
    workers, updates = scenario.workers.count, scenario.stop.updates
    counts = {"workers": workers, "updates": updates}
    return {"file": shown, "ok": True, "name": scenario.name, **counts}, 0


def _try_models(scenarios: Sequence[tuple[Scenario, Path]]) -> None:
    """Build each custom model once, if the shape of the images is known.

    Raises:
        ScenarioError, UserCodeError: it cannot be trained here; says why.
    """
    from testbed.models import CustomModel
    from testbed.run.prepare import try_model

    tried = set()
    for scenario, beside in scenarios:
        model, shape = scenario.model, scenario.dataset.images
        if not isinstance(model, CustomModel) or shape is None:
            continue
        known = (repr(model), beside, shape, scenario.workers.batch_size)
        if known not in tried:
            tried.add(known)
            try_model(scenario, model, beside, shape)


def _show(result: dict[str, Any]) -> None:
    if not result["ok"]:
        for problem in result["problems"]:
            click.echo(problem["message"], err=True)
        return
    if "runs" in result:
        counts = f"a study of {result['cases']:,} cases, {result['runs']:,} runs"
        click.echo(f"ok  {result['file']}: {result['name']}, {counts}")
        return
    updates = result["updates"]
    length = "no limit on updates" if updates is None else f"{updates} updates"
    click.echo(f"ok  {result['file']}: {result['name']}, {result['workers']} workers, {length}")
