"""The state of a simulation between two events: what is to happen, and where its parts are."""

from __future__ import annotations

from testbed.simulation.engine import Engine
from testbed.values.state import PlainState, pack, unpack

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
    "timeline": ("_due", "_waiting"),
    "population": ("absent", "held", "crashed"),
}
"""What a checkpoint holds of each part of a simulation."""


def state_of(engine: Engine) -> PlainState:
    """All of an engine's state, between two events.

    Raises:
        AlgorithmError: a half holds something that no checkpoint can hold; names it.
    """
    parts = {
        name: {one: getattr(part, one) for one in CHANGING[name]}
        for name, part in engine.parts.items()
    }
    whole = {
        "parts": parts,
        "devices": [vars(device) for device in engine.devices],
        "server": engine.server.state(),
        "workers": engine.workers.state(),
    }
    return pack(whole, engine.parts)


def restore(engine: Engine, packed: PlainState) -> None:
    """Put a new engine where another one of the same scenario was, before ``go_on``.

    Raises:
        TestbedError: this is another scenario's state.
    """
    whole = unpack(packed, engine.parts)
    engine.server.restore(whole["server"])
    engine.workers.restore(whole["workers"])
    for name, part in engine.parts.items():
        vars(part).update(whole["parts"][name])
    for device, its in zip(engine.devices, whole["devices"], strict=True):
        vars(device).update(its)
