# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi writes becomes a report: every driver branch, and everything that is no list of GPUs."""

from __future__ import annotations

import json
import time
import tracemalloc

import gpu_outputs
import pytest
from gpu_outputs import MIB

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu, gpu_topology, gpu_xml
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu, GpuProcess, MigInstance, PciDevice, Report
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu_topology import Link, P2p


def branch(name: str) -> Report:
    return gpu_xml.read(gpu_outputs.xml(name))


# --- driver branches ---


@pytest.mark.parametrize(("name", "count"), gpu_outputs.BRANCHES.items())
def test_every_branch_is_read_whole_and_as_plain_data(name: str, count: int) -> None:
    report = branch(name)
    assert (report.state, len(report.gpus), report.message, report.notes) == ("ok", count, f"{count} GPUs", ())
    assert report.driver_version.partition(".")[0] == name.partition("-")[0]
    for index, one in enumerate(report.gpus):
        assert one.index == index
        assert one.problem == "" and one.processes_known
        for needed in (
            one.name,
            one.bus_id,
            one.memory_total_bytes,
            one.power_limit_w,
            one.pcie_gen_now,
            one.temperature_c,
        ):
            assert needed, one
        assert one.clock_sm_max_mhz is not None and one.clock_sm_mhz is not None
    assert json.loads(json.dumps(report.as_dict()))["state"] == "ok"


def test_real_recording_of_two_h200_is_read_to_the_last_figure() -> None:
    report = branch("580-h200x2")
    assert (report.driver_version, report.cuda_version) == ("580.159.04", "13.0")
    first, second = report.gpus
    assert first == Gpu(
        index=0,
        name="NVIDIA H200",
        bus_id="0000:00:06.0",
        uuid="",
        architecture="Hopper",
        memory_total_bytes=143771 * MIB,
        memory_reserved_bytes=616 * MIB,
        memory_used_bytes=0,
        memory_free_bytes=143156 * MIB,
        persistence=True,
        performance_state="P0",
        utilization_percent=0,
        temperature_c=36,
        power_draw_w=78.91,
        power_limit_w=700.0,
        power_default_w=700.0,
        power_min_w=200.0,
        power_max_w=700.0,
        clock_graphics_mhz=345,
        clock_sm_mhz=345,
        clock_memory_mhz=3201,
        clock_graphics_max_mhz=1980,
        clock_sm_max_mhz=1980,
        clock_memory_max_mhz=3201,
        pcie_gen_now=5,
        pcie_gen_max=5,
        pcie_gen_device_max=5,
        pcie_gen_host_max=None,
        pcie_width_now=16,
        pcie_width_max=16,
        ecc=True,
        ecc_volatile_uncorrected=0,
        ecc_aggregate_uncorrected=0,
        remap_pending=False,
        remap_failed=False,
        mig=False,
        throttle_reasons=("gpu_idle",),
        processes_known=True,
        virtualization="Pass-Through",
        fabric_state="Completed",
        fabric_status="Success",
    )
    assert (second.index, second.bus_id) == (1, "0000:00:07.0")


def test_branch_418_counts_errors_by_bits_and_tells_the_enforced_power_limit() -> None:
    one = branch("418-v100").gpus[0]
    assert (one.ecc_volatile_uncorrected, one.ecc_aggregate_uncorrected) == (1, 3)
    assert (one.power_limit_w, one.power_default_w, one.power_draw_w) == (250.0, 300.0, 42.10)
    assert (one.architecture, one.mig, one.memory_reserved_bytes, one.pcie_gen_device_max) == ("", None, None, None)
    assert (one.remap_pending, one.remap_failed) == (True, None)
    assert one.throttle_reasons == ("gpu_idle",)


def test_branch_470_has_other_names_for_power_and_throttling() -> None:
    one = branch("470-t4").gpus[0]
    assert (one.power_limit_w, one.persistence, one.mig) == (70.0, False, None)
    assert (one.pcie_width_now, one.pcie_width_max, one.throttle_reasons) == (8, 16, ("gpu_idle",))


def test_mig_instances_are_listed_and_the_other_gpu_has_none() -> None:
    first, second = branch("535-a100-mig").gpus
    assert first.mig and second.mig is False
    assert first.mig_instances == tuple(
        MigInstance(index, instance, 0, 40192 * MIB, 40154 * MIB) for index, instance in ((0, 1), (1, 2))
    )
    assert (first.utilization_percent, second.utilization_percent, second.mig_instances) == (None, 0, ())


