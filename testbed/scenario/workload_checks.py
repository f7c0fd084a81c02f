"""Checks of a workload across its fields, and of the files that it names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from testbed.faults import ChangedLink, SlowNode
from testbed.faults.base import TimedFault
from testbed.faults.check import contradictions
from testbed.runtimes import Docker, Simulated, names
from testbed.scenario.checks import MOST_WORKERS, TAKEN, check_gpus, check_image
from testbed.scenario.document import Finding, Keys
from testbed.scenario.link_checks import check_links
from testbed.scenario.source import Locate
from testbed.scenario.traces import recorded_values
from testbed.scenario.workload import Program, Workload
from testbed.scenario.workload_availability import check_absent_faults
from testbed.scenario.workload_metrics import Metric
from testbed.scenario.workload_names import (
    COUNT,
    HOSTS,
    INDEX,
    PORT,
    RESERVED,
    SEED,
    in_braces,
    placed,
)

ROOT = "workload"
INTERPRETER = Path("bin/python")
LEAST_CPUS = 0.01
"""The least that a control group can limit a node to."""


def check_workload(workload: Workload) -> Iterator[Finding]:
    """Check a valid workload as a whole, for requests that cannot be met."""
    if isinstance(workload.runtime, Simulated):
        expected = f"{' or '.join(names())}: a simulation runs no programs"
        yield ("runtime",), workload.runtime.name, expected
    yield from _check_names(workload)
    for name, program in workload.workload.items():
        path: Keys = (ROOT, name)
        yield from _check_braces(workload, program, path)
        yield from _check_image(workload, program, path)
        yield from _check_after(workload, program, path)
        gpus = {(*path, "classes", key, "gpus"): one.gpus for key, one in program.classes.items()}
        yield from check_gpus(workload.runtime, {(*path, "gpus"): program.gpus, **gpus})
    yield from check_links(workload)
    yield from _check_hosts(workload)
    yield from _check_order(workload)
    ends = any(program.end == "final" for program in workload.workload.values())
    if not ends and workload.stop is None:
        expected = "a program with `end: final`, or `stop: {time: ...}`: else it would never end"
        yield (ROOT,), "no end of the run", expected
    yield from _check_faults(workload)
    yield from _check_metrics(workload)


def _check_metrics(workload: Workload) -> Iterator[Finding]:
    """Check that a name of a metric has one meaning in all programs, and that `stop` has one."""
    known: dict[str, Metric] = {}
    for program, settings in workload.workload.items():
        for name, metric in settings.metrics.items():
            if metric.better != known.setdefault(name, metric).better:
                path = (ROOT, program, "metrics", name, "better")
                expected = f"{known[name].better}, as in another program; or another name"
                yield path, metric.better, expected
            if metric.port is not None and not _has_port(settings, metric.port):
                yield (ROOT, program, "metrics", name, "port"), str(metric.port), _ports(settings)
    for name in workload.stop.metrics if workload.stop else ():
        if name not in known:
            expected = f"a metric of a program: {', '.join(known) or 'none has any'}"
            yield ("stop", "metrics", name), name, expected


def _check_hosts(workload: Workload) -> Iterator[Finding]:
    if isinstance(workload.runtime, Docker) and workload.runtime.swarm is not None:
        expected = "local: the nodes of a workload are on this host"
        yield ("runtime", "hosts"), "swarm", expected


def check_program_files(workload: Workload, locate: Locate) -> Iterator[Finding]:
    """Check that files and Python environments exist; ``locate`` returns a path by its name."""
    for name, program in workload.workload.items():
        seen: dict[str, str] = {}
        for place, file in enumerate(program.files):
            path: Keys = (ROOT, name, "files", place)
            if not locate(file).exists():
                expected = "a file or folder, relative to the folder of the scenario"
                yield path, f"no file {file!r}", expected
            other = seen.setdefault(locate(file).name, file)
            if other != file:
                yield path, file, f"a name other than that of {other}: both are in one folder"
        if program.python is not None and not (locate(program.python) / INTERPRETER).exists():
            expected = (
                "a Python environment, relative to the folder of the scenario, with bin/python,"
                " as `python -m venv` creates it"
            )
            yield (ROOT, name, "python"), program.python, expected
        for place, folder in enumerate(program.folders):
            if not Path(folder).is_dir():
                yield (ROOT, name, "folders", place), repr(folder), "a folder on this host"


def _check_image(workload: Workload, program: Program, path: Keys) -> Iterator[Finding]:
    """Check that the runtime can use an image, and that nothing else needs the host's programs."""
    yield from check_image(workload.runtime, program.image, path)
    if program.image is not None and program.python is not None:
        expected = "either `image` or `python`, whose interpreter the image would have to contain"
        yield (*path, "python"), program.python, expected


def _check_names(workload: Workload) -> Iterator[Finding]:
    nodes = placed(workload)
    times = Counter(one.name for one in nodes)
    for name, program in workload.workload.items():
        path: Keys = (ROOT, name)
        own = program.node_names(name)
        if any(TAKEN.fullmatch(node) for node in own) or name in RESERVED:
            yield path, name, "another name: this name is reserved for another node or a log file"
        for node in own:
            if times[node] > 1:
                others = [one.program for one in nodes if one.name == node and one.program != name]
                expected = f"another name: a node of {others[0]} is also named {node}"
                yield path, f"a node named {node}", expected
    if len(nodes) > MOST_WORKERS:
        yield (ROOT,), f"{len(nodes):,} nodes", f"at most {MOST_WORKERS:,}, the ports of a switch"


