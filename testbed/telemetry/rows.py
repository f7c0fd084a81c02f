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

from testbed.telemetry.ps_events import Evaluated

REQUIRED = object()
"""The default of a column that every folder has."""

CLOCK = "the clock of the training"
PUSH = "the push"
WORKER = "the worker, sent in the push"
STREAM = "the worker's buffer"
UPDATE_OF = "the algorithm's server side"
SNAPSHOT = "the parameter server, when the model is copied"
EVALUATOR = "the evaluator"
INTERFACE = "`eth0` of the parameter server"
SOCKETS = "the parameter server's sockets"
HOST = "the host's /proc"
SWITCH = "the node's port of the switch"
NODE = "`eth0` of the node"
PAIRS = "the node's sockets"


@dataclass(frozen=True)
class Column:
    """The properties of a column."""

    type: str  # numpy's, or pandas' ``Int64`` for whole numbers that may be missing
    meaning: str  # a short description
    source: str  # where it is measured
    unit: str = ""  # its unit, if its name does not include it
    default: Any = REQUIRED  # the value for folders that were written without the column


F8 = Annotated[float, "<f8"]
F4 = Annotated[float, "<f4"]
I8 = Annotated[int, "<i8"]
I4 = Annotated[int, "<i4"]
Count = Annotated[int, "Int64"]
MeasuredCount = Annotated[int | None, "Int64"]
Real = Annotated[float, "float64"]
Measured = Annotated[float | None, "float64"]
Text = Annotated[str, "str"]


class UpdateRow(NamedTuple):
    """One update in the model."""

    time_seconds: Annotated[F8, "when the update was applied, in emulated time", CLOCK]
    wall_seconds: Annotated[F8, "when the update was applied, in real time", CLOCK]
    worker: Annotated[I4, "index of the worker", PUSH]
    sequence: Annotated[I8, "number of the push among all pushes of the worker, from 1", PUSH]
    version_pulled: Annotated[
        I8, "j: version of the model on which the update was computed", PUSH, "updates"
    ]
    version_applied: Annotated[
        I8, "i: number of updates in the model before this one", UPDATE_OF, "updates"
    ]
    staleness: Annotated[
        I8, "i - j, not counting updates applied together with this one", UPDATE_OF, "updates"
    ]
    sigma_mean: Annotated[
        F4,
        "mean, over the values sent, of the staleness by which the algorithm divided the "
        "learning rate",
        UPDATE_OF,
        "updates",
    ]
    sigma_max: Annotated[
        I8,
        "maximum, over the values sent, of the staleness by which the algorithm divided the "
        "learning rate",
        UPDATE_OF,
        "updates",
    ]
    step_scale: Annotated[
        F4,
        "mean, over the values sent, of 1 / max(1, sigma), where sigma is the staleness in "
        "`sigma_mean`; 0 for an update that was dropped",
        UPDATE_OF,
        "ratio",
    ]
    samples: Annotated[I4, "training samples on which the update was computed", PUSH, "samples"]
    entries: Annotated[I8, "number of values in the push", PUSH, "values"]
    payload_up_bytes: Annotated[
        I8, "payload of the push and of the `messages` before it", "the codec"
    ]
    payload_down_bytes: Annotated[
        I8,
        "payload of the reply with the model on which the update was computed, and of the "
        "replies to the `messages` before it",
        "the codec",
    ]
    compute_seconds: Annotated[
        F4,
        "duration of the training steps; with a `speed`, including the wait; includes time frozen, "
        "in a simulation also that in think time",
        WORKER,
    ]
    late_seconds: Annotated[
        F4, "how much longer the steps took than by their `speed`, without time frozen", WORKER
    ]
    think_seconds: Annotated[F4, "think time: the wait between computing and pushing", WORKER]
    transfer_seconds: Annotated[
        F4,
        "duration of the call that returned the model and of the calls for `messages`, "
        "without `blocked_seconds`; in a simulation with `codec`, with encoding and decoding "
        "by the worker",
        WORKER,
    ]
    blocked_seconds: Annotated[
        F4,
        "time for which the parameter server delayed the replies to these calls: waits by the "
        "algorithm, the queue and time of `ps.service`, and with `codec` its encoding and "
        "decoding",
        WORKER,
    ]
    steps: Annotated[I4, "training steps in the update", PUSH, "steps"] = 1
    messages: Annotated[
        I4,
        "messages without a training step that the worker sent since its previous update",
        PUSH,
        "messages",
    ] = 0
    overslept_seconds: Annotated[
        F4, "excess of `think_seconds` over the think time drawn, without time frozen", WORKER
    ] = 0.0
    pickle9_bytes: Annotated[
        I8,
        "payload of the push and of the `messages` before it, if values had 9 bytes and indices 3",
        PUSH,
    ] = 0
    saturated: Annotated[
        I8, "values beyond the range of float16, sent as its largest value", WORKER, "values"
    ] = 0
    queued_seconds: Annotated[
        F4,
        "part of `compute_seconds` in which the worker waited for its turn, with `compute: shared`",
        WORKER,
    ] = 0.0


