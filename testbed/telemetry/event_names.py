"""The names of events in ``events.jsonl``, for the controller and the parameter server."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.telemetry.event_kinds import (
    BroughtUp,
    ClockSet,
    Crashed,
    Done,
    Drained,
    Evaluated,
    Event,
    Exited,
    FaultApplied,
    Finished,
    Gap,
    Incomplete,
    Joined,
    KeysMissed,
    Launched,
    Left,
    LinkChanged,
    LinksCarried,
    LinksRead,
    Listening,
    Load,
    LogFull,
    MemoryRead,
    MessagesTimed,
    Omitted,
    Phase,
    Produced,
    RateMeasured,
    Rejected,
    Restored,
    Resumed,
    RoundTripMeasured,
    RuntimeChosen,
    Saved,
    Silent,
    Started,
    StateChanged,
    TornDown,
)

CONTROLLER: Mapping[str, type[Event]] = {
    "runtime": RuntimeChosen,
    "state": StateChanged,
    "phase": Phase,
    "launched": Launched,
    "brought_up": BroughtUp,
    "torn_down": TornDown,
    "links": LinksRead,
    "rate": RateMeasured,
    "round_trip": RoundTripMeasured,
    "messages_timed": MessagesTimed,
    "link_changed": LinkChanged,
    "exited": Exited,
    "log_full": LogFull,
    "clock_set": ClockSet,
    "fault": FaultApplied,
    "resumed": Resumed,
    "memory": MemoryRead,
    "carried": LinksCarried,
}
"""The controller's events, by name in the file."""

PS: Mapping[str, type[Event]] = {
    "listening": Listening,
    "joined": Joined,
    "left": Left,
    "silent": Silent,
    "crashed": Crashed,
    "gap": Gap,
    "started": Started,
    "evaluated": Evaluated,
    "rejected": Rejected,
    "incomplete": Incomplete,
    "keys_missed": KeysMissed,
    "omitted": Omitted,
    "load": Load,
    "produced": Produced,
    "finished": Finished,
    "drained": Drained,
    "saved": Saved,
    "restored": Restored,
    "done": Done,
}
"""The parameter server's events, by name in the file."""

EVENTS: Mapping[str, type[Event]] = {**CONTROLLER, **PS}
