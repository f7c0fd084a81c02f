"""What the links do."""

from __future__ import annotations

from panels import Page, Panel

from pages.common import BAD, CLASS, RUN, flow


def rates(direction: str) -> Panel:
    """What the links of each class should carry one way, and could before the training."""
    one = f'{CLASS}, class!="ps", direction="{direction}"'
    return Panel(
        f"Rate {direction}",
        "As configured, and as measured before training starts; 5 % apart makes a run invalid.",
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
                "suffix:p/s",
                {
                    "{{class}} {{direction}}": "rate("
                    f"testbed_link_dropped_packets_total{{{RUN}}}[$__rate_interval])"
                },
                width=12,
            ),
            Panel(
                "Backlog",
                "What waits in them.",
                "decbytes",
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
