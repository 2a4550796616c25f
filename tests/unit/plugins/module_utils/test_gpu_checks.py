# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a report on GPUs means for a server: each finding with its figures and something to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import gpu_outputs
import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu, gpu_checks, gpu_look, gpu_memory
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu, PciDevice, Report
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu_topology import P2p

GIB = 1 << 30


def pro6000(count: int = 8, edits: Mapping[int, Mapping[str, str]] | None = None) -> Report:
    """A machine on which nothing is wrong, but for the edits."""
    report = gpu_look.recorded(gpu_outputs.pro6000(count, edits))
    return replace(report, kernel_module="open", notes=())


def branch(name: str) -> Report:
    return replace(gpu_look.recorded(gpu_outputs.xml(name)), notes=())


def check(report: Report, wanted: int | None = None, **more: Any) -> list[Finding]:
    """What is not ok; the summary is looked at on its own."""
    found = gpu_checks.check_gpus(report, len(report.gpus) if wanted is None else wanted, **more)
    assert {one.check for one in found} <= {"gpu"}
    assert all(one.remedy for one in found if one.level != OK)
    return [one for one in found if one.level != OK]


def messages(found: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(one.level, one.message) for one in found]


def test_good_machine_gives_one_summary_with_its_figures() -> None:
    found = gpu_checks.check_gpus(pro6000(), 8, need_free_bytes=90 * GIB, expected_capability=(12, 0))
    assert found == [
        Finding(
            OK,
            "gpu",
            "8 x NVIDIA RTX PRO 6000 Blackwell Server Edition (compute capability 12.0, 95.6 GiB each), driver "
            "590.44.01 with the open kernel module, CUDA 13.1",
        )
    ]


def test_real_h200s_are_good() -> None:
    assert check(branch("580-h200x2"), need_free_bytes=120 * GIB, expected_capability=(9, 0)) == []


def test_server_without_gpus_needs_none() -> None:
    assert gpu_checks.check_gpus(Report("no_tool", "nvidia-smi is not installed", "install it"), 0) == []


@pytest.mark.parametrize(
    ("wanted", "words"), [(1, "the server needs 1 GPU on this machine"), (8, "the server needs 8 GPUs on this machine")]
)
def test_report_without_gpus_fails_with_what_it_says(wanted: int, words: str) -> None:
    found = gpu_checks.check_gpus(Report("timeout", "nvidia-smi hangs", "reboot"), wanted)
    assert found == [Finding(FAIL, "gpu", f"nvidia-smi hangs; {words}", "reboot")]


def test_too_few_gpus_fail_with_the_figures() -> None:
    found = check(pro6000(6), 8)
    assert messages(found) == [(FAIL, "the server needs 8 GPUs on this machine and 6 answer")]
    assert "lower tp or pp" in found[0].remedy


def test_gpus_that_only_the_bus_shows_are_counted_beside() -> None:
    pci = tuple(PciDevice(gpu_outputs.bus_id(index), 0x2BB5) for index in range(8))
    assert messages(check(replace(pro6000(7), pci=pci), 8)) == [
        (FAIL, "the server needs 8 GPUs on this machine and 7 answer, the PCI bus shows 8")
    ]
    assert check(replace(pro6000(7), pci=pci), 7) == []
    assert check(replace(pro6000(7), pci=pci[:7]), 8)[0].message.endswith("and 7 answer")


def test_more_gpus_than_needed_are_fine_and_only_the_first_are_looked_at() -> None:
    report = pro6000(3, {2: gpu_outputs.held(90_000, gpu_outputs.process(9, "x", "90000 MiB"))})
    assert check(report, 2, need_free_bytes=80 * GIB) == []
    assert len(check(report, 2, need_free_bytes=80 * GIB, used=[1, 2])) == 1


def test_chosen_gpus_that_are_not_there_or_too_few_fail() -> None:
    assert messages(check(pro6000(2), 2, used=[1, 2, 3])) == [
        (FAIL, "GPUs 2-3 are to be used and the driver lists 2"),
    ]
    assert messages(check(pro6000(2), 2, used=[1])) == [
        (FAIL, "the server needs 2 GPUs on this machine and 1 are chosen for it")
    ]


