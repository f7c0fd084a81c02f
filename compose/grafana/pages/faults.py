"""What went wrong by plan."""

from __future__ import annotations

from panels import Page, Panel

from pages.common import BY_STATE, REASONS, RUN, UPDATE_RATE, WORKER_STATES

FAULTS_PAGE = Page(
    "faults",
    "Faults",
    "What went wrong by plan, and what became of it.",
    {
        "": (
            Panel(
                "Under a fault now",
                "Workers that a fault affects now; kill, leave and join are over at once.",
                "none",
                {"{{fault}}": f"testbed_faults_active{{{RUN}}}"},
            ),
            Panel(
                "Struck so far",
                "Workers that faults have struck, by kind.",
                "none",
                {"{{fault}}": f"testbed_faults_total{{{RUN}}}"},
            ),
            Panel(
                "Planned and actual",
                "How long after its planned time the latest fault of each kind came; a second of "
                "real time makes a run invalid.",
                "s",
                {
                    "{{fault}}": f"testbed_fault_actual_seconds{{{RUN}}} - "
                    f"testbed_fault_planned_seconds{{{RUN}}}"
                },
                limits=((1, "red"),),
            ),
            WORKER_STATES,
            BY_STATE,
            UPDATE_RATE,
            REASONS,
        ),
    },
)
