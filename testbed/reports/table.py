"""Tables as text: a run's summary, aligned Markdown that is readable as plain text, and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.models.metrics import besides_defaults

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

NOTHING = "not measured"
MOST_NAMED = 12
"""Maximum number of classes to name; there may be thousands."""


def summary_table(summary: Mapping[str, Any]) -> Table:
    """Return the summary as a two-column table, the verdict and its reasons first."""
    return two_columns(summary, summary_rows(summary))


def two_columns(summary: Mapping[str, Any], rows: Iterable[tuple[str, str]]) -> Table:
    """Return rows of a summary as a table, the verdict and its reasons first."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=f"{summary['scenario']}: {summary['run']}",
        box=box.SIMPLE_HEAD,
        show_header=False,
        title_justify="left",
    )
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("verdict", verdict_text(summary))
    for name, text in rows:
        table.add_row(name, text)
    return table


def verdict_text(summary: Mapping[str, Any]) -> Text:
    from rich.text import Text

    verdict = summary["verdict"]
    if verdict["valid"]:
        text = Text("valid", style="bold green")
    else:
        text = Text("NOT VALID", style="bold red")
        for reason in verdict["reasons"]:
            text.append(f"\n{reason}", style="not bold red")
    for warning in verdict["warnings"]:
        text.append(f"\n{warning}", style="not bold yellow")
    if verdict["unchecked"]:
        text.append(f"\nnot measured: {', '.join(verdict['unchecked'])}", style="not bold yellow")
    return text


STATISTICS = {
    "dropped": "the statistics of the batch that is evaluated",
    "averaged": "running statistics, averaged by the parameter server",
    "local": "the statistics of the batch; workers use their own running statistics",
    "fedbn": "the statistics of the batch; workers use their own normalisation layers",
}
"""What normalisation layers of a user's own model use, by its ``buffers``."""


def summary_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of a summary by topic, without the verdict."""
    updates, age = summary["updates"], summary["staleness"]
    for one in summary["substitutes"]:
        yield "SUBSTITUTE", one
    yield "ended", describe_ending(summary)
    yield "algorithm", describe_algorithm(summary["algorithm"])
    if summary["buffers"]:
        yield "normalisation", f"evaluations use {STATISTICS[summary['buffers']]}"
    yield "workers", f"{summary['workers']}, {describe_think(summary)}"
    yield "updates", f"{updates['total']:,}, {_number(updates['per_second'], ',.1f', '/s')}"
    yield "a push", _encoding(summary["encoding"])
    yield "by class", listed([f"{name} {count:,}" for name, count in updates["by_class"].items()])
    yield _evaluated(summary)
    yield from _metrics(summary["metrics"])
    yield "ingress", _flow(summary["ingress"])
    yield "egress", _flow(summary["egress"])
    yield (
        "staleness",
        f"mean {_number(age['mean'], '.2f')}, max {_number(age['max'], ',')}, "
        f"step scale {_number(age['mean_step_scale'], '.4f')}",
    )
    if summary["cycle"]["mean_seconds"] is not None:
        yield "cycle", _cycle(summary["cycle"])
    yield "workers' time", _waiting(summary["waiting"])
    if summary["streams"] is not None:
        yield "streams", _streams(summary["streams"])
    if summary["links"] is not None:
        yield "recorded links", describe_recorded(summary["links"])
    late = summary["lateness"]
    yield "late steps", _percent(late["late_steps_ratio"])
    if late["late_requests_ratio"] is not None:
        yield "late requests", _percent(late["late_requests_ratio"])
    if late["largest_gap_seconds"] is not None:
        yield "largest gap", f"{late['largest_gap_seconds']:.1f} s"
    yield "host busy", _percent(summary["host"]["busy_ratio"]["mean"])
    median = summary["memory"]["worker_private_bytes_median"]
    mebibytes = None if median is None else median / 2**20
    yield "memory", _number(mebibytes, ".1f", " MiB private memory per worker (median)")
    yield "time", _times(summary)


def _metrics(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a row for each of the first metrics that are no accuracies of every scenario."""
    names = besides_defaults(metrics)
    for name in names[:MOST_NAMED]:
        found = [f"{one} {_number(metrics[name][one], '.5g')}" for one in ("final", "best")]
        yield name, ", ".join(found)
    if len(names) > MOST_NAMED:
        yield "more metrics", f"{len(names) - MOST_NAMED} in evaluations.csv"


