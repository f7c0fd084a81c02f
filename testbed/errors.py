"""All errors shown to users, and the exit code of each class.

    TestbedError               1   an error without a more specific class
    ├── ScenarioError          2   the scenario or the command line is invalid
    ├── HostError              3   the host lacks something: a capability, a kernel option, memory
    ├── DataError              4   a data set, or a file of a run, is missing or damaged
    ├── NodeError              5   a node or the bring-up failed, or has ended
    ├── RunNotFound            7   the run does not exist
    ├── RejectedError          8   a message from a peer was refused (roles)
    ├── AlgorithmError        10   an algorithm violated its contract
    └── UserCodeError         11   the user's own code failed (UserFileError: before training)

Exit codes 6 and 9 are not errors: a run finished without a valid verdict; two compared runs differ
by more than the tolerance. 130 is Ctrl-C.
"""

from __future__ import annotations

import copyreg
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

INVALID = 6
INTERRUPTED = 130

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def escaped(text: str) -> str:
    r"""Escape control characters other than tabs and line ends as ``\x1b``, for terminals."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class InvalidValue(ValueError):  # noqa: N818 - says what the value is, where it is raised
    """An invalid value, raised by its parser; the caller adds file and line.

    ``found`` is empty where the value speaks for itself; ``expected`` includes an example.
    """

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"found {found}, expected {expected}" if found else f"expected {expected}")
        self.found = found
        self.expected = expected


class TestbedError(Exception):
    """Base of all errors that are shown as one message, without a traceback.

    The message says where the problem is, what was found and what was expected; the hint says what
    to do next. Both may quote output of the user's own code, so control characters are escaped.
    """

    __test__ = False  # the name starts with "Test"; pytest must not collect it
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message, self.hint = escaped(message), escaped(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all attributes, whatever a subclass's constructor takes."""
        return copyreg.__newobj__, (type(self), self.message), self.__dict__  # type: ignore[attr-defined]


def unforeseen(error: Exception) -> TestbedError:
    """Return the error for an exception of this package's code, and print its traceback.

    Code of the user's own may have caused it, by what it returned.
    """
    if type(error).__name__ in OUT_OF_MEMORY:
        return HostError(f"out of memory: {error}", hint="Check `ulimit -v` and `free`.")
    traceback.print_exception(error)
    return TestbedError(
        f"testbed failed: {''.join(traceback.format_exception_only(error)).strip()}",
        hint="The traceback is above, or in the run's log (`testbed logs RUN`). Please report it, "
        "unless code of your own has returned something unexpected.",
    )


OUT_OF_MEMORY = ("MemoryError", "_ArrayMemoryError", "OutOfMemoryError")
"""Exceptions of Python, NumPy and PyTorch, by name: the last two need not be imported."""


UNKNOWN_FILE = "scenario"
"""Placeholder for a problem's file until it is known."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong in an input file."""

    file: str  # the file as the user named it
    line: int  # 1-based line, or 0 where no line applies (a ``--set`` option, an unreadable file)
    path: str  # dotted path of the value inside the file, such as ``workers.classes.slow.link.up``
    found: str  # the value found, shortened for display; may be empty
    expected: str  # what would be valid; empty where ``hint`` is enough
    hint: str = ""  # what to try next (the nearest valid key, an example); may be empty

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        path = f" {self.path}:" if self.path else ""
        found = f"found {self.found}" if self.found else ""
        expected = f"expected {self.expected}" if self.expected else ""
        clause = ", ".join(part for part in (found, expected) if part)
        return f"{where}:{path} " + ". ".join(part for part in (clause, self.hint) if part)


class ScenarioError(TestbedError):
    """The scenario or a command-line option is invalid; holds all problems found."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def at(cls, path: str, found: str, expected: str) -> ScenarioError:
        """Return the error for an invalid value whose file is not known here.

        The caller that read the file adds the line: see
        ``testbed.scenario.load.with_source_lines``.
        """
        return cls([Problem(UNKNOWN_FILE, 0, path, found, expected)])


class UserFileError(ScenarioError):
    """The user's own code failed before training; holds a problem with file and line.

    Its exit code is that of UserCodeError.
    """

    exit_code = 11


class HostError(TestbedError):
    """This host does not meet the scenario's requirements."""

    exit_code = 3


class DataError(TestbedError):
    """A data set or a file of a run is missing or damaged; says which, and what to do."""

    exit_code = 4


class NodeError(TestbedError):
    """A node failed, or the run could not start or finish."""

    exit_code = 5


class HostLostError(NodeError):
    """The host of a node is lost; names it, and says why."""


class AlgorithmError(TestbedError):
    """One side of an algorithm violated its contract; names it and the violation."""

    exit_code = 10


class UserCodeError(TestbedError):
    """The user's own code failed during training; names file and line.

    Args:
        message: see TestbedError.
        hint: see TestbedError.
        node: the node that ran the code, such as ``w3``.
        trace: the full traceback.
    """

    exit_code = 11

    def __init__(self, message: str, *, hint: str = "", node: str = "", trace: str = "") -> None:
        super().__init__(message, hint=hint)
        self.node = node
        self.trace = escaped(trace)


class RunNotFound(TestbedError):  # noqa: N818 - a noun of the user's, not of the implementation
    """No run of this name exists."""

    exit_code = 7


class RejectedError(TestbedError):
    """A message from a peer was refused; none of it was applied."""

    exit_code = 8
