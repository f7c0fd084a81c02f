"""The terminal of `testbed up`, and leaving it: ``--detach``.

A process that detaches forks before doing anything else. The process that the user started waits
and forwards signals; the child does all the work, on the same terminal until the training has
started, and then with a log in the run folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import click

from testbed.algorithms.frame.stop import DIVERGED
from testbed.cli.report import print_report
from testbed.reports.live import LiveDisplay
from testbed.reports.remake import remake
from testbed.reports.verdict import FIX_DIVERGED_AT_ONCE
from testbed.run.interrupts import SIGNALS
from testbed.run.up import RunListener
from testbed.telemetry.folder import RunFolder

MODE = 0o644


@dataclass(frozen=True)
class Foreground:
    """The process that the user started."""

    child: int  # pid of the child
    pipe: int  # the child reports here that the training has started

    def wait(self) -> Path | int:
        """Return the run folder, once the training starts; or the exit status of the child."""

        def pass_on(number: int, frame: FrameType | None) -> None:
            with suppress(ProcessLookupError):
                os.kill(self.child, number)

        for number in SIGNALS:
            signal.signal(number, pass_on)
        with os.fdopen(self.pipe, "rb") as pipe:
            said = pipe.readline()
        if said:
            return Path(json.loads(said))
        status = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        return status if status >= 0 else 128 - status


@dataclass(frozen=True)
class Background:
    """The process that controls the run."""

    pipe: int  # to the foreground process

    def go_on(self, folder: Path, log: Path) -> None:
        """Detach from the terminal, write to ``log`` from now on, and let the parent return."""
        sys.stdout.flush()
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, MODE)
        _replace(target, (sys.stdout.fileno(), sys.stderr.fileno()))
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(line_buffering=True)
        with suppress(BrokenPipeError):  # it was killed: the run continues even so
            os.write(self.pipe, f"{json.dumps(str(folder))}\n".encode())
        os.close(self.pipe)


@dataclass
class Terminal(RunListener):
    """The user's terminal as the listener of a run."""

    sink: LiveDisplay
    has_run: bool = False  # whether there was a run, which has a folder

    def phase(self, text: str) -> None:
        self.sink.phase(text)

    def say(self, text: str) -> None:
        click.echo(text, err=True)

    def conclude(self, folder: RunFolder, *, torn_down: bool) -> bool:
        """Print the results; return whether the run is valid."""
        self.has_run = True
        try:
            report = remake(folder.path)  # before any output: the terminal may be closed
        finally:
            self.sink.close()
        summary = report.summary
        if "workload" in summary or summary["updates"]["total"]:
            print_report(report, folder=folder.path)
        else:  # it never trained
            why = f": {summary['reason']}" if summary["state"] == "finished" else ""
            click.echo(f"{summary['state']} before any update{why}")
            if summary["reason"].startswith(DIVERGED):
                click.echo(FIX_DIVERGED_AT_ONCE)
            elif summary["state"] != "failed" and summary["algorithm"]["name"] == "custom":
                click.echo("`testbed check FILE` tests whether your algorithm sends updates")
            click.echo(f"folder: {folder.path}")
        if torn_down:
            click.echo(_what_is_left(folder))
        return bool(summary["verdict"]["valid"])

    def leaving(self, background: Background) -> Callable[[RunFolder], None]:
        """Return the function that moves the run to the background once it trains."""

        def leave(folder: RunFolder) -> None:
            self.sink.close()
            background.go_on(folder.path, folder.log("controller"))

        return leave


def _what_is_left(folder: RunFolder) -> str:
    interrupted = folder.state().state == "interrupted"  # the ending process may hold the lock
    if interrupted or not folder.alive():
        return "all containers are removed"
    name = folder.name
    return (
        "kept: its containers exist until you remove them\n"
        f"  testbed ps {name}                       shows its nodes\n"
        f"  testbed exec {name} NODE -- COMMAND     runs a command in one of them\n"
        f"  testbed down {name}                     removes them"
    )


def split() -> Foreground | Background:
    """Fork, and return which of the two processes this is.

    The background process has its own session, and so no terminal that could hang up.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    if child := os.fork():
        os.close(writer)
        return Foreground(child, reader)
    os.close(reader)
    os.setsid()
    _replace(os.open(os.devnull, os.O_RDONLY), (0,))
    return Background(writer)


def _replace(descriptor: int, targets: Sequence[int]) -> None:
    for target in targets:
        os.dup2(descriptor, target)
    os.close(descriptor)
