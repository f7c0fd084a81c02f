"""The gallery: a card for each shipped scenario and study, from its head, its plan and its results.

What an example shows is the beginning of the comment at its head. How long it takes is said there,
too; if it is not, it is the sum of the kept runs, or follows from the plan. Memory, processors and
the drawing of devices and links are those that ``testbed plan`` estimates.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from math import inf
from pathlib import Path

from testbed.errors import ScenarioError
from testbed.plan.budget import budget, count_parameters
from testbed.plan.make import plan
from testbed.plan.workload import plan_workload
from testbed.scenario.load_workload import load_any
from testbed.scenario.schema import Scenario
from testbed.scenario.workload import Workload
from testbed.simulation.outline import memory_bytes, outline
from testbed.studies import is_study, load_study
from testbed.studies.found import FoundRun, find_runs, kept_beside
from testbed.studies.kept import FOLDER, KeptRun
from testbed.studies.study import Study, identity

SCENARIOS = Path(__file__).parents[2] / "scenarios"
PICTURES = SCENARIOS.parent / "docs/pictures"

Kept = Callable[[Path], Mapping[str, FoundRun]]

PROCESSES = 2
"""Of a simulation whose memory is estimated, so that a card is the same on every machine."""

MOST_DOTS = 8
"""Devices of a class to draw; a number stands for more."""

_SENTENCE = re.compile(r"(?<=[\w)`][\w)`]\.) +(?=[A-Z])")
_NUMBER = r"half an|a quarter of an|an?|a few|one|two|three|four|seven|ten|twenty|some|[\d.]+"
_SPAN = rf"(?:(?:about|some|under) )?(?:(?:{_NUMBER}) )?(?:hours?|minutes?|seconds)(?: and a half)?"
_TAKES = re.compile(
    rf"\b[Tt]akes ({_SPAN})\b|({_SPAN}) of (?:two|one|a) CPU|\bin ({_SPAN})(?=[.:])"
    rf"|for a laptop and ({_SPAN})|[Ss]ome ({_SPAN});"
)
"""How long an example takes, in the words of its head."""


@dataclass(frozen=True)
class Example:
    """A shipped scenario or study; the content is that of a study's first run."""

    file: Path
    head: str
    content: Scenario | Workload | None  # None: it needs what this machine lacks
    study: Study | None = None

    @property
    def name(self) -> str:
        """The name that commands take."""
        return self.file.relative_to(SCENARIOS).with_suffix("").as_posix()

    @property
    def shows(self) -> str:
        """The first sentence of its head, with links to documents."""
        first = _SENTENCE.split(self.head, maxsplit=1)[0]
        return re.sub(r"docs/([\w-]+)\.md", r"[\1](\1.md)", first)


def read_example(file: Path) -> Example:
    """Read a scenario or study.

    Raises:
        ValueError: it has no comment at its head.
    """
    head = head_of(file)
    if is_study(file):
        study = load_study(file)
        return Example(file, head, study.runs[0].scenario, study)
    try:
        return Example(file, head, load_any(file))
    except ScenarioError:  # such as a Flower app, without an environment that has Flower
        return Example(file, head, None)


def head_of(file: Path) -> str:
    """Return the comment at the head of a scenario or study, as one paragraph.

    Raises:
        ValueError: there is none.
    """
    lines = file.read_text(encoding="utf-8").splitlines()[1:]
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
    head = " ".join(line.removeprefix("#").strip() for line in comment)
    if not head:
        raise ValueError(f"{file}: no comment in its second line that says what it shows")
    return head


def minutes(example: Example, kept: Kept = kept_beside) -> str:
    """Return how long an example takes; a lower bound begins with "at least".

    Args:
        example: the example.
        kept: reads the kept runs of a folder, for many examples at best only once.
    """
    if found := _TAKES.search(example.head):
        return next(group for group in found.groups() if group)
    if runs := _kept_runs(example, kept):
        took = _span(sum(KeptRun.open(run.path).duration_seconds for run in runs))
        if example.study is None:
            return took
        return f"{took} for {len(runs)} kept run{'s' if len(runs) > 1 else ''}"
    least = _least(example.content) if isinstance(example.content, Scenario) else 0
    return f"at least {_span(least)}" if least else "time not measured"


def _kept_runs(example: Example, kept: Kept) -> list[FoundRun]:
    folder = example.file.parent
    if example.study is not None:
        found = find_runs(example.study, folder / FOLDER, kept).values()
        return list({run.path: run for run in found}.values())
    if not isinstance(example.content, Scenario):
        return []
    own = kept(folder).get(identity(example.content, {}))
    return [] if own is None else [own]


def _least(scenario: Scenario) -> float:
    """Return the least real time of a live run in seconds; 0 if nothing is known about it."""
    if scenario.simulated:
        return 0
    stop, scale = scenario.stop, float(scenario.time_scale)
    if stop.time is not None:
        return float(stop.time) / scale
    pace = budget(scenario, plan(scenario, scenario.name), None).updates_per_second or inf
    return (stop.updates or 0) / pace


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def memory(example: Example) -> str:
    """Return the memory that the plan estimates."""
    scenario = example.content
    if not isinstance(scenario, Scenario):
        return "that of its programs"
    parameters = count_parameters(scenario)
    suffix = " and its own model" if parameters is None else ""
    if scenario.simulated:
        workers = scenario.workers.count
        needed = memory_bytes(workers, parameters or 0, processes=PROCESSES)
    else:
        needed = budget(scenario, plan(scenario, scenario.name), parameters).total_bytes
    return f"about {needed / 1e9:.1f} GB{suffix}"


