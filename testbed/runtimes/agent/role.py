"""Runs one role to its end in this process.

A cold node executes it as a program, ``python -m testbed.runtimes.agent.role module:function FD``,
with the function's arguments as JSON behind descriptor FD. They contain the run's token, so they
are passed neither on the command line nor in the environment.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NoReturn

from testbed.errors import NodeError
from testbed.host.process import end_with


def resolve(entry: str) -> Callable[..., Any]:
    """Return the function that ``module:function`` names; NodeError if none exists."""
    module, _, name = entry.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise NodeError(f"entry point {entry}: {error}.") from None
    except AttributeError:
        raise NodeError(f"entry point {entry}: {module} has no {name}.") from None
    return function


def run_entry(entry: str, arguments: Mapping[str, str], warmed: Any = None) -> int:
    """Run a role's entry point; return its exit status.

    Args:
        entry: as ``module:function``.
        arguments: what it is called with.
        warmed: what the template's warm-up returned, passed as second argument unless None.
    """
    function = resolve(entry)
    status: int = function(arguments) if warmed is None else function(arguments, warmed)
    return status


def end_on_signals() -> None:
    """Make SIGTERM, SIGINT and SIGHUP end this process, until the role installs its own handlers.

    The first process of a pid namespace ignores every signal that it has no handler for.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end)


def main() -> NoReturn:
    """Run the role that the command line names."""
    end_on_signals()
    entry, descriptor = sys.argv[1], int(sys.argv[2])
    with os.fdopen(descriptor, "rb") as file:
        arguments = json.load(file)
    end_with(lambda: run_entry(entry, arguments))


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
