"""How a half that breaks its contract is told of: by its class, and by file and line if it can."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from testbed.algorithms.base import ServerHalf, WorkerHalf
from testbed.errors import AlgorithmError
from testbed.user_code import MODULE


def breach(half: WorkerHalf[Any] | ServerHalf[Any], method: str, what: str) -> AlgorithmError:
    """The error for a half that did what it must not.

    Args:
        half: a worker half or a server half.
        method: of it, the one to look at.
        what: the half did.
    """
    side = "worker" if isinstance(half, WorkerHalf) else "server"
    return AlgorithmError(
        f"{place(half, method)}: the {side} half of {type(half.config).__name__} broke the "
        f"contract: {what}.",
        hint="The contract stands in testbed/algorithms/base.py.",
    )


def place(half: object, method: str) -> str:
    """Where a method of a half stands: ``mine.py:33``, or the module of one of this package.

    One that it inherits stands in another file; the line is left out then.
    """
    module = type(half).__module__
    if not module.startswith(MODULE):
        return module
    file = str(sys.modules[module].__file__)
    code = getattr(getattr(type(half), method, None), "__code__", None)
    line = f":{code.co_firstlineno}" if code is not None and code.co_filename == file else ""
    return f"{Path(file).name}{line}"
