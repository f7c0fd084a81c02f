"""What the workers do."""

from __future__ import annotations

from panels import Page, Panel

from pages.common import BAD, BY_STATE, CLASS, LEFT, RUN, UPDATE_RATE, WORKER, WORKER_STATES


def samples_a_second(metric: str) -> str:
    """How fast a counter of samples grows, all chosen classes together."""
    return f"sum(rate(testbed_stream_{metric}_samples_total{{{CLASS}}}[$__rate_interval]))"


STREAMS = (
    Panel(
        "Samples a second",
        "Produced: came to the workers; of those, used for steps, truncated by the buffer's policy "
        "or dropped as duplicates. The rest waits.",
        "cps",
        {
            "produced": samples_a_second("produced"),
            "used": samples_a_second("used"),
            "truncated": samples_a_second("truncated"),
            "duplicates": samples_a_second("duplicate"),
        },
    ),
    Panel(
        "Buffered samples",
        "That wait at the workers, by class. What only grows is more than the steps can use.",
        "none",
        {"{{class}}": f"testbed_stream_buffered_samples{{{CLASS}}}"},
    ),
    Panel(
        "Truncated",
        "Share of the samples produced so far that the buffer's policy has discarded.",
        "percentunit",
        {
            "{{class}}": f"testbed_stream_truncated_samples_total{{{CLASS}}} / "
            f"(testbed_stream_produced_samples_total{{{CLASS}}} > 0)"
        },
        top=1,
    ),
    Panel(
        "Batch",
        "Samples of a worker's own stream in its last update: mean of the class.",
        "none",
        {"{{class}}": f"testbed_stream_batch_samples{{{CLASS}}}"},
    ),
    Panel(
        "Lag",
        "Age of the oldest sample when it was taken: mean of the class.",
        "s",
        {"{{class}}": f"testbed_stream_lag_seconds{{{CLASS}}}"},
    ),
    Panel(
        "Waiting for samples",
        "Workers of a class that wait for samples, on the mean.",
        "none",
        {"{{class}}": f"rate(testbed_stream_wait_seconds_total{{{CLASS}}}[$__rate_interval])"},
    ),
)

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
                "The ten workers whose last update is the oldest, of those that have not left.",
                "s",
                {
                    "{{worker}}": f"topk(10, testbed_worker_push_age_seconds{{{WORKER}}} unless "
                    f"testbed_worker_state{{{WORKER}}} == {LEFT})"
                },
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
        "Data streams": STREAMS,
    },
)
