"""The state of a simulation between two events: the agenda and the states of its parts."""

from __future__ import annotations

from functools import partial
from types import MethodType

from testbed.simulation.agenda import Planned
from testbed.simulation.engine import Engine
from testbed.simulation.plans import EnginePlans
from testbed.values.state import PlainState, fitting, pack, put_back, unpack

CHANGING = {
    "engine": ("_due", "_tick_at", "_tick", "_save_at"),
    "agenda": ("now", "_heap", "_made"),
    "queue": ("_free_at",),
    "uplink": ("_groups", "_settled", "_started", "_next"),
    "downlink": ("_groups", "_settled", "_started", "_next"),
    "record": ("applied", "applied_bytes", "_traffic", "_pending", "_streams"),
    "faults": ("_next", "horizon"),
    "traces": (),
    "coding": ("_version", "_ready_at", "_signature"),
    "timeline": ("_due", "_changes", "_waiting"),
    "population": ("absent", "held", "crashed"),
}
"""The attributes of each part that a checkpoint saves; of a bucket, all of them."""


def state_of(engine: Engine) -> PlainState:
    """Return the whole state of an engine, between two events.

    Raises:
        AlgorithmError: a half holds an object that a checkpoint cannot hold; the error names it.
    """
    parts = {
        name: {one: getattr(part, one) for one in CHANGING.get(name, vars(part))}
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
    """Restore a state into a new engine of the same scenario, before ``go_on``.

    Raises:
        DataError: this is another scenario's state.
    """
    whole = unpack(packed, engine.parts, EnginePlans(engine))
    with fitting():
        for name, part in engine.parts.items():
            put_back(part, whole["parts"][name], CHANGING.get(name, vars(part)))
        for device, its in zip(engine.devices, whole["devices"], strict=True):
            put_back(device, its, vars(device))
        _check_plans(engine)
        engine.server.restore(whole["server"])
        engine.workers.restore(whole["workers"])


def _check_plans(engine: Engine) -> None:
    """Check that the agenda and the links hold only valid entries."""
    for time, order, planned in engine.agenda._heap:
        happens = isinstance(planned, Planned) and (
            planned.happening is None or isinstance(planned.happening, partial | MethodType)
        )
        if not happens or not isinstance(time, int | float) or not isinstance(order, int):
            raise TypeError("the event queue holds an invalid entry")
    held = [one for device in engine.devices for one in device.held]
    links = (engine.uplink, engine.downlink)
    ends = [one for link in links for group in link._groups.values() for one in group.ends]
    if not all(isinstance(call, partial | MethodType) for call in (*held, *(e[2] for e in ends))):
        raise TypeError("a planned call is not callable")
