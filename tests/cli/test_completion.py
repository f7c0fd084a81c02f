"""``testbed completion``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from testbed.cli import cli, main
from testbed.plan.make import plan
from testbed.plan.written import plan_text
from testbed.scenario import dump, load
from testbed.telemetry.folder import RunFolder


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_a_script_and_how_to_install_it(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# To install it: ")
    assert "_TESTBED_COMPLETE" in printed


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


def test_bash_accepts_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = capsys.readouterr().out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=60)


def test_the_call_of_the_script_answers() -> None:
    environment = {
        **os.environ,
        "_TESTBED_COMPLETE": "bash_complete",
        "COMP_WORDS": "testbed va",
        "COMP_CWORD": "1",
    }
    answer = subprocess.run(
        [sys.executable, "-m", "testbed"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.stdout == "plain,validate\n"


def completed(*words: str) -> list[str]:
    """The completions of the last word."""
    *before, incomplete = words
    shell = ShellComplete(cli, {}, "testbed", "_TESTBED_COMPLETE")
    return [one.value for one in shell.get_completions(list(before), incomplete)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run in the current folder, with two classes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    scenario = load("quickstart")
    folder = RunFolder.create(
        Path("runs"),
        "demo-1",
        scenario="quickstart",
        text=dump(scenario),
        classes=[],
        now=0.0,
        plan=plan_text(plan(scenario, "demo-1")),
    )
    return folder.name


def test_runs_and_their_nodes_and_classes(run: str) -> None:
    for verb in ("down", "logs", "exec", "ps", "report", "wait"):
        assert run in completed(verb, "dem")
    assert completed("compare", run, "") == [run]
    assert completed("exec", run, "w1") == ["w1", "w10", "w11"]
    assert completed("logs", run, "ps", "ev") == ["evaluator"]
    classes = list(load("quickstart").workers.classes)
    assert completed("logs", run, "class=") == [f"class={name}" for name in sorted(classes)]
    assert completed("net", "set", run, "--class", classes[0][:2]) == [classes[0]]
    assert completed("logs", "gone", "w") == []


def test_runtimes_and_settings() -> None:
    assert completed("up", "--runtime", "") == ["auto", "docker", "lxc", "native", "simulated"]
    assert completed("up", "--set", "workers.cou") == ["workers.count="]
    assert completed("up", "--set", "algorithm.learning") == ["algorithm.learning_rate="]
    assert "stop.updates=" in completed("plan", "--set", "")
