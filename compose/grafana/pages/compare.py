"""Several runs over one another."""

from __future__ import annotations

from panels import Page, Panel

from pages.common import ANY, LOSS, RUN, TOP1

BY_RUN = "{{run}} ({{algorithm}}) {{instance}}"
SUM = "sum by (run, algorithm, instance)"
"""Runs of one name in two folders have exporters of their own: Prometheus's label ``instance``."""


def staleness(part: str) -> str:
    """How fast the histogram's sum or count grows; nothing is recorded for runs that are added."""
    return f"{SUM} (rate(testbed_staleness_updates_{part}{{{RUN}}}[1m]))"


COMPARE_PAGE = Page(
    "compare",
    "Compare runs",
    "Several runs over one another; `testbed export prometheus RUN... --at now` lets them begin "
    "together.",
    {
        "": (
            Panel("Accuracy", "Top-1.", "percentunit", {BY_RUN: TOP1}, width=12, top=1),
            Panel("Loss", "Mean loss.", "none", {BY_RUN: LOSS}, width=12),
            Panel(
                "Updates",
                "In the model.",
                "none",
                {BY_RUN: f"{SUM} (testbed_updates_total{{{RUN}}})"},
            ),
            Panel(
                "Ingress",
                "Payload of all pushes.",
                "decbytes",
                {BY_RUN: f'{SUM} (testbed_payload_bytes_total{{{RUN}, direction="up"}})'},
            ),
            Panel(
                "Mean staleness",
                "Of the updates of the last minute.",
                "none",
                {BY_RUN: f"{staleness('sum')} / ({staleness('count')} > 0)"},
            ),
            Panel(
                "Updates a second",
                "Over the last minute.",
                "ops",
                {BY_RUN: f"{SUM} (rate(testbed_updates_total{{{RUN}}}[1m]))"},
            ),
            Panel(
                "Blocked",
                "Share of the workers' time that the algorithm's waiting takes.",
                "percentunit",
                {
                    BY_RUN: f"{SUM} (rate(testbed_worker_cycle_seconds_total"
                    f'{{{RUN}, activity="blocked"}}[1m])) / {SUM} '
                    f"(rate(testbed_worker_cycle_seconds_total{{{RUN}}}[1m]))"
                },
                top=1,
            ),
            Panel(
                "Reasons against them",
                "How many reasons the verdict has so far.",
                "none",
                {BY_RUN: f"{SUM} (testbed_verdict_reasons{{{RUN}}})"},
                limits=ANY,
            ),
        ),
    },
    several=True,
)
