"""The columns of a run's tables, each declared once.

A row of updates or of traffic is a NamedTuple: it is built by name and stored in the order of its
table. The layout of spool and parts, the headers of the CSV files, the types of the pandas tables
and the tables in docs/run-folder.md are generated from these declarations.

Add new columns at the end, with a default: it is used for folders that were written without the
column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from testbed.telemetry.event_kinds import Evaluated

REQUIRED = object()
"""The default of a column that every folder has."""

CLOCK = "the clock of the training"
PUSH = "the push"
WORKER = "the worker, in its push"
STREAM = "the worker's buffer"
UPDATE_OF = "the algorithm's server side"
SNAPSHOT = "the parameter server, when the model is copied"
EVALUATOR = "the evaluator"
INTERFACE = "`eth0` of the parameter server"
SOCKETS = "the parameter server's sockets"
HOST = "the host's /proc"
SWITCH = "the node's port of the switch"


@dataclass(frozen=True)
class Column:
    """The properties of a column."""

    type: str  # numpy's, or pandas' ``Int64`` for whole numbers that may be missing
    meaning: str  # a short description
    source: str  # where it is measured
    unit: str = ""  # its unit, if its name does not include it
    default: Any = REQUIRED  # the value for folders that were written without the column


class UpdateRow(NamedTuple):
    """One update in the model."""

    time_seconds: Annotated[float, Column("<f8", "when it was applied, emulated", CLOCK)]
    wall_seconds: Annotated[float, Column("<f8", "the same, in real time", CLOCK)]
    worker: Annotated[int, Column("<i4", "index of the worker", PUSH)]
    sequence: Annotated[int, Column("<i8", "number of this worker's push, from 1", PUSH)]
    version_pulled: Annotated[
        int, Column("<i8", "j: version of the model that it was computed on", PUSH, "updates")
    ]
    version_applied: Annotated[
        int, Column("<i8", "i: updates in the model before this one", UPDATE_OF, "updates")
    ]
    staleness: Annotated[
        int,
        Column(
            "<i8",
            "i - j, without updates applied together with it",
            UPDATE_OF,
            "updates",
        ),
    ]
    sigma_mean: Annotated[
        float,
        Column(
            "<f4",
            "mean, over the values sent, of the staleness by which the algorithm divided the "
            "learning rate",
            UPDATE_OF,
            "updates",
        ),
    ]
    sigma_max: Annotated[int, Column("<i8", "the largest such staleness", UPDATE_OF, "updates")]
    step_scale: Annotated[
        float, Column("<f4", "mean over the values sent of 1 / max(1, sigma)", UPDATE_OF, "ratio")
    ]
    samples: Annotated[int, Column("<i4", "training samples used", PUSH, "samples")]
    entries: Annotated[int, Column("<i8", "values sent", PUSH, "values")]
    payload_up_bytes: Annotated[
        int, Column("<i8", "payload of this push and of its `messages`", "the codec")
    ]
    payload_down_bytes: Annotated[
        int,
        Column(
            "<i8",
            "payload of the reply with the model it was computed on, and of the replies to its "
            "`messages`",
            "the codec",
        ),
    ]
    compute_seconds: Annotated[
        float, Column("<f4", "computation; at the speed of its class if it has one", WORKER)
    ]
    late_seconds: Annotated[
        float, Column("<f4", "duration of the step beyond the speed of its class", WORKER)
    ]
    think_seconds: Annotated[float, Column("<f4", "the wait between computation and push", WORKER)]
    transfer_seconds: Annotated[
        float,
        Column(
            "<f4",
            "the call that returned the model, and those of its `messages`, without "
            "`blocked_seconds`; includes a worker's coding if a simulation sets `codec`",
            WORKER,
        ),
    ]
    blocked_seconds: Annotated[
        float,
        Column(
            "<f4",
            "time for which the parameter server delayed the replies of these calls: waiting by "
            "the algorithm, the queue of `ps.service`, and coding there by `codec`",
            WORKER,
        ),
    ]
    steps: Annotated[int, Column("<i4", "training steps used", PUSH, "steps")] = 1
    messages: Annotated[
        int,
        Column(
            "<i4",
            "messages that the worker sent without a step since its last update",
            PUSH,
            "messages",
        ),
    ] = 0
    overslept_seconds: Annotated[
        float, Column("<f4", "excess of `think_seconds` over the drawn time", WORKER)
    ] = 0.0
    pickle9_bytes: Annotated[
        int,
        Column(
            "<i8",
            "payload of this push and of its `messages` with 9 bytes per value and 3 per index",
            PUSH,
        ),
    ] = 0
    saturated: Annotated[
        int,
        Column(
            "<i8", "values beyond the range of float16, sent as its largest value", WORKER, "values"
        ),
    ] = 0


class StreamColumns(NamedTuple):
    """Additional columns of an update if the algorithm can train on streams."""

    stream_wait_seconds: Annotated[
        float, Column("<f4", "time spent waiting for samples since its last update", STREAM)
    ] = 0.0
    stream_lag_seconds: Annotated[
        float, Column("<f4", "age of the oldest sample when it was used", STREAM)
    ] = 0.0
    stream_rate: Annotated[
        float, Column("<f4", "measured rate of arriving samples, per second", STREAM, "samples/s")
    ] = 0.0
    stream_produced: Annotated[
        int,
        Column(
            "<i8",
            "samples that had arrived at the device, including repeated ones",
            STREAM,
            "samples",
        ),
    ] = 0
    stream_used: Annotated[int, Column("<i8", "of those, used for steps", STREAM, "samples")] = 0
    stream_buffered: Annotated[
        int, Column("<i8", "of those, waiting after the step took its samples", STREAM, "samples")
    ] = 0
    stream_truncated: Annotated[
        int, Column("<i8", "of those, discarded by the buffer policy", STREAM, "samples")
    ] = 0
    stream_duplicates: Annotated[
        int, Column("<i8", "of those, dropped as duplicates", STREAM, "samples")
    ] = 0
    stream_latency_seconds: Annotated[
        float, Column("<f4", "time from the creation of the newest sample to its arrival", STREAM)
    ] = 0.0
    stream_refused: Annotated[
        int, Column("<i8", "received records that were not samples", STREAM, "records")
    ] = 0
    stream_missing: Annotated[
        int, Column("<i8", "samples that never arrived, including rejected ones", STREAM, "samples")
    ] = 0
    injected: Annotated[
        int, Column("<i4", "of `samples`, those shared by other workers", PUSH, "samples")
    ] = 0
    compressed: Annotated[int, Column("<i4", "1 if it was compressed", PUSH, "boolean")] = 0
    rho: Annotated[
        float, Column("<f4", "share of the squared norm lost by Top-k", PUSH, "ratio")
    ] = 0.0
    rho_mean: Annotated[
        float, Column("<f4", "its moving average, which decides on compression", PUSH, "ratio")
    ] = 0.0


class TrafficRow(NamedTuple):
    """One reading of the kernel's counters and of the host; None for missing measurements."""

    time_seconds: Annotated[
        float | None, Column("float64", "emulated time; empty before the training", CLOCK)
    ]
    wall_seconds: Annotated[float | None, Column("float64", "the same, in real time", CLOCK)]
    sockets: Annotated[int, Column("Int64", "open connections", SOCKETS, "sockets")]
    wire_rx_bytes: Annotated[
        int, Column("Int64", "received: Ethernet frames, headers, ACKs of the pulls", INTERFACE)
    ]
    wire_rx_packets: Annotated[int, Column("Int64", "received", INTERFACE, "packets")]
    wire_tx_bytes: Annotated[int, Column("Int64", "sent", INTERFACE)]
    wire_tx_packets: Annotated[int, Column("Int64", "sent", INTERFACE, "packets")]
    tcp_received_bytes: Annotated[
        int, Column("Int64", "received, without headers and retransmissions", SOCKETS)
    ]
    tcp_segments_in: Annotated[int, Column("Int64", "received", SOCKETS, "segments")]
    tcp_acked_bytes: Annotated[
        int, Column("Int64", "sent and acknowledged, without headers and retransmissions", SOCKETS)
    ]
    tcp_segments_out: Annotated[
        int, Column("Int64", "sent, including retransmissions", SOCKETS, "segments")
    ]
    retransmitted_in_bytes: Annotated[int, Column("Int64", "retransmitted", "the workers' sockets")]
    retransmitted_out_bytes: Annotated[int, Column("Int64", "retransmitted", SOCKETS)]
    host_busy_ratio: Annotated[
        float | None,
        Column("float64", "share of the CPU time used since the previous row", HOST),
    ]
    host_available_bytes: Annotated[int | None, Column("Int64", "available memory", HOST)]
    host_pressure_ratio: Annotated[
        float | None,
        Column(
            "float64",
            "share of the time since the previous row in which a process waited for a CPU; "
            "empty in older folders, and if the kernel does not report it",
            HOST,
        ),
    ] = None


