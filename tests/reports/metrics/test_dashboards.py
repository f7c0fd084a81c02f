"""The files shipped for Prometheus and Grafana are valid, and the dashboards match the code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cli import main
from testbed.reports.metrics.declared import METRICS

COMPOSE = Path(__file__).parents[3] / "compose"
DASHBOARDS = sorted((COMPOSE / "grafana" / "dashboards").glob("*.json"))
RULES = COMPOSE / "prometheus" / "rules.yml"
HISTOGRAM = re.compile("_(bucket|sum|count)$")


def test_the_dashboards_match_the_code() -> None:
    command = [sys.executable, str(COMPOSE / "grafana" / "generate.py"), "--check"]
    checked = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def recorded() -> set[str]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


@pytest.mark.parametrize("file", [*DASHBOARDS, RULES], ids=lambda file: file.stem)
def test_only_existing_metrics_are_queried(file: Path) -> None:
    names = {HISTOGRAM.sub("", name) for name in re.findall(r"\btestbed_[a-z_]+", file.read_text())}
    known = {one.name for one in METRICS}
    assert names - {re.sub("^.*?:|:.*$", "", name) for name in recorded()} <= known


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_can_be_read(file: Path) -> None:
    page = json.loads(file.read_text())
    variables = [one["name"] for one in page["templating"]["list"]]
    assert variables == ["run", "class", "worker"]
    panels = [one for one in page["panels"] if one["type"] != "row"]
    assert 6 <= len(panels) <= 20
    for panel in panels:
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
    assert {one["name"] for one in page["annotations"]["list"]} == {"faults", "link changes"}


@pytest.mark.parametrize(
    ("variable", "value", "status", "told"),
    [
        ("TESTBED_PROMETHEUS_PORT", "abc", 2, "set TESTBED_PROMETHEUS_PORT to a number from 1 to"),
        ("TESTBED_PROMETHEUS_PORT", "99999", 2, "set TESTBED_PROMETHEUS_PORT to a number from 1"),
        ("TESTBED_GRAFANA_PORT", "0", 2, "set TESTBED_GRAFANA_PORT to a number from 1 to 65535"),
        ("XDG_STATE_HOME", "/proc/x", 3, "cannot be written to: set XDG_STATE_HOME to a folder of"),
    ],
)
def test_an_invalid_port_or_folder_is_one_line(
    variable: str,
    value: str,
    status: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv(variable, value)
    assert main(["dashboards", "up"]) == status
    (line,) = capfd.readouterr().err.splitlines()
    assert told in line
    assert list(tmp_path.iterdir()) == []


def test_the_record_of_a_killed_prometheus_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    record = tmp_path / "testbed" / "prometheus.pid"
    record.parent.mkdir()
    record.write_text(f"{2**31}\n")  # no process has this number
    assert main(["dashboards", "down"]) == 0
    assert not record.exists()
    assert capfd.readouterr().err == ""


def test_now_is_too_late_to_add_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboards", "add", "first", "--at", "now"]) == 2
    told = "'--at': found 'now', expected `run` or a time like 2026-"
    assert told in capsys.readouterr().err


def test_only_this_host_reaches_the_services() -> None:
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    for service in services.values():
        assert service["read_only"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"])
    assert "--web.listen-address=127.0.0.1" in " ".join(services["prometheus"]["command"])
    grafana = services["grafana"]["environment"]
    assert grafana["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert ":?" in grafana["GF_SECURITY_ADMIN_PASSWORD"]  # there is no default


@pytest.mark.slow
def test_compose_reads_the_file(tmp_path: Path) -> None:
    """Debian's 1.29, or version 2: both check the file against the schema of Compose's format."""
    command = ["docker", "compose"]
    if subprocess.run([*command, "version"], check=False, capture_output=True).returncode:
        command = ["docker-compose"]
        if shutil.which(*command) is None:
            pytest.skip("needs Docker Compose: apt install docker-compose")
    variables = {"USER": "1:1", "STATE": str(tmp_path), "GRAFANA_PASSWORD": "secret"}
    command += ["--file", str(COMPOSE / "compose.yaml"), "config"]
    environment = {f"TESTBED_{name}": value for name, value in variables.items()}

    def config(**given: str) -> subprocess.CompletedProcess[str]:
        path = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        return subprocess.run(
            command, check=False, capture_output=True, text=True, env=path | given
        )

    read = config(**environment)
    assert read.returncode == 0, read.stderr
    services = yaml.safe_load(read.stdout)["services"]
    assert services["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"] == "secret"
    assert "--web.listen-address=127.0.0.1:9090" in services["prometheus"]["command"]
    unset = config()
    assert unset.returncode != 0
    assert "run testbed dashboards up" in unset.stderr


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool: apt install prometheus")
    command = ["promtool", *arguments]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=COMPOSE / "prometheus"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "rules.yml"),
        ("test", "rules", "tests.yml"),
    ],
    ids=" ".join,
)
def test_promtool_finds_no_errors(arguments: tuple[str, ...]) -> None:
    checked = promtool(*arguments)
    assert checked.returncode == 0, checked.stdout + checked.stderr


GROWS = {
    'testbed_faults_total{run="r", fault="freeze"}': "0 0 0 1 1 1 1 3 3 3 3 3 3",
    'testbed_faults_total{run="r", fault="crash"}': "_ _ 1 1 1 1 1 1 1 1 1 1 1",
    'testbed_link_changes_total{run="r", algorithm="a"}': "0 0 0 0 0 0 0 0 0 0 0 0 2",
}
"""Scrapes every 5 s: nodes freeze after 10 s and 30 s; a crash is there at the first scrape."""

MARKS = {
    5: {"freeze": {15: 1, 35: 2}, "crash": {10: 1}, "link change": {60: 2}},
    10: {"freeze": {20: 1, 40: 2}, "crash": {10: 1}, "link change": {60: 2}},
    30: {"freeze": {30: 1, 60: 2}, "crash": {30: 1}, "link change": {60: 2}},
}
"""By the interval of the evaluations: when each is marked, and with which value."""


@pytest.mark.parametrize("interval", MARKS)
def test_every_fault_and_change_has_one_marker(interval: int, tmp_path: Path) -> None:
    page = json.loads(DASHBOARDS[0].read_text())
    notes = {one["name"]: one for one in page["annotations"]["list"]}
    faults, changes = notes["faults"], notes["link changes"]
    assert {one["step"] for one in notes.values()} == {"5s"}  # by default, Grafana takes 60 s
    assert (faults["titleFormat"], changes["titleFormat"]) == ("{{fault}}", "link change")
    assert {one["tagKeys"] for one in notes.values()} == {"run"}
    marks = MARKS[interval]
    labels = {kind: f'{{run="r", fault="{kind}"}}' for kind in ("crash", "freeze")}
    labels["link change"] = '{run="r"}'
    asked = [
        {
            "expr": note["expr"].replace("$run", "r").replace("$__interval", f"{interval}s"),
            "eval_time": f"{time}s",
            "exp_samples": [
                {"labels": labels[kind], "value": marks[kind][time]}
                for kind in kinds
                if time in marks[kind]
            ],
        }
        for note, kinds in ((faults, ("crash", "freeze")), (changes, ("link change",)))
        for time in range(0, 61, interval)
    ]
    expect(asked, GROWS, tmp_path / "tests.yml")


def expect(asked: list[dict[str, Any]], scraped: Mapping[str, str], file: Path) -> None:
    """Evaluate expressions with Prometheus's own tool, for scrapes every 5 s."""
    series = [{"series": name, "values": values} for name, values in scraped.items()]
    test = {"interval": "5s", "input_series": series, "promql_expr_test": asked}
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}))
    checked = promtool("test", "rules", str(file))
    assert checked.returncode == 0, checked.stdout + checked.stderr


