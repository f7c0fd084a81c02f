"""Every rule of the verdict, on both sides of its threshold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from testbed.algorithms.frame.stop import stall
from testbed.reports.measurements import ClockDrift, Flow, Measurements, Pace
from testbed.reports.verdict import RULES, judge
from testbed.telemetry.event_kinds import RateMeasured, RoundTripMeasured

GOOD: dict[str, Any] = {
    "state": "finished",
    "busy_share_ratio": 0.0,
    "late_steps_ratio": 0.0,
    "late_requests_ratio": 0.0,
    "gaps": {},
    "differences": (),
    "ingress": Flow(1000, 1000, 0, 1660, 1660),
    "egress": Flow(1000, 1000, 0, 1660, 1660),
}


def reasons(**changes: Any) -> tuple[str, ...]:
    verdict = judge(Measurements(**(GOOD | changes)))
    assert verdict.valid == (not verdict.reasons)
    return verdict.reasons


def test_a_good_run_is_valid_and_everything_was_checked() -> None:
    verdict = judge(Measurements(**GOOD))
    assert verdict.valid
    assert verdict.unchecked == ()


def test_missing_measurements_are_reported_and_do_not_invalidate_the_run() -> None:
    verdict = judge(Measurements("finished"))
    assert verdict.valid
    assert verdict.unchecked == (
        "the load of the host",
        "the links' qdiscs",
        "the PS's traffic",
        "gaps in the nodes' execution",
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"state": "failed", "reason": "w1 did not join"}, "The run failed: w1"),
        (
            {"state": "failed", "reason": "found nan, expected a number from value()."},
            "from value(). Fix the cause",
        ),
        ({"state": "interrupted"}, "The run was interrupted. Fix the cause"),
        ({"state": "training", "alive": True}, "The run is still active."),
        ({"state": "training"}, "its controller died in state training."),
        ({"attended": False}, "The run finished after its controller had died"),
    ],
)
def test_a_run_must_reach_its_end(changes: dict[str, Any], reason: str) -> None:
    (found,) = reasons(**changes)
    assert reason in found


def warnings(**changes: Any) -> tuple[str, ...]:
    verdict = judge(Measurements(**(GOOD | changes)))
    assert verdict.valid
    return verdict.warnings


def test_a_busy_host_alone_is_a_warning() -> None:
    assert warnings(busy_share_ratio=0.1) == ()
    assert warnings(busy_share_ratio=1.0, paced=False) == ()
    (found,) = warnings(busy_share_ratio=0.101)
    assert found.startswith("The host was more than 90% busy during 10.10% of the run. This alone")
    (found,) = warnings(busy_share_ratio=0.5, pressure_ratio=0.75)
    assert "50.00% of the run, and processes waited for a CPU during 75.00% of it." in found


def test_a_change_of_the_wall_clock_is_a_warning() -> None:
    (found,) = warnings(clock_set_seconds=[-3600.0])
    assert "wall clock was set by -3,600.0 s" in found


def test_pressure_decides_without_measurements_of_lateness() -> None:
    blind = {"late_steps_ratio": None, "late_requests_ratio": None, "busy_share_ratio": 0.2}
    assert len(warnings(**blind)) == 1
    assert len(warnings(**blind, pressure_ratio=0.5)) == 1
    assert reasons(**blind, pressure_ratio=0.9, paced=False) == ()
    verdict = judge(Measurements(**(GOOD | blind | {"pressure_ratio": 0.51})))
    (found,) = verdict.reasons
    assert found.startswith(
        "No class has a speed, and processes waited for a CPU during 51.00% of the run "
        "(50% is allowed)"
    )
    assert verdict.warnings == ()


def test_gaps() -> None:
    assert reasons(gaps={"ps": 1.5, "w1": 1.5}) == ()
    server, worker = reasons(gaps={"w7": 3.04, "ps": 45.0})
    assert server.startswith(
        "The parameter server did not execute for 45.0 s without a planned fault (1.5 s is "
        "allowed). If "
    )
    assert worker.startswith(
        "w7 did not execute for 3.0 s without a planned fault (1.5 s is allowed). If "
    )


def test_gaps_of_many_workers_are_counted() -> None:
    (found,) = reasons(gaps={"w0": 1.0, "w1": 2.5, "w2": 45.0, "w3": 3.0})
    assert found.startswith(
        "3 workers did not execute for up to 45.0 s (w2) without a planned fault (1.5 s is "
        "allowed). "
    )


def test_late_steps() -> None:
    assert reasons(late_steps_ratio=0.05) == ()
    assert reasons(late_steps_ratio=None) == ()
    assert reasons(late_steps_ratio=0.051, latest_class="slow") == (
        "5.10% of the training steps took longer than the step time that the `speed` of their "
        "class sets (5% is allowed). Set a longer time in workers.classes.slow.speed, lower "
        "time_scale, or use fewer workers.",
    )


def test_late_requests() -> None:
    assert reasons(late_requests_ratio=0.05) == ()
    assert reasons(late_requests_ratio=None) == ()
    assert reasons(late_requests_ratio=0.051) == (
        "For 5.10% of the requests, the parameter server took longer than the service time "
        "`ps.service` (5% is allowed). Set a longer ps.service, lower time_scale, or use fewer "
        "workers.",
    )


def test_the_pace_of_the_workers() -> None:
    assert reasons(pace=Pace(0.1, 0.105)) == ()
    assert reasons(pace=Pace(0.01, 0.0119)) == ()  # 2 ms are allowed where 5 % are less
    assert reasons(pace=Pace(0.1, 0.1089, error_seconds=0.001)) == ()  # and four standard errors
    assert reasons(pace=Pace(0.1, 0.05)) == ()
    assert reasons(pace=Pace(0.1, 0.2), paced=False) == ()
    assert reasons(pace=Pace(0.1, 0.107)) == (
        "Steps and think times took 107.0 ms per update, 7.00% more than the configured 100.0 ms "
        "(5.0 ms more is allowed, in addition to the random variation). Lower time_scale, set a "
        "longer `speed` of the classes or workers.think.mean, or use fewer workers.",
    )


def test_qdiscs_as_configured() -> None:
    difference = "w3 up: limit_bytes: configured 125000, the kernel has 3000"
    (found,) = reasons(differences=[difference])
    assert found.startswith(f"A link in the kernel differs from the plan: {difference}. If ")


def test_rates() -> None:
    name = "class slow"
    allowed = [RateMeasured(f"{name} up", 10e6, 9.5e6), RateMeasured(f"{name} down", 10e6, 10.5e6)]
    assert reasons(rates=allowed) == ()
    assert reasons(rates=[RateMeasured(f"{name} up", 10e6, 9.4e6)]) == (
        "class slow up: the measured rate of 9.4 mbit/s differs by 6.00% from the configured "
        "10 mbit/s (5% is allowed). If the host was too busy to measure it, run the scenario "
        "again; otherwise lower workers.classes.slow.link.up.rate, or time_scale, which multiplies "
        "rates.",
    )
    (fast,) = reasons(rates=[RateMeasured(f"{name} down", 10e6, 10.6e6)])
    assert "workers.classes.slow.link.down.rate is too high for the kernel's timers" in fast


def test_a_rate_that_the_host_could_not_send_is_unchecked() -> None:
    verdict = judge(Measurements(**(GOOD | {"rates": [RateMeasured("class a up", 1e9, None)]})))
    assert verdict.valid
    (unchecked,) = verdict.unchecked
    assert unchecked == "the rate of class a up, because the host cannot send that fast"


def test_round_trips() -> None:
    allowed = [
        RoundTripMeasured("class a", 0.0, 0.001),  # a millisecond is allowed where 5 % are less
        RoundTripMeasured("class b", 0.1, 0.1049),
        RoundTripMeasured("class c", 0.1, 0.1089, error_seconds=0.001),  # and four standard errors
    ]
    assert reasons(round_trips=allowed) == ()
    assert reasons(round_trips=[RoundTripMeasured("class slow", 0.04, 0.0425)]) == (
        "class slow: the measured round trip of 42.50 ms differs by 2.50 ms from the configured "
        "40.00 ms (2.00 ms is allowed, in addition to the variation by jitter). If the host was "
        "too busy for accurate timers, run the scenario again; otherwise set a longer `delay`, or "
        "lower time_scale, which lengthens delays in real time.",
    )


def test_a_training_that_could_not_continue() -> None:
    assert reasons(stalled="stalled: 11 workers wait for w3") == (
        "The training stalled: 11 workers wait for w3. This algorithm waits for workers that "
        "neither push nor leave; set `ps.dead_after` to remove such workers.",
    )


def test_a_training_that_awaits_no_worker_does_not_blame_one() -> None:
    """All devices of a round of ScaDLES had silent streams: none will push or leave."""
    (reason,) = reasons(stalled=stall(3, (), silent=0))
    assert reason.startswith("The training stalled: 3 workers wait for no worker. With `streams`,")
    assert "streams.stream_timeout" in reason
    assert "dead_after" not in reason


def test_a_training_without_workers_does_not_blame_a_barrier() -> None:
    """Asynchronous SGD with all workers crashed: it waited for none."""
    assert reasons(stalled=stall(0, (), silent=200)) == (
        "The training stalled: no worker is left that could push (200 silent, the others have "
        "left). Let fewer workers crash or leave, or set an earlier `stop`.",
    )


def test_nodes() -> None:
    assert reasons(lost=[("w2", "killed by signal 9")], rejected=[("w1", "NaN")]) == (
        "A push of w1 was rejected: NaN.",
        "w2 was lost before the end: killed by signal 9. Check its output: logs/w2.log.",
    )
    assert reasons(lost=[("w2", "its container was stopped or removed")], removed={"w2"}) == (
        "w2 was lost before the end: its container was stopped or removed. Run the scenario again, "
        "and do not stop or remove its containers.",
    )


def test_hundreds_of_nodes_are_summarized() -> None:
    rejected = [(f"w{index}", "NaN") for index in range(101)]
    assert reasons(rejected=rejected[:3]) == tuple(
        f"A push of w{index} was rejected: NaN." for index in range(3)
    )
    assert reasons(rejected=rejected[:4])[3:] == ("A push of w3 was rejected: NaN.",)
    assert reasons(rejected=rejected)[2:] == (
        "A push of w2 was rejected: NaN.",
        "Pushes of 98 other nodes were rejected, too.",
    )
    different = [f"w{index} up: rate" for index in range(8)]
    assert reasons(differences=different)[3:] == ("There are 5 more such differences.",)


def test_omissions() -> None:
    (found,) = reasons(left_out=["w0 up: delay 30ms"])
    assert "support them: w0 up: delay 30ms. Use a kernel with netem" in found


@pytest.mark.parametrize(
    ("side", "first", "second"),
    [
        ("ingress", "workers.classes.far.link.up", "ps.link.down"),
        ("egress", "ps.link.up", "workers.classes.slow.link.down"),
    ],
)
def test_retransmissions(side: str, first: str, second: str) -> None:
    assert reasons(**{side: Flow(1000, 1000, 50, 1660, 1660)}) == ()
    assert reasons(slowest_classes=("far", "slow"), **{side: Flow(1000, 1000, 51, 1660, 1660)}) == (
        f"{side} of the parameter server: 51 of 1,000 TCP bytes were retransmitted, 5.10% (5% is "
        f"allowed). Give {first} or {second} a longer `queue` or a higher `rate`, use fewer "
        "workers, or configure less `loss`.",
    )


@pytest.mark.parametrize("side", ["ingress", "egress"])
def test_payload_must_not_exceed_the_socket_bytes(side: str) -> None:
    assert reasons(**{side: Flow(1001, 1000, 0, 1660, 1660)}) == (
        f"{side} of the parameter server: the updates have 1,001 payload bytes, more than the "
        "1,000 bytes that the sockets carried. One of these counts is wrong: run the scenario "
        "again.",
    )


def test_the_interface_and_the_sockets_must_agree() -> None:
    assert reasons(ingress=Flow(0, 1000, 0, 10_000, 9_900)) == ()
    assert reasons(ingress=Flow(0, 1000, 0, 10_000, 10_100)) == ()
    assert reasons(ingress=Flow(0, 1000, 0, 10_000, 9_899)) == (
        "ingress of the parameter server: the interface counted 10,000 bytes, but 9,899 are "
        "expected from the bytes of the sockets, a difference of 1.01% (1% is allowed). Avoid "
        "traffic of other programs or of `testbed exec` on the parameter server's link.",
    )
    assert len(reasons(ingress=Flow(0, 1000, 0, 10_000, 10_101))) == 1


def test_senders_of_unexplained_bytes_are_named() -> None:
    """6,000 extra bytes: those who sent at least a third of them, the largest first."""
    sent = {"loud": 5_000, "w3": 2_000, "w1": 1_999, "w0": -10}
    (reason,) = reasons(ingress=Flow(0, 1000, 0, 10_000, 4_000), sent_beyond=sent)
    assert "in addition to pushes: loud 5,000, w3 2,000. Avoid" in reason


def test_duplicate_pushes_explain_extra_bytes_but_no_missing_ones() -> None:
    assert reasons(ingress=Flow(0, 10_000, 400, 20_000, 19_400)) == ()
    assert len(reasons(ingress=Flow(0, 10_000, 400, 20_000, 19_399))) == 1
    assert len(reasons(ingress=Flow(0, 10_000, 400, 20_000, 20_201))) == 1


def test_no_bytes_were_carried() -> None:
    assert reasons(ingress=Flow(0, 0, 0, 0, 0), egress=Flow()) == ()


def test_a_run_without_an_update_is_not_valid() -> None:
    reason = "diverged: loss is nan at version 0"
    verdict = judge(Measurements("finished", reason=reason, updates=0))
    assert verdict.reasons == (
        f"No update was applied: {reason}. If the model, its data or the algorithm is your own "
        "code, try `testbed check FILE`; otherwise set a smaller learning rate.",
    )
    assert verdict.warnings == ()
    verdict = judge(Measurements("finished", reason="no worker joined", updates=0))
    assert verdict.reasons == (
        "No update was applied: no worker joined. Set a later `stop` or a smaller learning rate.",
    )


def test_a_training_that_diverged_is_valid_with_a_warning() -> None:
    (found,) = warnings(reason="diverged: loss is nan at version 50", updates=50)
    assert found.startswith("The training diverged: loss is nan at version 50. ")
    assert "a smaller learning rate" in found
    assert warnings(reason="60 updates applied", updates=60) == ()


def test_a_cycle_dominated_by_the_host() -> None:
    assert reasons(unexplained_ratio=0.2) == ()
    assert reasons(unexplained_ratio=0.201) == (
        "The host caused 20.10% of the time between two pushes of a worker: it was neither step, "
        "nor think time, nor transfer, nor waiting for the algorithm (20% is allowed). Such delays "
        "change the distribution of staleness. Lower time_scale, set a longer workers.think.mean, "
        "or use fewer workers.",
    )
    assert reasons(unexplained_ratio=0.9, paced=False) == ()


def test_waits_that_lasted_longer_than_drawn() -> None:
    """Next to long steps that hide them in the pace; the draws are known: no error is allowed."""
    assert reasons(slept=Pace(0.1, 0.105)) == ()
    assert reasons(slept=Pace(0.01, 0.0119)) == ()  # 2 ms, for timers and the scheduler
    assert reasons(slept=Pace(0.1, 0.2), paced=False) == ()
    assert reasons(pace=Pace(1.1, 1.107), slept=Pace(0.1, 0.107)) == (
        "Think times took 107.0 ms per update, 7.00% more than the configured 100.0 ms (5.0 ms "
        "more is allowed). Lower time_scale, set a longer workers.think.mean, or use fewer "
        "workers.",
    )


def test_the_clock_of_another_host_may_drift_by_50_ms_and_the_error_of_measuring_it() -> None:
    assert reasons(clocks=[ClockDrift("b", 0.05, 0.0), ClockDrift("c", 0.06, 0.02)]) == ()
    (found,) = reasons(clocks=[ClockDrift("b", 0.0512, 0.001)])
    assert found.startswith("The clock of host b moved by 51.2 ms against that of")
    assert "timedatectl set-ntp true" in found


def test_a_busy_host_among_several_is_a_warning() -> None:
    assert warnings(busy_hosts={"b": 0.1}) == ()
    assert warnings(busy_hosts={"b": 0.5}, paced=False) == ()
    (found,) = warnings(busy_hosts={"a": 0.0, "b": 0.5})
    assert found.startswith("Host b was more than 90% busy during 50.00% of the run.")


def test_producers_may_miss_a_twentieth_of_the_due_samples() -> None:
    assert reasons(lag={"producer0": 0.05}) == ()
    (found,) = reasons(lag={"producer0": 0.02, "producer1": 0.0523})
    assert found.startswith("producer1 had not sent 5.23% of the samples that were due")


def test_the_page_lists_the_rules() -> None:
    page = (Path(__file__).parents[2] / "docs" / "trust.md").read_text(encoding="utf-8")
    rules = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert list(dict.fromkeys(rules)) == list(RULES)
