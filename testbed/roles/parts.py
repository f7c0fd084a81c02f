"""The parts of a training that a checkpoint holds in addition to its server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.roles.training import Training


def parts_of(training: Training) -> dict[str, tuple[object, tuple[str, ...]]]:
    """Return the parts of a training by name, with the saved attributes of each."""
    rows = ("applied", "applied_bytes", "_traffic", "_pending", "_streams")
    record = training.record
    return {
        "clock": (training.clock, ("_start",)),
        "exchanged": (training.exchanged, ("_latest",)),
        "training": (training, ("_present", "_removed")),
        "queue": (training.queue, ("_free_at",)),
        "record": (record, ("tally",)),
        "updates": (record.updates, rows),
    }