def test_unwell_gpus_are_told_as_they_are() -> None:
    first, second = branch("550-h100x2-unwell").gpus
    assert first.throttle_reasons == ("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown")
    assert (first.ecc_volatile_uncorrected, first.ecc_aggregate_uncorrected) == (3, 6)
    assert (first.remap_pending, first.remap_failed, second.remap_pending, second.remap_failed) == (
        True,
        False,
        False,
        True,
    )
    assert (first.recovery, second.recovery) == ("Drain and Reset", "Reset")
    assert (first.pcie_gen_now, first.pcie_gen_max, first.pcie_width_now) == (3, 5, 8)
    assert (first.utilization_percent, first.power_draw_w, first.power_limit_w) == (97, 498.70, 500.0)
    assert (first.fabric_state, first.fabric_status) == ("In Progress", "")
    assert (second.fabric_state, second.fabric_status) == ("Completed", "Insufficient Resources")
    assert first.processes == (
        GpuProcess(4242, "sglang::scheduler_TP0", 75990 * MIB, "C"),
        GpuProcess(77, "/usr/lib/xorg/Xorg", 4 * MIB, "G"),
    )


def test_what_geforce_does_not_tell_is_unknown_and_deprecated_is_no_value() -> None:
    one = branch("570-5090x2-desktop").gpus[0]
    assert (one.ecc, one.ecc_volatile_uncorrected, one.mig, one.remap_failed) == (None, None, None, None)
    assert (one.recovery, one.fabric_state, one.pcie_gen_device_max, one.pcie_gen_host_max) == ("", "", 5, 4)


def test_secrets_in_command_lines_of_processes_are_taken_out() -> None:
    report = branch("570-5090x2-desktop")
    assert report.gpus[0].processes[1].name.startswith("/usr/bin/browser --type=gpu-process --api-key=<redacted> ")
    assert "not-for-you" not in repr(report)


def test_grace_superchip_is_limited_as_a_module() -> None:
    edits = {
        "<current_power_limit>600.00 W<": "<current_power_limit>N/A<",
        "<current_power_limit>N/A</current_power_limit>\n\t\t\t<default_power_limit>N/A": (
            "<current_power_limit>900.00 W</current_power_limit>\n\t\t\t<default_power_limit>1000.00 W"
        ),
    }
    one = gpu_xml.read(gpu_outputs.pro6000(1, {0: edits})).gpus[0]
    assert (one.power_limit_w, one.power_default_w) == (900.0, 1000.0)


# --- values that are none ---


@pytest.mark.parametrize(
    "said",
    [
        "N/A",
        "[N/A]",
        "",
        "Unknown Error",
        "ERR!",
        "[GPU requires reset]",
        "Not Found",
        "Not Supported",
        "nan W",
        "inf W",
        "-5 W",
        "600.00",
        "600.00 kW",
        "9" * 400 + " W",
        "1e3 W",
        "\u0663\u0664 W",
        "0x258 W",
        "true",
    ],
)
def test_power_that_is_no_number_of_watts_is_unknown(said: str) -> None:
    edits = {"<default_power_limit>600.00 W<": f"<default_power_limit>{said}<"}
    report = gpu_xml.read(gpu_outputs.pro6000(1, {0: edits}))
    assert report.state == "ok"
    assert report.gpus[0].power_default_w == (-5.0 if said == "-5 W" else None)
    assert report.gpus[0].power_limit_w == 600.0


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("97887 MiB", 97887 * MIB),
        ("97887 KiB", 97887 << 10),
        ("95 GiB", 95 << 30),
        ("1024", 1024),
        ("1024 B", 1024),
        ("16777216 MiB", 1 << 44),
        ("16777217 MiB", None),
        ("-1 MiB", None),
        ("97887 MB", None),
        ("999999999999 GiB", None),
        ("MiB", None),
    ],
)
def test_memory_is_read_in_its_unit_and_nonsense_is_unknown(said: str, count: int | None) -> None:
    edits = {"\t\t\t<total>97887 MiB<": f"\t\t\t<total>{said}<"}
    assert gpu_xml.read(gpu_outputs.pro6000(1, {0: edits})).gpus[0].memory_total_bytes == count