Rows = NDArray[np.void]
"""Rows of the record of updates, shape (n,), dtype ``UPDATE`` or ``STREAMED``."""


class LinkRow(NamedTuple):
    """Capacity and traffic of a link that follows a recording, since the previous row."""

    time_seconds: Annotated[float, Column("float64", "end of the interval, emulated", CLOCK)]
    wall_seconds: Annotated[float, Column("float64", "the same, in real time", CLOCK)]
    node: Annotated[str, Column("str", "the node of the link", SWITCH)]
    direction: Annotated[str, Column("str", "`up` or `down`", SWITCH)]
    asked_bits_per_second: Annotated[
        float, Column("float64", "mean of the rate in the trace, emulated", "the trace", "bit/s")
    ]
    delivered_bits_per_second: Annotated[
        float, Column("float64", "transferred Ethernet frames, emulated", SWITCH, "bit/s")
    ]


def _columns(
    row: type[UpdateRow] | type[StreamColumns] | type[TrafficRow] | type[LinkRow],
) -> Mapping[str, Column]:
    hints = get_type_hints(row, include_extras=True)
    defaults: dict[str, Any] = dict.fromkeys(row._fields, REQUIRED) | row._field_defaults
    return {
        name: replace(hints[name].__metadata__[0], default=default)
        for name, default in defaults.items()
    }