def processors(example: Example) -> str:
    """Return what runs on the processors."""
    scenario = example.content
    if scenario is None:
        return "several, shared by its nodes"
    if isinstance(scenario, Workload):
        return f"shared by {len(plan_workload(scenario, scenario.name).nodes)} nodes"
    if scenario.simulated:
        return "one process per CPU"
    return f"shared by {len(plan(scenario, scenario.name).nodes)} nodes"


def runtime(example: Example) -> str:
    """Return where an example runs."""
    scenario = example.content
    name = "live" if scenario is None else scenario.runtime.name
    return {"simulated": "simulated", "docker": "Docker"}.get(name, "live")


def gallery() -> str:
    """Return the page with all cards, by folder."""
    parts = [
        "# Examples\n\n`testbed up NAME` runs a scenario, `testbed sweep FILE` a study, and "
        "`testbed init --from NAME` copies a scenario. Times are those of two CPUs; memory is "
        "what `testbed plan` estimates. A drawing shows the devices by class, and the rates up "
        "and down of their links.\n"
    ]
    kept = cache(kept_beside)  # examples of a folder share its kept runs
    files = sorted(SCENARIOS.rglob("*.yaml"), key=lambda file: (file.parent, file.name))
    for folder, inside in itertools.groupby(files, lambda file: file.parent):
        parts.append(f"## {folder.relative_to(SCENARIOS.parent).as_posix()}\n")
        parts.append("````{container} gallery")
        parts += [card(read_example(file), kept) for file in inside]
        parts.append("````\n")
    return "\n".join(parts)


def card(example: Example, kept: Kept = kept_beside) -> str:
    """Return the card of an example, as Markdown; ``kept`` as in ``minutes``."""
    command, takes = command_of(example.file), minutes(example, kept)
    runs = "" if example.study is None else f" · {len(example.study.runs)} runs"
    return f"""```{{container}} card
{picture(example)}

[{example.name}](scenarios/{example.name}.md)

{example.shows}

`{command}`

{runtime(example)}{runs} · {takes} · memory {memory(example)} · CPU {processors(example)}
```
"""


def command_of(file: Path) -> str:
    """Return the command that runs a scenario, by its name, or a study, by its file.

    The first command in the file's head wins: it has the options that the example needs.
    """
    told = rf"^# +(testbed (?:up|sweep) \S*{re.escape(file.stem)}\S*(?: --.+?)?)(?: +#.*)?$"
    if found := re.search(told, file.read_text(encoding="utf-8"), re.MULTILINE):
        return found[1]
    if is_study(file):
        return f"testbed sweep {file.relative_to(SCENARIOS.parent)}"
    return f"testbed up {file.relative_to(SCENARIOS).with_suffix('')}"


def picture(example: Example) -> str:
    """Return the figure of an example that docs/pictures has, or a drawing of its devices."""
    name = example.name.replace("/", "-")
    light, dark = (f"{name}-{shade}.png" for shade in ("light", "dark"))
    if (PICTURES / light).exists():
        alt = f"Figures of {example.name}"
        return f"![{alt}](pictures/{light}){{.only-light}}![{alt}](pictures/{dark}){{.only-dark}}"
    return f'<div class="drawing">{drawing([*devices(example)])}</div>'


def devices(example: Example) -> Iterator[tuple[str, int, str]]:
    """Yield the classes of devices or the programs: name, how many, and the link in words."""
    scenario = example.content
    if isinstance(scenario, Scenario):
        for one in outline(scenario, parameters=None, processes=PROCESSES).classes:
            rates = [way.partition(",")[0] for way in (one.up, one.down)]
            limited = [rate for rate in rates if "no limit" not in rate]
            yield one.name, one.workers, " / ".join(dict.fromkeys(limited)) or "no limits"
    elif isinstance(scenario, Workload):
        nodes = plan_workload(scenario, scenario.name).nodes
        for name, group in itertools.groupby(nodes, lambda node: node.device_class or node.role):
            yield name, len([*group]), ""


def drawing(classes: list[tuple[str, int, str]]) -> str:
    """Return an SVG of devices on the left, and of what they are connected to on the right."""
    height = max(40, 26 * len(classes) + 8)
    middle = height / 2
    parts = []
    for row, (name, count, link) in enumerate(classes):
        y = 26 * row + 17
        parts.append(f'<path d="M96 {y} H236 L270 {middle:g}" fill="none" class="link"/>')
        parts += [
            f'<circle cx="{10 + 11 * dot}" cy="{y}" r="4"/>' for dot in range(min(count, MOST_DOTS))
        ]
        text = f"{count} {name}{f': {link}' if link else ''}"
        parts.append(f'<text x="102" y="{y - 4}">{escape(text)}</text>')
    parts.append(f'<rect x="270" y="{middle - 9:g}" width="22" height="18" rx="3"/>')
    return f'<svg viewBox="0 0 300 {height}" role="img">{"".join(parts)}</svg>'
