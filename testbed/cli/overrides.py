"""The options that change a scenario on the command line, alike for every verb that has them."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.scenario import Override


def overrides(
    settings: Iterable[str], *, workers: int | None = None, runtime: str | None = None
) -> list[Override]:
    """What ``--set`` (each ``path=value``), ``--workers`` and ``--runtime`` ask for; these two win.

    Raises:
        ScenarioError: a ``--set`` that is no ``path=value``.
    """
    asked = [Override.parse(text) for text in settings]
    if workers is not None:
        asked.append(Override(f"--workers {workers}", ("workers", "count"), workers))
    if runtime is not None:
        asked.append(Override(f"--runtime {runtime}", ("runtime",), runtime))
    return asked
