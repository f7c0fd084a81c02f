"""Panels and selectors that several dashboards have."""

from __future__ import annotations

from panels import Panel

RUN = 'run=~"$run"'
CLASS = f'{RUN}, class=~"$class"'
WORKER = f'{CLASS}, worker=~"$worker"'
STATES = (
    ("absent", "gray"),
    ("running", "green"),
    ("frozen or crashed", "blue"),
    ("lost", "red"),
    ("left", "orange"),
)
LEFT = 4
BAD = ((0.05, "red"),)
ANY = ((1, "red"),)

WORKER_STATES = Panel(
    "State of the workers",
    "A lost worker exited, and no planned fault caused it.",
    "none",
    {"{{worker}}": f"testbed_worker_state{{{WORKER}}}"},
    kind="states",
    width=24,
    height=10,
    words=STATES,
)
BY_STATE = Panel(
    "Workers by state",
    "How many are absent, run, wait for a reply, are frozen or crashed, lost, or have left.",
    "none",
    {"{{state}}": f"testbed_workers{{{RUN}}}"},
    colors={
        "absent": "gray",
        "running": "green",
        "waiting": "yellow",
        "frozen": "blue",
        "lost": "red",
        "left": "orange",
    },
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