EVERY_SCRAPE = {
    'accuracy_ratio{{{run}, top="1"}}': ("0.25x24", "0.5x24"),
    'accuracy_ratio{{{run}, top="5"}}': ("0.75x24", "0.75x24"),
    "loss{{{run}}}": ("2x24", "1x24"),
    'updates_total{{{run}, class="fast"}}': ("0+10x24", "0+20x24"),
    'updates_total{{{run}, class="slow"}}': ("0+5x24", "0+10x24"),
    'payload_bytes_total{{{run}, class="fast", direction="up"}}': ("0+10x24", "0+40x24"),
    'payload_bytes_total{{{run}, class="slow", direction="up"}}': ("0+20x24", "0+40x24"),
    'payload_bytes_total{{{run}, class="slow", direction="down"}}': ("0+1x24", "0+1x24"),
    'staleness_updates_sum{{{run}, class="fast"}}': ("0+10x24", "0+30x24"),
    'staleness_updates_sum{{{run}, class="slow"}}': ("0+20x24", "0+60x24"),
    'staleness_updates_count{{{run}, class="fast"}}': ("0+10x24", "0+10x24"),
    'staleness_updates_count{{{run}, class="slow"}}': ("0+5x24", "0+5x24"),
    'worker_cycle_seconds_total{{{run}, worker="w0", activity="blocked"}}': ("0+1x24", "0+2x24"),
    'worker_cycle_seconds_total{{{run}, worker="w1", activity="compute"}}': ("0+3x24", "0+2x24"),
    'verdict_reasons{{{run}, rule="gap"}}': ("1x24", "0x24"),
    'verdict_reasons{{{run}, rule="rate"}}': ("2x24", "0x24"),
}
"""By metric: what two runs of one algorithm have every five seconds, for two minutes."""

