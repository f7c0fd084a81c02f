"""The gate in front of a gRPC server: authentication, counts, and replies to refused calls.

Handlers take and return bytes, which only the code behind the gate interprets. Everything runs on
one event loop.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import grpc

from testbed.errors import HostError, RejectedError
from testbed.payloads.keyed import UnknownKeysError
from testbed.rpc.limits import MessageLimits
from testbed.rpc.methods import IN_PIECES, TOKEN_KEY
from testbed.rpc.pieces import Assembly, pieces
from testbed.rpc.wire import MalformedError, OversizedError

GRACE_SECONDS = 0.2

MAX_CALLS = 16
"""Maximum number of open calls per caller. A worker has up to two, one that exchanges updates and
one that receives orders; calls over lost connections may still be open."""

MAX_READ = 2
"""Maximum number of messages that are read from a caller at a time; other messages wait. For
messages in pieces see ``_Caller.receiving``."""

INCOMPLETE = "INCOMPLETE"

_END: Any = grpc.aio.EOF  # type: ignore[attr-defined]

_ENDED = (asyncio.CancelledError, grpc.aio.AbortError, grpc.aio.InternalError)
"""Exceptions of a call that has already ended: it was cancelled or refused, or the connection was
lost while the call was read or refused."""


class ImpersonationError(RejectedError):
    """A call on behalf of another node."""


class BusyError(RejectedError):
    """A call from a caller with too many open calls."""


_CODES: Mapping[type[RejectedError], grpc.StatusCode] = {
    ImpersonationError: grpc.StatusCode.PERMISSION_DENIED,
    BusyError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    OversizedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    MalformedError: grpc.StatusCode.INVALID_ARGUMENT,
}


class SupersededError(Exception):
    """A call superseded by a newer one of the same worker; only the newer one counts."""


class GivenUpError(Exception):
    """The server stops reading a message; its caller may send it again."""


@dataclass
class Call:
    """One call through the gate.

    Attributes:
        peer: the caller's address in gRPC's format, such as ``ipv4:10.77.0.3:41234``.
        node: the caller's name, from its token; None without a token.
    """

    method: str
    peer: str
    node: str | None = None


@dataclass(frozen=True)
class Refusal:
    """A refused call; none of it was applied.

    Attributes:
        code: name of the status of the reply; ``INCOMPLETE`` if the message never arrived
            completely: the caller left, or sent more than any server accepts.
    """

    call: Call
    code: str
    reason: str


Behaviour = Callable[[bytes, Call], Awaitable[bytes]]
Streaming = Callable[[bytes, Call], AsyncIterator[bytes]]
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"


@dataclass(eq=False)
class _Caller:
    """A known caller and its open calls."""

    name: str
    token: bytes
    handlers: dict[str, Handler] = field(default_factory=dict)  # by method
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_READ))
    calls: int = 0
    message: asyncio.Future[str] | None = None  # that is read in pieces

    @contextmanager
    def receiving(self) -> Iterator[asyncio.Future[str]]:
        """Read a message in pieces inside; a newer one sets the yielded future, and replaces it.

        A caller has one sending thread, so the older message belongs to a lost connection.
        Messages that still arrive are never delayed: that would change the duration of a transfer.
        """
        if self.message is not None:
            self.message.set_result(f"{self.name} started another message")
        replaced = self.message = asyncio.get_running_loop().create_future()
        try:
            yield replaced
        finally:
            if self.message is replaced:
                self.message = None

    def __enter__(self) -> None:
        """Enter a call.

        Raises:
            BusyError: too many calls are open.
        """
        if self.calls >= MAX_CALLS:
            raise BusyError(f"{self.name} already has {self.calls} open calls")
        self.calls += 1

    def __exit__(self, *_: object) -> None:
        """Leave a call."""
        self.calls -= 1


@dataclass
class Gate(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Receives every call to a server.

    Attributes:
        tokens: tokens of the permitted callers, by name; other calls learn nothing.
        behaviours: handler of each method, by its full name.
        refused: called for every refusal.
        failed: called with an unexpected error; the server must stop then.
        streams: handlers of the methods that stream replies.
        counts: answered calls as ``OK``, refusals by code.
    """

    tokens: Mapping[str, str]
    behaviours: Mapping[str, Behaviour]
    limits: MessageLimits
    refused: Callable[[Refusal], None]
    failed: Callable[[BaseException], None]
    streams: Mapping[str, Streaming] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        long = IN_PIECES if self.limits.in_pieces else {}
        self._long = {long[method]: method for method in self.behaviours if method in long}
        self._callers = {name: _Caller(name, token.encode()) for name, token in self.tokens.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        """Return the handler of a call: a behaviour, or a refusal that reads nothing."""
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
            code, reason = grpc.StatusCode.UNIMPLEMENTED, f"unknown method {method}"
            return self._refusing(method, caller.name, code, reason)
        caller.handlers[method] = handler
        return handler

    def _caller(self, metadata: Any) -> _Caller | None:
        """Return the caller with exactly one, valid token."""
        tokens = [value for key, value in metadata or () if key == TOKEN_KEY]
        if len(tokens) != 1:
            return None
        given = tokens[0] if isinstance(tokens[0], bytes) else tokens[0].encode()
        caller = self._callers.get(given.partition(b":")[0].decode(errors="replace"))
        known = caller is not None and hmac.compare_digest(given, caller.token)
        return caller if known else None

    # Handlers take a stream of requests and read one: only so can the server refuse a call before
    # it has read the message, and notice a message that never arrives. What they have in common is
    # no context manager: its frame would keep the traceback of a refused call, and so the message.

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
        """Answer a refusal with its status, and report an unexpected error."""
        _drop_frames(error)
        try:
            if isinstance(error, SupersededError):
                self.counts["ABORTED"] += 1
                await context.abort(grpc.StatusCode.ABORTED, str(error))
            elif isinstance(error, UnknownKeysError):  # not an error: it is repeated with its keys
                self.counts["NOT_FOUND"] += 1
                await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
            elif isinstance(error, GivenUpError):
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            elif isinstance(error, RejectedError):
                code = _CODES.get(type(error), grpc.StatusCode.FAILED_PRECONDITION)
                self._note(call, code.name, str(error))
                await context.abort(code, str(error))
            elif not isinstance(error, _ENDED):  # gRPC would answer UNKNOWN and continue
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
                self._note(call, INCOMPLETE, "the message is incomplete")
        if message is _END:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call contained no message")
        self.limits.check(cast(bytes, message))
        return cast(bytes, message)

    async def _read_pieces(self, context: Any, call: Call, caller: _Caller) -> bytes:
        """Read a message in pieces."""
        assembly, complete = Assembly(self.limits.message_bytes), False
        try:
            with caller.receiving() as replaced:
                while not complete and (piece := await _next(context, replaced)) is not _END:
                    self.limits.check(cast(bytes, piece))
                    complete = assembly.add(cast(bytes, piece))
        except RejectedError:
            raise
        except GivenUpError as error:
            self._note(call, INCOMPLETE, str(error))
            raise
        except BaseException:
            self._note(call, INCOMPLETE, "the message is incomplete")
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


async def _next(context: Any, replaced: asyncio.Future[str]) -> Any:
    """Return the next piece; GivenUpError if the message was replaced.

    A read is never cancelled, since gRPC would not free its data: it ends together with its call.
    """
    reading = asyncio.ensure_future(context.read())
    reading.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait((reading, replaced), return_when=asyncio.FIRST_COMPLETED)
    if replaced.done():
        raise GivenUpError(replaced.result())
    return reading.result()


def _drop_frames(error: BaseException | None) -> None:
    """Delete the traceback of an ended call, whose frames refer to the call's message.

    gRPC keeps the error of an aborted call in a reference cycle: without this, the message would
    stay in memory until the next garbage collection.
    """
    while isinstance(error, RejectedError | GivenUpError):
        error.__traceback__ = None
        error = error.__context__


@asynccontextmanager
async def serving(address: str, gate: Gate) -> AsyncIterator[int]:
    """Listen on an address inside the context.

    Yields:
        The port; 1 for a unix socket.

    Raises:
        HostError: the address cannot be used.
    """
    server = grpc.aio.server(options=gate.limits.server_options())
    server.add_generic_rpc_handlers((gate,))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise HostError(f"{address}: cannot listen on this address: {error}") from None
    await server.start()
    try:
        yield port
    finally:
        await server.stop(GRACE_SECONDS)
