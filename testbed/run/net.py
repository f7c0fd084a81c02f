"""Shows, measures and changes the links of a running run, which another process controls."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from testbed.errors import HostLostError, NodeError, Problem, ScenarioError
from testbed.network.capture import Captured, capture
from testbed.network.qdiscs import qdiscs_of
from testbed.plan.selection import select
from testbed.plan.written import read_plan
from testbed.run.agents import connect
from testbed.run.by_hand import duration_of
from testbed.run.probe import ClassProbe, ProbedLink, Prober, shaped_links
from testbed.run.runtime import driver_for
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.base import RuntimeDriver
from testbed.scenario.direction import TracedDirection
from testbed.scenario.schema_node import one_of
from testbed.scenario.synonyms import nearest
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import Direction, LinkSpec, Plan

CONNECT_SECONDS = 2.0
KEYS = tuple(Direction.model_fields)
NUMBERS = ("loss", "loss_correlation")


@dataclass(frozen=True)
class Links:
    """The links of one run."""

    plan: Plan
    folder: RunFolder
    driver: RuntimeDriver
    agent: AgentClient

    def show(self, selectors: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return links as text: configured values and the kernel's.

        Args:
            selectors: of nodes, and names of links between switches; by default all.

        Raises:
            ScenarioError: no such node, or one without a link.
            NodeError: none of them runs.
        """
        classes = {node.name: node.device_class for node in self.plan.nodes}
        names = self._linked(selectors) if selectors else []
        found = self.agent.links(only=names) if names else self.agent.links()
        if names and not found:
            raise NodeError(f"none of {', '.join(names)} is running.")
        return [
            {"node": link["node"], "class": classes.get(link["node"]) or None, **link}
            for link in found
        ]

    def probe(self) -> list[dict[str, Any]]:
        """Measure every class's link, and those between switches, as they are now."""
        links = [replace(one, link=self._current(one)) for one in shaped_links(self.plan)]
        if not links:
            return []
        prober = Prober(self.plan, self.folder, self.driver, self.agent)
        return [_as_data(found) for found in prober.probe(links)]

    @contextmanager
    def capturing(self, selector: str) -> Iterator[Callable[..., Captured]]:
        """Yield a function that captures the frames of one node's link; see ``capture``.

        Raises:
            ScenarioError: no such node, several ones, or a node without a link.
            NodeError: it does not run.
        """
        names = self._linked([selector], between=False)
        if len(names) > 1:
            found = f"{selector}, which are {len(names)} nodes"
            raise ScenarioError([Problem("NODE", 0, "", found, f"one of them, such as {names[0]}")])
        (name,) = names
        hosts = {host.name: host for host in self.plan.hosts if not host.here}
        if host := hosts.get(self.plan.node(name).host):
            from testbed.runtimes.docker.remote import capture_there

            self.agent.link(name)  # raises an error if it does not run
            yield partial(capture_there, host, self.folder, name)
        else:
            with self.agent.capture(name) as frames:
                yield partial(capture, frames, steady=time.monotonic)

    def change(
        self, selectors: Sequence[str], *, up: str | None, down: str | None, duration: str | None
    ) -> str:
        """Change the links of the nodes that match any selector; return a description of that.

        A direction is a rate, or fields like ``rate=1mbit,loss=0.01``, or None for no change.
        The duration is in emulated time, like ``2m``; without it, the change is permanent.

        Raises:
            ScenarioError: no such node, a node without a link, or no such shape; nothing changes.
            NodeError, HostError: the agent failed to do it.
        """
        alike: dict[tuple[Direction | None, Direction | None], list[str]] = defaultdict(list)
        for node in self._linked(selectors):
            shapes = (self._shape(node, "up", up), self._shape(node, "down", down))
            alike[shapes].append(node)
        seconds = None if duration is None else duration_of(duration) / self.plan.time_scale
        changed, lost = 0, []
        for (to_ps, back), nodes in alike.items():
            try:
                done = self.agent.reshape(nodes, up=to_ps, down=back, seconds=seconds, by_hand=True)
            except HostLostError as error:  # it has changed the links on the other hosts
                lost.append(error.message)
            else:
                changed += len(done.nodes)
        if lost:
            raise HostLostError(" ".join(lost))
        until = "until it is reset" if duration is None else f"for {duration} of emulated time"
        return f"changed {_links(changed)} {until}"

    def reset(self, selectors: Sequence[str]) -> str:
        """Restore the scenario's links of the matching nodes, by default all; return the count."""
        names = [node.name for node in self.plan.nodes if node.link is not None]
        names += self._trunks()
        done = self.agent.reset_links(self._linked(selectors) if selectors else names, by_hand=True)
        if done.failure:
            raise NodeError(f"some links could not be reset: {done.failure}")
        return f"reset {_links(len(done.nodes))}"

    def _trunks(self) -> dict[str, LinkSpec]:
        return {trunk.name: trunk.link for trunk in self.plan.network.trunks}

    def _linked(self, selectors: Sequence[str], *, between: bool = True) -> list[str]:
        """Return the matching nodes and, unless ``between`` is False, links between switches."""
        trunks = [name for name in selectors if between and name in self._trunks()]
        others = [selector for selector in selectors if selector not in trunks]
        return [*trunks, *(self._linked_nodes(others) if others else ())]

    def _linked_nodes(self, selectors: Sequence[str]) -> list[str]:
        names = select(selectors, self.plan)
        linked = {node.name for node in self.plan.nodes if node.link is not None}
        if without := [name for name in names if name not in linked]:
            found = f"{', '.join(without)}, without a link"
            raise ScenarioError([Problem("selector", 0, "", found, "nodes with a link")])
        return list(names)

    def _shape(self, node: str, direction: str, text: str | None) -> Direction | None:
        """Return the shape in the plan, updated with the fields that ``text`` gives; real units."""
        if text is None:
            return None
        link = self._trunks().get(node) or self.plan.node(node).link
        assert link is not None, "every worker has one"
        own = link.up if direction == "up" else link.down
        planned = own.scaled(1 / self.plan.time_scale)
        try:
            given = _fields(text, f"--{direction}")
            wanted = {**planned.model_dump(exclude_none=True), **given}
            scaled = TracedDirection.model_validate(wanted).scaled(self.plan.time_scale)
            shape = own.changed(**{name: value for name, value in scaled if name in given})
            qdiscs_of(LinkSpec("", "", up=shape))  # raises if the kernel could not do it
        except ValidationError as error:
            found = "; ".join(
                ": ".join([*map(str, each["loc"]), each["msg"].removeprefix("Value error, ")])
                for each in error.errors()
            )
            problem = Problem(f"--{direction}", 0, "", f"{text!r}: {found}", "")
        except ValueError as error:
            reason = str(error).removeprefix("up: ")
            problem = Problem(f"--{direction}", 0, "", repr(text), "", reason)
        else:
            return shape
        raise ScenarioError([problem])

    def _current(self, probed: ProbedLink) -> LinkSpec:
        """Return the changed link of a running node of the class; else the planned one."""
        if probed.ends:
            return self.agent.link(probed.name)
        running = set(self.agent.running())
        nodes = [node.name for node in self.plan.devices if node.device_class == probed.name]
        names = [name for name in nodes if name in running]
        return self.agent.link(names[0]) if names else probed.link


