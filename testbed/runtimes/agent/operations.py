"""What a client can ask of the agent: the methods of the protocol, by name.

A method's parameters are the fields of its requests, and what it returns is the result in its
reply: pydantic converts both according to the annotations.
"""

from __future__ import annotations

import time
import traceback
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import Field, FiniteFloat, NonNegativeInt, TypeAdapter, ValidationError, validate_call

from testbed.errors import NodeError, RejectedError, TestbedError
from testbed.host.reports import MESSAGE_CHARACTERS
from testbed.network.capture import open_capture
from testbed.network.counters import Traffic
from testbed.runtimes.agent.launch import LAUNCH, Exit, LaunchSpec
from testbed.runtimes.agent.nodes import Nodes
from testbed.telemetry.event_kinds import LinkChanged
from testbed.telemetry.files import replacing
from testbed.telemetry.host import HostSample, HostSampler
from testbed.telemetry.untrusted import open_untrusted
from testbed.telemetry.wall import WALL
from testbed.values.topology import Direction, LinkSpec

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


HANDED = frozenset({"capture"})
"""Methods that return a descriptor of the agent: a duplicate travels with the reply, over a
socket, and the agent's own is closed."""


WRITTEN_BYTES = 2**18


class NothingYet(Exception):  # noqa: N818 - no error
    """The request cannot be answered before another node has ended."""


class RefusedError(RejectedError):
    """A request that no agent can execute; nothing of it was done."""


class Operation:
    """One method of the protocol."""

    def __init__(self, act: Callable[..., Any]) -> None:
        self._act = validate_call(act)
        self._result = TypeAdapter(get_type_hints(act)["return"])

    def answer(self, fields: Mapping[str, Any]) -> bytes:
        """Execute a request with these fields; return the result as JSON.

        Raises:
            NothingYet: the caller must retry once a node has ended.
            RefusedError: the fields are not those of the method, or an unexpected error occurred.
            OSError, TestbedError: it failed; names the node.
        """
        try:
            with _naming(fields.get("node", "")):
                return self._result.dump_json(self._act(**fields))
        except (OSError, TestbedError, NothingYet):
            raise
        except ValidationError as error:
            raise RefusedError(_explain(error)) from None
        except ValueError as error:
            raise RefusedError(str(error)[:MESSAGE_CHARACTERS]) from None
        except Exception as error:  # noqa: BLE001 - no request may end the run
            traceback.print_exc()  # in the agent's log
            what = f"unexpected {error!r}"[:MESSAGE_CHARACTERS]
            raise RefusedError(f"{what}; the agent's log has the traceback") from None


def _explain(error: ValidationError) -> str:
    """Return what is wrong with the fields of a request, in one line."""
    first, *more = error.errors(include_url=False)
    where, missing = ".".join(map(str, first["loc"])), first["type"].startswith("missing")
    found = "" if missing else f", found {first['input']!r:.100}"
    return f"{where}: {first['msg']}{found}" + (f" (and {len(more)} more)" if more else "")


@contextmanager
def _naming(node: object) -> Iterator[None]:
    """Prefix errors raised inside with the node's name, unless they contain it."""
    try:
        yield
    except (OSError, TestbedError) as failure:
        known = failure if isinstance(failure, TestbedError) else NodeError(f"{failure}.")
        if not node or known.message.startswith((f"{node}:", f"{node} ")):
            raise known from failure.__cause__
        raise type(known)(f"{node}: {known.message}", hint=known.hint) from failure


