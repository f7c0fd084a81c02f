"""Edge-device training emulated for real: containers, shaped links, gRPC, torch on one machine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.api import compare, export, runs, simulate, sweep, up
    from testbed.reports.frames import Run
    from testbed.reports.workload import WorkloadRun

__version__ = "0.2.0"
__all__ = [
    "Run",
    "WorkloadRun",
    "__version__",
    "compare",
    "export",
    "runs",
    "simulate",
    "sweep",
    "up",
]

_HOMES = {
    "Run": "testbed.reports.frames",
    "WorkloadRun": "testbed.reports.workload",
    **dict.fromkeys(("compare", "export", "runs", "simulate", "sweep", "up"), "testbed.api"),
}


def __getattr__(name: str) -> Any:
    """Import the attributes of ``_HOMES`` on first access, since they import pandas."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