def test_lost_gpu_fails_and_the_others_are_still_judged() -> None:
    edits = {
        2: {"<gpu_temp>28 C<": "<gpu_temp>ERR!<"},
        0: {"<persistence_mode>Enabled<": "<persistence_mode>Disabled<"},
    }
    found = check(pro6000(4, edits), 4)
    assert [one.level for one in found] == [FAIL, FAIL, WARN]
    assert found[0].message == "does not answer the driver: GPU 2 at 0000:21:00.0 (ERR!); 3 others do"
    assert found[1].message == "the server needs 4 GPUs on this machine and 3 answer"
    assert found[2].message.startswith("GPU 0: persistence mode is off")


def test_lost_gpu_fails_where_the_rest_would_do() -> None:
    # CUDA was seen to find no GPU at all beside a lost one.
    found = check(pro6000(3, {2: {"<gpu_temp>28 C<": "<gpu_temp>ERR!<"}}), 2)
    assert [one.level for one in found] == [FAIL]
    chosen = check(pro6000(3, {2: {"<gpu_temp>28 C<": "<gpu_temp>ERR!<"}}), 1, used=[2])
    assert messages(chosen)[1] == (FAIL, "GPU 2 at 0000:21:00.0 does not answer the driver: ERR!")


def test_partly_unreadable_list_fails_and_says_why() -> None:
    whole = gpu_outputs.pro6000(3)
    report = gpu_look.recorded(whole[: int(len(whole) * 0.9)])
    found = check(report, 2)
    assert (found[0].level, "cannot be read" in found[0].message) == (FAIL, True)


# --- memory ---


def memory(
    edits: Mapping[str, str], need: int | None, own: AbstractSet[int] = frozenset(), name: str = "x"
) -> list[Finding]:
    return check(pro6000(2, {1: edits}), own_pids=own, need_free_bytes=need)


SCHEDULER = gpu_outputs.process(4242, "sglang::scheduler_TP1", "85000 MiB")


def test_foreign_process_that_leaves_too_little_is_named_and_left_alone() -> None:
    found = memory(gpu_outputs.held(85_100, SCHEDULER), 80 * GIB)
    assert messages(found) == [
        (
            FAIL,
            "GPU 1 (NVIDIA RTX PRO 6000 Blackwell Server Edition) has 11.9 GiB free and 80.0 GiB are needed; held by "
            "pid 4242 (sglang::scheduler_TP1) with 83.0 GiB",
        )
    ]
    assert "ps -o pid,user,lstart,args -p 4242" in found[0].remedy
    assert "kill" not in found[0].remedy


def test_foreign_process_that_leaves_enough_is_a_warning() -> None:
    found = memory(gpu_outputs.held(2_000, gpu_outputs.process(7, "trainer", "2000 MiB")), 80 * GIB)
    assert messages(found) == [
        (WARN, "GPU 1 is shared: 93.0 GiB of 95.6 GiB free, held by pid 7 (trainer) with 2.0 GiB")
    ]
    unknown_need = memory(gpu_outputs.held(85_100, SCHEDULER), None)
    assert [one.level for one in unknown_need] == [WARN]


@pytest.mark.parametrize(("memory_text", "warns"), [("255 MiB", False), ("256 MiB", True), ("N/A", True)])
def test_desktop_with_little_memory_is_not_worth_a_word(memory_text: str, warns: bool) -> None:
    found = memory(gpu_outputs.held(250, gpu_outputs.process(7, "Xorg", memory_text, "G")), 80 * GIB)
    assert [one.level for one in found] == ([WARN] if warns else [])


def test_memory_of_the_server_to_be_replaced_counts_as_free() -> None:
    held = gpu_outputs.held(85_000, SCHEDULER)
    assert memory(held, 80 * GIB, {4242}) == []
    assert [one.level for one in memory(held, 80 * GIB, {4243})] == [FAIL]


def test_own_and_foreign_processes_are_told_apart() -> None:
    rows = [SCHEDULER, gpu_outputs.process(7, "trainer", "9000 MiB")]
    found = memory(gpu_outputs.held(94_000, *rows), 90 * GIB, {4242})
    assert [one.level for one in found] == [FAIL]
    assert "has 86.2 GiB free" in found[0].message
    assert "pid 7 (trainer)" in found[0].message and "4242" not in found[0].message + found[0].remedy


