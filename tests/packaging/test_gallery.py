"""The gallery has a card for every shipped scenario and study."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "scenarios"


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs/site"))
    return importlib.import_module("gallery")


def test_every_scenario_and_study_has_a_head_that_says_what_it_shows(gallery: ModuleType) -> None:
    for file in SCENARIOS.rglob("*.yaml"):
        assert len(gallery.head_of(file)) > 40, file


def test_a_file_without_a_head_is_refused(gallery: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "bare.yaml").write_text("# yaml-language-server: x\nname: bare\n", "utf-8")
    with pytest.raises(ValueError, match="no comment in its second line"):
        gallery.head_of(tmp_path / "bare.yaml")


@pytest.mark.parametrize(
    ("head", "takes"),
    [
        ("They train, in about a minute.", "about a minute"),
        ("Simulated, in an hour and a half of two CPUs: `make adsp-fig5`.", "an hour and a half"),
        ("Simulated: `make scadles-fig6`, four hours of one CPU.", "four hours"),
        ("A tenth of it, for a laptop and two minutes; in Docker.", "two minutes"),
        ("It takes under a minute and downloads nothing.", "under a minute"),
    ],
)
def test_a_head_says_how_long_it_takes(gallery: ModuleType, head: str, takes: str) -> None:
    example = gallery.Example(SCENARIOS / "first.yaml", head, None)
    assert gallery.minutes(example) == takes


def test_emulated_time_and_rates_are_not_how_long_it_takes(gallery: ModuleType) -> None:
    for head in ("For two emulated minutes: accuracy.", "38 samples a second on the mean."):
        example = gallery.Example(SCENARIOS / "first.yaml", head, None)
        assert gallery.minutes(example) == "time not measured"


def test_a_card_of_a_scenario(gallery: ModuleType) -> None:
    """Memory as `testbed plan` estimates it: 555 MB; 12 workers, the PS and the evaluator."""
    example = gallery.read_example(SCENARIOS / "quickstart.yaml")
    text = gallery.card(example)
    assert "[quickstart](scenarios/quickstart.md)" in text
    assert "`testbed up quickstart`" in text
    assert "live · about a minute · memory about 0.6 GB · CPU shared by 14 nodes" in text
    assert "pictures/quickstart-dark.png" in text
    first = gallery.read_example(SCENARIOS / "first.yaml")
    assert "4 wired: 10mbit / 50mbit" in gallery.card(first)


def test_the_command_of_a_card_has_the_options_that_the_example_needs(gallery: ModuleType) -> None:
    commands = {
        name: gallery.command_of(SCENARIOS / f"{name}.yaml")
        for name in ("quickstart", "ddp/elastic", "custom/batch-norm")
    }
    assert commands == {
        "quickstart": "testbed up quickstart",
        "ddp/elastic": "testbed up ddp/elastic --set workload.node.python=PATH",
        "custom/batch-norm": "testbed up custom/batch-norm",
    }


def test_a_card_of_a_study(gallery: ModuleType) -> None:
    example = gallery.read_example(SCENARIOS / "adsp/fig4.yaml")
    assert "`testbed sweep scenarios/adsp/fig4.yaml`" in gallery.card(example)
    assert "simulated · 6 runs · half an hour" in gallery.card(example)


def test_a_live_scenario_takes_at_least_its_updates_at_its_pace(gallery: ModuleType) -> None:
    """3,000 updates; at most 109.4 a second by the steps of its workers."""
    example = gallery.read_example(SCENARIOS / "traces/traces.yaml")
    assert gallery.minutes(example) == "at least 27 s"


def test_a_drawing_has_a_dot_for_each_device_up_to_eight(gallery: ModuleType) -> None:
    drawing = gallery.drawing([("fast", 3, "1mbit"), ("many <", 200, "")])
    assert drawing.count("<circle") == 3 + 8
    assert "3 fast: 1mbit" in drawing
    assert "200 many &lt;" in drawing
