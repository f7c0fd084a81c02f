"""The parts of ScaDLES's tables that need no run: by hand, and as printed by the program."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "scenarios" / "scadles"


@pytest.fixture
def arithmetic(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, as a module."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "arithmetic", raising=False)
    return import_module("arithmetic")


def rows(table: Any) -> list[dict[str, Any]]:
    """The rows of a table, by column header."""
    head, *body = table()
    return [dict(zip(head, row, strict=True)) for row in body]


def test_the_volume_of_a_stream(arithmetic: Any) -> None:
    """600 * 1.2 s * 100,000 * 3,072 bytes are 221.184e9, 205.99 GiB; the paper prints 200.6."""
    found = rows(arithmetic.table2)
    (misprint,) = [row for row in found if row["the paper's GB"] == 200.6]
    assert (misprint["S"], misprint["T"], misprint["GiB"]) == (600, "100,000", "205.99")
    others = [row for row in found if row is not misprint]
    assert len(others) == 11
    for row in others:  # the paper rounds to three digits or fewer
        assert float(row["GiB"]) == pytest.approx(row["the paper's GB"], rel=0.03)


def test_a_synchronisation(arithmetic: Any) -> None:
    """VGG19: 143,667,240 values of 4 bytes, 2 * 7/8 of them at 625e6 bytes/s: 1.609 s (1.6)."""
    vgg = rows(arithmetic.fig4b)[1]
    assert (vgg["gradient"], vgg["ring, n = 8"], vgg["of an iteration"]) == (
        "574.7 MB",
        "1.609 s",
        "101%",
    )


def test_rounds_that_fill_a_buffer(arithmetic: Any) -> None:
    """S1, ResNet152: (1.2 - 1) * 16 * 38 = 121.6 more wait after each round, or 0.2 * 86 = 17.2.

    2.9e5 wait after 2,385 rounds, or 16,860; 129 samples in 1.2 s are 107.5/s, more than the
    79.6 that S1 has at most.
    """
    first = rows(arithmetic.table4)[0]
    assert (first["set"], first["network"]) == ("S1", "ResNet152")
    assert (first["rounds, of all"], first["of one"]) == ("2,385", "16,860")
    assert first["truncation"] == 129


def test_the_number_of_sent_values(arithmetic: Any) -> None:
    """ResNet152, CR 0.1, CNC 0.29: 10,000 * 60,192,808 * (1 - 0.29 + 0.029) = 4.45e11.

    The misprints are less than compressing every round comes to.
    """
    found = rows(arithmetic.table5)
    assert (found[0]["floats"], found[0]["the paper's"]) == ("4.45e+11", "4.43e+11")
    below = [row for row in found if float(row["the paper's"]) < 0.5 * float(row["all compressed"])]
    assert [(row["network"], row["delta"]) for row in below] == [
        ("ResNet152", 0.4),
        ("VGG19", 0.3),
        ("VGG19", 0.4),
    ]


def test_the_volume_of_shared_samples(arithmetic: Any) -> None:
    """S2, half of ten devices, half of 300 samples of 3,072 bytes: 2,304 kB, to nine others."""
    (most,) = [
        row
        for row in rows(arithmetic.fig9)
        if (row["set"], row["alpha, beta"]) == ("S2", "0.5, 0.5")
    ]
    assert (most["shared"], most["delivered"]) == ("2,304 kB", "20,736 kB")


def test_the_program_prints_the_requested_table() -> None:
    def run(*names: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, str(FOLDER / "arithmetic.py"), *names]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    printed = run("table3")
    assert printed.stdout.startswith("## table3\n\nParameters, and the devices of the paper.\n")
    assert "| ResNet152 | 60,192,808 | 467 | 60.2 M | 16 devices | 10 devices, 1 label |" in (
        printed.stdout
    )
    refused = run("table7")
    assert refused.returncode == 2
    assert refused.stderr.startswith("found table7, expected some of fig3, fig4b, table2")
