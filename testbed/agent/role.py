"""Runs one role to its end in this process.

As a program it is what a cold node executes: ``python -m testbed.agent.role module:function FD``,
with the function's arguments as JSON behind descriptor FD. They hold the run's token, so they stand
in neither the command line nor the environment.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import NoReturn

from testbed.errors import NodeError
from testbed.host.process import end_with

Entry = Callable[[Mapping[str, str]], int]


def resolve(entry: str) -> Entry:
    """The function that ``module:function`` names; NodeError if there is none."""
    module, _, name = entry.partition(":")
    try:
        function: Entry = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise NodeError(f"entry point {entry}: {error}.") from None
    except AttributeError:
        raise NodeError(f"entry point {entry}: {module} has no {name}.") from None
    return function


def end_on_signals() -> None:
    """Make SIGTERM, SIGINT and SIGHUP end this process, until the role has handlers of its own.

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
    end_with(lambda: resolve(entry)(arguments))


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
