"""When devices are present: a CSV file of many devices, and the traces of FedScale and FLASH.

FedScale (Lai et al., ICML 2022) has a pickled dictionary: for each client the seconds at which it
becomes ``active`` and ``inactive``, and ``finish_time``, after which they repeat. FLASH (Yang et
al., WWW 2021) has a JSON object: for each user ``messages``, a line per event of the phone; a
phone is available while it is idle (screen off or locked), charging, and on Wi-Fi.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from testbed.values.traces import AVAILABLE, InvalidLine, Trace, read_trace

HEADER = f"device,time_seconds,{AVAILABLE}"
NEEDS = ("idle", "charging", "wifi")
"""What FLASH requires of an available phone."""

Periods = Mapping[str, Sequence[tuple[float, float]]]
"""For each device, the seconds at which it becomes present or absent, 1 or 0; the last its end."""


def is_of_devices(text: str) -> bool:
    """Whether a recording of availability has many devices."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first.replace(" ", "") == HEADER


def read_devices(text: str, *, repeats: bool) -> dict[str, Trace]:
    """Read the recordings of many devices, each in rows that follow one another.

    Raises:
        InvalidLine: a device's rows are not a recording of availability; names the line.
    """
    rows: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#") or line.replace(" ", "") == HEADER:
            continue
        device, _, rest = line.partition(",")
        own = rows.setdefault(device.strip(), [""] * (number - 2) + [f"time_seconds,{AVAILABLE}"])
        own += [""] * (number - 1 - len(own)) + [rest]  # so that lines keep their numbers
    if not rows:
        raise InvalidLine(0, "no devices", f"rows below the header {HEADER}")
    return {
        device: read_trace("\n".join(lines), AVAILABLE, repeats=repeats)
        for device, lines in rows.items()
    }


def devices_text(periods: Periods, comment: str) -> str:
    """Return the recordings of many devices as CSV."""
    lines = [f"# {comment}", HEADER]
    for device, moments in periods.items():
        lines += [f"{device},{time:.12g},{value:g}" for time, value in moments]
    return "\n".join(lines) + "\n"


class _Plain(pickle.Unpickler):
    """Reads plain dictionaries, lists, numbers and text; a pickle can otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it contains {module}.{name}")


def read_fedscale(content: bytes) -> dict[str, list[tuple[float, float]]]:
    """Read FedScale's availability.

    Raises:
        InvalidLine: not such a file.
    """
    try:
        found = _Plain(io.BytesIO(content)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError) as error:
        raise InvalidLine(0, f"no plain pickle ({error})", "FedScale's dictionary") from None
    try:
        return {
            str(client): _alternating(
                zip(one["active"], one["inactive"], strict=False), float(one["finish_time"])
            )
            for client, one in found.items()
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        expected = "a dictionary of clients with active, inactive and finish_time"
        raise InvalidLine(0, f"another pickle ({error})", expected) from None


def _alternating(periods: Any, end: float) -> list[tuple[float, float]]:
    """Return the changes of a device that is present in these periods."""
    moments = {0.0: 0.0}
    for begin, stop in sorted(periods):
        moments[max(0.0, float(begin))] = 1.0
        if float(stop) < end:
            moments[float(stop)] = 0.0
    kept = {time: value for time, value in sorted(moments.items()) if time < end}
    return [*kept.items(), (end, list(kept.values())[-1])]


def read_flash(content: bytes) -> dict[str, list[tuple[float, float]]]:
    """Read FLASH's availability from its behaviour trace; devices without two events are left out.

    Raises:
        InvalidLine: not such a file.
    """
    try:
        users = json.loads(content)
        messages = {str(user): str(one["messages"]) for user, one in users.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        expected = "a JSON object of users with messages"
        raise InvalidLine(0, f"another file ({error!r})", expected) from None
    found = {user: _phone(text) for user, text in messages.items()}
    return {user: moments for user, moments in found.items() if len(moments) > 1}


ON: Mapping[str, tuple[str, bool]] = {
    "screen_off": ("dark", True),
    "screen_on": ("dark", False),
    "screen_lock": ("locked", True),
    "screen_unlock": ("locked", False),
    "battery_charged_on": ("charging", True),
    "battery_charged_off": ("charging", False),
    "wifi": ("wifi", True),
    **dict.fromkeys(("2g", "3g", "4g", "5g", "unknown"), ("wifi", False)),
}
"""What an event changes in the state of a phone."""


def _phone(messages: str) -> list[tuple[float, float]]:
    state, start = dict.fromkeys(("dark", "locked", "charging", "wifi"), False), None
    moments: list[tuple[float, float]] = []
    seconds = 0.0
    for time, event in _events(messages):
        if start is None:
            start, moments = time, [(0.0, 0.0)]
        seconds = max(seconds, (time - start).total_seconds())
        if event in ON:
            name, value = ON[event]
            state[name] = value
        idle = state["dark"] or state["locked"]
        there = float(idle and state["charging"] and state["wifi"])
        if there != moments[-1][1]:
            moments = [one for one in moments if one[0] < seconds]
            moments.append((seconds, there))
    if len(moments) < 2 or seconds <= moments[-1][0]:
        seconds += 1.0  # the last state needs a length
    return [*moments, (seconds, moments[-1][1])] if moments else []


def _events(messages: str) -> Iterator[tuple[datetime, str]]:
    for line in messages.split("\n"):
        stamp, _, event = line.strip().partition("\t")
        try:
            time = datetime.strptime(stamp.strip(), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        except ValueError:
            continue  # phones write incomplete lines
        yield time, event.strip().lower()
