"""When workers are present: a recording, or periods that are drawn for each."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from testbed.scenario.direction import Recording
from testbed.scenario.durations import Period
from testbed.values.fields import StrictModel


class Presence(StrictModel):
    """Periods in turn in which a worker is present and absent; training starts anywhere in them.

    Attributes:
        present: how long a worker is present: a duration, or a law for each period or each device.
        absent: how long it is absent.
    """

    present: Period
    absent: Period


def _form(value: Any) -> str:
    """Return the form of an availability, so that errors mention only that form."""
    drawn = isinstance(value, dict) and {"present", "absent"} & value.keys()
    return "Presence" if drawn or isinstance(value, Presence) else "Recording"


Attendance = Annotated[
    Annotated[Recording, Tag("Recording")] | Annotated[Presence, Tag("Presence")],
    Discriminator(_form),
]
"""When workers are present."""
