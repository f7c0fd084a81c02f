"""The savings of Slim-DP and Quant-DP at the true sizes: by hand, and by the program."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from testbed.scenario.durations import Codec

FOLDER = Path(__file__).parents[2] / "scenarios" / "slim_dp"


@pytest.fixture
def savings(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, as a module."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "savings", raising=False)
    return import_module("savings")


def test_break_even_bandwidths(savings: Any) -> None:
    """1,024,000 parameters in 2,000 buckets, a core and an explorer of 256,000 each, K = 4, q = 2.

    Bytes: 4,096,000 for Plump-DP, 1,032,000 for Quant-DP; for Slim-DP 8 + 1,024,000 + 2,048,000,
    and 512,000 of keys every other round. Seconds of coding: four sums at the server are
    4 * 1.024 * 5 ms = .02048; quantising is 1.024 * 19.15 ms = .0196096.
    """
    case = savings.Case("small", 1_024_000, 0.5, 0.25)
    codec = Codec.model_validate({"worker": {"quantise": "19150us"}, "ps": {"add": "5ms"}})
    cost = savings.costs(case, 4, 2, codec)
    plump, quant, slim = cost["plump-dp"], cost["quant-dp"], cost["slim-dp"]
    assert (plump.message_bytes, quant.message_bytes) == (4_096_000, 1_032_000)
    assert slim.message_bytes == 3_584_008
    assert plump.coding_seconds == pytest.approx(0.02048)
    assert quant.coding_seconds == pytest.approx(0.0400896)
    assert slim.coding_seconds == 0.0
    # 2 * 4 * 3,064,000 * 8 bits in .0196096 s, and 2 * 4 * 2,552,008 * 8 in .0400896 s
    assert savings.where_faster(quant, plump, 4) == "below 10 Gbit/s"
    assert savings.where_faster(plump, quant, 4) == "above 10 Gbit/s"
    assert savings.where_faster(slim, quant, 4) == "above 4.07 Gbit/s"
    assert savings.where_faster(slim, plump, 4) == "at any bandwidth"
    assert savings.where_faster(plump, slim, 4) == "at no bandwidth"
    # At the break-even bandwidth both take 2 * 4 * 4,096,000 * 8 / 10^10 + .02048 s.
    assert plump.seconds(4, 10.0) == pytest.approx(0.0466944)
    assert quant.seconds(4, 10.0) == pytest.approx(0.0466944)


def test_a_new_core_is_selected_every_q_rounds(savings: Any) -> None:
    """Of a million: 20 ms / 4 at the worker, 40 ms / 4 at the server; merged in 8, twice 2 ms."""
    case = savings.Case("small", 1_000_000, 0.5, 0.25)
    codec = Codec.model_validate(
        {"worker": {"select": "20ms", "merge": "8ms"}, "ps": {"select": "40ms", "merge": "2ms"}}
    )
    slim = savings.costs(case, 2, 4, codec)["slim-dp"]
    assert slim.coding_seconds == pytest.approx(0.005 + 0.010 + 0.008 + 2 * 0.002)


def test_the_program_prints_and_draws(
    savings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By bytes alone the larger messages never win; with slow quantising they do on fast links."""
    times = {"quantise": "6ms", "dequantise": "2ms"}
    codec = {size: {"worker": times, "ps": times} for size in (13_400_000, 138_357_544)}
    file, picture = tmp_path / "codec.json", tmp_path / "savings.png"
    file.write_text(json.dumps(codec), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["savings.py"])
    assert savings.main() == 0
    bare = capsys.readouterr().out
    arguments = ["savings.py", "--codec", str(file), "--picture", str(picture)]
    monkeypatch.setattr(sys, "argv", arguments)
    assert savings.main() == 0
    coded = capsys.readouterr().out
    assert "slim-dp is faster than quant-dp at no bandwidth" in bare
    assert "saves 74.80% by bytes" in bare
    # 1 / (1 - 0.1 0.748) = 1.081, 1 / (1 - 0.3 0.748) = 1.289, 1 / (1 - 0.5 0.748) = 1.597
    assert "quant-dp: 8%, 29%, 60% more images a second at 1 Gbit/s" in bare
    # 0.3 + 0.15 + 0.15 / q
    assert "slim-dp sends 0.600, 0.465, 0.453 of plump-dp's bytes with q = 1, 10, 50" in bare
    assert "inf" not in bare + coded
    assert coded.count("slim-dp is faster than quant-dp above") == 4
    assert picture.read_bytes().startswith(b"\x89PNG")
