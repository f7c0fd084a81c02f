"""Output of the user's own code in a simulation goes into a log, not to the terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

SHIPPED = Path(__file__).parents[2] / "scenarios" / "custom"
TITLE = "\x1b]0;owned\x07"
UPDATES = 20

pytestmark = pytest.mark.slow


@pytest.fixture
def printing(bed: Any) -> Path:
    """The shipped scenario; its server half prints, and its network from Python, C and a child."""
    folder = Path(bed.folder, "custom")
    shutil.copytree(SHIPPED, folder)
    half, net = folder / "dc_asgd.py", folder / "net.py"
    at = "        self.version += 1\n"
    half.write_text(half.read_text().replace(at, f"{at}        print('served', self.version)\n"))
    said = f"print({TITLE!r}); os.write(1, b'by hand\\n'); os.system('echo a child')"
    at = "        scores: Tensor"
    net.write_text(
        net.read_text()
        .replace("from torch import", "import os\n\nfrom torch import", 1)
        .replace(at, f"        {said}\n{at}")
    )
    return folder / "dc-asgd.yaml"


def on_a_terminal(bed: Any, *words: str | Path) -> str:
    """The bytes that a command writes to a terminal."""
    master, slave = os.openpty()
    command = subprocess.Popen(
        bed.words(*words), env=bed.environment, stdout=slave, stderr=slave, stdin=slave
    )
    os.close(slave)
    shown = b""
    with suppress(OSError):  # how a terminal reports that it was closed
        while data := os.read(master, 4096):
            shown += data
    os.close(master)
    assert command.wait() == 0, shown.decode()
    return shown.decode()


def test_output_goes_into_a_log_and_not_between_progress_lines(
    bed: Any, name: str, printing: Path
) -> None:
    asked = ("--runtime", "simulated", "--set", f"stop.updates={UPDATES}", "--name", name)
    shown = on_a_terminal(bed, "up", printing, *asked)
    assert "training" in shown
    assert "accuracy" in shown
    assert not [words for words in ("served", "by hand", "a child", TITLE) if words in shown]
    (log,) = (bed.runs / name / "logs").iterdir()
    assert log.name == "simulation.log"
    lines = log.read_text().splitlines()
    served = [line for line in lines if line.startswith("served")]
    assert served == [f"served {number}" for number in range(1, UPDATES + 1)]
    passes = lines.count(TITLE)
    assert passes > UPDATES
    assert (lines.count("by hand"), lines.count("a child")) == (passes, passes)


def test_logs_shows_the_output_escaped(bed: Any, name: str, printing: Path) -> None:
    asked = ("--runtime", "simulated", "--set", f"stop.updates={UPDATES}", "--name", name)
    done = bed("up", printing, *asked)
    assert "served" not in done.stdout + done.stderr
    shown = bed("logs", name).stdout
    assert "simulation | served 1\n" in shown
    assert "simulation | \\x1b]0;owned\\x07\n" in shown
    assert shown == bed("logs", name, "simulation").stdout
    assert f"simulation | {TITLE}\n" in bed("logs", name, "--raw").stdout
