"""The dashboards: what matters first is on the first screen of each."""

from __future__ import annotations

from panels import Page, Panel

RUN = 'run=~"$run"'
CLASS = f'{RUN}, class=~"$class"'
WORKER = f'{CLASS}, worker=~"$worker"'
STATES = ("absent", "running", "frozen", "lost", "left")
BAD = ((0.05, "red"),)
ANY = ((1, "red"),)

WORKER_STATES = Panel(
    "State of the workers",
    "Absent, running, frozen, lost or left. Who is lost has ended, and nobody had planned it.",
    "none",
    {"{{worker}}": f"testbed_worker_state{{{WORKER}}}"},
    kind="states",
    width=24,
    height=10,
    words=STATES,
)
BY_STATE = Panel(
    "Workers by state",
    "How many run, wait for a reply, are frozen, lost or have left.",
    "none",
    {"{{state}}": f"testbed_workers{{{RUN}}}"},
)
REASONS = Panel(
    "What speaks against the run",
    "Reasons of the verdict so far, by its rule; the summary has the sentences. None is good.",
    "none",
    {"{{rule}}": f"testbed_verdict_reasons{{{RUN}}}"},
    limits=ANY,
)
UPDATE_RATE = Panel(
    "Updates a second",
    "Updates that entered the model, by class.",
    "ops",
    {"{{class}}": f"sum by (class) (rate(testbed_updates_total{{{CLASS}}}[$__rate_interval]))"},
)


def flow(direction: str, whither: str) -> Panel:
    """Payload, TCP and Ethernet one way."""
    one = f'{RUN}, direction="{direction}"'
    return Panel(
        f"Bytes {whither}",
        "Payload, what TCP carried, and Ethernet frames with headers and acknowledgements.",
        "Bps",
        {
            "payload": f"sum(rate(testbed_payload_bytes_total{{{one}}}[$__rate_interval]))",
            "tcp": f"sum(rate(testbed_tcp_bytes_total{{{one}}}[$__rate_interval]))",
            "wire": f"sum(rate(testbed_wire_bytes_total{{{one}}}[$__rate_interval]))",
        },
    )


def against_ingress(what: str, unit: str, expression: str) -> Panel:
    """A measure of the model over the bytes that came to the parameter server."""
    return Panel(
        f"{what} against ingress",
        "By the payload of all pushes until then, which papers are compared by.",
        unit,
        {
            what.lower(): expression,
            "ingress": f'sum(testbed_payload_bytes_total{{{RUN}, direction="up"}})',
        },
        kind="against",
    )


TOP1 = f'testbed_accuracy_ratio{{{RUN}, top="1"}}'
LOSS = f"testbed_loss{{{RUN}}}"
PROGRESS = f"testbed_progress_ratio{{{RUN}}}"

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
        "State", "Of the run.", "none", {"{{state}}": f"testbed_run_state{{{RUN}}}"}, "number", 4
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
            Panel("Loss", "Mean cross-entropy of the evaluations.", "none", {"loss": LOSS}),
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


def rates(direction: str) -> Panel:
    """What the links of each class should carry one way, and could before the training."""
    one = f'{CLASS}, direction="{direction}"'
    return Panel(
        f"Rate {direction}",
        "As configured, and as measured before the training; 5 % apart makes a run invalid.",
        "Bps",
        {
            "{{class}} configured": f"testbed_link_configured_bytes_per_second{{{one}}}",
            "{{class}} probed": f"testbed_link_probed_bytes_per_second{{{one}}}",
        },
        width=12,
    )