class StreamColumns(NamedTuple):
    """Additional columns of an update if the algorithm can train on streams."""

    stream_wait_seconds: Annotated[
        F4, "time for which the worker waited for samples since its last update", STREAM
    ] = 0.0
    stream_lag_seconds: Annotated[
        F4, "age of the update's oldest sample when it was used", STREAM
    ] = 0.0
    stream_rate: Annotated[F4, "measured rate of arriving samples", STREAM, "samples/s"] = 0.0
    stream_produced: Annotated[
        I8, "samples that had arrived at the device, including duplicates", STREAM, "samples"
    ] = 0
    stream_used: Annotated[I8, "arrived samples that steps had used", STREAM, "samples"] = 0
    stream_buffered: Annotated[
        I8, "arrived samples left in the buffer by the step", STREAM, "samples"
    ] = 0
    stream_truncated: Annotated[
        I8, "arrived samples discarded by the buffer policy", STREAM, "samples"
    ] = 0
    stream_duplicates: Annotated[I8, "arrived samples dropped as duplicates", STREAM, "samples"] = 0
    stream_latency_seconds: Annotated[
        F4, "time from the creation of the newest sample to its arrival", STREAM
    ] = 0.0
    stream_refused: Annotated[I8, "received records that were not samples", STREAM, "records"] = 0
    stream_missing: Annotated[
        I8, "samples that never arrived, including rejected ones", STREAM, "samples"
    ] = 0
    injected: Annotated[I4, "number of `samples` that other workers shared", PUSH, "samples"] = 0
    compressed: Annotated[I4, "1 if the update was compressed, else 0", PUSH, "boolean"] = 0
    rho: Annotated[F4, "fraction of the gradient's squared norm lost by Top-k", PUSH, "ratio"] = 0.0
    rho_mean: Annotated[F4, "moving average of `rho`, compared with `delta`", PUSH, "ratio"] = 0.0


class TrafficRow(NamedTuple):
    """One reading of the kernel's counters and of the host's load; None if not measured."""

    time_seconds: Annotated[Measured, "emulated time; empty before the training", CLOCK]
    wall_seconds: Annotated[Measured, "real time; empty before the training", CLOCK]
    sockets: Annotated[Count, "open connections", SOCKETS, "sockets"]
    wire_rx_bytes: Annotated[
        Count, "received Ethernet frames, including acknowledgements of pulls", INTERFACE
    ]
    wire_rx_packets: Annotated[Count, "received packets", INTERFACE, "packets"]
    wire_tx_bytes: Annotated[Count, "sent Ethernet frames", INTERFACE]
    wire_tx_packets: Annotated[Count, "sent packets", INTERFACE, "packets"]
    tcp_received_bytes: Annotated[
        Count, "received data, without headers and retransmissions", SOCKETS
    ]
    tcp_segments_in: Annotated[Count, "received segments", SOCKETS, "segments"]
    tcp_acked_bytes: Annotated[
        Count, "data sent and acknowledged, without headers and retransmissions", SOCKETS
    ]
    tcp_segments_out: Annotated[
        Count, "sent segments, including retransmissions", SOCKETS, "segments"
    ]
    retransmitted_in_bytes: Annotated[Count, "data that workers sent again", "the workers' sockets"]
    retransmitted_out_bytes: Annotated[Count, "data that the server sent again", SOCKETS]
    host_busy_ratio: Annotated[
        Measured, "fraction of the CPU time used since the previous row", HOST
    ]
    host_available_bytes: Annotated[MeasuredCount, "available memory of the host", HOST]
    host_pressure_ratio: Annotated[
        Measured,
        "fraction of the time since the previous row in which a process waited for a CPU; "
        "empty if the kernel does not report it",
        HOST,
    ] = None
    tcp_options_in_bytes: Annotated[
        MeasuredCount, "received TCP options except time stamps, such as SACK", INTERFACE
    ] = None


