"""``testbed plan``: shows what a scenario would start."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.options import (
    hosts_option,
    overrides,
    print_json,
    runtime_option,
    settings_option,
    workers_option,
)
from testbed.values.units import megabytes

if TYPE_CHECKING:
    from testbed.host.requirements import Capacity
    from testbed.plan.budget import Budget
    from testbed.run.setup import Setup
    from testbed.runtimes.base import Request
    from testbed.scenario import Scenario
    from testbed.scenario.workload import Workload
    from testbed.values.topology import LinkSpec, NetworkSpec, NodeSpec, Plan

DATA, SECRET = Path("/prepared by up"), "drawn by up"
"""Placeholders for what `up` prepares, and draws, at its start."""

MOST_ITEMS = 8
"""Maximum number of items to print of a list in a request, such as a node's neighbours."""


@click.command("plan")
@click.argument("file")
@runtime_option
@hosts_option
@settings_option
@workers_option
@click.option(
    "--requests", "shows_requests", is_flag=True, help="Also show the requests that start it."
)
@click.option("--json", "as_json", is_flag=True, help="Print every node as JSON.")
def command(
    file: str,
    runtime: str | None,
    hosts: str | None,
    settings: tuple[str, ...],
    workers: int | None,
    shows_requests: bool,
    as_json: bool,
) -> None:
    """Show the containers, links, addresses and the budget of a scenario, without starting it."""
    from testbed.cli.plan_devices import devices_as_data, print_devices
    from testbed.cli.plan_hosts import host_lines, place
    from testbed.host.requirements import capacity
    from testbed.plan.budget import budget, count_parameters
    from testbed.plan.make import plan
    from testbed.scenario.checks import substitutes
    from testbed.scenario.compute import choose
    from testbed.scenario.costs import builtin_cost, uses_profiles, with_cost
    from testbed.scenario.load_workload import load_any
    from testbed.scenario.source import find_scenario
    from testbed.scenario.workload import Workload

    asked = overrides(settings, workers=workers, runtime=runtime, hosts=hosts)
    scenario = load_any(file, overrides=asked)
    if isinstance(scenario, Workload):
        beside = find_scenario(Path(file)).parent
        _show_workload(scenario, beside, as_json=as_json, shows_requests=shows_requests)
        return
    if uses_profiles(scenario):
        scenario = with_cost(scenario, builtin_cost(scenario))
    if not as_json:
        for one in substitutes(scenario):
            click.echo(f"SUBSTITUTE: {one}")
    if scenario.simulated:
        _print_simulation(scenario, capacity(), as_json=as_json)
        return
    made = plan(scenario, scenario.name)
    needs = budget(scenario, made, count_parameters(scenario))
    made, refused = _deal(made, needs.parameters)
    placed = place(scenario, made, needs.parameters)
    made = placed.plan
    requests, choice = _requests(scenario, made), choose(scenario)
    if as_json:
        print_json(
            {
                "run": made.run,
                "launch": made.launch,
                "network": asdict(made.network),
                "nodes": [_node_as_data(node) for node in made.nodes],
                "budget": {**asdict(needs), "host": asdict(capacity())},
                "runtime": scenario.runtime.name,
                **(
                    {"compute": {"name": choice.compute.name, "why": choice.why}}
                    if requests
                    else {}
                ),
                "substitutes": substitutes(scenario),
                "requests": [asdict(request) for request in requests],
                **placed.as_data(),
                **({"refused": refused or placed.refused} if refused or placed.refused else {}),
                **devices_as_data(scenario),
            }
        )
    else:
        _print(made, needs, capacity())
        if choice.why:
            click.echo(
                f"compute {choice.why}" if requests else "compute auto: chosen by `testbed up`"
            )
        for line in (*gpu_lines(made, refused), *host_lines(placed, needs)):
            click.echo(line)
        print_devices(scenario)
        if not requests:
            click.echo(f"runtime {scenario.runtime.name}: chosen by `testbed up`")
        elif shows_requests:
            _print_requests(made, requests)


def _deal(made: Plan, parameters: int | None) -> tuple[Plan, str]:
    """Deal this host's GPUs; return the plan, and why `up` would refuse it, or an empty string."""
    from testbed.errors import HostError
    from testbed.host.gpus import find_gpus
    from testbed.payloads import VALUE_BYTES
    from testbed.plan.gpus import deal_gpus

    if not made.wants_gpus:
        return made, ""
    try:
        return deal_gpus(made, find_gpus(), vector=VALUE_BYTES * (parameters or 0)), ""
    except HostError as error:
        return made, str(error)


def gpu_lines(made: Plan, refused: str) -> Iterator[str]:
    """Yield who has which GPU."""
    from testbed.plan.gpus import CONTEXT_BYTES, holders

    if refused:
        yield f"gpu     `testbed up` will refuse this: {refused}"
    for gpu, nodes in holders(made):
        shares = _first([f"{node.name} {min(node.gpus, 1):g}" for node in nodes])
        contexts = f"CUDA contexts take up to {megabytes(len(nodes) * CONTEXT_BYTES)}"
        device = f"GPU {gpu.index} ({gpu.name}, {megabytes(gpu.memory)})"
        yield f"gpu     {device}: {', '.join(shares)}; {contexts}"


