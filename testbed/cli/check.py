"""``testbed check``: tries an algorithm of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.options import overrides, settings_option

if TYPE_CHECKING:
    from testbed.algorithms.base import AlgorithmConfig
    from testbed.host.apart import Opened
    from testbed.scenario.override import Override


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@settings_option
def command(file: Path, settings: tuple[str, ...]) -> int:
    """Try whether an algorithm keeps what every algorithm promises.

    FILE is a Python file, of which every algorithm is tried (--set learning_rate=0.05 gives it an
    option), or a scenario with an algorithm of one's own (--set algorithm.learning_rate=0.05).
    Exits with 10 if a promise is broken.
    """
    from testbed.errors import AlgorithmError
    from testbed.host.apart import apart

    asked = overrides(settings)
    broken = False
    for title, findings in apart(lambda opened: _try(file, asked, opened), whose=str(file)):
        click.echo(title)
        for promise, problem, trace in findings:
            click.echo(f"  {'BROKEN' if problem else 'kept  '}  {promise}")
            if problem:
                click.echo(f"          {problem}")
                click.echo(trace, err=True, nl=False)
            broken = broken or bool(problem)
    return AlgorithmError.exit_code if broken else 0


def _try(
    file: Path, asked: Sequence[Override], opened: Opened
) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Try every algorithm of the file: its title, and of each promise what was found."""
    from testbed.frame.contract import examine

    tried = []
    for config in _of_file(file, asked) if file.suffix == ".py" else _of_scenario(file, asked):
        opened()
        found = [(one.promise, one.problem, one.trace) for one in examine(config)]
        tried.append((f"{type(config).__name__} ({config})", found))
    return tried


def _of_scenario(file: Path, asked: Sequence[Override]) -> Iterator[AlgorithmConfig]:
    from testbed.algorithms.custom import CustomAlgorithm, open_config
    from testbed.errors import Problem, ScenarioError
    from testbed.scenario import load
    from testbed.user_code import UserCode

    algorithm = load(file, overrides=asked).algorithm
    if not isinstance(algorithm, CustomAlgorithm):
        expected = "an algorithm of one's own, in a file; those of this package are tried already"
        raise ScenarioError([Problem(str(file), 0, "algorithm", algorithm.name, expected)])
    code = UserCode(file.parent / algorithm.file, algorithm.class_name, "algorithm")
    yield open_config(code, algorithm.options)


def _of_file(file: Path, asked: Sequence[Override]) -> Iterator[AlgorithmConfig]:
    from testbed.algorithms.base import AlgorithmConfig
    from testbed.algorithms.custom import open_config
    from testbed.user_code import UserCode

    code = UserCode(file, "an algorithm", "")
    options = {".".join(one.keys): one.value for one in asked}
    module = code.execute()
    names = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, AlgorithmConfig)
        and value.__module__ == module.__name__
    ]
    if not names:
        raise code.error("no subclass of AlgorithmConfig", "one, beside its two halves")
    for name in names:
        yield open_config(UserCode(file, name, ""), options)
