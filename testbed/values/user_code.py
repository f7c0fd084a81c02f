"""The user's own code: how a scenario names it, how it is loaded, how its failures are reported.

A file is executed on its own: it may import installed packages, but no file next to it. Nothing is
written next to it.
"""

from __future__ import annotations

import ast
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from testbed.errors import Problem, ScenarioError, TestbedError, UserCodeError, UserFileError
from testbed.values.signals import Signalled

Result = TypeVar("Result")

MODULE = "testbed_user_code_"
"""Prefix of the names of all modules created from the user's files."""


class OwnCode(BaseModel):
    """A family's member that is the user's own; every other key is an option of its class."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: Literal["custom"]
    file: Annotated[
        str,
        Field(pattern=r"[^/]\.py$", description="the Python file, relative to the scenario's."),
    ]
    class_name: Annotated[
        str,
        Field(
            alias="class",
            pattern=r"^[A-Za-z_]\w*$",
            description="the class or function in it.",
        ),
    ]

    @property
    def options(self) -> Mapping[str, Any]:
        """The options passed to the user's class, by name: plain data."""
        return self.model_extra or {}

    @model_serializer(mode="wrap")
    def _with_options(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Keep options that are null: null need not be their default."""
        return {**write(self), **self.options}

    def copied(self, folder: Path, path_in_scenario: str) -> UserCode:
        """Return the copy of the code in a run's folder."""
        path = folder / "custom" / Path(self.file).name
        return UserCode(path, self.class_name, path_in_scenario)


@dataclass(frozen=True)
class UserCode:
    """A class or function in a user's file that a scenario names."""

    path: Path  # path of the file
    name: str
    path_in_scenario: str  # the scenario's path of this member, such as ``model``; for errors

    def load(self, expected: str) -> Any:
        """Execute the file; return its class or function ``name``, in errors as ``expected``.

        Raises:
            ScenarioError: the file does not exist, is not Python, or does not define the name, or
                as something else.
            UserFileError: the file failed.
        """
        module = self.execute()
        if not hasattr(module, self.name):
            defined = [
                name
                for name, value in vars(module).items()
                if callable(value) and getattr(value, "__module__", None) == module.__name__
            ]
            listed = ", ".join(defined[:10]) or "no class and no function"
            found = f"no {self.name!r} in it; it defines {listed}"
            raise self.error(found, f"{self.name} to be {expected}")
        found = getattr(module, self.name)
        if not callable(found):
            raise self.error(f"{self.name}, a {type(found).__name__}", expected)
        return found

    def call(self, action: Callable[[], Result], *, doing: str, expected: str) -> Result:
        """Run an action that calls the user's code, and convert its exceptions.

        The error says what was being done, such as ``Net((1, 28, 28), 10)``, and what was
        expected instead.

        Raises:
            UserFileError: the user's code raised; names the line in the user's file.
        """
        try:
            with one_process():
                return action()
        except ScenarioError:
            raise
        except BaseException as error:
            if raised_by_signal(error):
                raise
            raise self.raised(error, doing=doing, expected=expected) from error

    def raised(self, error: BaseException, *, doing: str, expected: str) -> UserFileError:
        """Return the error for an exception raised by the user's code; see ``call``."""
        found = f"{doing} raised {_shown(error)}"
        return UserFileError([self._problem(found, expected, self._line(error))])

    def error(self, found: str, expected: str, *, line: int | None = None) -> ScenarioError:
        """Return the error for an invalid file, at the line of the class or function by default."""
        at = self.line() if line is None else line
        return ScenarioError([self._problem(found, expected, at)])

    def refuses(self, error: ValidationError) -> ScenarioError:
        """Return the error for options that the class does not accept."""
        first = error.errors()[0]
        found = f"the option {'.'.join(map(str, first['loc']))}: {first['msg']}"
        return self.error(found, f"options that {self.name} accepts")

    def changed(self, found: str, expected: str) -> UserFileError:
        """Return the error for code that now builds something different."""
        return UserFileError([self._problem(found, expected, self.line())])

    def _problem(self, found: str, expected: str, line: int) -> Problem:
        return Problem(str(self.path), line, self.path_in_scenario, found, expected)

    def keywords(self, given: int) -> frozenset[str] | None:
        """Find the options of the class or function, without executing the file.

        Args:
            given: how many positional arguments it receives.

        Returns:
            Their names; None if it accepts any, or they cannot be determined.
        """
        found = self._definition()
        function = found
        if isinstance(found, ast.ClassDef):
            given += 1  # self
            makers = [one for one in found.body if isinstance(one, ast.FunctionDef)]
            function = next((one for one in makers if one.name == "__init__"), None)
        if not isinstance(function, ast.FunctionDef) or function.args.kwarg is not None:
            return None
        arguments = function.args
        return frozenset(one.arg for one in (*arguments.args[given:], *arguments.kwonlyargs))

    def line(self) -> int:
        """Return the line of the class or function; 0 if unknown."""
        found = self._definition()
        return found.lineno if found else 0

    def _definition(self) -> ast.ClassDef | ast.FunctionDef | None:
        try:
            tree = self.parsed()
        except ScenarioError:
            return None  # execute() reports what is wrong with the file
        named = [one for one in tree.body if isinstance(one, ast.ClassDef | ast.FunctionDef)]
        return next((one for one in reversed(named) if one.name == self.name), None)

    def execute(self) -> ModuleType:
        """Execute the file and return its module.

        Raises:
            ScenarioError: the file does not exist, or is not Python.
            UserFileError: the file failed.
        """
        code = self.compiled()
        module = ModuleType(f"{MODULE}{self.path.stem}")
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module  # dataclasses and pickle look their module up there
        self.call(lambda: exec(code, module.__dict__), doing="the file", expected="it to run")
        return module

    def parsed(self) -> ast.Module:
        """Return the file's syntax tree.

        Raises:
            ScenarioError: the file does not exist, or is not Python.
        """
        tree = self.compiled(ast.PyCF_ONLY_AST)
        assert isinstance(tree, ast.Module), "of a file"
        return tree

    def compiled(self, flags: int = 0) -> Any:
        """Compile the file.

        Raises:
            ScenarioError: the file does not exist, or is not Python.
        """
        try:
            source = self.path.read_bytes()
        except OSError as error:
            reason = error.strerror or str(error)
            raise self.error(reason, f"a Python file that defines {self.name}", line=0) from error
        try:
            return compile(source, str(self.path), "exec", flags, dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = error.lineno or 0 if isinstance(error, SyntaxError) else 0
            raise self.error(_shown(error), "valid Python", line=line) from error

    def _line(self, error: BaseException) -> int:
        """Return the innermost line of the user's file in the traceback; 0 if there is none."""
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno or 0 for frame in frames if frame.filename == str(self.path)]
        return lines[-1] if lines else 0


def method_location(kind: type, method: str) -> str:
    """Return the location of a class's method: ``mine.py:33``, or the module of a class of ours.

    The line is left out for an inherited method, as it is defined in another file.
    """
    if not kind.__module__.startswith(MODULE):
        return kind.__module__
    file = str(sys.modules[kind.__module__].__file__)
    code = getattr(getattr(kind, method, None), "__code__", None)
    line = f":{code.co_firstlineno}" if code is not None and code.co_filename == file else ""
    return f"{Path(file).name}{line}"


@contextmanager
def one_process() -> Iterator[None]:
    """Run the user's code, which may fork: a fork that leaves this block exits.

    Otherwise the fork would repeat everything this process does, on the same files.
    """
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(0)


@contextmanager
def own_failures(node: str) -> Iterator[None]:
    """Convert exceptions of the user's own code in this block to UserCodeError.

    Args:
        node: the node that runs the code, or the simulated node that it runs for.

    Raises:
        UserCodeError: names the user's file and line, and has the traceback.
    """
    try:
        yield
    except TestbedError:
        raise
    except BaseException as error:  # sys.exit() or a BaseException in user code must not end us
        place = user_code_location(traceback.walk_tb(error.__traceback__))
        if not place or raised_by_signal(error):
            raise
        trace = "".join(traceback.format_exception(error))
        raise UserCodeError(f"{place}: {_shown(error)}", node=node, trace=trace) from error


class OwnDescriptor:
    """A descriptor that no other code uses: if it was closed, others may have been closed too.

    Code that closes descriptors of others leaves a process that can neither continue nor say why.
    """

    def __init__(self) -> None:
        self._number = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._opened = os.fstat(self._number)

    def is_open(self) -> bool:
        """Whether the descriptor is still open and unchanged."""
        try:
            return os.path.samestat(os.fstat(self._number), self._opened)
        except OSError:
            return False

    def __del__(self) -> None:
        if self.is_open():
            os.close(self._number)


def closed_descriptors(whose: str) -> UserCodeError:
    """Return the error for code in these files that closed descriptors of others."""
    return UserCodeError(
        f"{whose}: this code has closed descriptors that are not its own.",
        hint="Close only what it has opened itself.",
    )


def user_code_location(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return the last frame in the user's own code, as ``net.py:7``; empty if there is none."""
    own = [(frame, line) for frame, line in frames if is_own(frame)]
    return f"{Path(own[-1][0].f_code.co_filename).name}:{own[-1][1]}" if own else ""


def is_own(frame: FrameType) -> bool:
    """Whether a frame runs the user's own code."""
    return str(frame.f_globals.get("__name__", "")).startswith(MODULE)


def raised_by_signal(error: BaseException) -> bool:
    """Whether a signal raised the error, not the code it interrupted.

    If Python's own handler is not installed, Ctrl-C raises no KeyboardInterrupt.
    """
    if type(error) is KeyboardInterrupt:
        return signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, Signalled)


def own_trace(error: TestbedError) -> str:
    """Return the traceback of the user's own code behind an error; empty if there is none."""
    if isinstance(error, UserCodeError):
        return error.trace
    if isinstance(error, ScenarioError) and error.__cause__ is not None:
        return "".join(traceback.format_exception(error.__cause__))
    return ""


def _shown(error: BaseException) -> str:
    reason = error.msg if isinstance(error, SyntaxError) else str(error)
    first = reason.strip().split("\n", 1)[0][:300]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
