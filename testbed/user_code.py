"""Loads a class or function from a Python file of the user's, and says what is wrong with it.

The file is executed from its path alone: it may import installed packages, but no other file beside
it. Nothing is written next to it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from testbed.errors import Problem, ScenarioError

Result = TypeVar("Result")


@dataclass(frozen=True)
class UserCode:
    """Something a scenario names in a file of the user's."""

    path: Path  # where the file lies
    name: str
    path_in_scenario: str  # the scenario's path of the member, such as ``model``; for errors

    def load(self, expected: str) -> Any:
        """Execute the file and return the object called ``name``, which should be what is expected.

        Raises:
            ScenarioError: no such file, not Python, it failed, or there is no such name in it.
        """
        module = self._execute()
        if not hasattr(module, self.name):
            defined = [
                name
                for name, value in vars(module).items()
                if callable(value) and getattr(value, "__module__", None) == module.__name__
            ]
            listed = ", ".join(defined[:10]) or "no class and no function"
            found = f"no {self.name!r} in it; it defines {listed}"
            raise self.error(found, f"{self.name} to be {expected}")
        return getattr(module, self.name)

    def call(self, action: Callable[[], Result], *, doing: str, expected: str) -> Result:
        """Do something that runs the user's code, and turn whatever it raises into an error.

        The error says what it was ``doing``, such as ``Net((1, 28, 28), 10)``, and what was
        expected instead.

        Raises:
            ScenarioError: the user's code raised; names the line in the user's file.
        """
        try:
            return action()
        except ScenarioError:
            raise
        except Exception as error:
            found = f"{doing} raised {_shown(error)}"
            raise self.error(found, expected, line=self._line(error)) from error

    def error(self, found: str, expected: str, *, line: int = 0) -> ScenarioError:
        """What is wrong with the file, ready to be raised."""
        problem = Problem(str(self.path), line, self.path_in_scenario, found, expected)
        return ScenarioError([problem])

    def _execute(self) -> ModuleType:
        try:
            source = self.path.read_bytes()
        except OSError as error:
            reason = error.strerror or str(error)
            raise self.error(reason, f"a Python file that defines {self.name}") from error
        try:
            code = compile(source, str(self.path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = error.lineno or 0 if isinstance(error, SyntaxError) else 0
            raise self.error(_shown(error), "valid Python", line=line) from error
        module = ModuleType(f"testbed_user_code_{self.path.stem}")
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module  # dataclasses and pickle look their module up there
        self.call(lambda: exec(code, module.__dict__), doing="the file", expected="it to run")
        return module

    def _line(self, error: BaseException) -> int:
        """The innermost line of the user's file in the error's traceback; 0 for none."""
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno or 0 for frame in frames if frame.filename == str(self.path)]
        return lines[-1] if lines else 0


def _shown(error: BaseException) -> str:
    reason = error.msg if isinstance(error, SyntaxError) else str(error)
    first = reason.strip().split("\n", 1)[0][:300]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
