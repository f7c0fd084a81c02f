"""``testbed check`` tries the user's own algorithm."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent, indent

import pytest

from testbed.cli import main
from testbed.datasets import custom as custom_dataset
from testbed.models import custom as custom_model

DOCS = Path(__file__).parents[2] / "docs"
SHIPPED = Path(__file__).parents[2] / "scenarios" / "custom"


@pytest.mark.parametrize("file", ["dc_asgd.py", "dc-asgd.yaml"])
def test_an_algorithm_that_keeps_the_contract(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(SHIPPED / file)]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "DcAsgd (learning_rate=0.1 compensation=0.04)"
    titles = {line for line in rest if not line.startswith(" ")}
    assert titles == (set() if file.endswith(".py") else {"Net in ./net.py"})
    assert {line[:9] for line in rest if line not in titles} == {"  kept   "}


def test_options_are_set_in_either_kind_of_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(SHIPPED / "dc_asgd.py"), "--set", "compensation=1"]) == 0
    scenario = str(SHIPPED / "dc-asgd.yaml")
    assert main(["check", scenario, "--set", "algorithm.compensation=1"]) == 0
    assert capsys.readouterr().out.count("compensation=1.0)") == 2


def test_a_broken_promise_has_a_line_and_the_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (SHIPPED / "dc_asgd.py").read_text(encoding="utf-8")
    file = tmp_path / "mine.py"
    file.write_text(source.replace("self._pulled[worker]\n", "self._puled[worker]\n"))
    assert main(["check", str(file)]) == 10
    told = capsys.readouterr()
    assert "  BROKEN  A training of 60 updates" in told.out
    assert (
        "          mine.py:85: AttributeError: 'Server' object has no attribute '_pul" in told.out
    )
    assert "Traceback (most recent call last)" in told.err


def test_a_fault_that_breaks_several_promises_is_printed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (SHIPPED / "dc_asgd.py").read_text(encoding="utf-8")
    file = tmp_path / "mine.py"
    file.write_text(re.sub(r"(def step\(.*)", r"\1\n        gone()", source))
    assert main(["check", str(file)]) == 10
    told = capsys.readouterr()
    assert told.out.count("BROKEN") > 3
    lines = told.out.splitlines()
    broken = [line.startswith("  BROKEN") for line in lines]
    first, after = broken.index(True), broken.index(True) + sum(broken)
    assert all(broken[first:after])
    assert "NameError: name 'gone' is not defined" in lines[after]
    assert told.out.count("NameError") == told.err.count("Traceback") == 1


@pytest.mark.parametrize(
    ("source", "status", "expected"),
    [
        ("x = 1\n", 2, "found no subclass of AlgorithmConfig"),
        ("x = 1\n", 2, "is checked by the scenario that names it: testbed check FILE.yaml"),
        ("import gone\n", 11, "mine.py:1: found the file raised ModuleNotFoundError"),
    ],
)
def test_a_file_without_an_algorithm_is_an_error(
    source: str, status: int, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(source, encoding="utf-8")
    assert main(["check", str(file)]) == status
    assert expected in capsys.readouterr().err


def test_a_scenario_without_own_algorithm_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(SHIPPED.parent / "quickstart.yaml")]) == 2
    assert "algorithm: found adacomp, expected a custom algorithm" in capsys.readouterr().err


DATA = """
import numpy as np

def load():
    images = np.arange(80, dtype="uint8").reshape(5, 1, 4, 4)
    return images, np.linspace(0, 1, 5), images, np.linspace(0, 1, 5)

def noisy(images, rng):
    ready = images.astype("float32") / 255
    return ready if rng is None else ready + rng.random(ready.shape, "float32")
"""
NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        assert classes == 0
        self.layers = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(16, 1))

    def forward(self, images):
        return self.layers(images)[:, 0]

    def loss(self, outputs, targets):
        return (outputs - targets).square().mean() + self.layers[2].weight.square().sum()
"""
OWN = """
name: own
algorithm: bsp
model: {custom: {file: net.py, class: Net}}
dataset: {custom: {file: data.py, class: load, transform: noisy}}
workers: {count: 2, batch_size: 2}
stop: {updates: 10}
"""