def _show_workload(
    workload: Workload, beside: Path, *, as_json: bool, shows_requests: bool
) -> None:
    """Show the nodes and links of a workload, and when they are present; changes nothing."""
    from testbed.cli.plan_devices import presence, print_presence
    from testbed.plan.workload import plan_workload

    made, refused = _deal(plan_workload(workload, workload.name), None)
    requests = _requests(workload, made)
    present = presence(workload, made, beside)
    if as_json:
        print_json(
            {
                "run": made.run,
                "network": _network_as_data(made.network),
                "nodes": [_node_as_data(node) for node in made.nodes],
                **({"availability": present} if present else {}),
                "runtime": workload.runtime.name,
                "requests": [asdict(request) for request in requests],
                **({"refused": refused} if refused else {}),
            }
        )
        return
    _print_nodes(made)
    print_presence(present)
    for line in gpu_lines(made, refused):
        click.echo(line)
    if shows_requests:
        _print_requests(made, requests)


def _print_simulation(scenario: Scenario, host: Capacity, *, as_json: bool) -> None:
    """Show what a simulation of the scenario will model; changes nothing."""
    from testbed.cli.plan_devices import devices_as_data, print_devices
    from testbed.plan.budget import count_parameters
    from testbed.reports.console import Console, Table
    from testbed.scenario.checks import substitutes
    from testbed.simulation.outline import outline

    made = outline(scenario, parameters=count_parameters(scenario), processes=host.cpus)
    if as_json:
        told = {"runtime": scenario.runtime.name, "substitutes": substitutes(scenario)}
        print_json({"run": scenario.name, **told, **asdict(made), **devices_as_data(scenario)})
        return
    table = Table(
        *("class", "workers", "a step", "think", "up", "down"), title=f"{scenario.name}, SIMULATED"
    )
    table.add_row("(the PS)", "", "", "", made.ps_up, made.ps_down)
    for one in made.classes:
        step = f"{one.step_seconds:g} s" if one.step_seconds else "of the model"
        table.add_row(one.name, f"{one.workers:,}", step, one.think, one.up, one.down)
    console = Console()
    console.print(table)
    print_devices(scenario)
    most = f"at most {made.updates_per_second:,.1f} updates/s, without transfers"
    lines = [
        ("the PS", made.ps_service),
        ("pace", f"{most} (emulated time)"),
        ("computed", f"gradients by {made.gradients}"),
    ]
    if made.memory_bytes is not None:
        needed, there = (megabytes(size) for size in (made.memory_bytes, host.memory_bytes))
        lines.append(("memory", f"about {needed} of {there}"))
    lines += [("modelled", text) for text in made.modelled]
    lines += [("left out", text) for text in made.left_out]
    for (name, text), before in zip(lines, [("", ""), *lines], strict=False):
        shown = "" if name == before[0] else name
        console.print(f"{shown:8}  {text}", highlight=False, soft_wrap=True)


def _requests(scenario: Scenario | Workload, made: Plan) -> tuple[Request, ...]:
    """Return the requests that will bring the run up; empty if the runtime is not chosen yet."""
    from testbed.errors import HostError
    from testbed.host.users import Users
    from testbed.run.settle import users_of
    from testbed.run.setup import TrainingSetup, WorkloadSetup
    from testbed.runtimes import Real
    from testbed.scenario.workload import Workload
    from testbed.telemetry.folder import RunFolder

    runtime = scenario.runtime
    if not isinstance(runtime, Real):
        return ()
    try:
        users = users_of(runtime)
    except HostError:  # this user cannot run it, or this is not Linux
        users = Users("root")
    folder = RunFolder((Path("runs") / made.run).absolute())
    setup: Setup
    if isinstance(scenario, Workload):
        setup = WorkloadSetup(made, folder, users, scenario)
    else:
        setup = TrainingSetup(made, folder, users, scenario, DATA, SECRET)
    return setup.requests(runtime.driver())


def _node_as_data(node: NodeSpec) -> dict[str, Any]:
    data = {**asdict(node), "memory_bytes": node.memory}
    del data["memory"]
    if (link := node.link) is not None:
        own = {"address": link.address, "mac": link.mac, "switch": link.switch}
        data["link"] = {**own, **_link_as_data(link)}
    return data


def _network_as_data(network: NetworkSpec) -> dict[str, Any]:
    trunks = [{"name": t.name, "between": t.ends, **_link_as_data(t.link)} for t in network.trunks]
    return {**asdict(network), "trunks": trunks}


def _link_as_data(link: LinkSpec) -> dict[str, Any]:
    from testbed.network.qdiscs import describe, qdiscs_of
    from testbed.values.topology import DEFAULT_MTU

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
    return {"seed": link.seed, "mtu": link.mtu or DEFAULT_MTU, **directions}


