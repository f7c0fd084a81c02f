"""From a link in a scenario, which speaks of emulated time, to what the kernel is asked for."""

from __future__ import annotations

from testbed.scenario.schema import Direction, Link
from testbed.topology import LinkSpec, Shape
from testbed.values.units import Duration, Rate


def link_spec(link: Link, *, address: str, mac: str, time_scale: float, seed: int = 0) -> LinkSpec:
    """A node's link in real units: rates times ``time_scale``, durations divided by it."""
    up, down = (shape_of(direction, time_scale) for direction in (link.up, link.down))
    return LinkSpec(address=address, mac=mac, up=up, down=down, seed=seed)


def shape_of(direction: Direction, time_scale: float) -> Shape:
    """One direction in real units."""
    rate = direction.rate
    return Shape(
        rate=None if rate is None else Rate(rate * time_scale),
        delay=_real(direction.delay, time_scale),
        jitter=_real(direction.jitter, time_scale),
        loss=direction.loss,
        queue=_real(direction.queue, time_scale),
        distribution=direction.distribution or "normal",
        loss_correlation=direction.loss_correlation,
    )


def direction_of(shape: Shape, time_scale: float) -> Direction:
    """The direction of a scenario that ``shape_of`` makes this of."""

    def emulated(real: Duration | None) -> Duration | None:
        return None if real is None else Duration(real * time_scale)

    return Direction(
        rate=None if shape.rate is None else Rate(shape.rate / time_scale),
        delay=emulated(shape.delay),
        jitter=emulated(shape.jitter),
        loss=shape.loss,
        queue=emulated(shape.queue),
        distribution=shape.distribution if shape.jitter else None,
        loss_correlation=shape.loss_correlation,
    )


def _real(emulated: Duration | None, time_scale: float) -> Duration | None:
    return None if emulated is None else Duration(emulated / time_scale)