Rows = NDArray[np.void]
"""Rows of the record of updates, shape (n,), dtype ``UPDATE`` or ``STREAMED``."""


class LinkRow(NamedTuple):
    """Capacity and traffic of a link that follows a recording, since the link's previous row."""

    time_seconds: Annotated[Real, "end of the interval, in emulated time", CLOCK]
    wall_seconds: Annotated[Real, "end of the interval, in real time", CLOCK]
    node: Annotated[Text, "the node of the link", SWITCH]
    direction: Annotated[Text, "`up` or `down`", SWITCH]
    asked_bits_per_second: Annotated[
        Real, "mean rate in the trace, per emulated second", "the trace", "bit/s"
    ]
    delivered_bits_per_second: Annotated[
        Real, "rate of the Ethernet frames, per emulated second", SWITCH, "bit/s"
    ]


class NodeRow(NamedTuple):
    """Totals of a node of a workload since its first start; None for what was not measured."""

    time_seconds: Annotated[Real, "time since the first node started", CLOCK]
    node: Annotated[Text, "the node", SWITCH]
    up_bytes: Annotated[Count, "sent Ethernet frames", NODE]
    up_packets: Annotated[Count, "sent packets; a segmented one counts once", NODE, "packets"]
    down_bytes: Annotated[Count, "received Ethernet frames", NODE]
    down_packets: Annotated[Count, "received packets", NODE, "packets"]
    retransmitted_bytes: Annotated[Count, "TCP data that the node sent again", PAIRS]
    dropped_packets: Annotated[
        MeasuredCount, "packets to the node that a full queue dropped", SWITCH, "packets"
    ]
    cpu_seconds: Annotated[Measured, "CPU time", "the node's control group"]
    memory_bytes: Annotated[MeasuredCount, "memory in use", "the node's control group"]


class PairRow(NamedTuple):
    """Totals of a node with one peer, when they have changed: of TCP connections, and of frames."""

    time_seconds: Annotated[Real, "time since the first node started", CLOCK]
    node: Annotated[Text, "the node", SWITCH]
    peer: Annotated[Text, "the node at the other end; `others` after the first 100", PAIRS]
    sent_bytes: Annotated[MeasuredCount, "data sent and acknowledged, without headers", PAIRS]
    received_bytes: Annotated[MeasuredCount, "received data, without headers", PAIRS]
    retransmitted_bytes: Annotated[MeasuredCount, "data that the node sent again", PAIRS]
    round_trip_seconds: Annotated[
        Measured, "TCP's smoothed round trip, mean over the open or last connections", PAIRS
    ]
    frame_bytes: Annotated[
        MeasuredCount, "Ethernet frames that the node sent to the peer, of any protocol", SWITCH
    ] = None
    packets: Annotated[
        MeasuredCount, "their packets; a segmented one counts once", SWITCH, "packets"
    ] = None


class HostRow(NamedTuple):
    """A reading of another host of a run over several, and of its clock."""

    time_seconds: Annotated[Measured, "emulated time; empty before the training", CLOCK]
    wall_seconds: Annotated[Measured, "real time; empty before the training", CLOCK]
    host: Annotated[Text, "the host", "the plan"]
    host_busy_ratio: Annotated[
        Measured, "fraction of the CPU time used since the host's previous row", HOST
    ]
    host_available_bytes: Annotated[MeasuredCount, "available memory of the host", HOST]
    host_pressure_ratio: Annotated[
        Measured,
        "fraction of the time since the host's previous row in which a process waited for a CPU; "
        "empty if the kernel does not report it",
        HOST,
    ]
    clock_offset_seconds: Annotated[
        Real, "the host's clock less the controller's, real seconds", "the host's agent"
    ]
    clock_error_seconds: Annotated[
        Real, "bound of the offset's error: half of the shortest round trip", "the host's agent"
    ]