@pytest.mark.parametrize(
    ("was", "becomes", "broken"),
    [
        ("", "", {}),
        (
            "rng.random(ready",
            "np.random.random(ready",
            {"It gives images": "data.py:10: dataset: found noisy(images, rng) raised TypeError"},
        ),
        (
            "(outputs - targets).square().mean()",
            "(outputs - targets.mean()).detach().mean()",
            {"Its gradient is finite": "Net: the slope of the loss"},
        ),
    ],
)
def test_own_model_and_data_set(
    was: str,
    becomes: str,
    broken: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in (("net.py", NET), ("data.py", DATA), ("own.yaml", OWN)):
        (tmp_path / name).write_text(text.replace(was, becomes) if was else text, encoding="utf-8")
    assert main(["check", str(tmp_path / "own.yaml")]) == (10 if broken else 0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "load in data.py"
    found = [line for line in lines if line.startswith("  BROKEN")]
    assert len(found) == len(broken)
    for promise, reason in broken.items():
        assert promise in found[0]
        assert reason in "\n".join(lines)


@pytest.mark.parametrize(
    "changes",
    [
        "self.calls = getattr(self, 'calls', 0) + self.training",
        "self.calls = __import__('secrets').randbelow(10**6) if self.training else 1",
    ],
)
def test_a_model_with_a_gradient_that_does_not_repeat(
    changes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It counts its calls, or draws from no global generator; dropout alone repeats, as above."""
    net = NET.replace(
        "return self.layers(images)[:, 0]",
        f"{changes}\n        return self.calls * self.layers(images)[:, 0]",
    )
    for name, text in (("net.py", net), ("data.py", DATA), ("own.yaml", OWN)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert main(["check", str(tmp_path / "own.yaml")]) == 10
    told = capsys.readouterr().out
    assert "  BROKEN  Its gradient is reproducible" in told
    assert "Net: its gradient for the same step differs after another step was computed" in told


TEXTS = """
import numpy as np

def load():
    words = np.arange(24).reshape(6, 1, 1, 4) % 10
    return words, np.arange(6) % 2, words, np.arange(6) % 2
"""
READER = """
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        self.words, self.score = nn.Embedding(10, 3), nn.Linear(3, classes)

    def forward(self, images):
        return self.score(self.words(images.long().flatten(1)).mean(1))
"""


def test_a_model_of_texts_is_tried_on_the_scenarios_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It knows only its ten words, and noise would be none of them."""
    scenario = OWN.replace(", transform: noisy", "")
    for name, text in (("net.py", READER), ("data.py", TEXTS), ("own.yaml", scenario)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert main(["check", str(tmp_path / "own.yaml")]) == 0
    assert "kept    Its gradient is finite" in capsys.readouterr().out


def of_docs(beginning: str, page: str = "own-code.md") -> str:
    """The page's only block of Python that begins like this."""
    text = (DOCS / page).read_text("utf-8")
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", text, re.M | re.S)
    (found,) = (block for block in blocks if block.startswith(beginning))
    return str(found)


def test_the_algorithm_of_the_docs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(
        of_docs("import numpy", "guides/own-algorithm.md"), encoding="utf-8"
    )
    assert main(["check", str(tmp_path / "mine.py")]) == 0
    assert "Mine (learning_rate=0.1)" in capsys.readouterr().out


def test_the_metric_of_the_docs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(
        of_docs("class Recall", "guides/own-metric.md"), encoding="utf-8"
    )
    (tmp_path / "s.yaml").write_text(
        "{name: s, algorithm: asgd, model: digits-cnn, dataset: digits, workers: {count: 2}, "
        "stop: {updates: 1}, "
        "evaluate: {metrics: [{custom: {file: mine.py, class: Recall, label: 3}}]}}"
    )
    assert main(["check", str(tmp_path / "s.yaml")]) == 0
    assert "Recall in mine.py\n  kept" in capsys.readouterr().out


def test_the_selection_of_the_docs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(of_docs("from testbed.algorithms.selection"), "utf-8")
    (tmp_path / "s.yaml").write_text(
        "{name: s, model: digits-cnn, dataset: digits, stop: {updates: 4}, "
        "workers: {count: 6, classes: {all: {speed: 10ms}}}, "
        "runtime: simulated, algorithm: {fedavg: {fraction: 0.5, "
        "select: {custom: {file: mine.py, class: Fastest, tried: 3}}}}}"
    )
    assert main(["up", str(tmp_path / "s.yaml"), "--runs", str(tmp_path / "runs")]) == 0


def test_the_model_and_the_transform_of_the_docstrings(tmp_path: Path) -> None:
    """With its loss and without; the other docstring's data set is read from a file."""
    model, objective = examples(custom_model.__doc__)
    _, transform = examples(custom_dataset.__doc__)
    data = DATA.replace("def noisy", "def unused") + "\n" + transform
    network = "import torch\n\n" + model
    scenario = OWN.replace("transform: noisy", "transform: distorted")
    scenario = scenario.replace("class: Net", "class: Net, width: 8")
    (tmp_path / "data.py").write_text(data.replace("linspace(0, 1, 5)", "arange(5)"), "utf-8")
    (tmp_path / "own.yaml").write_text(scenario, encoding="utf-8")
    for source in (network, network + indent(objective, "    ").replace("huber_", "multi_margin_")):
        (tmp_path / "net.py").write_text(source, encoding="utf-8")
        assert main(["check", str(tmp_path / "own.yaml")]) == 0


def examples(doc: str | None) -> tuple[str, ...]:
    """The Python blocks in a docstring."""
    blocks = re.findall(r"^    (?:class|def) .*?(?=^\S)", doc or "", re.M | re.S)
    return tuple(dedent(block) for block in blocks)


def test_a_shipped_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", "custom/dc-asgd"]) == 0
    assert "Its gradient is finite" in capsys.readouterr().out