COMPARED = {
    "Accuracy": (0.25, 0.5),
    "Loss": (2, 1),
    "Updates": (360, 720),
    "Ingress": (720, 1920),
    "Mean staleness": (2, 6),
    "Updates a second": (3, 6),
    "Blocked": (0.25, 0.5),
    "Reasons against them": (3, 0),
}
"""By panel: what the two runs have after two minutes."""


TWO_RUNS = {
    "names": [f'run="a-{number}", algorithm="asgd"' for number in (1, 2)],
    "folders": [
        f'run="a-1", algorithm="asgd", instance="127.0.0.1:950{number}"' for number in (0, 1)
    ],
}
"""Two names of runs that are added, and one name of two live runs."""


@pytest.mark.parametrize("differ", TWO_RUNS)
def test_runs_of_one_algorithm_are_compared_and_not_added(differ: str, tmp_path: Path) -> None:
    page = json.loads((COMPOSE / "grafana" / "dashboards" / "compare.json").read_text())
    queries = {panel["title"]: panel["targets"] for panel in page["panels"]}
    assert queries.keys() == COMPARED.keys()
    for targets in queries.values():
        legends = [target["legendFormat"] for target in targets]
        assert legends == ["{{run}} ({{algorithm}}) {{instance}}"]
    runs = TWO_RUNS[differ]
    scraped = {
        "testbed_" + metric.format(run=run): values[number]
        for metric, values in EVERY_SCRAPE.items()
        for number, run in enumerate(runs)
    }
    named = {
        "Accuracy": 'testbed_accuracy_ratio{{{run}, top="1"}}',
        "Loss": "testbed_loss{{{run}}}",
    }
    asked = [
        {
            "expr": queries[title][0]["expr"].replace("$run", "a-.*"),
            "eval_time": "2m",
            "exp_samples": [
                {"labels": named.get(title, "{{{run}}}").format(run=run), "value": value}
                for run, value in zip(runs, values, strict=True)
            ],
        }
        for title, values in COMPARED.items()
    ]
    expect(asked, scraped, tmp_path / "tests.yml")


def test_workers_that_have_left_do_not_count_as_long_without_an_update(tmp_path: Path) -> None:
    page = json.loads((COMPOSE / "grafana" / "dashboards" / "devices.json").read_text())
    (panel,) = (one for one in page["panels"] if one["title"] == "Longest without an update")
    expression = re.sub(r"\$(run|class|worker)", ".*", panel["targets"][0]["expr"])
    labels = {name: f'{{run="r", class="fast", worker="{name}"}}' for name in ("w0", "w1", "w2")}
    age, state = "testbed_worker_push_age_seconds", "testbed_worker_state"
    left, frozen, running = labels.values()
    scraped = {f"{age}{left}": "60x9", f"{age}{frozen}": "7x9", f"{age}{running}": "1x9"}
    scraped |= {f"{state}{left}": "4x9", f"{state}{frozen}": "2x9", f"{state}{running}": "1x9"}
    found = {frozen: 7, running: 1}
    samples = [{"labels": f"{age}{one}", "value": value} for one, value in found.items()]
    asked = [{"expr": expression, "eval_time": "30s", "exp_samples": samples}]
    expect(asked, scraped, tmp_path / "tests.yml")


def test_every_alert_is_tested_silent_and_firing() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    tried: dict[str, set[bool]] = {}
    for test in yaml.safe_load((COMPOSE / "prometheus" / "tests.yml").read_text())["tests"]:
        for one in test.get("alert_rule_test", ()):
            tried.setdefault(one["alertname"], set()).add(bool(one["exp_alerts"]))
    assert tried.keys() == alerts
    # The alert for links is silent about the one that is 4 % off, and fires for the other.
    assert all(fires == {True, False} for name, fires in tried.items() if name != "LinkOffSpec")
