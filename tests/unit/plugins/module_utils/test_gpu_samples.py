# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import calendar
import math
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu_samples
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu_samples import Sample, during, parse, summarise

RECORDED = Path(__file__).parent / "fixtures" / "dmon"
HEAD = "#Date       Time        gpu    pwr  gtemp     sm    mem   mclk   pclk     fb  rxpci  txpci\n"
UNITS = "#YYYYMMDD   HH:MM:SS    Idx      W      C      %      %    MHz    MHz     MB   MB/s   MB/s\n"


def at(text: str) -> int:
    """Unix time of 2026-11-30 and a time of day."""
    hours, minutes, seconds = (int(part) for part in text.split(":"))
    return calendar.timegm((2026, 11, 30, hours, minutes, seconds))


def row(time: str = "09:00:00", gpu: int = 0, power: str = "100", rest: str = "40 50 20 3201 1500 1000 10 20") -> str:
    return f" 20261130   {time}   {gpu}   {power} {rest}\n"


def test_a_recorded_load_gives_every_figure_of_the_gpu() -> None:
    found = gpu_samples.read(str(RECORDED / "580-h200-load.txt"))
    assert (len(found.samples), found.unread, found.clock_jumps, found.truncated) == (6, 0, 0, False)
    assert found.samples[2] == Sample(
        at("09:11:46"),
        0,
        {
            "power_w": 688.0,
            "temperature_c": 59.0,
            "utilization_percent": 99.0,
            "memory_utilization_percent": 23.0,
            "memory_clock_mhz": 3201.0,
            "sm_clock_mhz": 1515.0,
            "memory_used_bytes": 1011.0 * 2**20,
            "pcie_rx_bytes_s": 0.0,
            "pcie_tx_bytes_s": 1848e6,
        },
    )


def test_means_and_shares_of_the_samples_between_two_moments() -> None:
    found = gpu_samples.read(str(RECORDED / "580-h200-load.txt"))
    inside = during(found.samples, at("09:11:45"), at("09:11:48"))
    answer = summarise(inside, {0: (700.0, 1980.0)})
    assert answer is not None
    (gpu,) = answer
    assert gpu["samples"] == 3
    assert gpu["power_w"] == pytest.approx((378 + 688 + 442) / 3, abs=1e-3)
    assert gpu["power_share"] == pytest.approx((378 + 688 + 442) / 3 / 700, abs=1e-4)
    assert gpu["power_limit_w"] == 700.0
    assert gpu["sm_clock_share"] == pytest.approx((1545 + 1515 + 1560) / 3 / 1980, abs=1e-4)
    assert gpu["memory_used_bytes"] == 1011 * 2**20
    assert gpu["pcie_tx_bytes_s"] == pytest.approx((1 + 1848 + 1) / 3 * 1e6)
    assert set(gpu) == {
        "index", "power_w", "power_share", "power_limit_w", "utilization_percent", "memory_utilization_percent",
        "memory_used_bytes", "sm_clock_mhz", "sm_clock_share", "memory_clock_mhz", "temperature_c", "pcie_rx_bytes_s",
        "pcie_tx_bytes_s", "samples",
    }  # fmt: skip


def test_columns_are_found_by_name_when_others_stand_between_them() -> None:
    (busy, cooling) = gpu_samples.read(str(RECORDED / "580-h200-all.txt")).samples
    assert busy.figures["memory_used_bytes"] == 1011 * 2**20
    assert (cooling.figures["pcie_rx_bytes_s"], cooling.figures["pcie_tx_bytes_s"]) == (0.0, 1792e6)


def test_a_sample_counts_when_its_whole_second_is_inside() -> None:
    samples = [Sample(second, 0, {}) for second in range(10, 16)]
    assert [sample.time_s for sample in during(samples, 10.5, 14.0)] == [11, 12, 13]
    assert during(samples, 12.1, 12.9) == []
    assert during(samples, math.inf, 20) == []


def test_headers_that_come_again_and_change_are_followed() -> None:
    text = HEAD + UNITS + row() + HEAD + UNITS + row("09:00:01")
    text += "#Date       Time        gpu     sm    pwr\n#YYYYMMDD   HH:MM:SS    Idx      %      W\n"
    text += " 20261130   09:00:02     0     77    333\n"
    found = parse(text)
    assert [sample.figures["power_w"] for sample in found.samples] == [100.0, 100.0, 333.0]
    assert found.samples[2].figures == {"utilization_percent": 77.0, "power_w": 333.0}


def test_several_gpus_are_kept_apart_and_only_visible_ones_told() -> None:
    text = HEAD + UNITS + "".join(row(f"09:00:0{n}", gpu, str(100 * (gpu + 1))) for n in range(3) for gpu in range(8))
    answer = summarise(parse(text).samples, {3: (600.0, None)}, visible={1, 3})
    assert answer is not None
    assert [(gpu["index"], gpu["power_w"], gpu["samples"]) for gpu in answer] == [(1, 200.0, 3), (3, 400.0, 3)]
    assert answer[0]["power_share"] is None
    assert answer[1]["power_share"] == pytest.approx(0.6667)
    assert answer[1]["sm_clock_share"] is None
    assert summarise(parse(text).samples, visible=[9]) is None


