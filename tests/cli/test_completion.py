"""``testbed completion``."""

import os
import subprocess
import sys

import pytest

from testbed.cli import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_it_prints_a_script_and_how_to_install_it(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# To install it: ")
    assert "_TESTBED_COMPLETE" in printed


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


def test_bash_takes_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = capsys.readouterr().out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=60)


def test_what_the_script_calls_answers() -> None:
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
