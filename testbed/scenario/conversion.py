"""Converts recordings of other tools and data sets to our own CSV."""

from __future__ import annotations

from itertools import islice

from testbed.scenario.traces import parse_recording
from testbed.values.presence import devices_text, read_fedscale, read_flash
from testbed.values.recordings import LAYOUTS, Reading, guess
from testbed.values.traces import DELAY, RATE, InvalidLine, Trace

DEVICES = {"fedscale": read_fedscale, "flash": read_flash}
"""Formats with the availability of many devices."""

FORMATS = ("mahimahi", *LAYOUTS, *DEVICES)
QUANTITIES = {"rate": RATE, "delay": DELAY}


def convert(
    content: bytes, *, quantity: str, reading: Reading, format: str = "", devices: int | None = None
) -> str:
    """Return a recording as our own CSV.

    Args:
        content: of the file.
        quantity: ``rate`` or ``delay``; not used for formats with many devices.
        reading: columns and units of a layout.
        format: one of ``FORMATS``; empty to recognise it.
        devices: how many devices to keep, the first ones; None for all.

    Raises:
        InvalidLine: the file is not in the format; names the line.
    """
    if read := DEVICES.get(format or _of_devices(content)):
        periods = dict(islice(read(content).items(), devices))
        if not periods:
            raise InvalidLine(0, "no devices", "those of fedscale or flash")
        return devices_text(periods, "converted: the availability of devices")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidLine(0, "binary data", f"one of {', '.join(FORMATS)}") from None
    column, found = QUANTITIES[quantity], format or guess(text)
    if found is None and reading == Reading():
        known = ", ".join(FORMATS)
        raise InvalidLine(1, "an unknown format", f"--from with one of {known}, or --column")
    layout = found if found in LAYOUTS else "csv"
    chosen = Reading(**{**vars(reading), "layout": layout})
    deliveries = found == "mahimahi"
    trace = parse_recording(text, column, None if deliveries else chosen, repeats=True)
    return trace_text(trace, column, f"converted from {found or 'csv'}")


def _of_devices(content: bytes) -> str:
    """Return the format with many devices that a file seems to have; empty for none."""
    if content.startswith(b"\x80"):
        return "fedscale"
    return "flash" if content.lstrip()[:1] == b"{" and b'"messages"' in content[:10_000] else ""


def trace_text(trace: Trace, column: str, comment: str) -> str:
    """Return a recording as CSV; its last row is its end."""
    lines = [f"# {comment}", f"time_seconds,{column}"]
    moments = [*trace.times, trace.end]
    values = [*trace.values, trace.values[-1]]
    lines += [f"{time:.9g},{value:.12g}" for time, value in zip(moments, values, strict=True)]
    return "\n".join(lines) + "\n"
