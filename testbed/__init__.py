"""Edge-device training emulated for real: containers, shaped links, gRPC, torch on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.reports.frames import Run

__version__ = "0.1.0"
__all__ = ["Run", "__version__"]


def __getattr__(name: str) -> Any:
    """``testbed.Run``, imported when first asked for: it brings pandas along."""
    if name == "Run":
        from testbed.reports.frames import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
