"""The command as a whole: help, exit codes, what it imports, and how it ends."""

import errno
import os
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import click
import pytest

from testbed import __version__
from testbed.cli import BROKEN_PIPE, VERBS, cli, main
from testbed.errors import HostError, RunNotFound
from testbed.host.requirements import capacity, require_linux

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"
FORBIDDEN = ("docker", "torch", "grpc", "pyroute2")


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    for verb in VERBS:
        assert f"\n  {verb} " in printed


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_module_of_its_name(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert f"Usage: testbed {verb}" in capsys.readouterr().out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"testbed, version {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["vallidate"], ["plan"], ["plan", "--nope"], ["plan", "x", "--workers", "many"]]
)
def test_a_wrong_command_line_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "Usage: testbed" in capsys.readouterr().err


def end_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command that fails with ``error``."""

    @click.command("fail")
    def command() -> None:
        raise error

    module = type(sys)("testbed.cli.fail")
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "testbed.cli.fail", module)
    monkeypatch.setitem(VERBS, "fail", "Fails.")
    return main(["fail"])


def test_an_error_is_a_message_a_hint_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = RunNotFound("There is no run x.", hint="See: testbed ps")
    assert end_with(error, monkeypatch) == RunNotFound.exit_code
    assert capsys.readouterr().err == "There is no run x.\n  See: testbed ps\n"


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.EACCES, "Choose a path that you may access"), (errno.ENOSPC, "Free disk space")],
)
def test_a_refusal_of_the_system_says_what_to_do(
    number: int, hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = OSError(number, os.strerror(number), "runs/.sweep.lock")
    assert end_with(error, monkeypatch) == HostError.exit_code
    message, told = capsys.readouterr().err.splitlines()
    assert message == f"runs/.sweep.lock: {os.strerror(number)}."
    assert told.strip().startswith(hint)


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert end_with(KeyboardInterrupt(), monkeypatch) == 130


def test_an_unexpected_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        end_with(ZeroDivisionError(), monkeypatch)


def bash(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **environment},
    )


def test_a_closed_pipe_ends_the_command_quietly() -> None:
    ended = bash(f"{sys.executable} -m testbed schema | head -1; echo ${{PIPESTATUS[0]}}")
    assert ended.stdout == f"{{\n{BROKEN_PIPE}\n"
    assert ended.stderr == ""


def test_a_closed_output_does_not_fail_the_command() -> None:
    ended = bash(f"{sys.executable} -m testbed validate {QUICKSTART} >&-")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("verb", ["validate", "plan"])
def test_an_output_in_ascii_only(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "caf\u00e9.yaml"
    file.write_bytes(QUICKSTART.read_bytes())
    output = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(output, encoding="ascii"))
    assert main([verb, str(file)]) == 0
    assert b"quickstart" in output.getvalue()
    assert capsys.readouterr().err == ""


LOOK = """
import sys
from testbed.cli import main

modules, *commands = (line.split() for line in sys.stdin)
for words in commands:
    status = main(words)
    found = [name for name in modules if name in sys.modules]
    if status or found:
        sys.exit(f"{words}: status {status}, imported {found}")
"""


def look_for(modules: tuple[str, ...], *commands: str) -> str:
    """The first of the commands that failed or imported a module, run one after the other."""
    ended = subprocess.run(
        [sys.executable, "-c", LOOK],
        input="\n".join([" ".join(modules), *commands]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    return ended.stderr


def test_nothing_heavy_is_imported() -> None:
    commands = (f"validate {QUICKSTART}", f"plan {QUICKSTART}", "schema", "ps")
    assert look_for(FORBIDDEN, *commands) == ""


def test_the_help_imports_almost_nothing() -> None:
    assert look_for((*FORBIDDEN, "numpy", "pydantic", "pandas", "rich", "yaml"), "--help") == ""


def test_only_linux_can_run_scenarios() -> None:
    require_linux("up", platform="linux")
    with pytest.raises(HostError, match=r"`testbed up` needs Linux .* this is darwin"):
        require_linux("up", platform="darwin")


def test_the_host_has_a_cpu_and_some_memory() -> None:
    host = capacity()
    assert host.cpus >= 1
    assert host.memory_bytes > 2**26


def test_the_group_completes_its_verbs() -> None:
    context = click.Context(cli, info_name="testbed")
    assert [item.value for item in cli.shell_complete(context, "va")] == ["validate"]


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_after_the_end_changes_nothing(number: str) -> None:
    # Like a user who holds Ctrl-C down: the interpreter is shutting down by then.
    program = (
        "import atexit, os, signal, sys; from testbed import cli;"
        f"atexit.register(lambda: os.kill(os.getpid(), signal.{number}));"
        "sys.argv[1:] = ['--version']; cli.run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
