from __future__ import annotations

from pathlib import Path

import pytest

from testbed.telemetry.host import (
    CpuTimes,
    HostSampler,
    Waiting,
    busy_ratio,
    parse_cpu_model,
    parse_meminfo,
    parse_pressure,
    parse_stat,
    pressure_ratio,
)

#              user nice system idle iowait irq softirq steal guest guest_nice
STAT = "cpu  100  10   50     800  20     3   7       10    40    5\ncpu0 1 2 3 4\nintr 5\n"


def test_guest_time_is_not_counted_twice_and_iowait_is_idle() -> None:
    assert parse_stat(STAT) == CpuTimes(busy=100 + 10 + 50 + 3 + 7 + 10, total=1000)


def test_an_old_kernel_has_four_columns() -> None:
    assert parse_stat("cpu 1 2 3 4") == CpuTimes(busy=6, total=10)


@pytest.mark.parametrize("text", ["", "cpu0 1 2 3 4", "cpu 1 2"])
def test_an_unknown_format(text: str) -> None:
    with pytest.raises(ValueError, match="not /proc/stat"):
        parse_stat(text)


def test_a_share_is_between_two_readings() -> None:
    assert busy_ratio(CpuTimes(100, 1000), CpuTimes(130, 1040)) == 0.75
    assert busy_ratio(CpuTimes(100, 1000), CpuTimes(100, 1000)) is None
    assert busy_ratio(CpuTimes(100, 1000), CpuTimes(99, 1010)) == 0.0
    assert busy_ratio(CpuTimes(100, 1000), CpuTimes(111, 1010)) == 1.0


def test_memory_is_in_bytes() -> None:
    text = "MemTotal:       24731708 kB\nMemAvailable:   1024 kB\nHugePages_Total:       0\n"
    assert parse_meminfo(text) == {"MemTotal": 24731708 * 1024, "MemAvailable": 2**20}


def test_the_name_of_the_cpu() -> None:
    assert parse_cpu_model("processor\t: 0\nmodel name\t: Fast CPU @ 2 GHz\n") == "Fast CPU @ 2 GHz"
    assert parse_cpu_model("processor\t: 0\n") is None


def test_a_sampler_measures_the_time_between_its_samples(tmp_path: Path) -> None:
    stat, meminfo = tmp_path / "stat", tmp_path / "meminfo"
    meminfo.write_text("MemAvailable: 4 kB\n")
    stat.write_text("cpu 10 0 0 90 0 0 0 0\n")
    sampler = HostSampler(tmp_path)
    assert sampler.sample().busy_ratio is None
    stat.write_text("cpu 13 0 0 91 0 0 0 0\n")
    sample = sampler.sample()
    assert sample.busy_ratio == 0.75
    assert sample.available_bytes == 4096
    assert sample.pressure_ratio is None  # this kernel does not report it
    stat.write_text("cpu 13 0 0 101 0 0 0 0\n")
    meminfo.write_text("")
    assert sampler.sample().busy_ratio == 0.0
    assert sampler.sample().available_bytes is None


def test_pressure_is_a_share_of_the_time_between_two_samples(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemAvailable: 4 kB\n")
    (tmp_path / "stat").write_text("cpu 10 0 0 90 0 0 0 0\n")
    (tmp_path / "pressure").mkdir()
    cpu = tmp_path / "pressure" / "cpu"
    moments = iter([10.0, 14.0, 14.0])
    cpu.write_text(
        "some avg10=1.50 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 total=0\n"
    )
    sampler = HostSampler(tmp_path, clock=lambda: next(moments))
    cpu.write_text(
        "some avg10=1.50 avg60=0.00 avg300=0.00 total=4000000\nfull avg10=0.00 total=0\n"
    )
    assert sampler.sample().pressure_ratio == 0.75  # 3 s of 4
    assert sampler.sample().pressure_ratio is None  # no time has passed


def test_pressure_is_read_and_bounded() -> None:
    assert parse_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\n") == 2.5
    with pytest.raises(ValueError, match="not /proc/pressure/cpu"):
        parse_pressure("full avg10=0.00 total=0\n")
    assert pressure_ratio(Waiting(1.0, 0.0), Waiting(3.5, 2.0)) == 1.0
    assert pressure_ratio(None, Waiting(3.5, 2.0)) is None


def test_this_host() -> None:
    assert HostSampler().sample().available_bytes
