"""The calls that an engine may plan: a closed list of kinds, with their arguments.

A checkpoint stores a planned call as its kind and arguments; this module converts calls to such
descriptions and back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any

from testbed.simulation.engine import Engine
from testbed.simulation.event_queue import Callback
from testbed.simulation.faults import Faults, Traces
from testbed.simulation.key_misses import Misses
from testbed.simulation.links import Bucket, FairLink
from testbed.simulation.worker import Cycle

Call = MethodType | partial[None]
"""A planned call in the event queue."""

Method = Callable[..., None]

NUMBER = (int, float)
KINDS: Mapping[str, tuple[Method, tuple[str, ...]]] = {
    "pull": (Engine._pull, ("worker",)),
    "receive": (Engine._receive, ("worker",)),
    "begin": (Engine._begin, ("worker",)),
    "finish": (Engine._finish, ("worker",)),
    "push-once-coded": (Engine._push, ("cycle",)),
    "push": (Engine.push, ("cycle",)),
    "arrive": (Engine._arrive, ("cycle",)),
    "serve": (Engine._serve, ("cycle",)),
    "send-down": (Engine.send_down, ("worker", "bytes")),
    "tick": (Engine._call_tick, ()),
    "look": (Engine._look, ()),
    "fault": (Faults._act, ()),
    "if-alive": (Faults._run_if_alive, ("worker", "generation", "call")),
    "unless-frozen": (Faults._run_unless_frozen, ("worker", "generation", "time", "call")),
    "trace": (Traces._step, ("following", "value")),
    "push-again": (Misses._push_again, ("cycle",)),
    "asked-again": (Misses._asked_again, ("worker",)),
    "answer-again": (Misses._answer_again, ("worker",)),
    "transfer-ends": (FairLink._end, ("link",)),
    "latency": (FairLink.wait, ("link", "seconds", "call")),
    "burst-sent": (Bucket._burst_sent, ("bucket", "rest", "link", "call")),
    "all-sent": (Bucket._all_sent, ("bucket", "call")),
    "sent-at-once": (Bucket._all_at_once, ("bucket", "call")),
    "through": (Bucket._arrive, ("bucket", "link", "seconds", "call")),
}
"""By kind: the method, and its arguments before the time, its own link or bucket first."""

_KIND_OF: Mapping[object, str] = {function: kind for kind, (function, _) in KINDS.items()}
_TYPES: Mapping[str, Any] = {
    "worker": int,
    "generation": int,
    "following": int,
    "bytes": NUMBER,
    "time": NUMBER,
    "seconds": NUMBER,
    "rest": NUMBER,
    "value": NUMBER,
    "cycle": Cycle,
    "call": (MethodType, partial),
    "link": FairLink,
    "bucket": Bucket,
}


@dataclass(frozen=True)
class EnginePlans:
    """The plans of one engine (testbed.values.state.Plans)."""

    engine: Engine

    def describe(self, call: Call) -> tuple[str, Sequence[object]] | None:
        """Return the kind and arguments of a planned call; None if it is of no known kind."""
        method = call.func if isinstance(call, partial) else call
        arguments = call.args if isinstance(call, partial) else ()
        if not isinstance(method, MethodType) or getattr(call, "keywords", None):
            return None
        kind = _KIND_OF.get(method.__func__)
        if kind is None:
            return None
        owner = method.__self__
        return kind, (owner, *arguments) if isinstance(owner, FairLink | Bucket) else arguments

    def make(self, kind: str, arguments: Sequence[object]) -> Callback:
        """Create the planned call of this kind with these arguments."""
        function, names = KINDS[kind]
        for name, value in zip(names, arguments, strict=True):
            self._require(kind, name, value)
        owner, rest = self._owner(function, arguments)
        method: Method = getattr(owner, function.__name__)
        return partial(method, *rest) if rest else method

    def _owner(
        self, function: Method, arguments: Sequence[object]
    ) -> tuple[object, Sequence[object]]:
        if arguments and isinstance(arguments[0], FairLink | Bucket):
            return arguments[0], arguments[1:]
        engine = self.engine
        owners = {"Engine": engine, "Faults": engine.faults, "Traces": engine.parts["traces"]}
        name = function.__qualname__.partition(".")[0]
        return owners.get(name) or Misses(engine, engine.faults), arguments

    def _require(self, kind: str, name: str, value: object) -> None:
        """Check an argument's type, and that its node is one of the engine's."""
        if not isinstance(value, _TYPES[name]):
            raise TypeError(f"{name} of {kind} is a {type(value).__name__}")
        number = value.worker if isinstance(value, Cycle) else value
        counts = {
            "worker": len(self.engine.devices),
            "cycle": len(self.engine.devices),
            "following": len(self.engine.followings),
        }
        if name in counts and number not in range(counts[name]):
            raise LookupError(f"{name} {number} of {kind}")