def _check_braces(workload: Workload, program: Program, path: Keys) -> Iterator[Finding]:
    programs = {one.name: workload.workload[one.program] for one in placed(workload)}
    texts = {"command": program.command, "environment": tuple(program.environment.values())}
    for field, words in texts.items():
        for name, port in (found for word in words for found in in_braces(word)):
            shown = f"{{{name}:{port}}}" if port else f"{{{name}}}"
            other = program if name == PORT else programs.get(name)
            if name in (INDEX, COUNT, SEED) and not port:
                continue
            if name == HOSTS:
                if port not in workload.workload:
                    expected = f"the name of a program: {', '.join(workload.workload)}"
                    yield (*path, field), shown, expected
                continue
            if other is None:
                expected = (
                    f"a node ({', '.join(list(programs)[:8])}), index, count, seed, port:NAME "
                    "or hosts:NAME; for braces, write {{...}}"
                )
                yield (*path, field), shown, expected
            elif (port or name == PORT) and not _has_port(other, port):
                yield (*path, field), shown, _ports(other)


def _has_port(program: Program, port: str | int) -> bool:
    return isinstance(port, int) or port.isdigit() or port in program.ports


def _ports(program: Program) -> str:
    known = ", ".join(program.ports)
    return f"a port in `ports` of that program{f': {known}' if known else ', which has none'}"


def _check_after(workload: Workload, program: Program, path: Keys) -> Iterator[Finding]:
    for name, condition in program.after.items():
        other = workload.workload.get(name)
        if other is None:
            expected = f"the name of a program: {', '.join(workload.workload)}"
            yield (*path, "after", name), name, expected
            continue
        port = condition.listens
        if port is not None and not _has_port(other, port):
            yield (*path, "after", name, "listens"), str(port), _ports(other)


def _check_order(workload: Workload) -> Iterator[Finding]:
    """Refuse programs that wait for one another."""
    left = dict(workload.workload)
    while ready := [
        name for name, one in left.items() if not any(other in left for other in one.after)
    ]:
        for name in ready:
            del left[name]
    if left:
        name = next(iter(left))
        found = f"programs that wait for one another: {', '.join(left)}"
        yield (ROOT, name, "after"), found, "an order in which they can start"


def _check_slow(workload: Workload) -> Iterator[Finding]:
    """Check that a slower node has a limit to divide, and keeps enough of it."""
    limits = {
        node: one.cpu or program.cpu
        for name, program in workload.workload.items()
        for node, (_, one) in zip(program.node_names(name), program.node_classes(name), strict=True)
    }
    names = tuple(limits)
    for place, fault in enumerate(workload.faults):
        if not isinstance(fault, SlowNode) or fault.nodes is None:
            continue
        for number in fault.candidates((), names):
            cpu, path = limits[names[number]], ("faults", place, "slow")
            if cpu is None:
                expected = f"`cpu` of its program, to divide it by {fault.factor:g}"
                yield path, f"{names[number]}, which has no CPU limit", expected
                break
            if cpu / fault.factor < LEAST_CPUS:
                expected = f"at most {cpu / LEAST_CPUS:g}: it needs {LEAST_CPUS:g} CPUs"
                yield (*path, "factor"), f"{fault.factor:g} of {cpu:g} CPUs", expected
                break


def _check_changed_links(workload: Workload) -> Iterator[Finding]:
    """Refuse changes of links that follow a recording."""
    names = workload.node_names()
    recorded = {names[n] for one in recorded_values(workload) for n in one.written.nodes}
    for place, fault in enumerate(workload.faults):
        if isinstance(fault, ChangedLink) and fault.nodes is not None:
            hit = [names[n] for n in fault.candidates((), names) if names[n] in recorded]
            if hit:
                found = f"a change to the link of {hit[0]}, which follows a recording"
                expected = "links without a recording: a recording determines all their changes"
                yield ("faults", place, fault.name), found, expected


def _check_triggers(workload: Workload, fault: TimedFault, path: Keys) -> Iterator[Finding]:
    """Check that a workload has what begins and ends a fault."""
    if fault.at.version is not None:
        expected = "a time, a line or a metric, like {time: 5s} or {log: round 5}: no model"
        yield (*path, "at"), str(fault.at), expected
    end, known = fault.end_trigger, workload.metrics
    if end is not None and not (end.log or end.values):
        expected = "a line or a metric, like {log: round 5}; a time is `for`"
        yield (*path, "until"), str(end), expected
    for key, trigger in (("at", fault.at), ("until", end)):
        for name in trigger.values if trigger is not None else ():
            if name not in known:
                expected = f"a metric of a program: {', '.join(known) or 'none has any'}"
                yield (*path, key), name, expected


def _check_faults(workload: Workload) -> Iterator[Finding]:
    nodes = workload.node_names()
    wrong = False
    for place, fault in enumerate(workload.faults):
        path: Keys = ("faults", place)
        if fault.nodes is None:
            wrong = True
            expected = f"`nodes`, such as [{nodes[0]}]: a workload has no workers"
            yield path, f"a {fault.kind} of workers", expected
            continue
        for selector in fault.unmatched_selectors((), nodes):
            wrong = True
            expected = f"a node ({', '.join(nodes[:8])}) or a pattern like '{nodes[0][:1]}*'"
            yield (*path, "nodes"), repr(selector), expected
        for finding in _check_triggers(workload, fault, path):
            wrong = True
            yield finding
    yield from _check_slow(workload)
    yield from _check_changed_links(workload)
    if wrong:
        return
    yield from check_absent_faults(workload)
    for place, found in contradictions(workload.faults, (), seed=workload.seed, others=nodes):
        yield ("faults", place), found, "faults that do not contradict one another"