def test_values_that_lack_permission_are_unknown_with_a_note() -> None:
    edits = {
        "<total>97887 MiB</total>": "<total>Insufficient Permissions</total>",
        "<gpu_temp>28 C<": "<gpu_temp>[Insufficient Permissions]<",
    }
    report = gpu_xml.read(gpu_outputs.pro6000(2, {1: edits}))
    assert (report.state, report.gpus[1].memory_total_bytes) == ("ok", None)
    assert report.notes == ("GPU 1: 2 values are not told for lack of permission; ask as root",)


def test_missing_elements_are_unknown() -> None:
    report = gpu_xml.read(b"<nvidia_smi_log><gpu id='x'><product_name>GPU</product_name></gpu></nvidia_smi_log>")
    assert report.state == "ok"
    assert report.gpus == (Gpu(0, "GPU"),)
    assert (report.driver_version, report.cuda_version) == ("", "")


def test_gpu_without_a_name_is_noted() -> None:
    report = gpu_xml.read(b"<nvidia_smi_log><gpu id='00000000:01:00.0'></gpu></nvidia_smi_log>")
    assert report.notes == ("GPU 0: nvidia-smi gives it no name (entry 1 of its list)",)
    assert report.gpus[0].bus_id == "0000:01:00.0"


def test_same_gpu_twice_counts_once_and_is_noted() -> None:
    report = gpu_xml.read(gpu_outputs.pro6000(3, {1: {f"0000{gpu_outputs.bus_id(1)}".upper(): "00000000:01:00.0"}}))
    assert [one.bus_id for one in report.gpus] == ["0000:01:00.0", "0000:21:00.0"]
    assert [one.index for one in report.gpus] == [0, 1]
    assert report.notes == ("nvidia-smi lists the GPU at 0000:01:00.0 more than once; the first one counts",)


@pytest.mark.parametrize(
    ("section", "known"),
    [
        ("<processes>\n\t\t</processes>", True),
        ("<processes />", True),
        ("<processes>N/A</processes>", False),
        ("<processes>Insufficient Permissions</processes>", False),
        ("", False),
    ],
)
def test_no_list_of_processes_is_not_an_empty_one(section: str, known: bool) -> None:
    edits = {"<processes>\n\t\t</processes>": section}
    one = gpu_xml.read(gpu_outputs.pro6000(1, {0: edits})).gpus[0]
    assert (one.processes_known, one.processes) == (known, ())


def test_rows_of_processes_that_are_none_are_left_out() -> None:
    rows = [
        gpu_outputs.process(7, "", "56 MiB"),
        gpu_outputs.process(7, "again", "99 MiB"),
        gpu_outputs.process(8, "no memory", "N/A", "C+G"),
        "<process_info><pid>N/A</pid></process_info><process_info/>",
        "<process_info><pid>-3</pid></process_info>",
    ]
    one = gpu_xml.read(gpu_outputs.pro6000(1, {0: gpu_outputs.held(56, *rows)})).gpus[0]
    assert one.processes == (GpuProcess(7, "", 56 * MIB, "C"), GpuProcess(8, "no memory", None, "C+G"))


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("caf\udce9", "caf\ufffd"),
        ("a & b <c> &amp; &lt; &evil; &#0;", "a & b <c> & < &evil; &#0;"),
        ("bell\x07 and nul\x00", "bell\ufffd and nul\ufffd"),
        ("x" * 5000, "x" * 120),
        ("--token abc python", "--token <redacted> python"),
    ],
)
def test_any_name_of_a_process_leaves_the_list_readable(name: str, read: str) -> None:
    edits = gpu_outputs.held(1, "\n" + gpu_outputs.process(7, name, "1 MiB") + "\n")
    report = gpu_xml.read(gpu_outputs.pro6000(1, {0: edits}))
    assert (report.state, [one.name for one in report.gpus[0].processes]) == ("ok", [read])


# --- what is no list ---


def test_mismatch_tells_the_library_version() -> None:
    report = gpu_xml.read(
        b"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.82\n", b"", 18
    )
    assert (report.state, report.library_version, report.gpus) == ("mismatch", "580.82", ())
    assert "without kernel modules" in report.remedy


