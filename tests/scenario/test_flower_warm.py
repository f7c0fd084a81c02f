"""Forks in place of Flower's processes, of a distribution that has commands of the same names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import testbed.scenario

SCRIPT = Path(testbed.scenario.__file__).parent / "data" / "flower_warm.py"
COMMANDS = """\
[console_scripts]
flower-supernode = fake:supernode
flower-superexec = fake:superexec
flwr-clientapp = fake:clientapp
flower-superlink = fake:superlink
flwr-serverapp = fake:clientapp
"""
FAKE = """\
import os, socket, subprocess, sys, time
loaded_by = os.getpid()

def supernode():
    print("supernode", sys.argv[1:], loaded_by == os.getppid(), flush=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as unfinished:
        unfinished.connect(f"\\0flower-{os.getppid()}")
    parent = ["--parent-pid", str(os.getpid())]
    os.environ["GIVEN"] = "sesame"
    subprocess.run(["flower-superexec", *parent], check=True)
    while not os.path.exists("done"):
        time.sleep(0.01)
    subprocess.run(["flwr-clientapp", "quiet"], check=True, stdout=subprocess.DEVNULL)
    sys.exit(3)

def superlink():
    subprocess.run(["flwr-serverapp", "a"], check=True)
    while not os.path.exists("done"):
        time.sleep(0.01)
    print("superlink", sys.argv[1:], flush=True)

def superexec():
    print("superexec", os.environ["GIVEN"], os.getppid() == loaded_by, flush=True)
    subprocess.run(["flwr-clientapp"], check=True)

def clientapp():
    import shared
    print("clientapp", sys.argv[1:], shared.loaded_by == loaded_by, flush=True)
    open("done", "w").close()
"""


def warm(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    packages = tmp_path / "packages"
    (packages / "fake-1.dist-info").mkdir(parents=True)
    (packages / "fake-1.dist-info" / "entry_points.txt").write_text(COMMANDS)
    (packages / "fake-1.dist-info" / "METADATA").write_text("Name: fake\nVersion: 1\n")
    (packages / "fake.py").write_text(FAKE)
    (packages / "shared.py").write_text("import os\nloaded_by = os.getpid()\n")
    (packages / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    (packages / "leaving.py").write_text("raise SystemExit(2)\n")
    python = tmp_path / "my env" / "python"
    python.parent.mkdir()
    python.symlink_to(Path(sys.executable).resolve())
    real = tmp_path / "bin" / "flower-supernode"
    real.parent.mkdir()
    real.write_text('#!/bin/sh\necho cold "$@"\n')
    real.chmod(0o755)
    return subprocess.run(
        [python, SCRIPT, *words],
        cwd=tmp_path,
        env={
            "PATH": f"{real.parent}:{os.environ['PATH']}",
            "FLWR_HOME": str(tmp_path / "home"),
            "PYTHONPATH": str(packages),
        },
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_processes_are_forks_with_what_was_imported(tmp_path: Path) -> None:
    imports = ("import shared", "from nonesuch import x", "import leaving")
    words = [word for one in imports for word in ("--import", one)]
    done = warm(tmp_path, *words, "--", "flower-supernode", "--insecure", "a b")
    assert done.stdout.splitlines() == [
        "not shared: from nonesuch import x: No module named 'nonesuch'",
        "not shared: import leaving: 2",
        "supernode ['--insecure', 'a b'] True",
        "not forked, as the request is incomplete: Expecting value: line 1 column 1 (char 0)",
        "superexec sesame True",
        "clientapp [] True",
    ]
    assert (done.returncode, done.stderr) == (3, "")


def test_the_superlink_forks_its_serverapp(tmp_path: Path) -> None:
    done = warm(tmp_path, "--import", "import shared", "--", "flower-superlink", "--insecure")
    assert done.stdout.splitlines() == ["clientapp ['a'] True", "superlink ['--insecure']"]
    assert (done.returncode, done.stderr) == (0, "")


def test_what_starts_threads_is_not_forked(tmp_path: Path) -> None:
    words = ("--import", "import threaded", "--", "flower-supernode", "--insecure", "a b")
    done = warm(tmp_path, *words)
    refusal, cold = done.stdout.splitlines()
    assert refusal.startswith("not forked, as the imports have started threads: ")
    assert cold == "cold --insecure a b"