def test_largest_holders_are_named_and_the_rest_counted() -> None:
    rows = [gpu_outputs.process(100 + index, "worker", f"{10000 + index} MiB") for index in range(8)]
    found = memory(gpu_outputs.held(80_100, *rows), 80 * GIB)
    assert "held by pid 107 (worker) with 9.8 GiB, pid 106" in found[0].message
    assert found[0].message.endswith(" and 2 more")
    six = memory(gpu_outputs.held(80_100, *rows[:6]), 80 * GIB)
    assert "pid 100" in six[0].message and "more" not in six[0].message


def test_memory_that_nobody_seen_holds_is_told() -> None:
    assert messages(memory(gpu_outputs.held(4_096), None)) == [
        (WARN, "GPU 1: 4.0 GiB are held by processes that are not seen from here")
    ]
    assert memory(gpu_outputs.held(2_047), None) == []
    assert [one.level for one in memory(gpu_outputs.held(2_048), None)] == [WARN]
    found = memory(gpu_outputs.held(85_000), 80 * GIB)
    assert [one.level for one in found] == [FAIL]
    assert found[0].message.endswith("; 83.0 GiB are held by processes that are not seen from here")
    assert "from the host" in found[0].remedy


def test_unseen_memory_may_be_our_own_servers_in_a_container() -> None:
    found = memory(gpu_outputs.held(85_000), 80 * GIB, {4242})
    assert [one.level for one in found] == [WARN]
    assert "server which will be replaced" in found[0].remedy
    assert memory(gpu_outputs.held(3_000), 80 * GIB, {4242}) == []
    assert [one.level for one in memory(gpu_outputs.held(85_000), 97250 << 20, {4242})] == [WARN]
    # Too little even when all of it were ours.
    edits = gpu_outputs.held(85_000) | {"<free>12250 MiB<": "<free>1 MiB<"}
    assert [one.level for one in memory(edits, 90 * GIB, {4242})] == [FAIL]


def test_own_process_whose_share_is_not_told_may_explain_it() -> None:
    row = gpu_outputs.process(4242, "", "N/A")
    assert [one.level for one in memory(gpu_outputs.held(85_000, row), 80 * GIB, {4242})] == [WARN]
    found = memory(gpu_outputs.held(85_000, row), 80 * GIB)
    assert [one.level for one in found] == [FAIL]
    assert "pid 4242 (no name) with an unknown amount" in found[0].message
    assert "not seen from here" not in found[0].message


def test_need_beyond_the_whole_card_names_no_process() -> None:
    found = memory(gpu_outputs.held(85_000, SCHEDULER), 96 * GIB)
    assert messages(found)[1] == (
        FAIL,
        "GPU 1 (NVIDIA RTX PRO 6000 Blackwell Server Edition) has 95.0 GiB for programs in all and 96.0 GiB are needed",
    )
    assert "tp" in found[1].remedy
    just = memory(gpu_outputs.held(85_000, SCHEDULER), 97250 << 20)
    assert "has 12.0 GiB free and 95.0 GiB are needed; held by pid 4242" in just[0].message


def test_need_of_exactly_what_is_free_is_met() -> None:
    free = 97250 << 20
    assert check(pro6000(1), need_free_bytes=free) == []
    short = check(pro6000(1), need_free_bytes=free + 1)
    assert (short[0].level, "for programs in all" in short[0].message) == (FAIL, True)
    untold = check(one(memory_total_bytes=None), need_free_bytes=100 * GIB)
    assert (untold[0].level, "from the host" in untold[0].remedy) == (FAIL, True)


def test_free_memory_that_is_not_told_is_a_warning() -> None:
    edits = {"<free>97250 MiB<": "<free>N/A<", "<processes>\n": "<processes>\n" + SCHEDULER}
    assert messages(memory(edits, 80 * GIB)) == [
        (
            WARN,
            "GPU 1: how much memory is free is not told and it is used by pid 4242 (sglang::scheduler_TP1) with 83.0 "
            "GiB",
        )
    ]


# --- module, capability, state of the cards ---


def test_closed_module_on_blackwell_fails() -> None:
    found = check(replace(pro6000(1), kernel_module="proprietary"))
    assert messages(found) == [
        (
            FAIL,
            "the kernel module 590.44.01 is the proprietary one, and Blackwell GPUs work with the open one alone",
        )
    ]
    assert "nvidia-driver-590-open" in found[0].remedy
    unknown = check(replace(pro6000(1), kernel_module="proprietary", driver_version=""))[0]
    assert unknown.message.startswith("the kernel module of the driver is the proprietary one")
    assert "nvidia-driver-580-open" in unknown.remedy


