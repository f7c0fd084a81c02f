"""Every error a user can meet, and the exit code of each class.

    TestbedError               1   something this package did not foresee naming better
    ├── ScenarioError          2   the scenario or the command line is wrong
    ├── HostError              3   the host lacks something: a capability, a kernel option, memory
    ├── DataError              4   a data set, or a file of a run, is missing or damaged
    ├── NodeError              5   a node or the bring-up failed
    ├── RunNotFound            7   no such run
    ├── RejectedError          8   a peer sent something that was refused (roles)
    ├── AlgorithmError        10   an algorithm did what its contract forbids
    └── UserCodeError         11   code of the user's own failed (UserFileError: before it trained)

Exit codes 6 and 9 are no errors: a run reached its end, but its verdict is not valid; two runs that
were compared differ by more than the tolerance. 130 is Ctrl-C.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def escaped(text: str) -> str:
    r"""Text as a terminal may show it: control characters but tabs and line ends as ``\x1b``."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class Unfit(ValueError):  # noqa: N818 - says what the value is, where it is raised
    """A value that does not fit, raised where it is parsed; whoever knows the place adds it.

    ``found`` is empty where the value itself says enough; ``expected`` has an example.
    """

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"found {found}, expected {expected}" if found else f"expected {expected}")
        self.found = found
        self.expected = expected


class TestbedError(Exception):
    """Base of all errors that are shown as one message, without a traceback.

    The message says where it is, what was found and what was expected; the hint what to do next.
    Both may quote what the user's own code has printed: control characters in them are escaped.
    """

    __test__ = False  # the name starts with "Test"; pytest must not collect it
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message, self.hint = escaped(message), escaped(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


UNPLACED = "scenario"
"""Stands for the file of a problem until somebody knows it."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong in an input file."""

    file: str  # the file as the user named it
    line: int  # 1-based line, or 0 where no line applies (a ``--set`` option, an unreadable file)
    path: str  # dotted path of the value inside the file, such as ``workers.classes.slow.link.up``
    found: str  # what stood there, shortened for display; may be empty
    expected: str  # what would have been right; empty where ``hint`` says it all
    hint: str = ""  # what to type next (the nearest valid key, an example); may be empty

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        path = f" {self.path}:" if self.path else ""
        found = f"found {self.found}" if self.found else ""
        expected = f"expected {self.expected}" if self.expected else ""
        clause = ", ".join(part for part in (found, expected) if part)
        return f"{where}:{path} " + ". ".join(part for part in (clause, self.hint) if part)


class ScenarioError(TestbedError):
    """The scenario or an option on the command line is wrong; holds every problem found."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def at(cls, path: str, found: str, expected: str) -> ScenarioError:
        """A value that does not fit, refused where nobody knows which file it came from.

        Whoever read the scenario from a file adds its line: see ``testbed.scenario.load.placed``.
        """
        return cls([Problem(UNPLACED, 0, path, found, expected)])

    def __reduce__(self) -> tuple[type[ScenarioError], tuple[tuple[Problem, ...]]]:
        """It travels between processes with its problems, not with its text."""
        return type(self), (self.problems,)


class UserFileError(ScenarioError):
    """Code in a file of the user's own failed before it trained: a problem with a file and a line.

    Its exit code is that of UserCodeError.
    """

    exit_code = 11


class HostError(TestbedError):
    """This host cannot do what the scenario asks for."""

    exit_code = 3


class DataError(TestbedError):
    """A data set, or a file of a run, is missing or damaged; says which and what to do."""

    exit_code = 4


class NodeError(TestbedError):
    """A node failed, or the run could not be brought up or carried to its end."""

    exit_code = 5


class AlgorithmError(TestbedError):
    """An algorithm's half did what its contract forbids; names it, and what it did."""

    exit_code = 10


class UserCodeError(TestbedError):
    """Code of the user's own failed while it trained; names the file and the line.

    Args:
        message: see TestbedError.
        hint: likewise.
        node: whose code it was, such as ``w3``.
        trace: the whole traceback.
    """

    exit_code = 11

    def __init__(self, message: str, *, hint: str = "", node: str = "", trace: str = "") -> None:
        super().__init__(message, hint=hint)
        self.node = node
        self.trace = escaped(trace)


class RunNotFound(TestbedError):  # noqa: N818 - a noun of the user's, not of the implementation
    """No run of that name is known."""

    exit_code = 7


class RejectedError(TestbedError):
    """What a peer sent was refused: nothing of it was applied."""

    exit_code = 8
