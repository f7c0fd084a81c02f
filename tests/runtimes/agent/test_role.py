"""How a role's end becomes its process's exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.errors import NodeError
from testbed.runtimes.agent.role import resolve

WORK = """
import sys
from testbed.host.process import end_with
from testbed.errors import RejectedError

def work():
    {body}

end_with(work)
print("never reached")
"""


def run(body: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", WORK.format(body=body)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ("return 0", 0, ""),
        ("return 8", 8, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('a message')", 1, ""),
        ("raise RejectedError('w0: refused.', hint='Ask why.')", 8, "w0: refused. Ask why.\n"),
    ],
)
def test_exit_statuses(body: str, status: int, error: str) -> None:
    assert run(f"print('output'); {body}") == (status, "output\n", error)


def test_a_bug_shows_its_traceback() -> None:
    status, output, error = run("return 1 // 0")
    assert (status, output) == (1, "")
    assert error.startswith("Traceback (most recent call last)")
    assert error.splitlines()[-1].startswith("ZeroDivisionError: ")


def test_arguments_arrive_through_a_descriptor(tmp_path: Path) -> None:
    (tmp_path / "a_role.py").write_text(
        "import sys\ndef main(arguments):\n    print(dict(arguments), sys.argv[1:])\n    return 2\n"
    )
    reader, writer = os.pipe()
    os.write(writer, b'{"token": "secret"}')
    os.close(writer)
    done = subprocess.run(
        [sys.executable, "-m", "testbed.runtimes.agent.role", "a_role:main", str(reader)],
        pass_fds=(reader,),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(reader)
    assert done.returncode == 2, done.stderr
    assert done.stdout == f"{{'token': 'secret'}} ['a_role:main', '{reader}']\n"


def test_a_missing_entry_point_is_named() -> None:
    assert resolve("os.path:join") is os.path.join
    with pytest.raises(NodeError, match="entry point missing:main: No module named 'missing'"):
        resolve("missing:main")
    with pytest.raises(NodeError, match=r"entry point os:missing: os has no missing\."):
        resolve("os:missing")