def test_closed_module_on_hopper_or_an_unknown_one_on_blackwell_is_fine() -> None:
    assert check(replace(branch("580-h200x2"), kernel_module="proprietary")) == []
    assert check(replace(pro6000(1), kernel_module="unknown")) == []


def test_other_capability_than_expected_fails() -> None:
    found = check(branch("580-h200x2"), expected_capability=(12, 0))
    assert messages(found) == [(FAIL, "GPUs 0-1 have compute capability 9.0, expected is 12.0")]


def test_unknown_capability_is_a_warning() -> None:
    report = pro6000(2, {1: {"RTX PRO 6000 Blackwell Server Edition": "Nobody Knows"}})
    found = check(report, expected_capability=(12, 0))
    assert found[0].message == "GPU 1: compute capability unknown, so backends cannot be judged"
    assert [one.level for one in found] == [WARN, WARN]


def test_mig_fails_with_both_ways_out() -> None:
    found = check(branch("535-a100-mig"))
    assert messages(found) == [(FAIL, "GPU 0 is in MIG mode with 2 instances, SGLang needs whole GPUs")]
    assert "nvidia-smi -i 0 -mig 0" in found[0].remedy and "CUDA_VISIBLE_DEVICES" in found[0].remedy
    assert check(branch("535-a100-mig"), 1, used=[1]) == []


def test_unwell_cards_give_every_finding_once() -> None:
    found = check(branch("550-h100x2-unwell"))
    assert messages(found) == [
        (WARN, "GPU 0 is shared: 4.9 GiB of 79.6 GiB free, held by pid 4242 (sglang::scheduler_TP0) with 74.2 GiB"),
        (WARN, "GPU 0: the driver asks for 'Drain and Reset' before it is used again"),
        (FAIL, "GPU 1: the driver asks for 'Reset' before it is used again"),
        (WARN, "GPU 0 has bad memory that the next reset will replace"),
        (WARN, "GPU 0 had 3 uncorrected memory errors since the last reset, 6 ever"),
        (FAIL, "GPU 1 has memory that it can no longer replace"),
        (FAIL, "GPU 0: NVSwitch fabric In Progress, no status"),
        (FAIL, "GPU 1: NVSwitch fabric Completed, Insufficient Resources"),
        (WARN, "GPU 0 has 8 of 16 PCIe lanes"),
        (WARN, "GPU 0 works at PCIe generation 3 of 5"),
        (WARN, "GPU 0 is limited to 500 W, its default is 700 W"),
        (WARN, "GPU 0: clocks are held down (hw_thermal_slowdown)"),
        (WARN, "GPU 1: clocks are held down (hw_slowdown)"),
    ]
    assert found[10].remedy.startswith("run `nvidia-smi -i 0 -pl 700` as root")


def test_desktop_cards_tell_of_persistence_and_slot_and_of_little_else() -> None:
    assert messages(check(branch("570-5090x2-desktop"))) == [
        (
            WARN,
            "GPU 0 is shared: 29.8 GiB of 31.8 GiB free, held by pid 19044 (/usr/bin/browser --type=gpu-process "
            "--api-key=<redacted> --ozone-platform=wayland) with 1.4 GiB",
        ),
        (WARN, "GPUs 0-1: persistence mode is off, so each start initialises the GPU anew"),
        (WARN, "GPU 0 is in a slot of PCIe generation 4 and can do 5"),
        (WARN, "GPU 1 is in a slot of PCIe generation 4 and can do 5"),
    ]