@pytest.mark.parametrize("absent", ["-", "N/A", "[N/A]", "ERR!", "nan", "-5", "1e400", "<b>1</b>", "99999999", "inf"])
def test_what_is_no_figure_is_missing_and_does_not_change_the_mean(absent: str) -> None:
    found = parse(HEAD + UNITS + row(power=absent) + row("09:00:01", power="300"))
    assert "power_w" not in found.samples[0].figures
    answer = summarise(found.samples)
    assert answer is not None
    assert (answer[0]["power_w"], answer[0]["samples"]) == (300.0, 2)


def test_a_gpu_that_tells_nothing_has_nulls_and_a_count() -> None:
    found = parse(HEAD + UNITS + row(power="-", rest="- - - - - - - -"))
    answer = summarise(found.samples, {0: (600.0, 2000.0)})
    assert answer is not None
    assert {name for name, value in answer[0].items() if value is not None} == {"index", "power_limit_w", "samples"}


def test_an_unknown_unit_is_not_believed_and_a_known_one_converted() -> None:
    units = UNITS.replace("W", "Q", 1).replace("MB/s   MB/s", "GB/s   KB/s")
    (sample,) = parse(HEAD + units + row()).samples
    assert "power_w" not in sample.figures
    assert (sample.figures["pcie_rx_bytes_s"], sample.figures["pcie_tx_bytes_s"]) == (10e9, 20e3)


def test_a_last_line_without_an_end_is_left_out() -> None:
    cut = (HEAD + UNITS + row() + row("09:00:01", power="300")).rstrip("\n")[:-1]
    assert [sample.figures["power_w"] for sample in parse(cut).samples] == [100.0]
    assert parse(cut.encode()).unread == 0


def test_messages_between_rows_are_kept_as_the_reason() -> None:
    text = HEAD + UNITS + row() + "Unable to determine the device handle for GPU0: GPU is lost\n" + row("09:00:01")
    found = parse(text)
    assert (len(found.samples), found.unread) == (2, 1)
    assert found.messages == ("Unable to determine the device handle for GPU0: GPU is lost",)
    nothing = parse("No devices to monitor.\n" * 100)
    assert (nothing.samples, nothing.unread, len(nothing.messages)) == ((), 100, 5)


@pytest.mark.parametrize(
    "bad", [" 20261399   09:00:00   0   1 2 3 4 5 6 7 8 9\n", " 20261130   25:00:00   0   1 2 3 4 5 6 7 8 9\n",
            " 20261130   09:00:00   x   1 2 3 4 5 6 7 8 9\n", " 20261130   09:00:00   0   1 2 3\n"],
)  # fmt: skip
def test_a_row_that_cannot_be_is_counted_as_unread(bad: str) -> None:
    found = parse(HEAD + UNITS + bad)
    assert (found.samples, found.unread) == ((), 1)


def test_rows_before_any_header_and_no_output_at_all_give_nothing() -> None:
    assert parse(row()).samples == ()
    assert parse(b"").samples == ()
    assert summarise([]) is None
    assert parse(b"\xff\xfe\x00" * 50 + b"\n").unread == 1


def test_times_without_a_date_are_not_guessed() -> None:
    assert parse("# gpu    pwr\n# Idx      W\n    0    120\n").samples == ()


@pytest.mark.parametrize("zone_s", [0, 3600, -8 * 3600, 5 * 3600 + 2700])
def test_local_times_are_put_right_by_the_moment_of_the_start(zone_s: int) -> None:
    started = at("09:00:00") - zone_s - 1.7
    found = parse(HEAD + UNITS + row() + row("09:00:05"), started_s=started)
    assert [sample.time_s for sample in found.samples] == [at("09:00:00") - zone_s, at("09:00:05") - zone_s]


def test_a_clock_that_goes_back_leaves_out_what_was_at_a_time_that_comes_again() -> None:
    times = ["09:00:00", "09:00:10", "09:00:11", "09:00:05", "09:00:06"]
    found = parse(HEAD + UNITS + "".join(row(time, power=str(100 + n)) for n, time in enumerate(times)))
    assert found.clock_jumps == 1
    assert [sample.figures["power_w"] for sample in found.samples] == [100.0, 103.0, 104.0]


def test_a_share_needs_a_limit_that_can_be() -> None:
    samples = parse(HEAD + UNITS + row()).samples
    for limit in (0.0, -1.0, math.inf, math.nan, True):
        answer = summarise(samples, {0: (limit, limit)})
        assert answer is not None
        assert (answer[0]["power_share"], answer[0]["sm_clock_share"]) == (None, None)


def test_hours_of_output_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_samples, "MOST_SAMPLES", 3)
    found = parse(HEAD + UNITS + row() * 10)
    assert (len(found.samples), found.truncated) == (3, True)
    monkeypatch.setattr(gpu_samples, "MOST_BYTES", len(HEAD + UNITS + row()) + 5)
    found = parse((HEAD + UNITS + row() * 10).encode())
    assert (len(found.samples), found.truncated) == (1, True)


def test_the_sampler_is_one_process_that_ends_by_itself() -> None:
    assert gpu_samples.command([0, 3], 90) == [
        "nvidia-smi", "dmon", "-s", "pucmt", "-o", "DT", "-d", "1", "-c", "90", "-i", "0,3",
    ]  # fmt: skip
    assert gpu_samples.command()[-2:] == ["-c", str(24 * 3600)]
    assert gpu_samples.command(most_s=10**9)[-1] == str(24 * 3600)
    assert gpu_samples.environment() == {"TZ": "UTC0", "LC_ALL": "C"}
