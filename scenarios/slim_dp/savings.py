"""What Slim-DP and Quant-DP save of Plump-DP's communication, by bytes and with coding.

    python scenarios/slim_dp/savings.py [--codec codec.json] [--picture savings.png]

Arithmetic at the true sizes of the paper's models, without training. In a round K workers push and
pull through the parameter server's link, one after the other, and code beside one another; the
server decodes K pushes and codes one reply. What that takes is in ``codec.json``, the ``codec`` of
a scenario for each size, as ``tests/bench/coding.py --json`` writes it; without it, no time.

    T = 2 K B / r + C        B bytes of a message, r bytes a second, C seconds of coding

So of two methods the one with more coding and fewer bytes wins below r = 2 K (B' - B) / (C - C').
Where Plump-DP communicates for a share c of its time, and a method saves a share s of that, it
trains on 1 / (1 - c s) times as many images a second.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from testbed.payloads import Dense, Keyed, Payload, Quantized
from testbed.payloads.core_explorer import sizes
from testbed.reports.figures import write_picture
from testbed.scenario.durations import Codec, CodecTimes

BUCKET = 512
GIGABITS = (1, 10, 56)
COMMUNICATING = (0.1, 0.3, 0.5)
"""Shares of Plump-DP's time: the paper has 10 to 50 %, and does not say how long a step takes."""

CORE_ROUNDS = (1, 10, 50)
RATES = [10 ** (power / 20) for power in range(-40, 41)]
"""Gbit/s that are drawn: from 0.01 to 100."""
METHODS = ("plump-dp", "quant-dp", "slim-dp")


@dataclass(frozen=True)
class Case:
    """A model of the paper, its parameters, and what Slim-DP sends of it."""

    name: str
    size: int
    alpha: float
    epsilon: float


CASES = (
    Case("GoogLeNet", 13_400_000, 0.3, 0.15),
    Case("VGG-16", 138_357_544, 0.2, 0.1),
)


@dataclass(frozen=True)
class Cost:
    """Of one round: bytes of a message, and seconds of coding."""

    message_bytes: float
    coding_seconds: float

    def seconds(self, workers: int, gigabits: float) -> float:
        """T, at this rate in Gbit/s."""
        return 2 * workers * self.message_bytes * 8 / (gigabits * 1e9) + self.coding_seconds


def costs(case: Case, workers: int, rounds: int, codec: Codec) -> dict[str, Cost]:
    """Of each method, with a new core every ``rounds`` rounds."""
    core, explorer = sizes(case.size, case.alpha, case.epsilon)
    size = case.size
    message_bytes: dict[str, tuple[type[Payload], float]] = {
        "plump-dp": (Dense, 4 * size),
        "quant-dp": (Quantized, size + 4 * ceil(size / BUCKET)),
        "slim-dp": (Keyed, 8 + 4 * core + 8 * explorer + 4 * core / rounds),
    }
    return {
        method: Cost(of_message, coding_seconds(kind, size, workers, rounds, codec))
        for method, (kind, of_message) in message_bytes.items()
    }


def coding_seconds(
    kind: type[Payload], size: int, workers: int, rounds: int, codec: Codec
) -> float:
    """Of one round: a worker's push, all pushes at the server, its reply, and the reply's use."""

    def sending(times: CodecTimes) -> float:
        seldom = times.send_seconds(kind, size, selected=True)
        often = times.send_seconds(kind, size, selected=False)
        return often + (seldom - often) / rounds

    taken = codec.worker.take_seconds(kind, size) + workers * codec.ps.take_seconds(kind, size)
    return sending(codec.worker) + sending(codec.ps) + taken


def break_even(one: Cost, other: Cost, workers: int) -> float | None:
    """Gbit/s at which both take as long; None where one of them is ahead at all."""
    fewer_bytes = other.message_bytes - one.message_bytes
    more_coding = one.coding_seconds - other.coding_seconds
    if fewer_bytes * more_coding <= 0:
        return None
    return 2 * workers * fewer_bytes * 8 / more_coding / 1e9


def where_faster(one: Cost, other: Cost, workers: int) -> str:
    """At which bandwidths the one takes less time than the other."""
    rate = break_even(one, other, workers)
    has_fewer = one.message_bytes < other.message_bytes
    if rate is not None:
        return f"{'below' if has_fewer else 'above'} {rate:.3g} Gbit/s"
    quicker = one.coding_seconds < other.coding_seconds
    return "at any bandwidth" if has_fewer or quicker else "at no bandwidth"


