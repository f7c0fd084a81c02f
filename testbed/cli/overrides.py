"""The options that change a scenario on the command line, alike for every verb that has them."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.scenario import Override


def overrides(settings: Iterable[str], *, workers: int | None = None) -> list[Override]:
    """What ``--set`` (each ``path=value``) and ``--workers`` ask for; the latter wins.

    Raises:
        ScenarioError: a ``--set`` that is no ``path=value``.
    """
    asked = [Override.parse(text) for text in settings]
    if workers is not None:
        asked.append(Override(f"--workers {workers}", ("workers", "count"), workers))
    return asked
