"""Misbehaving models: each is reported precisely, and the run ends cleanly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch  # noqa: F401 - here, so that no child process has to

from testbed.errors import TestbedError
from testbed.run.prepare import RunRequest
from testbed.run.simulated import up_simulated
from testbed.run.up import RunListener
from testbed.scenario import load
from testbed.telemetry.folder import RunFolder

SCENARIO = """\
name: hostile
runtime: simulated
algorithm: asgd
model: {custom: {file: net.py, class: Net}}
dataset: digits
workers: {count: 3, batch_size: 10, classes: {any: {share: 1.0, speed: 50ms}}}
stop: {updates: 6}
evaluate: {every: 3, images: 20}
"""
LITTLE_SECONDS = 3.0

NET = """\
import ctypes, os, random, signal, sys, threading, time
import torch
{head}

class Net(torch.nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        self.score = torch.nn.Linear(64, classes)
{make}

    def forward(self, images):
        scores = self.score(images.flatten(1))
        if len(images) > 2:
{use}
            pass
        return scores
"""


@dataclass(frozen=True)
class Hostile:
    """A model, and the expected message.

    Attributes:
        head: code at the top of the file; ``make`` is in ``__init__``, ``use`` in ``forward``.
        told: a pattern for the message; empty if the run completes.
        code: the exit code.
        hangs: whether it needs a short timeout.
    """

    name: str
    head: str = "pass"
    make: str = "pass"
    use: str = "pass"
    told: str = ""
    code: int = 11
    hangs: bool = False

    def source(self) -> str:
        """The text of the file."""
        parts = {"head": (self.head, 0), "make": (self.make, 8), "use": (self.use, 12)}
        return NET.format(
            **{
                part: "\n".join(f"{' ' * width}{line}" for line in lines.splitlines())
                for part, (lines, width) in parts.items()
            }
        )


THREAD = "threading.Thread(target=time.sleep, args=(1000,), name='mine'{}).start()"
DEAF = "while True:\n    try: time.sleep(1000)\n    except BaseException: pass"
SEGFAULT = "ctypes.string_at(0)"
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
CLOSE = "os.closerange(3, 4096)"
ENDED = r"net.py: this code ended its process with status {} before it returned"
SIGNAL = "net.py: the process of this code was ended by {}"
RAISED = r"net.py:\d+: model: found {} raised {}"
CLOSED = "net.py: this code has closed descriptors that are not its own"
TRAINED = r"net.py:\d+: Net cannot be trained: {}"
LINEAR = "self.other = torch.nn.Linear(4, 1 + {})"
SAME = "expected the same parameters in every process"

AT_IMPORT = (
    Hostile("exit", head="sys.exit(0)", told=RAISED.format("the file", "SystemExit: 0")),
    Hostile("exit-with-text", head="sys.exit('bye')", told="SystemExit: bye"),
    Hostile("leave", head="os._exit(0)", told=ENDED.format(0)),
    Hostile("leave-7", head="os._exit(7)", told=ENDED.format(7)),
    Hostile("base", head="raise BaseException('no')", told="the file raised BaseException: no"),
    Hostile("interrupt", head="raise KeyboardInterrupt", told="raised KeyboardInterrupt"),
    Hostile("generator", head="raise GeneratorExit", told="the file raised GeneratorExit"),
    Hostile("divide", head="1 / 0", told="raised ZeroDivisionError: division by zero"),
    Hostile("recurse", head="def f(): f()\nf()", told="raised RecursionError"),
    Hostile("lacks", head="import no_such_module", told="an import of no_such_module", code=2),
    Hostile("syntax", head="def", told="found SyntaxError", code=2),
    Hostile("kill", head=KILL, told=SIGNAL.format("SIGKILL")),
    Hostile("abort", head="os.abort()", told=SIGNAL.format("SIGABRT")),
    Hostile("segfault", head=SEGFAULT, told=SIGNAL.format("SIGSEGV")),
    Hostile("close", head=CLOSE, told=CLOSED),
    Hostile("thread", head=THREAD.format(""), told="net.py: this code left a thread running: mi"),
    Hostile("daemon", head=THREAD.format(", daemon=True"), told="left a thread running: mine"),
    Hostile("loop", head="while True: pass", told=r"net.py:3: this code still runs", hangs=True),
    Hostile("sleep", head="time.sleep(1000)", told=r"net.py:3: this code still runs", hangs=True),
    Hostile("deaf", head=DEAF, told="net.py: this code still runs after", hangs=True),
    Hostile("fork", head="os.fork()"),
    Hostile("folder", head="os.chdir('/')"),
    Hostile("handlers", head="signal.signal(signal.SIGTERM, signal.SIG_IGN)"),
    Hostile("environment", head="os.environ.clear()"),
    Hostile("prints", head="print('x' * 200_000, file=sys.stderr)"),
)
IN_THE_MAKING = (
    Hostile("make-leave", make="os._exit(0)", told=ENDED.format(0)),
    Hostile("make-exit", make="sys.exit(1)", told=r"found Net\(.*\) raised SystemExit: 1"),
    Hostile("make-base", make="raise BaseException", told="raised BaseException"),
    Hostile("make-sleep", make="time.sleep(1000)", told=r"net.py:\d+: this code", hangs=True),
    Hostile("make-large", make="torch.zeros(2**60)", told="raised RuntimeError"),
    Hostile("make-by-process", make=LINEAR.format("os.getpid() % 1009"), told=SAME),
    Hostile("make-by-chance", make=LINEAR.format("random.randrange(10**6)"), told=SAME),
    Hostile("make-double", make="self.double()", told="is torch.float64", code=2),
    Hostile("make-nothing", make="self.score = torch.nn.Flatten()", told="expected scores", code=2),
)
IN_USE = (
    Hostile("use-leave", use="os._exit(0)", told=ENDED.format(0)),
    Hostile("use-leave-9", use="os._exit(9)", told=ENDED.format(9)),
    Hostile("use-exit", use="sys.exit()", told=r"net.py:\d+: SystemExit"),
    Hostile("use-base", use="raise BaseException('no')", told=r"net.py:\d+: BaseException: no"),
    Hostile("use-interrupt", use="raise KeyboardInterrupt", told=r"net.py:\d+: KeyboardInterrupt"),
    Hostile("use-recurse", use="self(images)", told=r"net.py:\d+: RecursionError"),
    Hostile("use-kill", use=KILL, told=SIGNAL.format("SIGKILL")),
    Hostile("use-segfault", use=SEGFAULT, told=SIGNAL.format("SIGSEGV")),
    Hostile("use-close", use=CLOSE, told=CLOSED),
    Hostile(
        "use-few",
        use="return scores[:, :2]",
        told=r"Net returned \(\d+, 2\), .* expected \(\d+, 10\)",
    ),
    Hostile(
        "use-one", use="return scores[0]", told=r"Net returned \(10,\), torch.float32, expected"
    ),
    Hostile("use-none", use="return None", told="Net returned a NoneType, expected"),
    Hostile("use-detached", use="return scores.detach()", told=TRAINED.format("element 0 of ten")),
    Hostile(
        "use-in-evaluation",
        use="assert self.training, 'evaluated'",
        told=r"net.py:\d+: AssertionError: evaluated",
    ),
    Hostile("use-nan", use="return scores * float('nan')"),
    Hostile("use-fork", use="os.fork()"),
    Hostile("use-thread", use=THREAD.format(", daemon=True")),
)
MODELS = (*AT_IMPORT, *IN_THE_MAKING, *IN_USE)
QUICK = ("leave", "base", "make-by-process", "use-leave")
"""The models that are also tested in quick runs."""


def simulate(model: Hostile, folder: Path, cache: Path) -> None:
    """Simulate three workers that train a model."""
    (folder / "net.py").write_text(model.source())
    (folder / "scenario.yaml").write_text(SCENARIO)
    request = RunRequest(
        scenario=load(folder / "scenario.yaml"),
        beside=folder,
        runs=folder / "runs",
        name="run",
        argv=(),
        environment={"XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(cache)},
        home=folder,
        now=0.0,
    )
    more = {"loading_seconds": LITTLE_SECONDS} if model.hangs else {}
    up_simulated(request, RunListener(), **more)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(one, id=one.name, marks=[] if one.name in QUICK else pytest.mark.slow)
        for one in MODELS
    ],
)
def test_simulated(model: Hostile, tmp_path: Path, cache: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "run")
    if not model.told:
        simulate(model, tmp_path, cache)
        assert folder.state().state == "finished"
        return
    with pytest.raises(TestbedError) as failure:
        simulate(model, tmp_path, cache)
    assert re.search(model.told, failure.value.message)
    assert failure.value.exit_code == model.code
    if model.name in ("lacks", "syntax"):  # found in its text, before a run is created
        assert not folder.path.exists()
        return
    state = folder.state()
    assert (state.state, state.reason) == ("failed", failure.value.message)
    assert state.exit_code == model.code
    assert not folder.alive()


def test_there_are_more_than_forty_five_models() -> None:
    assert len({model.name for model in MODELS}) == len(MODELS) > 45
