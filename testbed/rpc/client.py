"""The client side: one channel, the token on every call, and retries after a lost connection.

Every method of the contract may be repeated unchanged: an Exchange keeps its sequence number, so
the server applies it once, whether the request or the reply was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Self, cast

import grpc
import grpc._channel  # else insecure_channel does, in each worker: 10 ms and 1 MB

from testbed.errors import NodeError, RejectedError
from testbed.payloads.keyed import UnknownKeysError
from testbed.rpc.limits import CONNECT_SECONDS, MessageLimits
from testbed.rpc.methods import IN_PIECES, TOKEN_KEY
from testbed.rpc.pieces import Assembly, pieces

PATIENCE_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0

_LOST = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,  # by a server that shuts down
)


@dataclass(eq=False, repr=False)
class Connection:
    """A peer's channel to a server; for one calling thread.

    Attributes:
        address: see ``addresses``.
        token: the caller's; see ``tokens``.
        patience_seconds: how long to repeat a call after the connection was lost.
        peer: the server's name in messages.
        clock: monotonic seconds.
        pause: sleeps between two attempts.
    """

    address: str
    _: KW_ONLY
    token: str
    limits: MessageLimits
    patience_seconds: float = PATIENCE_SECONDS
    peer: str = "the parameter server"
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self._metadata = ((TOKEN_KEY, self.token),)
        self._closed = False
        self._callables: dict[str, Callable[..., object]] = {}
        self._channel = grpc.insecure_channel(self.address, options=self.limits.channel_options())

    def call(
        self,
        method: str,
        message: bytes,
        *,
        deadline_seconds: float | None = None,
        patience_seconds: float | None = None,
        repeat: Callable[[int], bytes] | None = None,
    ) -> bytes:
        """Call a method and return its reply.

        Args:
            method: full name of the method.
            message: the request.
            deadline_seconds: for each attempt; None for a call that may be held back, for which
                only keepalive detects a dead server.
            patience_seconds: overrides the connection's.
            repeat: returns the request for the n-th repetition, for n from 1; by default it does
                not change.

        Raises:
            RejectedError: the server refused the request and applied none of it.
            UnknownKeysError: likewise, because it left out keys that the server does not know.
            NodeError: the server could not be reached for ``patience_seconds``.
        """
        trouble = _Trouble(self.patience_seconds if patience_seconds is None else patience_seconds)
        while True:
            began = self.clock()
            try:
                return self._attempt(method, message, deadline_seconds)
            except grpc.RpcError as error:
                if error.code() not in _LOST:
                    raise self._rejected(method, error) from None
                now = self.clock()
                pause = trouble.next_pause(began, now)
                if pause is None:
                    raise self._lost(error, now - trouble.since) from None
            self.pause(pause)
            if repeat is not None:
                message = repeat(trouble.attempts)

    def follow(self, method: str, request: Callable[[], bytes]) -> Iterator[bytes]:
        """Yield the messages of a stream; call again whenever the connection is lost.

        It ends when the server ends it, or could not be reached for ``patience_seconds``. It may
        run in another thread than ``call``. Every call gets a new ``request``.
        """
        trouble = _Trouble(self.patience_seconds)
        streaming = self._channel.unary_stream(method, None, None)
        while not self._closed:
            began = self.clock()
            try:
                yield from cast(Iterator[bytes], streaming(request(), metadata=self._metadata))
                return
            except grpc.RpcError as error:
                pause = trouble.next_pause(began, self.clock())
                if error.code() not in _LOST or pause is None:
                    return
            self.pause(pause)

    def close(self) -> None:
        """Close the channel. Idempotent."""
        self._closed = True
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attempt(self, method: str, message: bytes, deadline_seconds: float | None) -> bytes:
        if self.limits.in_pieces and method in IN_PIECES:
            return self._attempt_in_pieces(IN_PIECES[method], message, deadline_seconds)
        callable_ = self._callables.get(method)
        if callable_ is None:
            callable_ = self._callables[method] = self._channel.unary_unary(method, None, None)
        return cast(bytes, callable_(message, timeout=deadline_seconds, metadata=self._metadata))

    def _attempt_in_pieces(
        self, method: str, message: bytes, deadline_seconds: float | None
    ) -> bytes:
        streaming = self._channel.stream_stream(method, None, None)
        answer = streaming(pieces(message), timeout=deadline_seconds, metadata=self._metadata)
        assembly = Assembly(self.limits.message_bytes)
        for piece in cast(Iterator[bytes], answer):
            assembly.add(piece)
        return assembly.whole()

    def _rejected(self, method: str, error: grpc.RpcError) -> RejectedError:
        verb = method.rpartition("/")[2]
        kind = UnknownKeysError if error.code() is grpc.StatusCode.NOT_FOUND else RejectedError
        return kind(
            f"{self.address}: {self.peer} refused {verb}: {error.details()} ({error.code().name})"
        )

    def _lost(self, error: grpc.RpcError, seconds: float) -> NodeError:
        return NodeError(
            f"{self.address}: {self.peer} has not answered for {seconds:.0f} s "
            f"({error.code().name}: {error.details()})"
        )


@dataclass
class _Trouble:
    """The failed attempts of one call.

    Attributes:
        patience_seconds: how long to retry.
        since: when the server last responded, or the first attempt was lost.
    """

    patience_seconds: float
    attempts: int = 0
    since: float = 0.0
    _pause_seconds: float = FIRST_PAUSE_SECONDS

    def next_pause(self, began: float, now: float) -> float | None:
        """Record a lost attempt. Return the seconds to wait before the next; None to give up."""
        had_reached_it = now - began > max(self.patience_seconds, 2 * CONNECT_SECONDS)
        if self.attempts == 0 or had_reached_it:
            self.since, self._pause_seconds = now, FIRST_PAUSE_SECONDS
        self.attempts += 1
        pause = self._pause_seconds
        self._pause_seconds = min(2 * pause, LONGEST_PAUSE_SECONDS)
        return pause if now + pause - self.since <= self.patience_seconds else None
