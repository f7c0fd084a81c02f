"""What the workers do."""

from __future__ import annotations

from panels import Page, Panel

from pages.common import BAD, BY_STATE, CLASS, RUN, UPDATE_RATE, WORKER, WORKER_STATES

DEVICES_PAGE = Page(
    "devices",
    "Devices",
    "What the workers do, and what their containers use.",
    {
        "": (
            WORKER_STATES,
            UPDATE_RATE,
            Panel(
                "Where the time goes",
                "Shares of the workers' cycles: computing, thinking, transferring, and blocked by "
                "the algorithm's waiting.",
                "percentunit",
                {
                    "{{activity}}": "sum by (activity) (rate(testbed_worker_cycle_seconds_total"
                    f"{{{WORKER}}}[$__rate_interval])) / ignoring (activity) group_left "
                    "sum(rate(testbed_worker_cycle_seconds_total"
                    f"{{{WORKER}}}[$__rate_interval]))"
                },
                kind="shares",
                top=1,
            ),
            Panel(
                "Late steps",
                "Share of the updates whose steps took longer than the speed of their class.",
                "percentunit",
                {
                    "{{class}}": "sum by (class) (rate("
                    f"testbed_late_steps_total{{{CLASS}}}[$__rate_interval])) / (sum by (class) "
                    f"(rate(testbed_updates_total{{{CLASS}}}[$__rate_interval])) > 0)"
                },
                limits=BAD,
            ),
            BY_STATE,
            Panel(
                "Longest without an update",
                "The ten workers whose last update is the oldest.",
                "s",
                {"{{worker}}": f"topk(10, testbed_worker_push_age_seconds{{{WORKER}}})"},
            ),
            Panel(
                "Slowest workers",
                "The ten with the fewest updates.",
                "none",
                {"{{worker}}": f"bottomk(10, testbed_worker_updates_total{{{WORKER}}})"},
            ),
        ),
        "Containers": (
            Panel(
                "Memory by class",
                "Mean of the containers, where control groups tell.",
                "bytes",
                {"{{class}}": f"avg by (class) (testbed_container_memory_bytes{{{RUN}}})"},
                width=12,
            ),
            Panel(
                "CPUs by class",
                "Mean of the containers, where control groups tell.",
                "none",
                {
                    "{{class}}": "avg by (class) (rate("
                    f"testbed_container_cpu_seconds_total{{{RUN}}}[$__rate_interval]))"
                },
                width=12,
            ),
        ),
    },
)
