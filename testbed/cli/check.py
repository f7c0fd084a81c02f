"""``testbed check``: tries an algorithm of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.options import overrides, settings_option

if TYPE_CHECKING:
    from testbed.algorithms.base import AlgorithmConfig
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
    from testbed.frame.contract import examine

    asked = overrides(settings)
    python = file.suffix == ".py"
    broken = False
    for config in _of_file(file, asked) if python else _of_scenario(file, asked):
        click.echo(f"{type(config).__name__} ({config})")
        for finding in examine(config):
            click.echo(f"  {'BROKEN' if finding.problem else 'kept  '}  {finding.promise}")
            if finding.problem:
                click.echo(f"          {finding.problem}")
                click.echo(finding.trace, err=True, nl=False)
            broken = broken or bool(finding.problem)
    return AlgorithmError.exit_code if broken else 0


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