NETWORK_PAGE = Page(
    "network",
    "Network",
    "Whether the links are what they are to be, and what waits in them.",
    {
        "": (
            rates("up"),
            rates("down"),
            Panel(
                "Round trip",
                "As configured, as probed before the training, and TCP's own now, with its queues.",
                "s",
                {
                    "{{class}} configured": "testbed_link_configured_round_trip_seconds"
                    f"{{{CLASS}}}",
                    "{{class}} probed": f"testbed_link_probed_round_trip_seconds{{{CLASS}}}",
                    "{{class}} now": f"testbed_link_round_trip_seconds{{{CLASS}}}",
                },
                width=12,
            ),
            Panel(
                "Sent again",
                "Share of TCP's bytes that were retransmitted; 5 % makes a run invalid.",
                "percentunit",
                {
                    "{{direction}}": "sum by (direction) "
                    f"(testbed_retransmitted_bytes_total{{{RUN}}}) / sum by (direction) "
                    f"(testbed_tcp_bytes_total{{{RUN}}} > 0)"
                },
                width=12,
                limits=BAD,
            ),
        ),
        "Queues": (
            Panel(
                "Dropped packets",
                "By the queues towards each class, and both ways at the parameter server (ps).",
                "pps",
                {
                    "{{class}} {{direction}}": "rate("
                    f"testbed_link_dropped_packets_total{{{RUN}}}[$__rate_interval])"
                },
                width=12,
            ),
            Panel(
                "Backlog",
                "What waits in them.",
                "bytes",
                {"{{class}} {{direction}}": f"testbed_link_backlog_bytes{{{RUN}}}"},
                width=12,
            ),
        ),
        "Parameter server's link": (
            flow("up", "to the parameter server"),
            flow("down", "to the workers"),
            Panel(
                "Payload by class",
                "To the parameter server.",
                "Bps",
                {
                    "{{class}}": "sum by (class) (rate(testbed_payload_bytes_total"
                    f'{{{CLASS}, direction="up"}}[$__rate_interval]))'
                },
            ),
        ),
    },
)

FAULTS_PAGE = Page(
    "faults",
    "Faults",
    "What went wrong by plan, and what became of it.",
    {
        "": (
            Panel(
                "Under a fault now",
                "Workers that are frozen or have crashed by plan.",
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

BY_RUN = "{{run}} ({{algorithm}})"

COMPARE_PAGE = Page(
    "compare",
    "Compare runs",
    "Several runs over one another; `testbed export prometheus RUN... --at now` lets them begin "
    "together.",
    {
        "": (
            Panel("Accuracy", "Top-1.", "percentunit", {BY_RUN: TOP1}, width=12, top=1),
            Panel("Loss", "Mean cross-entropy.", "none", {BY_RUN: LOSS}, width=12),
            Panel(
                "Updates",
                "In the model.",
                "none",
                {BY_RUN: f"sum by (run, algorithm) (testbed_updates_total{{{RUN}}})"},
            ),
            Panel(
                "Ingress",
                "Payload of all pushes.",
                "bytes",
                {
                    BY_RUN: "sum by (run, algorithm) (testbed_payload_bytes_total"
                    f'{{{RUN}, direction="up"}})'
                },
            ),
            Panel(
                "Mean staleness",
                "Of the updates of the last minute.",
                "none",
                {BY_RUN: f"run:testbed_staleness_updates:mean1m{{{RUN}}}"},
            ),
            Panel(
                "Updates a second",
                "By algorithm, over the last minute.",
                "ops",
                {
                    "{{algorithm}}": "sum by (algorithm) "
                    f"(run_class:testbed_updates:rate1m{{{RUN}}})"
                },
            ),
            Panel(
                "Blocked",
                "Share of the workers' time that the algorithm's waiting takes.",
                "percentunit",
                {
                    BY_RUN: "sum by (run, algorithm) (rate(testbed_worker_cycle_seconds_total"
                    f'{{{RUN}, activity="blocked"}}[1m])) / sum by (run, algorithm) '
                    f"(rate(testbed_worker_cycle_seconds_total{{{RUN}}}[1m]))"
                },
                top=1,
            ),
            Panel(
                "Reasons against them",
                "How many reasons the verdict has so far.",
                "none",
                {BY_RUN: f"sum by (run, algorithm) (testbed_verdict_reasons{{{RUN}}})"},
                limits=ANY,
            ),
        ),
    },
    several=True,
)

PAGES = (RUN_PAGE, DEVICES_PAGE, NETWORK_PAGE, FAULTS_PAGE, COMPARE_PAGE)
