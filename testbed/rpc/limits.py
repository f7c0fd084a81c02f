"""Limits of message sizes, and of the time after which a silent peer counts as dead. Without grpc.

Calls have no deadline, because a worker may have to wait for a reply as long as the slowest worker
takes, or forever in some scenarios, and a model may take minutes on a slow link. Instead, a peer
that waits and receives nothing pings the connection. It closes the connection if the ping is
unanswered for longer than the transfer of all data queued before the ping can take. Any received
data counts as an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.errors import HostError
from testbed.payloads import VALUE_BYTES
from testbed.rpc.pieces import PIECE_BYTES
from testbed.rpc.wire import OversizedError
from testbed.values.units import Size

Options = list[tuple[str, int]]

LARGEST_MODEL = Size.parse("2GiB")
LARGEST_WHOLE = Size.parse("16MiB")
"""Size of a model above which its messages are sent in pieces. Up to this size, sending a message
whole is faster."""

ENTRY_BYTES = 8  # an index and a value
ENVELOPE_BYTES = 64 * 1024  # limit of all fields but the payload; leaves room for new fields
LARGEST_BYTES = ENTRY_BYTES * int(LARGEST_WHOLE) // VALUE_BYTES + ENVELOPE_BYTES
"""Maximum size of a message that clients send and receive: that of the largest model sent whole."""

UNSEEN_ABOVE = 2
"""gRPC refuses messages above this multiple of a server's limit before it allocates memory for
them. Messages between the limit and the multiple are refused by the gate, which logs the sender."""

WINDOW_BYTES = 8 * 2**20
"""Size of the flow-control window of a call: bytes that a peer may send before they are read. It is
so large that TCP's windows limit transfers. On a server it is at most the size of a whole message
of the model, but at least MIN_WINDOW."""
MIN_WINDOW = 2**16

PING_EVERY_SECONDS = 20.0
PING_PATIENCE_SECONDS = 20.0
CONNECT_SECONDS = 20.0  # per attempt to connect; gRPC calls it the minimum backoff
_BACKOFF_MILLISECONDS = {"initial": 100, "min": int(CONNECT_SECONDS * 1000), "max": 2_000}
_NEVER = 2**31 - 1


@dataclass(frozen=True)
class MessageLimits:
    """The limits of a connection: message size, and how long a ping may be unanswered.

    Attributes:
        message_bytes: maximum size of a message.
        ping_patience_seconds: real time for which a ping may be unanswered.
        in_pieces: whether long messages are sent in pieces.
    """

    message_bytes: int
    ping_patience_seconds: float = PING_PATIENCE_SECONDS
    in_pieces: bool = False

    @classmethod
    def of(cls, size: int, *, transfer_seconds: float = 0.0, extra_bytes: int = 0) -> MessageLimits:
        """Return the limits for a model of ``size`` parameters plus ``extra_bytes``.

        ``transfer_seconds`` is the real time that the data queued before a ping may take.

        Raises:
            HostError: the model is too large to be sent.
        """
        model_bytes = VALUE_BYTES * size
        if model_bytes > LARGEST_MODEL:
            raise HostError(
                f"model: {size} parameters take {model_bytes / 2**20:.1f} MiB, expected at most "
                f"{LARGEST_MODEL} ({int(LARGEST_MODEL) // VALUE_BYTES} parameters).",
                hint="Choose a smaller model.",
            )
        return cls(
            ENTRY_BYTES * size + ENVELOPE_BYTES + extra_bytes,
            PING_PATIENCE_SECONDS + 2 * transfer_seconds,
            in_pieces=model_bytes > LARGEST_WHOLE,
        )

    @property
    def single_bytes(self) -> int:
        """Maximum size of a message, or of a piece of it, that is sent at once."""
        return PIECE_BYTES + ENVELOPE_BYTES if self.in_pieces else self.message_bytes

    def check(self, message: bytes) -> None:
        """Refuse a message that is too long for this model.

        Raises:
            OversizedError: the message is too long.
        """
        if len(message) > self.single_bytes:
            raise OversizedError(
                f"a message of {len(message)} bytes, expected at most {self.single_bytes}"
            )

    def server_options(self) -> Options:
        """Return a server's options: accept frequent pings, without idle timeout or compression."""
        return [
            *self._common(),
            ("grpc.max_receive_message_length", UNSEEN_ABOVE * self.single_bytes),
            (
                "grpc.http2.lookahead_bytes",
                min(WINDOW_BYTES, max(MIN_WINDOW, self.message_bytes)),
            ),
            ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share it
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.max_concurrent_streams", 16),  # per connection; a worker needs one
            ("grpc.compression_enabled_algorithms_bitset", 1),  # identity
        ]

    def channel_options(self) -> Options:
        """Return a client's options: reconnect soon, use no proxy, keep idle connections open."""
        waits = _BACKOFF_MILLISECONDS.items()
        return [
            *self._common(),
            ("grpc.max_receive_message_length", LARGEST_BYTES),
            ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),  # the caller decides which calls to repeat
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
            ("grpc.http2.ping_timeout_ms", patience),  # for every ping; a minute by default
            ("grpc.keepalive_permit_without_calls", 0),
            ("grpc.http2.max_pings_without_data", 0),  # no limit
            # Otherwise gRPC probes for a window with extra pings, whose timers wake threads.
            ("grpc.http2.bdp_probe", 0),
        ]
