"""How large a message may be, and how a dead peer is told from a slow one. Nothing here needs grpc.

A worker may have to wait for its reply as long as the slowest worker takes, or for ever if the
scenario says so, and a model may take minutes on a thin link. So no deadline on a call could be
right. Instead each side pings a connection on which it waits and hears nothing, and gives it up
when the ping stays unanswered for longer than everything queued before it can take. Whatever
arrives counts as an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.errors import HostError
from testbed.rpc.pieces import PIECE_BYTES
from testbed.rpc.wire import OversizedError
from testbed.values.units import Size

Options = list[tuple[str, int]]

LARGEST_MODEL = Size.parse("2GiB")
LARGEST_WHOLE = Size.parse("16MiB")
"""A larger model's messages go in pieces. Below, one message is faster than several."""

ENTRY_BYTES = 8  # an index and a value
ENVELOPE_BYTES = 64 * 1024  # everything but the payload: far less is needed, newer fields may come
LARGEST_BYTES = ENTRY_BYTES * int(LARGEST_WHOLE) // 4 + ENVELOPE_BYTES
"""A message of the largest model that is sent whole: what a client takes of its server."""

UNSEEN_ABOVE = 2
"""gRPC drops a message of so many times a server's own limit unseen, before memory is taken for
it. What lies between is refused by the gate, which can say who has sent it."""

WINDOW_BYTES = 8 * 2**20
"""What a peer may send ahead of being read: TCP's own windows are what a transfer depends on. A
server gives every call a whole message of its model at most, and this at the least:"""
LEAST_WINDOW = 2**16

PING_EVERY_SECONDS = 20.0
PING_PATIENCE_SECONDS = 20.0
CONNECT_SECONDS = 20.0  # of one attempt to connect; gRPC calls it the least backoff
_BACKOFF_MILLISECONDS = {"initial": 100, "min": int(CONNECT_SECONDS * 1000), "max": 2_000}
_NEVER = 2**31 - 1


@dataclass(frozen=True)
class MessageLimits:
    """What one connection allows: a message, and how long a ping may stay unanswered.

    Attributes:
        message_bytes: the longest message.
        in_pieces: whether those that may be long come in pieces.
    """

    message_bytes: int
    ping_patience_seconds: float = PING_PATIENCE_SECONDS
    in_pieces: bool = False

    @classmethod
    def of(cls, size: int, *, transfer_seconds: float = 0.0, beside: int = 0) -> MessageLimits:
        """The limits for a model of ``size`` parameters, and so many bytes beside it.

        Everything that is queued in front of a ping may take ``transfer_seconds`` of real time.

        Raises:
            HostError: the model is too large to be sent.
        """
        if 4 * size > LARGEST_MODEL:
            raise HostError(
                f"model: {size} parameters take {4 * size / 2**20:.1f} MiB, expected at most "
                f"{LARGEST_MODEL} ({int(LARGEST_MODEL) // 4} parameters).",
                hint="Choose a smaller model.",
            )
        return cls(
            ENTRY_BYTES * size + ENVELOPE_BYTES + beside,
            PING_PATIENCE_SECONDS + 2 * transfer_seconds,
            in_pieces=4 * size > LARGEST_WHOLE,
        )

    @property
    def single_bytes(self) -> int:
        """The longest message that comes whole."""
        return PIECE_BYTES + ENVELOPE_BYTES if self.in_pieces else self.message_bytes

    def check(self, message: bytes) -> None:
        """Refuse a message that is too long for this model.

        Raises:
            OversizedError: it is.
        """
        if len(message) > self.single_bytes:
            raise OversizedError(
                f"a message of {len(message)} bytes, expected at most {self.single_bytes}"
            )

    def server_options(self) -> Options:
        """For a server: pings are never punished, connections never idled out, no compression."""
        return [
            *self._common(),
            ("grpc.max_receive_message_length", UNSEEN_ABOVE * self.single_bytes),
            (
                "grpc.http2.lookahead_bytes",
                min(WINDOW_BYTES, max(LEAST_WINDOW, self.message_bytes)),
            ),
            ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share it
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.max_concurrent_streams", 16),  # of one connection; a worker needs one
            ("grpc.compression_enabled_algorithms_bitset", 1),  # identity
        ]

    def channel_options(self) -> Options:
        """For a client: reconnects soon, through no proxy, and keeps its one connection open."""
        waits = _BACKOFF_MILLISECONDS.items()
        return [
            *self._common(),
            ("grpc.max_receive_message_length", LARGEST_BYTES),
            ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),  # which calls may be repeated is decided by the caller
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.client_idle_timeout_ms", _NEVER),
            *((f"grpc.{which}_reconnect_backoff_ms", wait) for which, wait in waits),
        ]

    def _common(self) -> Options:
        patience = int(min(self.ping_patience_seconds * 1000, _NEVER))
        return [
            ("grpc.max_send_message_length", LARGEST_BYTES),
            ("grpc.keepalive_time_ms", int(PING_EVERY_SECONDS * 1000)),
            ("grpc.keepalive_timeout_ms", patience),
            ("grpc.http2.ping_timeout_ms", patience),  # of every ping; a minute by default
            ("grpc.keepalive_permit_without_calls", 0),
            ("grpc.http2.max_pings_without_data", 0),  # as many as it takes
            # Without these a window is found by pings beside the data, whose timers wake threads.
            ("grpc.http2.bdp_probe", 0),
        ]