def _evaluation_columns() -> Mapping[str, Column]:
    """Return the fields of the event, with real time next to emulated time."""
    kinds = {float: "float64", float | None: "float64", int: "int64", bool: "bool"}
    units = {"version": "updates", "top1": "ratio", "top5": "ratio", "images": "images"}
    made = {}
    for name, hint in get_type_hints(Evaluated, include_extras=True).items():
        source = SNAPSHOT if name in ("time_seconds", "version", "payload_up_bytes") else EVALUATOR
        kind, meaning = kinds[hint.__origin__], hint.__metadata__[0]
        default = getattr(Evaluated, name, REQUIRED)  # a dataclass keeps defaults in the class
        made[name] = Column(kind, meaning, source, units.get(name, ""), default)
        if name == "time_seconds":
            made["wall_seconds"] = Column("float64", "the same, in real time", SNAPSHOT)
    return made


UPDATES = _columns(UpdateRow)
"""The columns of the record of updates, by name and in order."""

STREAMS = _columns(StreamColumns)
"""The additional columns if the algorithm can train on streams."""

EVALUATIONS = _evaluation_columns()
"""The columns of ``evaluations.csv``."""

TRAFFIC = _columns(TrafficRow)
"""The columns of ``traffic.csv``."""

LINKS = _columns(LinkRow)
"""The columns of ``links.csv``."""

UPDATE = np.dtype([(name, column.type) for name, column in UPDATES.items()])
"""The layout of an update's row, in the spool and in memory."""

STREAMED = np.dtype([(name, column.type) for name, column in (*UPDATES.items(), *STREAMS.items())])
"""The same, followed by the columns of streams."""


def joined(blocks: Iterable[Rows]) -> Rows:
    """Concatenate rows of one run, in order; ``UPDATE`` if there are none."""
    found = [block for block in blocks if len(block)]
    return np.concatenate(found) if found else np.empty(0, UPDATE)


def conform(
    stored: Mapping[str, NDArray[Any]], count: int, columns: Mapping[str, Column] | None = None
) -> Rows:
    """Convert another version's record of updates to rows of the current layout.

    Includes the columns of streams if any of them is stored; ``columns`` overrides the layout.

    An unknown stored column is left out; a missing column gets its default. The stored columns
    have the shape (count,).

    Raises:
        KeyError: a column without a default is missing.
    """
    if columns is None:
        columns = UPDATES if STREAMS.keys().isdisjoint(stored) else {**UPDATES, **STREAMS}
    made = np.empty(count, [(name, column.type) for name, column in columns.items()])
    for name, column in columns.items():
        if name not in stored and column.default is REQUIRED:
            raise KeyError(name)
        made[name] = stored.get(name, column.default)
    return made