@pytest.mark.parametrize(
    ("out", "state", "told", "to_do"),
    [
        ("No devices were found\n", "no_device", "shows no GPU", "dmesg"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.\n",
            "no_device",
            "not loaded",
            "modprobe nvidia",
        ),
        ("Failed to initialize NVML: Driver Not Loaded", "no_device", "not loaded", "modprobe nvidia"),
        ("Failed to initialize NVML: Unknown Error\n", "no_device", "device files", "/dev/nvidiactl"),
        ("Failed to initialize NVML: Insufficient Permissions\n", "unreadable", "may not open", "become"),
        (
            "Failed to initialize NVML: GPU access blocked by the operating system",
            "no_device",
            "operating system",
            "wsl",
        ),
        (
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure",
            "no_tool",
            "libnvidia-ml.so",
            "ldconfig",
        ),
        (
            "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error\n",
            "lost",
            "GPU0000:01:00.0: Unknown Error",
            "reboot",
        ),
        (
            "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover "
            "this GPU",
            "lost",
            "0000:02:00.0: GPU is lost. Reboot",
            "reboot",
        ),
        ("", "unreadable", "wrote nothing and ended with code 9", "nvidia-smi -q -x"),
        (" \n\t", "unreadable", "wrote nothing and ended with code 9", "nvidia-smi -q -x"),
        ("<html><body>502 Bad Gateway</body></html>", "unreadable", "502 Bad Gateway", "nvidia-smi -q -x"),
        ("Segmentation fault\x1b[0m\x00", "unreadable", "Segmentation fault", "nvidia-smi -q -x"),
    ],
)
@pytest.mark.parametrize("to_error", [False, True])
def test_what_nvidia_smi_says_has_a_state_words_and_a_remedy(
    out: str, state: str, told: str, to_error: bool, to_do: str
) -> None:
    said = (b"", out.encode()) if to_error else (out.encode(), b"")
    report = gpu_xml.read(*said, 9)
    assert (report.state, report.gpus) == (state, ())
    assert told in report.message
    assert to_do in report.remedy
    assert report.message.isprintable()


def test_long_unknown_output_is_shown_in_part() -> None:
    report = gpu_xml.read(b"garbage " * 1000)
    assert report.state == "unreadable"
    assert "garbage garbage" in report.message and len(report.message) < 300


@pytest.mark.parametrize("where", ["before", "within", "after", "stderr"])
def test_lost_gpu_beside_good_ones_is_told_and_the_good_ones_are_listed(where: str) -> None:
    said = b"Unable to determine the device handle for GPU7: 0000:71:00.0: Unknown Error\n"
    out, err = gpu_outputs.pro6000(7), b""
    if where == "before":
        out = said + out
    elif where == "within":
        out = out.replace(b"</gpu>\n", b"</gpu>\n" + said, 1)
    elif where == "after":
        out = out + said
    else:
        err = said
    report = gpu_xml.read(out, err, 15)
    assert (report.state, len(report.gpus)) == ("lost", 7)
    assert "0000:71:00.0: Unknown Error; 7 others do" in report.message
    assert report.driver_version == "590.44.01"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("<total>97887 MiB<", "<total>[GPU requires reset]<", "GPU requires reset"),
        ("<gpu_temp>28 C<", "<gpu_temp>ERR!<", "ERR!"),
        ("<performance_state>P8<", "<performance_state>Unknown Error<", "Unknown Error"),
        (">NVIDIA RTX PRO 6000 Blackwell Server Edition<", ">GPU is lost<", "GPU is lost"),
    ],
)
def test_gpu_that_answers_with_faults_is_lost_and_the_others_are_good(old: str, new: str, problem: str) -> None:
    report = gpu_xml.read(gpu_outputs.pro6000(3, {1: {old: new}}))
    assert (report.state, [one.problem for one in report.gpus]) == ("lost", ["", problem, ""])
    assert report.message == f"does not answer the driver: GPU 1 at 0000:11:00.0 ({problem}); 2 others do"
    assert "reboot" in report.remedy


def test_fault_of_one_reading_is_not_the_gpus() -> None:
    report = gpu_xml.read(gpu_outputs.pro6000(1, {0: {"<fan_speed>N/A<": "<fan_speed>Unknown Error<"}}))
    assert report.state == "ok"