def _evaluated(summary: Mapping[str, Any]) -> tuple[str, str]:
    """Describe accuracies, or losses; the mean of ten evaluations only if that many took place."""
    accuracy, loss = summary["accuracy"], summary["loss"]
    count, missed = summary["evaluations"], summary["missed_evaluations"]
    evaluations = f"({count} evaluations, {missed} missed)" if missed else f"({count} evaluations)"
    if accuracy["last"] is None and count:  # a regression model
        parts = [f"{name} {_number(loss[name], '.5g')}" for name in ("final", "lowest")]
        return "loss", f"{', '.join(parts)} {evaluations}"
    parts = [f"{name} {_number(accuracy[name], '.4f')}" for name in ("final", "best")]
    if accuracy["best_moving_average"] is not None:
        parts.append(f"best mean of ten {accuracy['best_moving_average']:.4f}")
    return "accuracy", f"{', '.join(parts)} {evaluations}"


def _encoding(encoding: Mapping[str, Any]) -> str:
    """Describe the mean payload of updates: as encoded, and as AdaComp's paper counts bytes."""
    pickled = describe_bytes(encoding["pickle9_update_bytes_mean"])
    text = f"{describe_bytes(encoding['update_bytes_mean'])} {encoding['name']}, {pickled} pickle9"
    saturated = encoding["saturated"]
    return f"{text}, {saturated:,} values saturated" if saturated else text


def _cycle(cycle: Mapping[str, Any]) -> str:
    unexplained = cycle["unexplained_ratio"]
    host = "" if unexplained is None else f", {unexplained:.1%} delays by the host"
    return (
        f"{cycle['mean_seconds']:.4g} s ± {cycle['deviation_ratio']:.1%} from push to push, "
        f"{cycle['think_ratio']:.1%} think time{host}"
    )


def _flow(flow: Mapping[str, Any]) -> str:
    names = ("payload", "tcp", "wire", "retransmitted")
    return ", ".join(f"{name} {describe_bytes(flow[f'{name}_bytes'])}" for name in names)


def _waiting(waiting: Mapping[str, Any]) -> str:
    """Describe the share of waiting, its parts communication and blocking, and the work done."""
    total = waiting["total_seconds_mean"]
    parts = [f"waiting {_percent(waiting['waiting_ratio'])}"]
    for name in ("communication", "blocked"):
        seconds = waiting[f"{name}_seconds_mean"]
        parts.append(f"{name} {_percent(seconds / total if total else None)}")
    whole, *its = parts
    steps = f"{waiting['steps']:,} steps in {waiting['commits']:,} pushes"
    return f"{whole} (of it {', '.join(its)}), {steps}"


def _streams(streams: Mapping[str, Any]) -> str:
    """Describe what became of the samples of all streams, and how long steps waited for them."""
    counts = {"came": "produced", "used": "used", "waiting": "buffered", "discarded": "truncated"}
    parts = [f"{streams[f'{name}_samples']:,} {word}" for word, name in counts.items()]
    for word, name in {"twice": "duplicates_samples", "missing": "missing_samples"}.items():
        parts += [f"{streams[name]:,} {word}"] if streams.get(name) else []
    wait = _number(streams["wait_seconds_mean"], ".3g", " s")
    return f"samples: {', '.join(parts)}; a step waited {wait} for them"


def describe_recorded(links: Mapping[str, Any]) -> str:
    """Describe configured and carried rates of links that follow recordings, and late changes."""
    parts = [
        f"{direction} {rates['asked_bits_per_second'] / 1e6:.4g} mbit/s configured, "
        f"{rates['delivered_bits_per_second'] / 1e6:.4g} delivered"
        for direction in ("up", "down")
        if (rates := links[direction]) is not None
    ]
    if links["changes"]:
        late, latest = links["late_changes_ratio"], links["latest_change_seconds"]
        parts.append(f"{links['changes']:,} changes, {late:.1%} late, at most {latest:.3f} s")
    return ", ".join(parts)


def _times(summary: Mapping[str, Any]) -> str:
    if summary["runtime"] == "simulated":  # a virtual clock has no real seconds
        return f"training {_number(summary['emulated_seconds'], ',.1f', ' s')} emulated"
    parts = [
        f"up {_number(summary['bring_up_seconds'], '.1f', ' s')}",
        f"training {_number(summary['real_seconds'], '.1f', ' s')}",
        f"down {_number(summary['tear_down_seconds'], '.1f', ' s')}",
    ]
    if summary["time_scale"] != 1:
        parts.append(
            f"{_number(summary['emulated_seconds'], '.1f', ' s')} emulated "
            f"(time scale {summary['time_scale']:g})"
        )
    return ", ".join(parts)


def shown(value: float | None, form: str = ",.0f", unit: str = "", *, nothing: str = "-") -> str:
    """Format a number; ``nothing`` stands for None."""
    return nothing if value is None else f"{value:{form}}{unit}"