@contextmanager
def open_links(folder: RunFolder) -> Iterator[Links]:
    """Connect to the agent of a run.

    Raises:
        ScenarioError: it is simulated.
        HostError: it belongs to another user.
        NodeError: it is not running.
    """
    folder.check_owner()
    plan = read_plan(folder)
    driver = driver_for(folder, plan)
    ended = NodeError(
        f"{folder.name} has ended: it no longer has links.",
        hint="`testbed ps` lists the active runs.",
    )
    if not folder.agent_socket.exists():
        raise ended
    deadline = time.monotonic() + CONNECT_SECONDS
    try:
        agent = connect(plan, folder, deadline=deadline)
    except NodeError as error:
        raise ended from error
    with agent:
        yield Links(plan, folder, driver, agent)


def _links(count: int) -> str:
    return f"{count} link{'' if count == 1 else 's'}"


def _fields(text: str, option: str) -> dict[str, Any]:
    """Parse ``1mbit`` or ``rate=1mbit,loss=0.01`` into fields of a direction.

    Raises:
        ScenarioError: a direction has no such field.
    """
    if "=" not in text:
        return {"rate": text}
    fields: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in KEYS:
            found, hint = f"{name or repr(part)}, an unknown key", nearest(name, KEYS)
            raise ScenarioError([Problem(option, 0, "", found, one_of(KEYS), hint)])
        fields[name] = float(value) if name in NUMBERS else value
    return fields


def _as_data(found: ClassProbe) -> dict[str, Any]:
    kind, _, name = found.owner.partition(" ")
    return {
        **{"class": None, kind: name},
        "up_configured_bits_per_second": found.up.rate,
        "up_bits_per_second": found.up_bits_per_second,
        "down_configured_bits_per_second": found.down.rate,
        "down_bits_per_second": found.down_bits_per_second,
        "round_trip_configured_seconds": found.expected_round_trip_seconds,
        "round_trip_seconds": found.round_trip_seconds,
        "message_up_seconds": found.message_up_seconds,
        "message_down_seconds": found.message_down_seconds,
    }
