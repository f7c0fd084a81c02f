"""The closing table of a run: its summary for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from testbed.reports.words import (
    NOTHING,
    describe_algorithm,
    describe_bytes,
    describe_ending,
    describe_think,
)

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def summary_table(summary: Mapping[str, Any]) -> Table:
    """A summary as a table of two columns, the verdict and its reasons first."""
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
    table.add_row("verdict", _verdict(summary))
    for name, text in _rows(summary):
        table.add_row(name, text)
    return table


def _verdict(summary: Mapping[str, Any]) -> Text:
    from rich.text import Text

    verdict = summary["verdict"]
    if verdict["valid"]:
        text = Text("valid", style="bold green")
    else:
        text = Text("NOT VALID", style="bold red")
        for reason in verdict["reasons"]:
            text.append(f"\n{reason}", style="not bold red")
    if verdict["unchecked"]:
        text.append(f"\nnot measured: {', '.join(verdict['unchecked'])}", style="not bold yellow")
    return text


def _rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    updates, accuracy, age = summary["updates"], summary["accuracy"], summary["staleness"]
    yield "ended", describe_ending(summary)
    yield "algorithm", describe_algorithm(summary["algorithm"])
    yield "workers", f"{summary['workers']}, {describe_think(summary['think'])}"
    yield "updates", f"{updates['total']:,}, {_number(updates['per_second'], ',.1f', '/s')}"
    yield "by class", ", ".join(f"{name} {count:,}" for name, count in updates["by_class"].items())
    yield "accuracy", _accuracy(accuracy, evaluations=summary["evaluations"])
    yield "ingress", _flow(summary["ingress"])
    yield "egress", _flow(summary["egress"])
    yield (
        "staleness",
        f"mean {_number(age['mean'], '.2f')}, max {_number(age['max'], ',')}, "
        f"step scale {_number(age['mean_step_scale'], '.4f')}",
    )
    late = summary["lateness"]
    yield "late steps", _percent(late["late_steps_ratio"])
    if late.get("late_requests_ratio") is not None:
        yield "late requests", _percent(late["late_requests_ratio"])
    yield "host busy", _percent(summary["host"]["busy_ratio"]["mean"])
    yield "memory", _memory(summary["memory"]["worker_private_bytes_median"])
    yield "time", _times(summary)


def _accuracy(accuracy: Mapping[str, Any], *, evaluations: int) -> str:
    """Without the mean of ten evaluations where there were fewer."""
    parts = [f"{name} {_number(accuracy[name], '.4f')}" for name in ("final", "best")]
    if accuracy["best_moving_average"] is not None:
        parts.append(f"best mean of ten {accuracy['best_moving_average']:.4f}")
    return f"{', '.join(parts)} ({evaluations} evaluations)"


def _flow(flow: Mapping[str, Any]) -> str:
    parts = [
        f"{name} {describe_bytes(flow[f'{name}_bytes'])}"
        for name in ("payload", "tcp", "wire", "retransmitted")
    ]
    return ", ".join(parts)


def _memory(median: float | None) -> str:
    return NOTHING if median is None else f"{median / 2**20:.1f} MiB of its own per worker (median)"


def _times(summary: Mapping[str, Any]) -> str:
    if summary["runtime"] == "simulated":  # its clock knows no real seconds
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


def _percent(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.1%}"


def _number(value: float | None, form: str, unit: str = "") -> str:
    return NOTHING if value is None else f"{value:{form}}{unit}"
