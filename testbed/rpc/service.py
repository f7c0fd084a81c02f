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
from testbed.rpc.limits import MessageLimits
from testbed.rpc.methods import TOKEN_KEY
from testbed.rpc.wire import MalformedError, OversizedError

GRACE_SECONDS = 0.2

INCOMPLETE = "INCOMPLETE"

_END: Any = grpc.aio.EOF  # type: ignore[attr-defined]
_CODES: Mapping[type[RejectedError], grpc.StatusCode] = {
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
        node: the caller's name, once the one who answers knows it.
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


@dataclass
class Gate(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Every call to a server comes through here.

    Attributes:
        token: of the run; a call without it learns nothing.
        behaviours: what answers each method, by its full name.
        refused: told of every refusal.
        failed: told of an error nobody foresaw; the server must not go on after it.
        streams: what answers those methods that send several messages.
        counts: answered calls as ``OK``, refusals by code.
    """

    token: str
    behaviours: Mapping[str, Behaviour]
    limits: MessageLimits
    refused: Callable[[Refusal], None]
    failed: Callable[[BaseException], None]
    streams: Mapping[str, Streaming] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._handlers = {
            **{name: self._answering(name, one) for name, one in self.behaviours.items()},
            **{name: self._streaming(name, one) for name, one in self.streams.items()},
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        """What answers a call: an own behaviour, or a refusal that reads nothing."""
        method = handler_call_details.method
        handler = self._handlers.get(method)
        if not self._admits(handler_call_details.invocation_metadata):
            code, reason = grpc.StatusCode.UNAUTHENTICATED, f"no valid {TOKEN_KEY} in the metadata"
        elif handler is None:
            code, reason = grpc.StatusCode.UNIMPLEMENTED, f"there is no method {method}"
        else:
            return handler
        return self._refusing(method, code, reason)

    def _admits(self, metadata: Any) -> bool:
        tokens = [value for key, value in metadata or () if key == TOKEN_KEY]
        if len(tokens) != 1:
            return False
        given = tokens[0]
        given = given if isinstance(given, bytes) else given.encode()
        return hmac.compare_digest(given, self.token.encode())

    # Handlers take a stream of requests, of which they read one: the only way in which a refusal
    # can go out before the message was read, and in which a message that never comes is noticed.

    def _answering(self, method: str, behaviour: Behaviour) -> Handler:
        async def answer(_: Any, context: Any) -> bytes:
            call = Call(method, context.peer())
            async with self._watching(call, context):
                data = await behaviour(await self._read(context, call), call)
                self.counts["OK"] += 1
                return data
            raise AssertionError  # a refusal has ended the call

        return grpc.stream_unary_rpc_method_handler(answer)

    def _streaming(self, method: str, streaming: Streaming) -> Handler:
        async def answer(_: Any, context: Any) -> AsyncIterator[bytes]:
            call = Call(method, context.peer())
            async with self._watching(call, context):
                async for data in streaming(await self._read(context, call), call):
                    yield data
                self.counts["OK"] += 1

        return grpc.stream_stream_rpc_method_handler(answer)

    @asynccontextmanager
    async def _watching(self, call: Call, context: Any) -> AsyncIterator[None]:
        """Answer refusals with their status, and report errors that nobody foresaw."""
        try:
            try:
                yield
            except SupersededError as error:
                self.counts["ABORTED"] += 1
                await context.abort(grpc.StatusCode.ABORTED, str(error))
            except RejectedError as error:
                code = _CODES.get(type(error), grpc.StatusCode.FAILED_PRECONDITION)
                self._note(call, code.name, str(error))
                await context.abort(code, str(error))
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except BaseException as error:  # gRPC would answer UNKNOWN and go on
            self.failed(error)
            raise

    async def _read(self, context: Any, call: Call) -> bytes:
        message = _END
        try:
            message = await context.read()
        finally:
            if message is _END:
                self._note(call, INCOMPLETE, "the message did not come whole")
        if message is _END:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "there was no message")
        self.limits.check(cast(bytes, message))
        return cast(bytes, message)

    def _refusing(self, method: str, code: grpc.StatusCode, reason: str) -> Handler:
        async def refuse(_: Any, context: Any) -> bytes:
            self._note(Call(method, context.peer()), code.name, reason)
            await context.abort(code, reason)
            raise AssertionError  # abort has raised

        return grpc.stream_unary_rpc_method_handler(refuse)

    def _note(self, call: Call, code: str, reason: str) -> None:
        self.counts[code] += 1
        self.refused(Refusal(call, code, reason))


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