def test_fewer_gpus_than_the_driver_counts_is_a_lost_one() -> None:
    out = gpu_outputs.pro6000(7).replace(b"<attached_gpus>7<", b"<attached_gpus>8<")
    report = gpu_xml.read(out)
    assert (report.state, report.message) == ("lost", "the driver counts 8 GPUs and lists 7")


def test_list_without_gpus_is_no_device() -> None:
    report = gpu_xml.read(b"<?xml version='1.0'?><nvidia_smi_log><attached_gpus>0</attached_gpus></nvidia_smi_log>")
    assert (report.state, report.gpus) == ("no_device", ())


@pytest.mark.parametrize(
    ("code", "words"), [(14, "14: a damaged infoROM of a GPU"), (77, "77 after its list"), (0, "")]
)
def test_exit_code_beside_a_whole_list_is_noted(code: int, words: str) -> None:
    report = gpu_xml.read(gpu_outputs.pro6000(1), b"", code)
    assert report.state == "ok"
    assert report.notes == ((f"nvidia-smi ended with code {words}",) if code else ())


# --- hostile documents ---


def test_cut_off_list_gives_the_gpus_that_were_whole() -> None:
    whole = gpu_outputs.pro6000(3)
    report = gpu_xml.read(whole[: int(len(whole) * 0.9)])
    assert (report.state, len(report.gpus)) == ("unreadable", 2)
    assert report.message.startswith("nvidia-smi -q -x: its XML cannot be read, line ")
    assert report.message.endswith("; 2 GPUs were whole before that")
    assert report.driver_version == "590.44.01"


@pytest.mark.parametrize("length", [5, 30, 80, 200, 1000])
def test_list_cut_off_early_is_unreadable(length: int) -> None:
    report = gpu_xml.read(gpu_outputs.xml("580-h200x2")[:length])
    assert (report.state, report.gpus) == ("unreadable", ())


@pytest.mark.parametrize(
    "declared",
    [
        '<!ENTITY a "boom"><!ENTITY b "&a;&a;&a;&a;">',
        '<!ENTITY a SYSTEM "file:///etc/passwd">',
        '<!ENTITY % a SYSTEM "http://127.0.0.1/x.dtd">',
    ],
)
def test_document_type_with_entities_is_refused(declared: str) -> None:
    out = f"<?xml version='1.0'?><!DOCTYPE nvidia_smi_log [{declared}]><nvidia_smi_log>&b;&a;</nvidia_smi_log>"
    report = gpu_xml.read(out.encode())
    assert (report.state, report.gpus) == ("unreadable", ())
    assert "declares entities" in report.message


def test_entity_of_a_document_type_elsewhere_is_not_loaded() -> None:
    out = gpu_outputs.pro6000(1).replace(b"<fan_speed>N/A<", b"<fan_speed>&secret;<")
    report = gpu_xml.read(out)
    assert (report.state, len(report.gpus)) == ("ok", 1)


@pytest.mark.parametrize(
    ("out", "why"),
    [
        (b"<?xml version='1.0'?><html></html>", "it begins with the element html and not with nvidia_smi_log"),
        (b"<nvidia_smi_log>" + b"<a>" * 50, "more than 40 elements lie in each other"),
        (b"<nvidia_smi_log><gpu><a></b></a></gpu></nvidia_smi_log>", "mismatched tag"),
        (b"<?xml version='1.0' encoding='utf-16'?><nvidia_smi_log></nvidia_smi_log", "unclosed token"),
        ("<?xml version='1.0'?><nvidia_smi_log/>".encode("utf-16"), "did not write XML"),
        (b"\xff\xfe\x00" * 100, "did not write XML"),
    ],
)
def test_document_that_nvidia_smi_never_writes_is_unreadable(out: bytes, why: str) -> None:
    report = gpu_xml.read(out)
    assert (report.state, report.gpus) == ("unreadable", ())
    assert why in report.message
    assert report.remedy


