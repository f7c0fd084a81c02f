"""Parts of a summary in words, for tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NOTHING = "not measured"


def describe_ending(summary: Mapping[str, Any]) -> str:
    """How far the run came, in a sentence that hides nothing."""
    reason = f": {summary['reason']}" if summary["reason"] else ""
    match summary["state"]:
        case "finished":
            ending = f"finished{reason}"
        case "failed":
            ending = f"FAILED{reason}"
        case "interrupted":
            ending = f"INTERRUPTED{reason}"
        case state:
            ending = f"NOT FINISHED (last state: {state})"
    if summary["runtime"] == "simulated":
        return f"SIMULATED on a virtual clock; {ending}"
    return ending


def describe_algorithm(algorithm: Mapping[str, Any]) -> str:
    """The algorithm's name and options."""
    options = dict(algorithm)
    name = options.pop("name")
    if name == "custom":
        name = f"{options.pop('class')} in {options.pop('file')}"
    words = [f"{key.replace('_', ' ')} {value}" for key, value in options.items()]
    return f"{name} ({', '.join(words)})" if words else str(name)


def describe_think(think: Mapping[str, Any] | None) -> str:
    """The law of the waits between computing and pushing."""
    if think is None:
        return "no think time"
    return f"think {think['law']} x {think['mean_seconds']:g} s"


def describe_bytes(count: float | None) -> str:
    """Bytes in the decimal unit that suits them."""
    if count is None:
        return NOTHING
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:.0f} B"
