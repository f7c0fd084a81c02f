"""The command ``testbed``: a verb's module is imported only when the verb is called.

Here: the options of a command, what it prints, and its exit status. Not here: what the command
does, which every Python program can do as well (``api``, ``run``, ``studies``, ``reports``).
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Never

import click

from testbed import __version__
from testbed.errors import INTERRUPTED, HostError, TestbedError
from testbed.host.process import end_command_with

VERBS = {
    "init": "Create an example scenario.",
    "up": "Run a scenario: start its containers, train, measure, and remove them.",
    "down": "Stop runs and remove what they left behind, also after a crash.",
    "resume": "Resume an interrupted simulated run from its checkpoint.",
    "wait": "Wait until a run ends, and exit with its exit code.",
    "ps": "List runs, or the nodes of one run.",
    "top": "Show the live status of a run.",
    "events": "Show the events of a run.",
    "net": "Show, measure and change the links of an active run.",
    "fault": "Inject faults into an active run (freeze, partition, slow down workers), and list "
    "faults.",
    "logs": "Show the output of the nodes of a run.",
    "exec": "Run a command in a node of a run.",
    "sweep": "Execute the missing runs of a study.",
    "report": "Report on a run, several runs or a study; draw the figures.",
    "export": "Export runs to the formats of other tools.",
    "dashboards": "Show runs in Prometheus and Grafana.",
    "compare": "Compare the results of two runs.",
    "doctor": "Check that this host can run scenarios.",
    "hosts": "List the hosts of a Docker Swarm, and what each of them lacks.",
    "image": "Build, check and remove the image that Docker runs nodes in.",
    "validate": "Check scenarios and studies.",
    "check": "Test that a custom algorithm, model, data set or metric fulfils its contract.",
    "calibrate": "Measure this machine, and write a device's profile.",
    "trace": "Convert recordings of other tools and data sets.",
    "plan": "Show what a scenario would start, without starting it.",
    "schema": "Print the JSON schema of scenarios, or of studies.",
    "completion": "Print the completion script for a shell.",
}
"""The commands and their descriptions, so that ``testbed --help`` does not import them."""

HOMES = {
    **dict.fromkeys(("init", "validate", "schema"), "files"),
    **dict.fromkeys(("ps", "wait", "resume", "down"), "runs"),
    **dict.fromkeys(("logs", "events", "exec"), "output"),
    **dict.fromkeys(("net", "fault"), "intervene"),
    "compare": "report",
    "completion": "complete",
}
"""The modules of verbs whose module is not named like the verb."""

_ACCESS = "Choose a path that you may access, or run it as its owner. See: namei -l PATH"
_SPACE = "Free disk space, or choose another folder."
_MEMORY = "Check `ulimit -v` and `free`."
_FILES = "Raise `ulimit -n`, or end programs that keep many files open."
NO_FAULTS_OF_OURS = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), _ACCESS),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _SPACE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), _FILES),
    errno.EROFS: "Choose a folder on a disk that can be written to.",
    errno.EIO: "Check the disk: dmesg",
    errno.ENOMEM: _MEMORY,
}
"""Errors of system calls caused by the state of this host, not by a bug in testbed; the hints."""

BROKEN_PIPE = 141


class LazyGroup(click.Group):
    """A group of verbs that imports the module of a verb when that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs, in the order of a run's life cycle."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the verb."""
        if cmd_name not in VERBS:
            return None
        module = import_module(f"testbed.cli.{HOMES.get(cmd_name, cmd_name)}")
        commands = (one for one in vars(module).values() if isinstance(one, click.Command))
        return next(one for one in commands if one.name == cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        """Call the verb; exit silently if the reader of the output has closed it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # before click handles it and exits with 1
            raise click.exceptions.Exit(_end_quietly()) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs into the help."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="testbed")
def cli() -> None:
    """Emulate edge-device training on this machine: a container per device, shaped links, gRPC.

    A scenario file describes a run:

    \b
      testbed init              create an example, first.yaml
      testbed up first.yaml     run it
      testbed up quickstart     run a scenario that ships with testbed
    """


def run() -> Never:
    """Run the command as a process; signals after its end have no effect."""

    def work() -> int:
        status = main()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        return status

    end_command_with(work)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; docs/commands.md lists them."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # the terminal may lack a character
    try:
        _check_paths(sys.argv[1:] if arguments is None else arguments)
        status = cli.main(arguments, prog_name="testbed", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        return _end_quietly()
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (TestbedError, OSError, MemoryError) as error:
        told = _no_fault_of_ours(error)
        if told is None:
            raise
        _show(told)
        return told.exit_code
    return status if isinstance(status, int) else 0


def _no_fault_of_ours(error: Exception) -> TestbedError | None:
    """Return an expected error, to show as a message; None for an unexpected one."""
    if isinstance(error, MemoryError):
        return HostError("out of memory.", hint=_MEMORY)
    if isinstance(error, OSError):
        if error.errno not in NO_FAULTS_OF_OURS:
            return None
        try:
            sys.stdout.flush()
        except OSError:  # do not retry the failed output at exit
            _drop_output()
        hint = NO_FAULTS_OF_OURS[error.errno]
        return HostError(f"{error.filename or 'writing'}: {error.strerror}.", hint=hint)
    return error if isinstance(error, TestbedError) else None


def _show(error: TestbedError) -> None:
    with suppress(OSError):  # if the disk is full, it cannot be reported
        click.echo(error.message, err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)


def _check_paths(arguments: Sequence[str]) -> None:
    """Refuse paths and arguments that are not text, and thus cannot be written to a run's files."""
    for argument in arguments:
        if not _is_text(argument):
            raise click.UsageError(f"{_printable(argument)} is not valid UTF-8: rename it.")
    try:
        here = os.getcwd()  # noqa: PTH109 - there may be none
    except OSError as error:
        message = f"the current folder does not exist: {error.strerror}."
        raise HostError(
            message, hint="It may have been deleted: cd to a folder that exists."
        ) from None
    if not _is_text(here):
        raise HostError(
            f"the current folder, {_printable(here)}, is not valid UTF-8.", hint="Rename it."
        )


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def _drop_output() -> None:
    """Discard the remaining output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _end_quietly() -> int:
    """Exit without a message, because the reader of the output has exited: ``| head``."""
    _drop_output()
    return BROKEN_PIPE
