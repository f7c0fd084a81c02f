"""The gate in front of a gRPC server: who may call, what is counted, how a refusal is answered.

Handlers take and return bytes; what they mean is the business of those behind the gate. All of it
runs on one event loop.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import grpc

from testbed.errors import HostError, RejectedError
from testbed.payloads.key_cache import UnknownKeysError
from testbed.rpc.limits import MessageLimits
from testbed.rpc.methods import IN_PIECES, TOKEN_KEY
from testbed.rpc.pieces import Assembly, pieces
from testbed.rpc.room import GivenUpError, Room
from testbed.rpc.wire import MalformedError, OversizedError

GRACE_SECONDS = 0.2

MOST_CALLS = 16
"""Calls of one caller at a time. A worker makes two: its exchange, and that for its orders. Others
of its may still stand here after their connections were lost."""

MOST_READ = 2
"""Whole messages of one caller that are taken in at a time; further ones wait. Of messages in
pieces see ``Room``."""

INCOMPLETE = "INCOMPLETE"

_END: Any = grpc.aio.EOF  # type: ignore[attr-defined]

_ENDED = (asyncio.CancelledError, grpc.aio.AbortError, grpc.aio.InternalError)
"""The call is over already: withdrawn, refused, or lost while it was read or refused."""


class ImpersonationError(RejectedError):
    """A call in the name of somebody else than the caller."""


class BusyError(RejectedError):
    """A call of one who has too many others open."""


_CODES: Mapping[type[RejectedError], grpc.StatusCode] = {
    ImpersonationError: grpc.StatusCode.PERMISSION_DENIED,
    BusyError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    OversizedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    MalformedError: grpc.StatusCode.INVALID_ARGUMENT,
}


class SupersededError(Exception):
    """A call that a newer one of the same worker has overtaken; only the newer one counts."""


@dataclass
class Call:
    """One call on its way through the gate.

    Attributes:
        peer: the caller's address as gRPC writes it, such as ``ipv4:10.77.0.3:41234``.
        node: the caller's name, by its token; None of one without.
    """

    method: str
    peer: str
    node: str | None = None


@dataclass(frozen=True)
class Refusal:
    """A call that was refused; nothing of it was applied.

    Attributes:
        code: name of the status it was answered with; ``INCOMPLETE`` if its message never came
            whole: the caller went away, or sent more than any server takes.
    """

    call: Call
    code: str
    reason: str


Behaviour = Callable[[bytes, Call], Awaitable[bytes]]
Streaming = Callable[[bytes, Call], AsyncIterator[bytes]]
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"


@dataclass(eq=False)
class _Caller:
    """One who may call, and what is open of its calls."""

    name: str
    token: bytes
    most_calls: int
    handlers: dict[str, Handler] = field(default_factory=dict)  # by method
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_READ))
    calls: int = 0

    def __enter__(self) -> None:
        """One call more inside.

        Raises:
            BusyError: there are as many as there may be.
        """
        if self.calls >= self.most_calls:
            raise BusyError(f"{self.name} has {self.calls} calls open already")
        self.calls += 1

    def __exit__(self, *_: object) -> None:
        """It has ended."""
        self.calls -= 1


@dataclass
class Gate(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Every call to a server comes through here.

    Attributes:
        tokens: of those who may call, by their names; a call without one learns nothing.
        behaviours: what answers each method, by its full name.
        refused: told of every refusal.
        failed: told of an error nobody foresaw; the server must not go on after it.
        streams: what answers those methods that send several messages.
        most_calls: of one caller at a time.
        counts: answered calls as ``OK``, refusals by code.
    """

    tokens: Mapping[str, str]
    behaviours: Mapping[str, Behaviour]
    limits: MessageLimits
    refused: Callable[[Refusal], None]
    failed: Callable[[BaseException], None]
    streams: Mapping[str, Streaming] = field(default_factory=dict)
    most_calls: int = MOST_CALLS
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._room = Room(self.limits.ping_patience_seconds)
        long = IN_PIECES if self.limits.in_pieces else {}
        self._long = {long[method]: method for method in self.behaviours if method in long}
        self._callers = {
            name: _Caller(name, token.encode(), self.most_calls)
            for name, token in self.tokens.items()
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        """What answers a call: an own behaviour, or a refusal that reads nothing."""
        method = handler_call_details.method
        caller = self._caller(handler_call_details.invocation_metadata)
        if caller is None:
            code, reason = grpc.StatusCode.UNAUTHENTICATED, f"no valid {TOKEN_KEY} in the metadata"
            return self._refusing(method, None, code, reason)
        handler = caller.handlers.get(method)
        if handler is not None:
            return handler
        whole = self._long.get(method)
        if whole is not None:
            handler = self._answering_in_pieces(method, caller, self.behaviours[whole])
        elif method in self.behaviours and method not in self._long.values():
            handler = self._answering(method, caller, self.behaviours[method])
        elif method in self.streams:
            handler = self._streaming(method, caller, self.streams[method])
        else:
            code, reason = grpc.StatusCode.UNIMPLEMENTED, f"there is no method {method}"
            return self._refusing(method, caller.name, code, reason)
        caller.handlers[method] = handler
        return handler

    def _caller(self, metadata: Any) -> _Caller | None:
        """Who shows its token, and no other beside it."""
        tokens = [value for key, value in metadata or () if key == TOKEN_KEY]
        if len(tokens) != 1:
            return None
        given = tokens[0] if isinstance(tokens[0], bytes) else tokens[0].encode()
        caller = self._callers.get(given.partition(b":")[0].decode(errors="replace"))
        known = caller is not None and hmac.compare_digest(given, caller.token)
        return caller if known else None

    # Handlers take a stream of requests, of which they read one: the only way in which a refusal
    # can go out before the message was read, and in which a message that never comes is noticed.

    def _answering(self, method: str, caller: _Caller, behaviour: Behaviour) -> Handler:
        async def answer(_: Any, context: Any) -> bytes:
            call = Call(method, context.peer(), caller.name)
            try:
                with caller:
                    data = await behaviour(await self._read(context, call, caller), call)
            except BaseException as error:
                await self._end(call, context, error)
                raise
            self.counts["OK"] += 1
            return data

        return grpc.stream_unary_rpc_method_handler(answer)

    def _answering_in_pieces(self, method: str, caller: _Caller, behaviour: Behaviour) -> Handler:
        async def answer(_: Any, context: Any) -> AsyncIterator[bytes]:
            call = Call(method, context.peer(), caller.name)
            try:
                with caller:
                    data = await behaviour(await self._read_pieces(context, call, caller), call)
                    for piece in pieces(data):
                        yield piece
            except BaseException as error:
                await self._end(call, context, error)
                raise
            self.counts["OK"] += 1

        return grpc.stream_stream_rpc_method_handler(answer)

    def _streaming(self, method: str, caller: _Caller, streaming: Streaming) -> Handler:
        async def answer(_: Any, context: Any) -> AsyncIterator[bytes]:
            call = Call(method, context.peer(), caller.name)
            try:
                with caller:
                    message = await self._read(context, call, caller)
                    async for data in streaming(message, call):
                        yield data
            except BaseException as error:
                await self._end(call, context, error)
                raise
            self.counts["OK"] += 1

        return grpc.stream_stream_rpc_method_handler(answer)

    async def _end(self, call: Call, context: Any, error: BaseException) -> None:
        """Answer a refusal with its status, and report an error that nobody foresaw."""
        _drop_frames(error)
        try:
            if isinstance(error, SupersededError):
                self.counts["ABORTED"] += 1
                await context.abort(grpc.StatusCode.ABORTED, str(error))
            elif isinstance(error, UnknownKeysError):  # nobody's mistake: it comes with the keys
                self.counts["NOT_FOUND"] += 1
                await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
            elif isinstance(error, GivenUpError):
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            elif isinstance(error, RejectedError):
                code = _CODES.get(type(error), grpc.StatusCode.FAILED_PRECONDITION)
                self._note(call, code.name, str(error))
                await context.abort(code, str(error))
            elif not isinstance(error, _ENDED):  # gRPC would answer UNKNOWN and go on
                self.failed(error)
        except _ENDED:
            raise
        except BaseException as another:
            self.failed(another)
            raise

    async def _read(self, context: Any, call: Call, caller: _Caller) -> bytes:
        message = _END
        try:
            async with caller.reading:
                message = await context.read()
        finally:
            if message is _END:
                self._note(call, INCOMPLETE, "the message did not come whole")
        if message is _END:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "there was no message")
        self.limits.check(cast(bytes, message))
        return cast(bytes, message)

    async def _read_pieces(self, context: Any, call: Call, caller: _Caller) -> bytes:
        """A message in pieces."""
        assembly, complete = Assembly(self.limits.message_bytes), False
        try:
            with self._room.intake(caller.name) as intake:
                while not complete and (piece := await intake.next(context.read())) is not _END:
                    self.limits.check(cast(bytes, piece))
                    complete = assembly.add(cast(bytes, piece))
                    self._room.arrived(intake, len(piece))
        except RejectedError:
            raise
        except GivenUpError as error:
            self._note(call, INCOMPLETE, str(error))
            raise
        except BaseException:
            self._note(call, INCOMPLETE, "the message did not come whole")
            raise
        return assembly.whole()

    def _refusing(
        self, method: str, node: str | None, code: grpc.StatusCode, reason: str
    ) -> Handler:
        async def refuse(_: Any, context: Any) -> bytes:
            self._note(Call(method, context.peer(), node), code.name, reason)
            await context.abort(code, reason)
            raise AssertionError  # abort has raised

        return grpc.stream_unary_rpc_method_handler(refuse)

    def _note(self, call: Call, code: str, reason: str) -> None:
        self.counts[code] += 1
        self.refused(Refusal(call, code, reason))


def _drop_frames(error: BaseException | None) -> None:
    """Let go of what the frames of a call hold that has ended, its message above all.

    gRPC keeps the error of an aborted call in a cycle: without this, until the next collection.
    """
    while isinstance(error, RejectedError | GivenUpError):
        error.__traceback__ = None
        error = error.__context__


@asynccontextmanager
async def serving(address: str, gate: Gate) -> AsyncIterator[int]:
    """Listen on an address while the context is open.

    Yields:
        The port; of a unix socket, 1.

    Raises:
        HostError: nothing can listen there.
    """
    server = grpc.aio.server(options=gate.limits.server_options())
    server.add_generic_rpc_handlers((gate,))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise HostError(f"{address}: cannot listen there: {error}") from None
    await server.start()
    try:
        yield port
    finally:
        await server.stop(GRACE_SECONDS)