def megabits(rate: float | None) -> str:
    """Format a rate in bits per second."""
    return shown(None if rate is None else rate / 1e6, ".4g", " mbit")


def milliseconds(seconds: float | None) -> str:
    """Format a duration in milliseconds."""
    return shown(None if seconds is None else seconds * 1e3, ".2f", " ms")


def _percent(ratio: float | None) -> str:
    return shown(ratio, ".1%", nothing=NOTHING)


def _number(value: float | None, form: str, unit: str = "") -> str:
    return shown(value, form, unit, nothing=NOTHING)


def describe_ending(summary: Mapping[str, Any]) -> str:
    """Describe how far the run came, including failures."""
    reason = f": {summary['reason']}" if summary["reason"] else ""
    state = summary["state"]
    endings = {
        "finished": f"finished{reason}",
        "failed": f"FAILED{reason}",
        "interrupted": f"INTERRUPTED{reason}",
    }
    ending = endings.get(state, f"NOT FINISHED (last state: {state})")
    simulated = summary["runtime"] == "simulated"
    return f"SIMULATED on a virtual clock; {ending}" if simulated else ending


def describe_algorithm(algorithm: Mapping[str, Any]) -> str:
    """Return the algorithm's name and options."""
    options = dict(algorithm)
    name = options.pop("name")
    if name == "custom":
        name = f"{options.pop('class')} in {options.pop('file')}"
    words = [
        f"{key.replace('_', ' ')} {_option(value)}"
        for key, value in options.items()
        if value is not None
    ]
    return f"{name} ({', '.join(words)})" if words else str(name)


def _option(value: Any) -> str:
    """Return an option's value; a member of a family with its options in brackets."""
    if not isinstance(value, Mapping):
        return str(value)
    if "name" in value:
        return describe_algorithm(value)
    return describe_algorithm({"name": "", **value}).strip()


def listed(words: Sequence[str], most: int = MOST_NAMED) -> str:
    """Join names; of many, only the first ones and the number of others."""
    left = len(words) - most
    return ", ".join(words[:most]) + (f" and {left:,} more" if left > 0 else "")


def describe_think(summary: Mapping[str, Any]) -> str:
    """Describe the distribution of think times, and those of classes that set their own."""
    think, by_class = summary["think"], summary["think_by_class"]
    laws = [] if think is None else [_law(think)]
    laws += [f"{name} {_law(own)}" for name, own in by_class.items()]
    return f"think {listed(laws)}" if laws else "no think time"


def _law(think: Mapping[str, Any]) -> str:
    return f"{think['law']} x {think['mean_seconds']:g} s"


def describe_bytes(count: float | None, *, nothing: str = NOTHING) -> str:
    """Format bytes in a suitable decimal unit; ``nothing`` stands for None."""
    if count is None:
        return nothing
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if abs(count) >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:.0f} B"


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. Cells are never truncated; numeric columns are right-aligned."""
    cells = [[_escaped(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    right = numeric_columns(cells[1:], columns=len(headings))
    rule = [
        "-" * (width - 1) + (":" if flush else "-")
        for width, flush in zip(widths, right, strict=True)
    ]
    lines = []
    for row in (cells[0], rule, *cells[1:]):
        aligned = (
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        )
        lines.append(f"| {' | '.join(aligned)} |")
    return "\n".join(lines) + "\n"


def csv_text(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return out.getvalue()


def latex(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as a LaTeX ``tabular`` with the rules of the package booktabs."""
    cells = [[_in_latex(cell) for cell in row] for row in (headings, *rows)]
    right = numeric_columns(cells[1:], columns=len(headings))
    head, *body = (f"{' & '.join(row)} \\\\" for row in cells)
    lines = ["\\toprule", head, "\\midrule", *body, "\\bottomrule"]
    columns = "".join("r" if flush else "l" for flush in right)
    return "\n".join([f"\\begin{{tabular}}{{{columns}}}", *lines, "\\end{tabular}"]) + "\n"


LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
        "±": r"$\pm$",
        "†": r"\dag{}",
        "σ": r"$\sigma$",
    }
)
"""Signs that LaTeX reads otherwise, or that its default fonts lack."""


def _in_latex(cell: str) -> str:
    return " ".join(cell.translate(LATEX).split())


def numeric_columns(rows: Sequence[Sequence[str]], *, columns: int) -> list[bool]:
    """Return for each column whether all its cells are numbers or placeholders for none."""
    return [_is_numeric([row[index] for row in rows]) for index in range(columns)]


def _escaped(cell: str) -> str:
    return " ".join(cell.replace("|", "\\|").split())


def _is_numeric(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell and cell != "never" and not cell.startswith("not ")]
    return bool(filled) and all(cell[0] in "0123456789.-+" for cell in filled)