def test_fifty_megabytes_are_refused_without_being_read() -> None:
    out = b"<nvidia_smi_log>" + b"<gpu></gpu>" * (50_000_000 // 11)
    tracemalloc.start()
    began = time.monotonic()
    report = gpu_xml.read(out)
    took_s, peak = time.monotonic() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (report.state, report.message) == ("unreadable", "nvidia-smi -q -x: its output has more than 16 MiB")
    assert took_s < 0.5 and peak < 1 << 20


# --- what is added to a report ---


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("00000000:61:00.0", "0000:61:00.0"),
        ("0000:0A:00.0", "0000:0a:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        (" 61:00.7 ", "0000:61:00.7"),
        ("61:00.8", ""),
        ("N/A", ""),
        ("", ""),
    ],
)
def test_bus_ids_are_written_as_the_kernel_does(text: str, normal: str) -> None:
    assert gpu.normal_bus_id(text) == normal


def test_capabilities_come_from_the_driver_and_otherwise_from_the_name() -> None:
    told = gpu.parse_capabilities("00000000:01:00.0, 12.1\n00000000:11:00.0, N/A\nnonsense\n, 9.0\n")
    assert told == {"0000:01:00.0": (12, 1)}
    first, second, third = gpu.with_capabilities(
        gpu_xml.read(gpu_outputs.pro6000(3, {2: {"RTX PRO 6000 Blackwell Server Edition": "Nobody Knows"}})), told
    ).gpus
    assert (first.compute_capability, first.capability_source) == ((12, 1), "driver")
    assert (second.compute_capability, second.capability_source) == ((12, 0), "name")
    assert (third.compute_capability, third.capability_source) == (None, "")
    assert (first.memory_bandwidth_bytes_s, third.memory_bandwidth_bytes_s) == (1_792_000_000_000, None)


def test_old_driver_that_does_not_know_the_field_tells_no_capability() -> None:
    assert gpu.parse_capabilities('Field "compute_cap" is not a valid field to query.\n') == {}


def test_plain_data_has_capabilities_as_text_and_processes_with_their_gpu() -> None:
    plain = gpu.with_capabilities(branch("550-h100x2-unwell"), {}).as_dict()
    assert [one["compute_capability"] for one in plain["gpus"]] == ["9.0", "9.0"]
    assert plain["processes"][0] == {
        "gpu": 0,
        "pid": 4242,
        "name": "sglang::scheduler_TP0",
        "memory_bytes": 75990 * MIB,
        "kind": "C",
    }
    assert gpu.Report("no_tool", "none").as_dict()["processes"] == []
    assert branch("580-h200x2").as_dict()["gpus"][0]["compute_capability"] is None


@pytest.mark.parametrize(
    ("device_id", "blackwell"),
    [(0x2BB5, True), (0x2901, True), (0x3182, True), (0x2E12, True), (0x2335, False), (0x20B2, False), (0x1EB8, False)],
)
def test_blackwell_is_known_by_its_device_id(device_id: int, blackwell: bool) -> None:
    device = PciDevice("0000:01:00.0", device_id)
    assert (device.blackwell, Report("no_device", "", pci=(device,)).blackwell) == (blackwell, blackwell)


@pytest.mark.parametrize(
    ("one", "blackwell"),
    [
        (Gpu(0, "x", architecture="Blackwell Ultra"), True),
        (Gpu(0, "x", compute_capability=(10, 3)), True),
        (Gpu(0, "x", compute_capability=(12, 0)), True),
        (Gpu(0, "x", architecture="Hopper", compute_capability=(9, 0)), False),
        (Gpu(0, "x"), False),
    ],
)
def test_blackwell_is_known_by_architecture_or_capability(one: Gpu, blackwell: bool) -> None:
    assert (one.blackwell, Report("ok", "", gpus=(one,)).blackwell) == (blackwell, blackwell)


# --- topology ---


def test_real_topology_with_nvlink_is_read() -> None:
    topology = gpu_topology.parse_topology(gpu_outputs.text("580-h200x2-topo-m.txt"))
    assert topology == gpu_topology.Topology((Link(0, 1, "NV18"),), {0: "0-31", 1: "0-31"}, {0: 0, 1: 0})
    assert gpu_topology.parse_p2p(gpu_outputs.text("580-h200x2-topo-p2p-r.txt")) == {(0, 1): "OK"}


def test_pasted_topology_with_blanks_is_read() -> None:
    topology = gpu_topology.parse_topology(gpu_outputs.text("570-5090x2-topo-m.txt"))
    assert (topology.links, topology.numa_nodes) == ((Link(0, 1, "PHB"),), {0: 0, 1: 0})
    assert gpu_topology.parse_p2p(gpu_outputs.text("570-5090x2-topo-p2p-r.txt")) == {(0, 1): "GNS"}


