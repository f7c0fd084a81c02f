"""Processes on the other nodes of a Ray cluster, started while this one prepares their work.

The process that was asked what its node lacks is kept: it imports what the work of its node needs,
and forks those that do it. Ray would start one of its own for each, which takes seconds of CPU time
for the imports. What they use is reserved apart from them, as it is known later.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from testbed.errors import HostError
from testbed.host.process import YOUNG_OBJECTS
from testbed.runtimes.ray_cluster import alive_nodes, answers_of, on

PLACEMENT_SECONDS = 300
"""How long the cluster may take to start an actor."""

SLICE_SECONDS = 1
"""A wait of Ray's for a reservation cannot be interrupted; this is how long each takes."""


class NodeProcess:
    """An actor of Ray's that calls functions: as many at once as it was started for, or one."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns."""
        return function(*arguments)

    def iterate(self, function: Callable[..., Iterator[Any]], *arguments: Any) -> Iterator[Any]:
        """Return what a function yields, while it continues."""
        yield from function(*arguments)


class OtherNodes:
    """Processes on all nodes but this process's, one each."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self._job = ""

    def ask(self, function: Callable[..., Any], *arguments: Any) -> list[tuple[str, Any]]:
        """Call a function in each process; see ``ask_nodes``."""
        import ray

        context = ray.get_runtime_context()
        if self._job != (job := context.get_job_id()):  # this process has joined again
            self._kept, self._job = {}, job
        own = context.get_node_id()
        others = [node for node in alive_nodes() if node["NodeID"] != own]
        return answers_of(
            [(node, self._on(node).call.remote(function, *arguments)) for node in others]
        )

    def _on(self, node: Mapping[str, Any]) -> Any:
        import ray

        name = node["NodeID"]
        if name not in self._kept:
            actor: Any = ray.remote(num_cpus=0)(NodeProcess)
            self._kept[name] = actor.options(
                scheduling_strategy=on(node), max_concurrency=int(node["Resources"]["CPU"])
            ).remote()
        return self._kept[name]

    def prepare(self, *modules: str) -> None:
        """Let all processes import modules, without waiting for them."""
        for process in self._kept.values():
            process.call.remote(import_all, modules)

    def of_node(self, node: str) -> Any:
        """Return the process of a node, by its ID; None if there is none."""
        return self._kept.get(node)

    def drop(self, process: Any) -> None:
        """Keep a process no longer: it was lost."""
        self._kept = {node: one for node, one in self._kept.items() if one is not process}

    def forget(self) -> None:
        """End the processes that do not work: this process leaves the cluster."""
        self._kept.clear()


def import_all(modules: Sequence[str]) -> None:
    """Import modules; the collector would look at their objects many times, and find nothing."""
    gc.set_threshold(YOUNG_OBJECTS)
    for module in modules:
        import_module(module)


OTHERS = OtherNodes()
"""The processes of the cluster that this process has joined: Ray can join one at a time."""


@dataclass(frozen=True)
class Reservation:
    """What the nodes of a cluster keep free for processes, by their numbers, until they leave Ray.

    Attributes:
        needed: by each process, by Ray's names.
        nodes: the node of each, by its ID.
    """

    needed: Mapping[str, int]
    nodes: Mapping[int, str]
    _group: Any

    def is_here(self, number: int) -> bool:
        """Return whether the node of a process is this process's."""
        import ray

        here: bool = self.nodes[number] == ray.get_runtime_context().get_node_id()
        return here

    def start(self, number: int) -> Any:
        """Start an actor where room is reserved, or where Ray has reserved it since."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        needed = self.needed
        actor: Any = ray.remote(NodeProcess)
        return actor.options(
            num_cpus=needed["CPU"],
            num_gpus=needed["GPU"],
            memory=needed["memory"],
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, number),
        ).remote()


def reserve(needed: Mapping[str, int], count: int) -> Reservation:
    """Reserve what each process needs, on as many nodes as possible.

    Args:
        needed: by one process, by Ray's names.
        count: number of processes.

    Raises:
        HostError: the cluster was busy for PLACEMENT_SECONDS.
    """
    from ray.util import placement_group, placement_group_table

    one = {name: float(number) for name, number in needed.items() if number}
    group = placement_group([one] * count, strategy="SPREAD")
    if not any(group.wait(SLICE_SECONDS) for _ in range(PLACEMENT_SECONDS // SLICE_SECONDS)):
        raise HostError(
            f"the Ray cluster had no room for {count} processes of the simulation within "
            f"{PLACEMENT_SECONDS} s.",
            hint="`ray status` shows what it is busy with.",
        )
    return Reservation(needed, placement_group_table(group)["bundles_to_node_id"], group)
