"""Errors for an algorithm that violates its contract, with class and, if known, file and line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from testbed.algorithms.base import ServerHalf, WorkerHalf
from testbed.errors import AlgorithmError
from testbed.values.user_code import MODULE


def breach(half: WorkerHalf[Any] | ServerHalf[Any], method: str, what: str) -> AlgorithmError:
    """Return the error for a violation of the contract.

    Args:
        half: the worker or server side of the algorithm.
        method: its method at fault, whose line is reported.
        what: what is wrong, as a clause.
    """
    side = "worker" if isinstance(half, WorkerHalf) else "server"
    return AlgorithmError(
        f"{location(half, method)}: the {side} side of {type(half.config).__name__} violated "
        f"the contract: {what}.",
        hint="See the contract in testbed/algorithms/base.py.",
    )


def location(half: object, method: str) -> str:
    """Return a method's location: ``mine.py:33``, or the module for algorithms of this package.

    The line is left out for an inherited method, as it is defined in another file.
    """
    module = type(half).__module__
    if not module.startswith(MODULE):
        return module
    file = str(sys.modules[module].__file__)
    code = getattr(getattr(type(half), method, None), "__code__", None)
    line = f":{code.co_firstlineno}" if code is not None and code.co_filename == file else ""
    return f"{Path(file).name}{line}"
