"""Profiles of devices and links: numbers from public measurements, each with its source and date.

They are data: ``data/devices.yaml`` and ``data/links.yaml`` beside this file. A device of
one's own is a file in the same form, as `testbed calibrate` writes it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import Field, ValidationError

from testbed.errors import InvalidValue
from testbed.values.fields import PositiveNumber, StrictModel, Word

Profile = TypeVar("Profile")
Text = Annotated[str, Field(min_length=1)]


class DeviceProfile(StrictModel):
    """What a device computes.

    Attributes:
        gflops: 10^9 floating-point operations per second.
        memory_gb_per_second: bandwidth of its memory, 10^9 bytes per second.
        source: where the numbers are from.
        date: when they were measured or published.
        note: what they are exactly.
    """

    gflops: PositiveNumber
    memory_gb_per_second: PositiveNumber | None = None
    source: Text
    date: Text
    note: str = ""


class LinkProfile(StrictModel):
    """What a link carries.

    Attributes:
        up_mbit: 10^6 bits per second from the device.
        down_mbit: 10^6 bits per second to the device.
        rtt_ms: round trip, of which each direction delays half.
        source: where the numbers are from.
        date: when they were measured.
        note: what they are exactly.
    """

    up_mbit: PositiveNumber
    down_mbit: PositiveNumber
    rtt_ms: PositiveNumber | None = None
    source: Text
    date: Text
    note: str = ""

    def directions(self) -> dict[str, dict[str, str]]:
        """Return the fields of a link in a scenario."""
        delay = {} if self.rtt_ms is None else {"delay": f"{self.rtt_ms / 2:.12g}ms"}
        return {
            "up": {"rate": f"{self.up_mbit:.12g}mbit", **delay},
            "down": {"rate": f"{self.down_mbit:.12g}mbit", **delay},
        }


@cache
def device_profiles() -> dict[str, DeviceProfile]:
    """Return the shipped devices by name."""
    return {name: DeviceProfile(**one) for name, one in _shipped("devices").items()}


@cache
def link_profiles() -> dict[str, LinkProfile]:
    """Return the shipped links by name."""
    return {name: LinkProfile(**one) for name, one in _shipped("links").items()}


def _shipped(kind: str) -> dict[str, dict[str, Any]]:
    text = (files(__package__) / "data" / f"{kind}.yaml").read_text("utf-8")
    found: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return found


def is_file(name: str) -> bool:
    """Whether the name of a device profile is that of a file."""
    return "/" in name or name.endswith((".yaml", ".yml"))


def read_profile(file: Path) -> DeviceProfile:
    """Read a device's profile from a file.

    Raises:
        OSError: it cannot be read.
        InvalidValue: it is not a profile.
    """
    try:
        return DeviceProfile.model_validate(yaml.safe_load(file.read_text("utf-8")))
    except (ValidationError, yaml.YAMLError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
            reason = "no mapping" if first["type"] == "model_type" else reason
        expected = "gflops, memory_gb_per_second, source and date, as testbed calibrate writes them"
        raise InvalidValue(f"no device profile ({reason})", expected) from None


def known_device(name: Word) -> DeviceProfile:
    """Return a shipped device.

    Raises:
        InvalidValue: there is none of this name.
    """
    return _known(name, device_profiles(), "a device, or a file such as ./mine.yaml")


def known_link(name: Word) -> LinkProfile:
    """Return a shipped link.

    Raises:
        InvalidValue: there is none of this name.
    """
    return _known(name, link_profiles(), "a link")


def _known(name: str, found: dict[str, Profile], what: str) -> Profile:
    if name not in found:
        raise InvalidValue(repr(name), f"{what}: one of {', '.join(found)}")
    return found[name]