def _print(plan: Plan, needs: Budget, host: Capacity) -> None:
    from testbed.reports.console import Console

    _print_nodes(plan)
    console = Console()
    for line in _budget_lines(needs, host):
        console.print(line, highlight=False, soft_wrap=True)


def _print_nodes(plan: Plan) -> None:
    from testbed.network.qdiscs import describe, of_mtu, qdiscs_of
    from testbed.reports.console import WIDEST_VALUE, Console, Table, span

    nodes = Table("node", "class", "address", "uid", "cpu", "memory", title=plan.run)
    links = Table("node", "class", *(["switch"] if plan.network.trunks else []), title="links")
    for direction in ("up", "down"):
        links.add_column(direction, max_width=WIDEST_VALUE)
    for group in _groups(plan):
        first, names = group[0], span(node.name for node in group)
        device_class = first.device_class or "-"
        nodes.add_row(names, device_class, *_place(group))
        shapes = {
            tuple(f"{describe(one)}{of_mtu(node.link)}" for one in qdiscs_of(node.link))
            for node in group
            if node.link is not None
        }
        up, down = shapes.pop() if shapes else ("-", "-")
        if shapes:
            up = down = "differs from device to device"
        switches = dict.fromkeys(node.link.switch for node in group if node.link is not None)
        shown = [", ".join(switches)] if plan.network.trunks else []
        links.add_row(names, device_class, *shown, up, down)
    for trunk in plan.network.trunks:
        up, down = (f"{describe(one)}{of_mtu(trunk.link)}" for one in qdiscs_of(trunk.link))
        links.add_row(trunk.name, "-", " - ".join(trunk.ends), up, down)
    Console().print(nodes, links)


def _print_requests(made: Plan, requests: tuple[Request, ...]) -> None:
    """Print the requests for the first node of each class, and to start the agent, in full."""
    from rich.text import Text

    from testbed.reports.console import WIDEST_VALUE, Console, Table

    firsts = {group[0].name for group in _groups(made)}
    others = {node.name for node in made.nodes} - firsts
    table = Table("to", "request", "field", title="requests")
    table.add_column("value", max_width=WIDEST_VALUE)
    for request in requests:
        if request.name.rpartition(" ")[2] in others:
            continue
        shown = (request.to, request.name)
        for field, value in _flat(request.body):
            table.add_row(*map(Text, (*shown, field, value)))
            shown = ("", "")
    Console().print(table)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield all values that are not empty, with their paths; ``--json`` shows the others too."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
        filled = ({key: inner for key, inner in item.items() if inner != ""} for item in value)
        yield path, "\n".join(_first(list(map(json.dumps, filled))))
    elif value not in (None, "", [], ()):
        yield path, value if isinstance(value, str) else json.dumps(value)


def _first(items: list[str]) -> list[str]:
    """Return the first items, and how many others there are."""
    others = len(items) - MOST_ITEMS
    return [*items[:MOST_ITEMS], f"and {others} more: --json"] if others > 0 else items


def _groups(plan: Plan) -> list[list[NodeSpec]]:
    """Group consecutive nodes of a class, which differ only in name, address and uid."""
    by_class = groupby(plan.nodes, key=lambda node: (node.role, node.device_class))
    return [list(neighbours) for _, neighbours in by_class]


def _place(nodes: list[NodeSpec]) -> tuple[str, ...]:
    """Return the addresses, uids and limits of a group of nodes."""
    from testbed.reports.console import span

    first = nodes[0]
    addresses = span(node.link.address if node.link else "no eth0" for node in nodes)
    cpu = f"weight {first.cpu_weight}" if first.cpu is None else f"{first.cpu:g}"
    cpu += "" if first.cpuset is None else f" on {first.cpuset}"
    memory = "no limit" if first.memory is None else str(first.memory)
    return addresses, span(str(node.uid) for node in nodes), cpu, memory


def _budget_lines(needs: Budget, host: Capacity) -> Iterable[str]:
    model = "a model of unknown size" if needs.parameters is None else "the model"
    if needs.parameters is not None:
        model += f" of {needs.parameters:,} parameters"
    sizes = {**needs.node_bytes, "agent": needs.agent_bytes}
    yield (
        f"memory  about {megabytes(needs.total_bytes)} of {megabytes(host.memory_bytes)} for "
        f"{model}; each: {', '.join(f'{role} {megabytes(size)}' for role, size in sizes.items())}"
    )
    limits = f"limits of {needs.cpu_limits:g} CPUs in all, " if needs.cpu_limits else ""
    unlimited = f"{needs.unlimited_nodes} nodes without a limit"
    yield f"cpu     {limits}{unlimited}; the host has {host.cpus}"
    pace = needs.updates_per_second
    most = "as many updates as the host can compute"
    if pace is not None:
        most = f"at most {pace:.1f} updates/s"
    yield f"pace    {most} (real time)"