def one(**fields: Any) -> Report:
    card = Gpu(0, "NVIDIA H200", compute_capability=(9, 0), memory_total_bytes=100 * GIB, memory_free_bytes=99 * GIB)
    return Report("ok", "", gpus=(replace(card, **fields),))


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({"persistence": False}, WARN),
        ({"persistence": None}, None),
        ({"pcie_width_now": 8, "pcie_width_max": 16}, WARN),
        ({"pcie_width_now": 1, "pcie_width_max": 16}, WARN),
        ({"pcie_width_now": 16, "pcie_width_max": 16}, None),
        ({"pcie_width_now": None, "pcie_width_max": 16}, None),
        ({"pcie_width_now": 16, "pcie_width_max": None}, None),
        # Idle: the generation falls to save power.
        ({"pcie_gen_now": 1, "pcie_gen_max": 5, "utilization_percent": 49}, None),
        ({"pcie_gen_now": 1, "pcie_gen_max": 5, "utilization_percent": 50}, WARN),
        ({"pcie_gen_now": 1, "pcie_gen_max": 5, "utilization_percent": None}, None),
        ({"pcie_gen_now": 5, "pcie_gen_max": 5, "utilization_percent": 99}, None),
        ({"pcie_gen_now": None, "pcie_gen_max": 5, "utilization_percent": 99}, None),
        ({"pcie_gen_host_max": 4, "pcie_gen_device_max": 5}, WARN),
        ({"pcie_gen_host_max": 5, "pcie_gen_device_max": 5}, None),
        # A virtual machine does not tell its bridge's generation.
        ({"pcie_gen_host_max": None, "pcie_gen_device_max": 5, "pcie_gen_max": 4, "pcie_gen_now": 4}, None),
        ({"power_limit_w": 499.0, "power_default_w": 600.0}, WARN),
        ({"power_limit_w": 599.0, "power_default_w": 600.0}, None),
        ({"power_limit_w": 598.9, "power_default_w": 600.0}, WARN),
        ({"power_limit_w": 700.0, "power_default_w": 600.0}, None),
        ({"power_limit_w": None, "power_default_w": 600.0}, None),
        ({"power_limit_w": 100.0, "power_default_w": None}, None),
        ({"throttle_reasons": ("gpu_idle", "applications_clocks_setting", "sw_power_cap")}, None),
        ({"throttle_reasons": ("sw_thermal_slowdown",)}, WARN),
        ({"throttle_reasons": ("hw_slowdown", "hw_power_brake_slowdown")}, WARN),
        ({"ecc_volatile_uncorrected": 0, "ecc_aggregate_uncorrected": 0}, None),
        ({"ecc_aggregate_uncorrected": 1}, WARN),
        ({"ecc_volatile_uncorrected": 1}, WARN),
        ({"remap_pending": True}, WARN),
        ({"remap_failed": True}, FAIL),
        ({"recovery": "Reboot"}, FAIL),
        ({"recovery": "Drain P2P"}, WARN),
        ({"fabric_state": "Not Started"}, FAIL),
        ({"fabric_state": "Completed", "fabric_status": "Success"}, None),
        ({"fabric_state": "Completed", "fabric_status": ""}, None),
        ({"mig": True}, FAIL),
        ({"mig": False}, None),
        ({"mig": None}, None),
    ],
)
def test_each_figure_is_judged_at_its_limit(fields: Mapping[str, Any], level: str | None) -> None:
    found = check(one(**fields))
    assert [finding.level for finding in found] == ([level] if level else [])


def test_mixed_cards_are_a_warning_with_their_sizes() -> None:
    report = pro6000(3, {1: {"Server Edition": "Workstation Edition"}})
    assert messages(check(report)) == [
        (
            WARN,
            "the GPUs are not alike: NVIDIA RTX PRO 6000 Blackwell Server Edition with 95.6 GiB, NVIDIA RTX PRO 6000 "
            "Blackwell Workstation Edition with 95.6 GiB",
        )
    ]
    smaller = check(pro6000(2, {1: {"<total>97887 MiB<": "<total>90000 MiB<"}}))
    assert "with 87.9 GiB" in smaller[0].message


# --- between cards ---


def with_tables(edit: Callable[[bytes], bytes] = lambda table: table) -> Report:
    report = gpu_look.recorded(
        gpu_outputs.pro6000(8),
        gpu_outputs.text("590-pro6000x8-topo-m.txt").encode(),
        edit(gpu_outputs.text("590-pro6000x8-topo-p2p-r.txt").encode()),
    )
    return replace(report, kernel_module="open")


def test_pairs_without_p2p_are_counted_and_the_way_out_has_both_settings() -> None:
    found = check(with_tables())
    assert messages(found) == [
        (
            WARN,
            "no P2P between 16 pairs of GPUs (CNS: chipset not supported): 0-4, 0-5, 0-6, 0-7, 1-4, 1-5, 1-6, 1-7, ...",
        )
    ]
    assert "NCCL_P2P_DISABLE=1 together with --disable-custom-all-reduce" in found[0].remedy
    assert "ACS" in found[0].remedy and "IOMMU" in found[0].remedy


