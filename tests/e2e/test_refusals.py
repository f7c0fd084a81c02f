"""Inputs that `up` refuses first: one message, the next thing to type, and no folder."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.network.netem import kernel_has_netem

pytestmark = pytest.mark.root

DELAY = ("--set", "workers.classes.fast.link.up.delay=20ms")


def nothing_was_made(bed: Any) -> bool:
    return not bed.runs.exists() and not (bed.path / "state").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["nope.yaml"], 2, "nope.yaml: found no such file"),
        (["tiny.yaml", "--set", "seeed=1"], 2, "Did you mean seed?"),
        (["tiny.yaml", "--set", "time_scale=auto"], 2, "time_scale: found 'auto'"),
        (["tiny.yaml", "--workers", "0"], 2, "workers.count: found 0"),
        (["tiny.yaml", "--workers", "1023"], 2, "expected at most 1,022 workers"),
        (["tiny.yaml", "--runtime", "podman"], 2, "runtime: found 'podman', expected"),
        (["tiny.yaml", "--name", "Bad Name"], 2, "--name: found 'Bad Name', expected 1 to 60"),
        (["tiny.yaml", "--name", "-x"], 2, "--name: found '-x', expected 1 to 60"),
        (["tiny.yaml", "--runs", "/proc/nowhere"], 3, "Choose another folder with --runs."),
        (
            ["tiny.yaml", "--runs", "tiny.yaml"],
            3,
            "the run folder cannot be created: Not a directory",
        ),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, list) else None,
)
def test_refused(bed: Any, arguments: list[str], status: int, message: str) -> None:
    done = bed.run("up", *arguments)
    assert (done.status, done.out) == (status, "")
    assert message in done.err
    assert "Traceback" not in done.err
    assert nothing_was_made(bed)


def test_a_delay_without_netem_is_refused(bed: Any) -> None:
    if kernel_has_netem():
        pytest.skip("this kernel has netem")
    done = bed.run("up", "tiny.yaml", *DELAY)
    assert (done.status, done.out) == (3, "")
    first, hint = done.err.splitlines()
    assert first == "this kernel has no netem, which is needed for class fast: up.delay 20ms."
    assert "CONFIG_NET_SCH_NETEM" in hint
    assert nothing_was_made(bed)


@pytest.mark.slow
def test_a_run_without_netem_and_with_a_warning(bed: Any) -> None:
    if kernel_has_netem():
        pytest.skip("this kernel has netem")
    up = bed.up(*DELAY, "--set", "network.missing=warn")
    done = up.end()
    assert (done.status, done.err) == (6, "")
    skipped = "Some link settings were skipped (network.missing: warn)"
    why = "because the kernel does not support them: class fast: up.delay 20ms. "
    reasons = bed.run("report", up.name, "--json").json["verdict"]["reasons"]
    assert any(reason.startswith(f"{skipped}, {why}") for reason in reasons)


def test_a_name_in_use_is_refused(bed: Any) -> None:
    name = bed.new_name()
    (bed.runs / name).mkdir(parents=True)
    done = bed.run("up", "tiny.yaml", "--name", name)
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        f"--name: found {name}, expected a name that no run uses. Choose another name, or remove "
        f"{bed.runs / name}.\n"
    )
    assert list((bed.runs / name).iterdir()) == []
