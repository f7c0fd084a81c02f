"""Control groups version 2: everything that the runtime does with them, on the host's tree.

Hosts with version 1 provide no controllers to version 2, and skip these tests.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from version_2 import delegated_part, version_2

pytestmark = [pytest.mark.root, pytest.mark.netem, pytest.mark.slow]
FILES = ("test_contract.py", "native/test_driver.py", "test_death.py")
ABOUT_GROUPS = "control_groups or memory or frozen or freezes or no_kernel or stop_ends or killed"
OF_ROOT = f"({ABOUT_GROUPS}) and not comes_up"
OF_A_USER = "control_groups or memory or freezes or agent_is_killed"
"""An emulated kernel takes minutes for all of them, which `make nightly` spends."""


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """The mount point of version 2."""
    with version_2() as found:
        yield found


def assert_passed(
    done: subprocess.CompletedProcess[str], no_cpuset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Assert success, and that only tests that this kernel cannot run were skipped."""
    assert done.returncode == 0, done.stdout[-5000:]
    lines = done.stdout.splitlines()
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    with capsys.disabled():
        print("", *skipped, lines[-1], sep="\n")
    assert [line for line in skipped if not no_cpuset or no_cpuset not in line] == []
    assert bool(skipped) == bool(no_cpuset)


def some_or_all(some: str) -> pytest.MarkDecorator:
    """The tests to run, as pytest's option -k expects them."""
    every = pytest.param(ABOUT_GROUPS, id="all", marks=pytest.mark.nightly)
    return pytest.mark.parametrize("chosen", [pytest.param(some, id="some"), every])


@some_or_all(OF_ROOT)
def test_limits_freezing_and_death(
    root: Path, chosen: str, no_cpuset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Path(__file__).parent
    files = (here / name for name in FILES)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(
                "-m",
                "not slow and not docker",
                "-k",
                f"(({chosen}) or test_enforcement) and not lxc",
            ),
            *map(str, (*files, here.parent / "host" / "test_enforcement.py")),
        ],
        cwd=here.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert_passed(done, no_cpuset, capsys)
    assert not (root / "testbed").exists()


@some_or_all(OF_A_USER)
@pytest.mark.parametrize(
    "ranges",
    [pytest.param(True, id="range"), pytest.param(False, id="one", marks=pytest.mark.nightly)],
)
def test_an_ordinary_user_has_limits_in_a_delegated_subtree(
    root: Path,
    new_account: Any,
    ranges: bool,
    chosen: str,
    no_cpuset: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with new_account(ranges=ranges) as user, delegated_part(root, user.name) as part:
        tests = [f"tests/runtimes/{name}" for name in FILES]
        options = (
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            "not slow and not docker",
            "-k",
            f"({chosen}) and not lxc",
        )
        command = user.command(user.python, "-m", "pytest", *options, *tests)
        done = subprocess.run(
            ["sh", "-c", f'echo 0 > {part}/cgroup.procs; exec "$@"', "sh", *command],
            cwd=user.home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert_passed(done, no_cpuset, capsys)
