"""``testbed plan``: shows what a scenario would start."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.options import runtime_option

if TYPE_CHECKING:
    from testbed.cli.host import Capacity
    from testbed.plan.budget import Budget
    from testbed.runtimes.base import Request
    from testbed.scenario import Scenario
    from testbed.topology import LinkSpec, NodeSpec, Plan

DATA, TOKEN = Path("/prepared by up"), "drawn by up"
"""Stand for what `up` finds, and draws, when it begins."""


@click.command("plan")
@click.argument("file")
@runtime_option
@click.option("--set", "settings", multiple=True, metavar="PATH=VALUE", help="Replace a value.")
@click.option("--workers", type=int, metavar="N", help="Short for --set workers.count=N.")
@click.option("--json", "as_json", is_flag=True, help="Print every node as JSON.")
def command(
    file: str,
    runtime: str | None,
    settings: tuple[str, ...],
    workers: int | None,
    as_json: bool,
) -> None:
    """Show the containers, links, addresses and the budget of a scenario; touches nothing."""
    from testbed.cli.host import capacity
    from testbed.cli.overrides import overrides
    from testbed.cli.virtual import print_simulation
    from testbed.plan.budget import budget, count_parameters
    from testbed.plan.make import plan
    from testbed.scenario import load

    scenario = load(file, overrides=overrides(settings, workers=workers, runtime=runtime))
    if scenario.simulated:
        print_simulation(scenario, capacity(), as_json=as_json)
        return
    made = plan(scenario, scenario.name)
    needs = budget(scenario, made, count_parameters(scenario))
    requests = _requests(scenario, made)
    if as_json:
        data = _as_data(made, needs, capacity()) | {
            "runtime": scenario.runtime.name,
            "requests": [asdict(request) for request in requests],
        }
        click.echo(json.dumps(data, indent=2))
    else:
        _print(made, needs, capacity())
        _print_requests(scenario, made, requests)


def _requests(scenario: Scenario, made: Plan) -> tuple[Request, ...]:
    """What will be sent to bring the run up; of a runtime that is not settled yet, nothing."""
    from testbed.host.users import Users
    from testbed.run.setup import Setup
    from testbed.runtimes import Real
    from testbed.telemetry.folder import RunFolder

    if not isinstance(scenario.runtime, Real):
        return ()
    folder = RunFolder((Path("runs") / made.run).absolute())
    setup = Setup(scenario, made, folder, DATA, TOKEN, Users("root"))
    return setup.requests(scenario.runtime.driver())


def _as_data(plan: Plan, needs: Budget, host: Capacity) -> dict[str, Any]:
    return {
        "run": plan.run,
        "launch": plan.launch,
        "network": asdict(plan.network),
        "nodes": [_node_as_data(node) for node in plan.nodes],
        "budget": {**asdict(needs), "host": asdict(host)},
    }


def _node_as_data(node: NodeSpec) -> dict[str, Any]:
    data = {**asdict(node), "memory_bytes": node.memory}
    del data["memory"]
    return {**data, "link": None if node.link is None else _link_as_data(node.link)}


def _link_as_data(link: LinkSpec) -> dict[str, Any]:
    from testbed.network.qdiscs import describe, qdiscs_of

    directions = {}
    for name, shape, qdisc in zip(
        ("up", "down"), (link.up, link.down), qdiscs_of(link), strict=True
    ):
        directions[name] = {
            "rate_bits_per_second": shape.rate,
            "delay_seconds": shape.delay,
            "jitter_seconds": shape.jitter,
            "distribution": shape.distribution if shape.jitter else None,
            "loss_ratio": shape.loss,
            "loss_correlation": shape.loss_correlation,
            "queue_seconds": shape.queue,
            "qdisc": describe(qdisc),
        }
    return {"address": link.address, "mac": link.mac, "seed": link.seed, **directions}


def _print(plan: Plan, needs: Budget, host: Capacity) -> None:

    from testbed.cli.console import Console, Table

    nodes = Table("node", "class", "address", "uid", "cpu", "memory", title=plan.run)
    links = Table("node", "class", "up", "down", title="links")
    for group in _groups(plan):
        nodes.add_row(*_node_row(group))
        links.add_row(*_link_row(group))
    console = Console()
    console.print(nodes, links)
    for line in _budget_lines(needs, host):
        console.print(line, highlight=False, soft_wrap=True)


def _print_requests(scenario: Scenario, made: Plan, requests: tuple[Request, ...]) -> None:
    """What is sent for the first node of each class, and to start the agent, word by word."""
    from rich.text import Text

    from testbed.cli.console import Console, Table

    if not requests:
        click.echo(f"runtime {scenario.runtime.name}: `testbed up` settles it")
        return
    firsts = {group[0].name for group in _groups(made)}
    others = {node.name for node in made.nodes} - firsts
    table = Table("to", "request", "field", "value", title="what is sent")
    for request in requests:
        if request.name.rpartition(" ")[2] in others:
            continue
        shown = (request.to, request.name)
        for field, value in _flat(request.body):
            table.add_row(*map(Text, (*shown, field, value)))
            shown = ("", "")
    Console().print(table)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every value inside that says something, and the way to it; ``--json`` has the others too."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif value not in (None, "", [], ()):
        yield path, value if isinstance(value, str) else json.dumps(value)


def _groups(plan: Plan) -> list[list[NodeSpec]]:
    """Neighbours of a class, which differ in name, address and uid only."""
    by_class = groupby(plan.nodes, key=lambda node: (node.role, node.device_class))
    return [list(neighbours) for _, neighbours in by_class]


def _node_row(nodes: list[NodeSpec]) -> tuple[str, ...]:
    """One row for neighbours of a class: they differ in name, address and uid only."""
    first = nodes[0]
    addresses = _range(node.link.address if node.link else "no eth0" for node in nodes)
    cpu = f"weight {first.cpu_weight}" if first.cpu is None else f"{first.cpu:g}"
    cpu += "" if first.cpuset is None else f" on {first.cpuset}"
    memory = "no limit" if first.memory is None else str(first.memory)
    names = _range(node.name for node in nodes)
    uids = _range(str(node.uid) for node in nodes)
    return names, first.device_class or "-", addresses, uids, cpu, memory


def _link_row(nodes: list[NodeSpec]) -> tuple[str, ...]:
    from testbed.network.qdiscs import describe, qdiscs_of

    link = nodes[0].link
    up, down = ("-", "-") if link is None else map(describe, qdiscs_of(link))
    return _range(node.name for node in nodes), nodes[0].device_class or "-", up, down


def _range(words: Iterable[str]) -> str:
    first, *rest = words
    return f"{first} - {rest[-1]}" if rest else first


def _budget_lines(needs: Budget, host: Capacity) -> Iterable[str]:
    model = "a model of unknown size" if needs.parameters is None else "the model"
    if needs.parameters is not None:
        model += f" of {needs.parameters:,} parameters"
    sizes = {**needs.node_bytes, "agent": needs.agent_bytes}
    yield (
        f"memory  about {_mb(needs.total_bytes)} of {_mb(host.memory_bytes)} for {model}; each:"
        f" {', '.join(f'{role} {_mb(size)}' for role, size in sizes.items())}"
    )
    limits = f"limits of {needs.cpu_limits:g} CPUs in all, " if needs.cpu_limits else ""
    unlimited = f"{needs.unlimited_nodes} nodes without a limit"
    yield f"cpu     {limits}{unlimited}; the host has {host.cpus}"
    pace = needs.updates_per_second
    most = "as many updates as the host can do" if pace is None else f"at most {pace:.1f} updates/s"
    yield f"pace    {most} (real time)"


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"
