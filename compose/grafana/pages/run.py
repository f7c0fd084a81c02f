"""How a run goes."""

from __future__ import annotations

from panels import Page, Panel

from pages.common import (
    ANY,
    CLASS,
    LOSS,
    PROGRESS,
    REASONS,
    RUN,
    TOP1,
    UPDATE_RATE,
    against_ingress,
    flow,
)

STATE = f"testbed_run_state{{{RUN}}}"

GLANCE = (
    Panel("Accuracy", "Top-1 at the last evaluation.", "percentunit", {"": TOP1}, "number", 4),
    Panel(
        "Updates a second",
        "Over the last half minute.",
        "ops",
        {"": f"sum(rate(testbed_updates_total{{{RUN}}}[30s]))"},
        "number",
        4,
    ),
    Panel("Progress", "By the stop rule.", "percentunit", {"": PROGRESS}, "number", 4, top=1),
    Panel(
        "To go",
        "At the pace of the last minute.",
        "s",
        {"": f"(1 - {PROGRESS}) / (deriv({PROGRESS}[1m]) > 0)"},
        "number",
        4,
    ),
    Panel(
        "Reasons against it",
        "How many reasons the verdict has so far.",
        "none",
        {"": f"sum(testbed_verdict_reasons{{{RUN}}})"},
        "number",
        4,
        limits=ANY,
    ),
    Panel(
        "State",
        "Of the run.",
        "none",
        # The newest: those of a run that was added after its end have no end of their own.
        {"{{state}}": f"{STATE} and topk by (run) (1, timestamp({STATE}))"},
        "name",
        4,
    ),
)

RUN_PAGE = Page(
    "run",
    "Run",
    "How a run goes: the model, the updates, the bytes and the verdict.",
    {
        "": (
            *GLANCE,
            Panel(
                "Accuracy",
                "Share of test images whose class is the first, or among the first five.",
                "percentunit",
                {"top {{top}}": f"testbed_accuracy_ratio{{{RUN}}}"},
                top=1,
            ),
            Panel("Loss", "Mean loss of the evaluations.", "none", {"loss": LOSS}),
            UPDATE_RATE,
            against_ingress("Accuracy", "percentunit", TOP1),
            against_ingress("Loss", "none", LOSS),
            Panel(
                "Staleness",
                "How many updates had which staleness.",
                "none",
                {
                    "{{le}}": "sum by (le) (increase("
                    f"testbed_staleness_updates_bucket{{{CLASS}}}[$__rate_interval]))"
                },
                kind="heat",
            ),
        ),
        "Bytes": (flow("up", "to the parameter server"), flow("down", "to the workers"), REASONS),
        "Parameter server and host": (
            Panel(
                "Requests that wait",
                "At the parameter server, for their reply: behind a barrier, or in its queue.",
                "none",
                {"waiting": f"testbed_server_waiting_requests{{{RUN}}}"},
            ),
            Panel(
                "CPUs in use",
                "By the parameter server, and by the metrics themselves.",
                "none",
                {
                    "server": f"rate(testbed_server_cpu_seconds_total{{{RUN}}}[$__rate_interval])",
                    "metrics": "rate("
                    f"testbed_exporter_cpu_seconds_total{{{RUN}}}[$__rate_interval])",
                },
            ),
            Panel(
                "Host",
                "Share of its CPU time in use, and of the time in which a process waited for one.",
                "percentunit",
                {
                    "busy": f"testbed_host_cpu_busy_ratio{{{RUN}}}",
                    "waited for": f"testbed_host_cpu_pressure_ratio{{{RUN}}}",
                },
                top=1,
                limits=((0.9, "red"),),
            ),
        ),
    },
)