def test_eight_pairs_are_all_named() -> None:
    pairs = (*(P2p(0, other, "NS") for other in range(1, 8)), P2p(1, 2, "NS"))
    assert check(replace(pro6000(8), p2p=pairs))[0].message.endswith(
        "(NS: not supported): 0-1, 0-2, 0-3, 0-4, 0-5, 0-6, 0-7, 1-2"
    )


def test_pairs_of_gpus_that_are_not_used_do_not_matter() -> None:
    assert check(with_tables(), 4) == []


def test_p2p_that_a_setting_disables_says_where_it_is() -> None:
    report = replace(pro6000(2), p2p=(P2p(0, 1, "OK", "DR"),))
    found = check(report)
    assert messages(found) == [
        (WARN, "no P2P between 1 pair of GPUs (DR: disabled by a registry key of the driver): 0-1")
    ]
    assert "NVreg_RegistryDwords" in found[0].remedy


def test_numa_nodes_are_told_and_are_no_problem() -> None:
    found = gpu_checks.check_gpus(with_tables(), 8)
    assert Finding(OK, "gpu", "the GPUs are at 2 NUMA nodes: GPUs 0-3 at node 0, GPUs 4-7 at node 1") in found
    assert [finding.level for finding in gpu_checks.check_gpus(with_tables(), 4)] == [OK]


@pytest.mark.parametrize(
    ("allowed", "far"),
    [("0-47", "GPUs 4-7"), ("0-191", ""), ("47,48", ""), ("", ""), ("nonsense", ""), ("500-510", "GPUs 0-7")],
)
def test_gpus_whose_cpus_a_container_may_not_use_are_told(allowed: str, far: str) -> None:
    found = [finding for finding in check(replace(with_tables(), allowed_cpus=allowed)) if "CPUs" in finding.message]
    assert [finding.message for finding in found] == (
        [f"{far}: none of the CPUs near them may be used here (allowed are {allowed})"] if far else []
    )


def test_missing_file_of_unified_memory_is_a_warning() -> None:
    report = replace(pro6000(1), missing_nodes=("/dev/nvidia-uvm", "/dev/nvidia3"))
    assert messages(check(report)) == [(WARN, "/dev/nvidia-uvm is not there, and CUDA cannot start without it")]
    assert check(replace(pro6000(1), missing_nodes=("/dev/nvidia3",))) == []


def test_what_could_not_be_read_is_never_silent() -> None:
    assert messages(check(replace(pro6000(2), notes=("nobody told the topology",)))) == [
        (WARN, "nobody told the topology")
    ]


# --- words ---


@pytest.mark.parametrize(
    ("indices", "words"), [([3], "GPU 3"), ([0, 1], "GPUs 0-1"), ([6, 0, 1, 2], "GPUs 0-2, 6"), ([0, 2], "GPUs 0, 2")]
)
def test_numbers_of_gpus_are_written_short(indices: Sequence[int], words: str) -> None:
    assert gpu_memory.numbers(indices) == words


@pytest.mark.parametrize(("count", "words"), [(0, "0.0 GiB"), (3 * GIB // 2, "1.5 GiB"), (None, "an unknown amount")])
def test_bytes_are_written_for_a_person(count: int | None, words: str) -> None:
    assert gpu_memory.gib(count) == words


def test_summary_of_unknown_things_says_unknown() -> None:
    found = gpu_checks.check_gpus(Report("ok", "", gpus=(Gpu(0, "", memory_free_bytes=GIB),)), 1)
    assert found[0].message == (
        "1 x unnamed GPU (compute capability unknown, unknown memory), driver unknown with the unknown kernel module, "
        "CUDA unknown"
    )


@pytest.mark.parametrize("name", gpu_outputs.BRANCHES)
def test_every_branch_can_be_judged(name: str) -> None:
    report = gpu_look.recorded(gpu_outputs.xml(name))
    found = gpu_checks.check_gpus(report, len(report.gpus), need_free_bytes=GIB)
    assert found[0].level == OK
    assert report.state == gpu.OK
