"""The control server: gRPC over a unix socket, behind the same gate as the parameter server.

It has threads, so it is created after the template, which forks nodes, runs in its own process.
The agent's loop executes requests one after the other; only a launch may begin while the launch
before it is still in progress.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import NoReturn

from testbed.agent.loop import Loop
from testbed.agent.nodes import Nodes
from testbed.agent.operations import OPERATIONS, Operation
from testbed.agent.settings import AGENT_SOCKET, AGENT_TOKEN, CONTROL_LIMITS, new_token
from testbed.errors import RejectedError, TestbedError
from testbed.host.reports import encode_error
from testbed.rpc.addresses import unix_address
from testbed.rpc.service import Behaviour, Call, Gate, Refusal, serving
from testbed.rpc.tokens import CONTROLLER

FIRST_REFUSALS = 100
MAX_CALLS = 256
"""Concurrent calls: every command that inspects the run is a client too."""


def serve_control(loop: Loop, control: Path, *, token: str | None = None) -> None:
    """Listen at ``agent.sock`` in a folder until this process ends.

    Calls must carry the token; if None, a new token is written next to the socket.

    Raises:
        HostError, OSError: the socket cannot be created; the token cannot be written.
    """
    listening: Future[None] = Future()
    others_cannot = os.umask(0o177)
    try:
        if token is None:
            token = new_token()
            (control / AGENT_TOKEN).write_text(token)
        serve = _serve(loop, control / AGENT_SOCKET, token=token, listening=listening)
        Thread(target=asyncio.run, args=(serve,), name="control", daemon=True).start()
        listening.result()
    finally:
        os.umask(others_cannot)


async def _serve(loop: Loop, place: Path, *, token: str, listening: Future[None]) -> None:
    gate = Gate(
        tokens={CONTROLLER: token},
        max_calls=MAX_CALLS,
        behaviours={method: _behaviour(loop, one) for method, one in OPERATIONS.items()},
        limits=CONTROL_LIMITS,
        refused=Refusals().add,
        failed=partial(_end, loop),
    )
    try:
        with unix_address(place) as address:
            async with serving(address, gate):
                listening.set_result(None)
                await asyncio.Event().wait()
    except BaseException as error:
        if listening.done():
            raise
        listening.set_exception(error)


@dataclass
class Refusals:
    """Counts rejected calls; logs the first ones in the agent's log, then every hundredth."""

    count: int = 0

    def add(self, refusal: Refusal) -> None:
        """Count a rejected call; the caller is notified separately."""
        self.count += 1
        if self.count <= FIRST_REFUSALS or self.count % FIRST_REFUSALS == 0:
            method, reason = refusal.call.method[:100], refusal.reason[:200]
            text = f"refused: {method!r}: {refusal.code}: {reason!r} ({self.count} so far)"
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


def _end(loop: Loop, failure: BaseException) -> None:
    """End the agent: the server has met an unexpected error."""

    def fail(_: Nodes) -> NoReturn:
        raise RuntimeError("the control server has failed") from failure

    loop.ask(fail)


def _behaviour(loop: Loop, operation: Operation) -> Behaviour:
    async def answer(message: bytes, _: Call) -> bytes:
        try:
            begin = operation.begin and partial(operation.begin, message)
            asked = loop.ask(partial(operation.answer, message), begin)
            return await asyncio.wrap_future(asked)
        except RejectedError:
            raise
        except (OSError, TestbedError) as failure:
            raise RejectedError(json.dumps(encode_error(failure))) from failure

    return answer
