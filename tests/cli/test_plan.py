"""``testbed plan``."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main
from testbed.cli.plan import gpu_lines
from testbed.plan.gpus import deal_gpus
from testbed.plan.make import plan
from testbed.scenario import load_text
from testbed.values.topology import Gpu
from testbed.values.units import Size

TEXT = """\
name: planned
algorithm: adacomp
model: adacomp-cnn
dataset: mnist
workers:
  count: 4
  classes:
    fast:
      {share: 0.75, cpu: 0.5, cpuset: 0-1, memory: 64MiB, link: {up: {rate: 10mbit, queue: 200ms}}}
    slow: {share: 0.25, link: {down: {rate: 1mbit, delay: 40ms}}}
stop: {updates: 100}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "planned.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["plan", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_compute_chosen_automatically(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", file, "--set", "compute=auto"]) == 0
    reason = "compute own, because of workers.classes.fast.cpu: 0.5"
    assert reason in capsys.readouterr().out.splitlines()
    chosen = as_json(capsys, file, "--set", "compute=auto")["compute"]
    assert chosen == {"name": "own", "why": reason.removeprefix("compute ")}


def test_a_plan_is_made_on_a_system_without_affinities(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")  # macOS has none
    settings = ("--set", "compute=shared", "--set", "workers.classes.fast={share: 0.75}")
    found = as_json(capsys, file, *settings)
    assert found["compute"]["name"] == "shared"


def test_a_setting_of_the_runtime_is_one_of_the_chosen_runtime(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the order of the options; another runtime that was set gives way."""
    hosts = ("--set", "runtime.hosts=nowhere")
    whole = ("--set", "runtime={docker: {hosts: local}}")
    for settings in (hosts, (*whole, *hosts), (*hosts, *whole)):
        assert main(["plan", file, *settings, "--runtime", "docker"]) == 2
        assert "found 'nowhere'" in capsys.readouterr().err
        assert main(["plan", file, *settings, "--runtime", "native"]) == 2
        assert "runtime.hosts: found an unknown key" in capsys.readouterr().err


def test_the_table_has_a_row_per_class(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["plan", file]) == 0
    printed = capsys.readouterr().out
    for text in (
        "w0 - w2",
        "10.77.0.2 - 10.77.0.4",
        "20010 - 20012",
        "no eth0",
        "0.5 on 0-1",
        "tbf rate 10mbit",
        "netem delay 40ms",
        "not shaped",
        "211,690 parameters",
    ):
        assert text in printed


GPU_TEXT = TEXT.replace("slow: {share: 0.25,", "slow: {share: 0.25, gpus: 0.5,")


def test_a_host_without_the_gpus_can_plan_and_says_what_up_would_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tmp_path / "asked.yaml"
    asked.write_text(GPU_TEXT.replace("gpus: 0.5", "gpus: 64"), encoding="utf-8")
    assert main(["plan", str(asked)]) == 0
    assert "gpu     `testbed up` will refuse this: w3 (class slow): gpus 64" in (
        capsys.readouterr().out
    )
    assert as_json(capsys, str(asked))["refused"].startswith("w3 (class slow): gpus 64, but")


def test_the_plan_says_who_has_which_gpu() -> None:
    made = plan(load_text(GPU_TEXT), "r")
    found = Gpu(1, "GPU-aa", "NVIDIA T400", Size(4e9), 0)
    dealt = deal_gpus(made, [found], vector=0)
    (line,) = gpu_lines(dealt, "")
    assert line == (
        "gpu     GPU 1 (NVIDIA T400, 4,000 MB): w3 0.5; CUDA contexts take up to 500 MB"
    )
    many = load_text(GPU_TEXT.replace("count: 4", "count: 40").replace("gpus: 0.5", "gpus: 0.1"))
    large = replace(found, memory=Size(9e9))
    (line,) = gpu_lines(deal_gpus(plan(many, "r"), [large], vector=0), "")
    first = ", ".join(f"w3{n} 0.1" for n in range(8))
    assert f": {first}, and 2 more: --json; CUDA contexts take up to 5,000 MB" in line


def test_json_has_every_node(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(capsys, file)
    assert [node["name"] for node in data["nodes"]] == ["ps", "evaluator", "w0", "w1", "w2", "w3"]
    evaluator, fast = data["nodes"][1:3]
    assert evaluator["link"] is None
    assert (fast["cpu"], fast["memory_bytes"], fast["device_class"]) == (0.5, 2**26, "fast")
    assert (fast["cpuset"], evaluator["cpuset"]) == ("0-1", None)
    assert (fast["link"]["address"], fast["link"]["mac"]) == ("10.77.0.2", "02:00:0a:4d:00:02")
    up = fast["link"]["up"]
    assert (up["rate_bits_per_second"], up["queue_seconds"]) == (10e6, 0.2)
    assert up["qdisc"].startswith("tbf rate 10mbit")
    assert fast["link"]["down"]["qdisc"] == "not shaped"
    assert data["budget"]["parameters"] == 211_690
    assert data["budget"]["host"]["cpus"] >= 1


@pytest.mark.parametrize("runtime", ["native", "docker"])
def test_the_requests_to_the_runtime(
    file: str,
    runtime: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")  # no engine is contacted
    data = as_json(capsys, file, "--runtime", runtime)
    assert data["runtime"] == runtime
    sent = {(request["to"], request["name"]): request["body"] for request in data["requests"]}
    launched = [name.removeprefix("launch ") for to, name in sent if name.startswith("launch ")]
    assert launched == [node["name"] for node in data["nodes"]]
    fast, slow = (sent[("agent", f"launch {name}")] for name in ("w0", "w3"))
    assert (fast["node"]["cpu"], fast["node"]["cpuset"]) == (0.5, "0-1")
    assert (slow["node"]["cpu"], slow["entry"]) == (None, "testbed.roles.worker:main")
    engines = [name.removeprefix("create ") for to, name in sent if to == "engine"]
    assert engines == (["the agent", *launched] if runtime == "docker" else [])
    assert main(["plan", file, "--runtime", runtime]) == 0
    assert "launch w0" not in capsys.readouterr().out
    assert main(["plan", file, "--runtime", runtime, "--requests"]) == 0
    printed = capsys.readouterr().out
    assert "launch w0" in printed
    assert "launch w1" not in printed  # like the first of its class except for name and addresses


def test_a_long_list_is_shortened_and_says_by_how_much(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    several = ("--runtime", "native", "--workers", "40")
    assert main(["plan", file, *several, "--requests"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if "neighbours" in line)
    assert "10.77.0.2" in lines[at] and "10.77.0.9" in lines[at + 7]
    assert "and 32 more: --json" in lines[at + 8]
    assert max(map(len, lines)) < 155
    ps = as_json(capsys, file, *several)["requests"][1]["body"]
    assert len(ps["neighbours"]) == 40


def test_values_only_known_at_the_start(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, file, "--runtime", "auto")["requests"] == []
    assert main(["plan", file, "--runtime", "auto"]) == 0
    assert "runtime auto: chosen by `testbed up`" in capsys.readouterr().out


def test_options_change_the_scenario(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(capsys, file, "--workers", "8", "--set", "model=digits-cnn")
    assert len(data["nodes"]) == 10
    assert data["budget"]["parameters"] != 211_690


def test_the_plan_of_a_simulation_says_what_it_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    path = tmp_path / "virtual.yaml"
    path.write_text(
        "name: virtual\nruntime: simulated\nalgorithm: asgd\nmodel: digits-cnn\ndataset: digits\n"
        "workers: {count: 3, classes: {a: {speed: 20ms, link: {up: {rate: 1mbit, delay: 5ms}}}}}\n"
        "stop: {updates: 10}\n"
    )
    assert main(["plan", str(path)]) == 0
    printed = capsys.readouterr().out
    for text in ("SIMULATED", "1mbit, 5ms", "0.02 s", "150.0 updates/s", "max-min", "left out"):
        assert text in printed
    assert "10.77.0." not in printed
    data = as_json(capsys, str(path))
    assert (data["runtime"], data["classes"][0]["workers"]) == ("simulated", 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "--workers 0: workers.count: found 0"),
        (["--workers", "1023"], "--workers 1023: workers.count: found 1,023, expected at most"),
        (["--set", "workers.cuont=3"], "--set workers.cuont=3: workers.cuont: found an unknown"),
        (["--set", "stop"], "--set stop: found no path=value"),
    ],
)
def test_an_invalid_option_is_named(
    arguments: list[str], message: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", file, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_plan_has_no_side_effects(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    as_json(capsys, file)
    assert [path.name for path in tmp_path.iterdir()] == ["planned.yaml"]


def test_it_shows_when_the_nodes_of_a_workload_are_present(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "away.csv").write_text("time_seconds,available\n0,1\n2,0\n5,1\n9,1\n")
    presence = "{trace: away.csv, then: hold, offset: none}"
    path = tmp_path / "s.yaml"
    program = f"{{command: [work], availability: {presence}, when_absent: freeze}}"
    path.write_text(f"name: s\nworkload: {{job: {program}}}\n")
    assert as_json(capsys, str(path))["availability"] == [
        {
            **{"node": "job", "present_at_start": True, "when_absent": "freeze"},
            "first_changes_seconds": [2.0, 5.0],
        }
    ]
    assert main(["plan", str(path)]) == 0
    assert "present      │ 2.0 s, 5.0 s  │ freeze" in capsys.readouterr().out
