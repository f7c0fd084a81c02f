"""The state of a simulation between two events: the event queue and the states of its parts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import MethodType

from testbed.simulation.engine import Engine
from testbed.simulation.event_queue import ScheduledEvent
from testbed.simulation.plans import EnginePlans
from testbed.values.state import PlainState, fitting, pack, put_back, unpack


def state_of(engine: Engine) -> PlainState:
    """Return the whole state of an engine, between two events.

    Raises:
        AlgorithmError: a half holds an object that a checkpoint cannot hold; the error names it.
    """
    parts = {
        name: {one: getattr(part, one) for one in _saved_names(part)}
        for name, part in engine.parts.items()
    }
    whole = {
        "parts": parts,
        "devices": [vars(device) for device in engine.devices],
        "server": engine.server.state(),
        "workers": engine.workers.state(),
    }
    return pack(whole, engine.parts, EnginePlans(engine))


def restore(engine: Engine, packed: PlainState) -> None:
    """Restore a state into a new engine of the same scenario, before ``continue_run``.

    Raises:
        DataError: this is another scenario's state.
    """
    whole = unpack(packed, engine.parts, EnginePlans(engine))
    with fitting():
        for name, part in engine.parts.items():
            put_back(part, whole["parts"][name], _saved_names(part))
        for device, its in zip(engine.devices, whole["devices"], strict=True):
            put_back(device, its, vars(device))
        _check_plans(engine)
        engine.server.restore(whole["server"])
        engine.workers.restore(whole["workers"])


def _saved_names(part: object) -> Iterable[str]:
    """Return the attributes that a checkpoint saves: those of ``STATE``, or all."""
    names: Iterable[str] = getattr(part, "STATE", vars(part))
    return names


def _check_plans(engine: Engine) -> None:
    """Check that the event queue and the links hold only valid entries."""
    for time, order, planned in engine.events._heap:
        happens = isinstance(planned, ScheduledEvent) and (
            planned.callback is None or isinstance(planned.callback, partial | MethodType)
        )
        if not happens or not isinstance(time, int | float) or not isinstance(order, int):
            raise TypeError("the event queue holds an invalid entry")
    held = [one for device in engine.devices for one in device.deferred]
    links = (engine.uplink, engine.downlink)
    ends = [one for link in links for group in link._groups.values() for one in group.ends]
    if not all(isinstance(call, partial | MethodType) for call in (*held, *(e[2] for e in ends))):
        raise TypeError("a planned call is not callable")