@dataclass(frozen=True)
class Requests:
    """The methods that ``nodes`` does not have itself."""

    nodes: Nodes
    host: HostSampler = field(default_factory=HostSampler)
    _frozen: dict[str, tuple[float, Path]] = field(default_factory=dict)  # since when, and `told`
    _stood: dict[str, float] = field(default_factory=dict)  # seconds in all, by node

    def launch(self, launch: LaunchSpec) -> int:
        """Bring a node up; return the pid of its role in the agent's pid namespace."""
        with _naming(launch.node.name):
            return self.nodes.launch(launch)

    def begin(self, fields: Mapping[str, Any]) -> None:
        """Do the part of a launch that can overlap with the launch before it.

        An error is raised again, and reported, when the request is executed.
        """
        with suppress(ValueError, OSError, TestbedError):
            self.nodes.begin(LAUNCH.validate_python(fields.get("launch")))

    def exits(self, since: NonNegativeInt) -> list[Exit]:
        """Return the nodes that have ended, except the first ``since``, once there is one."""
        self.nodes.reap()
        if not (unseen := self.nodes.exits[since:]):
            raise NothingYet
        return unseen

    def count(self) -> Traffic:
        """Return what the links have carried so far."""
        return self.nodes.meter.read()

    def link(self, node: str) -> LinkSpec:
        """Return a running node's link as it is now."""
        return self.nodes.links_of([node])[node]

    def reshape(
        self,
        nodes: Sequence[str],
        up: Direction | None = None,
        down: Direction | None = None,
        seconds: Seconds | None = None,
        planned: FiniteFloat | None = None,
        by_hand: bool = False,
    ) -> LinkChanged:
        """Change links until they are reset, or for ``seconds``: the agent ends the change then."""
        links = self.nodes.links_of(nodes)
        return self.nodes.changes.set(
            links, up=up, down=down, seconds=seconds, planned=planned, by_hand=by_hand
        )

    def reset_links(self, nodes: Sequence[str], by_hand: bool = False) -> LinkChanged:
        """Restore the plan's links of nodes."""
        return self.nodes.changes.reset(nodes, by_hand=by_hand)

    def capture(self, node: str) -> int:
        """Return a socket that receives all frames of a node's link, at the switch's end."""
        self.nodes.links_of([node])  # raises an error if it has none
        return open_capture(node).detach()

    def set_pace(self, node: str, file: Path, factor: float) -> None:
        """Set the factor by which a worker's steps take longer; it reads the file before each."""
        if factor == 1.0:
            file.unlink(missing_ok=True)
            return
        _tell(file, factor)

    def freeze(self, node: str, told: Path | None = None) -> None:
        """Freeze a node's processes; ``thaw`` will write to ``told`` how long it stood in all.

        A process that sleeps does not notice: it wakes at the time at which it would have anyway.
        """
        self.nodes.freeze(node)
        if told is not None:
            self._frozen[node] = time.monotonic(), told

    def thaw(self, node: str) -> None:
        """Thaw a frozen node, which then knows for how many real seconds it stood."""
        if node in self._frozen:
            since, told = self._frozen.pop(node)
            self._stood[node] = self._stood.get(node, 0.0) + time.monotonic() - since
            with suppress(OSError):  # such as a full disk, which must not leave it frozen
                _tell(told, self._stood[node])
        self.nodes.thaw(node)

    def written(self, since: Mapping[Path, NonNegativeInt]) -> dict[Path, str]:
        """Return what nodes have written to files after these numbers of bytes, in base 64.

        The files, logs or others, are read in this order. At most WRITTEN_BYTES of each, and
        nothing of a file that has no more.
        """
        found = {}
        for path, read in since.items():
            self.nodes.spawner.logs.catch_up(path)
            whose = path.parent.name
            with suppress(FileNotFoundError), open_untrusted(path, node=whose) as file:
                file.seek(read)
                if data := file.read(WRITTEN_BYTES):
                    found[path] = b64encode(data).decode()
        return found

    def clock(self) -> float:
        """Return the time by which this agent dates changes of links, in seconds since 1970."""
        return WALL()

    def load(self) -> HostSample:
        """Return the load of the agent's host since the last such request of any client."""
        return self.host.sample()

    def link_changes(self, since: NonNegativeInt) -> list[LinkChanged]:
        """Return the changes of links, except the first ``since``, from any source.

        Only the controller asks, which then has those.
        """
        return self.nodes.changes.since(since)


def _tell(file: Path, value: float) -> None:
    """Write a number to a file that a node reads."""
    with replacing(file, lasting=False) as fresh:  # the agent waits for no disk
        fresh.write_text(repr(value), encoding="utf-8")
        fresh.chmod(0o644)  # the node has a uid of its own


def operations(requests: Requests) -> dict[str, Operation]:
    """Return all methods by name."""
    nodes = requests.nodes
    acts: tuple[Callable[..., Any], ...] = (
        *(requests.launch, requests.exits, requests.count, requests.link),
        *(requests.reshape, requests.reset_links, requests.link_changes),
        *(nodes.running, nodes.frozen, nodes.nodes, nodes.signal),
        *(requests.freeze, requests.thaw, nodes.partition, nodes.heal),
        *(nodes.private_bytes, nodes.carried, nodes.usage, nodes.links),
        *(nodes.limit_changes, nodes.listening, nodes.scrape, nodes.set_quota),
        *(requests.capture, requests.written, requests.clock, requests.load, requests.set_pace),
    )
    return {act.__name__: Operation(act) for act in acts}