def test_underlined_topology_of_eight_with_network_cards_is_read() -> None:
    topology = gpu_topology.parse_topology(gpu_outputs.text("590-pro6000x8-topo-m.txt"))
    assert len(topology.links) == 28 and topology.problem == ""
    assert [link.kind for link in topology.links if link.first == 0] == ["PIX", "NODE", "NODE", *["SYS"] * 4]
    assert topology.numa_nodes == dict.fromkeys(range(4), 0) | dict.fromkeys(range(4, 8), 1)
    assert topology.cpu_affinity[7] == "48-95,144-191"
    pairs = gpu_topology.parse_p2p(gpu_outputs.text("590-pro6000x8-topo-p2p-r.txt"))
    assert (len(pairs), pairs[0, 3], pairs[3, 4]) == (28, "OK", "CNS")


def test_topology_of_an_old_driver_or_a_container_lacks_columns() -> None:
    old = "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\nGPU0\t X \tNV6\tPIX\t0-23,48-71\nGPU1\tNV6\t X \tPXB\t0-23,48-71\n"
    topology = gpu_topology.parse_topology(old)
    assert (topology.links, topology.cpu_affinity[1], topology.numa_nodes) == ((Link(0, 1, "NV6"),), "0-23,48-71", {})
    container = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t\t\t\tN/A\n"
    assert gpu_topology.parse_topology(container) == gpu_topology.Topology()
    nodes = "\n\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\t0-1\n"
    assert gpu_topology.parse_topology(nodes) == gpu_topology.Topology((), {0: "0-7"}, {})


@pytest.mark.parametrize(
    "text", ["", "No devices were found", "Legend:\n\tGPU0\nGPU0\tX\n", "\tGPU0\tGPU1\n", "GPU\0" * 9, "X" * 3_000_000]
)
def test_text_without_a_table_says_so(text: str) -> None:
    assert gpu_topology.parse_topology(text).problem == "no table of GPUs in its output"
    assert gpu_topology.parse_p2p(text) == {}


def test_cells_that_are_none_are_left_out_and_a_bad_direction_counts() -> None:
    text = " \tGPU0\tGPU1\tGPU2\n GPU0\tX\tOK\t<b>\n GPU1\tNS\tX\n GPU2\tOK\tU\tX\tOK\n"
    assert gpu_topology.parse_p2p(text) == {(0, 1): "NS", (0, 2): "OK", (1, 2): "U"}
    assert gpu_topology.parse_topology(text).links == ()


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8", {0, 1, 2, 3, 8}),
        ("5", {5}),
        (" 0 - 1", set()),
        ("3-1", set()),
        ("0-999999", set()),
        ("N/A", set()),
        ("", set()),
        ("0,,1", set()),
        ("0-99999999999999", set()),
    ],
)
def test_lists_of_cpus_are_read_and_nonsense_is_empty(text: str, cpus: set[int]) -> None:
    assert gpu_topology.parse_cpus(text) == cpus


def test_p2p_of_both_directions_is_joined() -> None:
    report = gpu.with_p2p(Report("ok", ""), {(0, 1): "OK", (0, 2): "OK"}, {(0, 1): "CNS", (1, 2): "OK"})
    assert report.p2p == (P2p(0, 1, "OK", "CNS"), P2p(0, 2, "OK", ""), P2p(1, 2, "", "OK"))
    assert [pair.works for pair in report.p2p] == [False, True, True]


def test_nodes_of_the_kernel_fill_what_the_topology_does_not_tell() -> None:
    report = Report(
        "ok", "", gpus=(Gpu(0, "a", bus_id="0000:01:00.0"), Gpu(1, "b", bus_id="0000:02:00.0"), Gpu(2, "c"))
    )
    joined = gpu.with_topology(report, gpu_topology.Topology(numa_nodes={0: 3}), {"0000:01:00.0": 7, "0000:02:00.0": 1})
    assert [one.numa_node for one in joined.gpus] == [3, 1, None]


def test_notes_are_kept_once() -> None:
    assert gpu.noted(gpu.noted(Report("ok", ""), ["a", "b"]), ["b", "c"]).notes == ("a", "b", "c")