def report(case: Case, workers: int, rounds: int, codec: Codec) -> Iterator[str]:
    """Lines about one model and this number of workers."""
    cost = costs(case, workers, rounds, codec)
    plump = cost["plump-dp"]
    yield f"{case.name}, {case.size:,} parameters, K={workers}, q={rounds}"
    for method in METHODS[1:]:
        its = cost[method]
        saved = [1 - its.seconds(workers, r) / plump.seconds(workers, r) for r in GIGABITS]
        shares = ", ".join(
            f"{share:6.1%} at {r} Gbit/s" for share, r in zip(saved, GIGABITS, strict=True)
        )
        yield (
            f"  {method}: {its.message_bytes / 1e6:9.2f} MB a message, {its.coding_seconds:.3f} s "
            f"of coding a round; saves {1 - its.message_bytes / plump.message_bytes:.2%} by bytes; "
            f"with coding {shares}; faster than plump-dp {where_faster(its, plump, workers)}"
        )
        faster = ", ".join(f"{1 / (1 - share * saved[0]) - 1:.0%}" for share in COMMUNICATING)
        yield (
            f"  {method}: {faster} more images a second at {GIGABITS[0]} Gbit/s where plump-dp "
            f"communicates for {', '.join(f'{share:.0%}' for share in COMMUNICATING)} of its time"
        )
    yield (
        "  slim-dp is faster than quant-dp "
        f"{where_faster(cost['slim-dp'], cost['quant-dp'], workers)}"
    )
    volumes = [costs(case, workers, q, codec)["slim-dp"].message_bytes for q in CORE_ROUNDS]
    sent = ", ".join(f"{volume / plump.message_bytes:.3f}" for volume in volumes)
    yield f"  slim-dp sends {sent} of plump-dp's bytes with q = {', '.join(map(str, CORE_ROUNDS))}"


def draw(codecs: Mapping[int, Codec], rounds: int) -> Figure:
    """Saved share of the communication time against the bandwidth, by bytes and with coding."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    for place, case in enumerate(CASES):
        axes = figure.add_subplot(1, 2, place + 1)
        for workers, style in ((4, "-"), (8, "--")):
            cost = costs(case, workers, rounds, codecs.get(case.size, Codec()))
            draw_case(axes, cost, workers, style)
        axes.set(xscale="log", ylim=(-1, 1), title=case.name, xlabel="Gbit/s")
        axes.axhline(0, color="grey", linewidth=0.5)
    figure.axes[0].set_ylabel("saved communication time")
    figure.axes[0].legend(fontsize="small")
    return figure


def draw_case(axes: Axes, cost: Mapping[str, Cost], workers: int, style: str) -> None:
    """Curves of Quant-DP and Slim-DP, with marks where two methods take as long."""
    plump, quant, slim = (cost[method] for method in METHODS)
    for its, method, color in ((quant, METHODS[1], "C0"), (slim, METHODS[2], "C1")):
        saved = [1 - its.seconds(workers, r) / plump.seconds(workers, r) for r in RATES]
        axes.plot(RATES, saved, style, color=color, label=f"{method}, K={workers}")
        if workers == 4:
            bare = 1 - its.message_bytes / plump.message_bytes
            axes.axhline(bare, color=color, linestyle=":", label=f"{method}, by bytes")
        if rate := break_even(its, plump, workers):
            axes.plot(rate, 0, "o", color=color)
    if rate := break_even(slim, quant, workers):
        axes.plot(rate, 1 - slim.seconds(workers, rate) / plump.seconds(workers, rate), "ks")


def main() -> int:
    """Print, and draw if asked to."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codec", type=Path, metavar="FILE")
    parser.add_argument("--picture", type=Path, metavar="FILE")
    parser.add_argument("--core-rounds", type=int, default=50)
    arguments = parser.parse_args()
    codecs: dict[int, Codec] = {}
    if arguments.codec:
        read = json.loads(arguments.codec.read_text(encoding="utf-8"))
        codecs = {int(size): Codec.model_validate(codec) for size, codec in read.items()}
    for case in CASES:
        for workers in (4, 8):
            lines = report(case, workers, arguments.core_rounds, codecs.get(case.size, Codec()))
            sys.stdout.writelines(f"{line}\n" for line in lines)
    if arguments.picture:
        write_picture(arguments.picture, draw(codecs, arguments.core_rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