class MetricRow(NamedTuple):
    """A number that a program of a workload has printed or served."""

    time_seconds: Annotated[Real, "when it was read, since the first node started", CLOCK]
    node: Annotated[Text, "the node", "the node's output or endpoint"]
    metric: Annotated[Text, "the metric", "the scenario"]
    value: Annotated[Real, "the number", "the node's output or endpoint", "of the program"]


Reading = TrafficRow | LinkRow | NodeRow | PairRow | HostRow | MetricRow
"""A row of a CSV table that grows during a run."""


def _columns(row: type[UpdateRow | StreamColumns | Reading]) -> Mapping[str, Column]:
    hints = get_type_hints(row, include_extras=True)
    defaults: dict[str, Any] = dict.fromkeys(row._fields, REQUIRED) | row._field_defaults
    return {
        name: replace(Column(*hints[name].__metadata__), default=default)
        for name, default in defaults.items()
    }


def _evaluation_columns() -> Mapping[str, Column]:
    """Return the fields of Evaluated but the metrics, and a column for the real time."""
    kinds = {float: "float64", float | None: "float64", int: "int64", bool: "bool"}
    units = {"version": "updates", "images": "images"}
    made = {}
    for name, hint in get_type_hints(Evaluated, include_extras=True).items():
        if name == "metrics":
            continue
        source = SNAPSHOT if name in ("time_seconds", "version", "payload_up_bytes") else EVALUATOR
        kind, meaning = kinds[hint.__origin__], hint.__metadata__[0]
        default = getattr(Evaluated, name, REQUIRED)  # a dataclass keeps defaults in the class
        made[name] = Column(kind, meaning, source, units.get(name, ""), default)
        if name == "time_seconds":
            made["wall_seconds"] = Column(
                "float64", "when the model was copied, in real time", SNAPSHOT
            )
    return made


UPDATES = _columns(UpdateRow)
"""The columns of the record of updates, by name and in order."""

STREAMS = _columns(StreamColumns)
"""The additional columns if the algorithm can train on streams."""

EVALUATIONS = _evaluation_columns()
"""The columns of ``evaluations.csv`` but those of the metrics, which stand after the loss."""

TRAFFIC = _columns(TrafficRow)
"""The columns of ``traffic.csv``."""

LINKS = _columns(LinkRow)
NODES = _columns(NodeRow)
PAIRS_OF_NODES = _columns(PairRow)
OTHER_HOSTS = _columns(HostRow)
METRICS = _columns(MetricRow)
"""The columns of ``links.csv``, ``nodes.csv``, ``pairs.csv``, ``hosts.csv``, ``metrics.csv``."""

UPDATE = np.dtype([(name, column.type) for name, column in UPDATES.items()])
"""The layout of an update's row, in the spool and in memory."""

STREAMED = np.dtype([(name, column.type) for name, column in (*UPDATES.items(), *STREAMS.items())])
"""The layout of an update's row with the columns of streams at the end."""


def joined(blocks: Iterable[Rows]) -> Rows:
    """Concatenate rows of one run, in order; ``UPDATE`` if there are none."""
    found = [block for block in blocks if len(block)]
    return np.concatenate(found) if found else np.empty(0, UPDATE)


def conform(stored: Mapping[str, NDArray[Any]], count: int) -> Rows:
    """Convert a record of updates, written by another version of testbed, to the current layout.

    The rows include the columns of streams if any of these is stored. Unknown stored columns are
    omitted; missing columns get their default. The stored columns have the shape (count,).

    Raises:
        KeyError: a column without a default is missing.
    """
    columns = UPDATES if STREAMS.keys().isdisjoint(stored) else {**UPDATES, **STREAMS}
    made = np.empty(count, [(name, column.type) for name, column in columns.items()])
    for name, column in columns.items():
        if name not in stored and column.default is REQUIRED:
            raise KeyError(name)
        made[name] = stored.get(name, column.default)
    return made
