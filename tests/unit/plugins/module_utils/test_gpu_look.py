# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a machine: which programs are asked, what the kernel tells, and that nothing is ever an exception."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import gpu_outputs
import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu_look, gpu_xml
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import PciDevice
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu_look import Places

OPEN_VERSION = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.44.01  Release Build  (builder@host)\n"
    "GCC version:  gcc version 13.3.0\n"
)
CLOSED_VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.44.01  Wed Dec  3 20:00:00 UTC 2025\n"
MISMATCH = b"Failed to initialize NVML: Driver/library version mismatch\n"
NO_DEVICES = b"No devices were found\n"
LOST = b"Unable to determine the device handle for GPU2: 0000:21:00.0: Unknown Error\n"


class Machine:
    """Programs that answer as they are told to, and the kernel's files below a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.answers: dict[str, bytes | tuple[int, bytes, bytes] | Exception] = {}
        self.asked: list[str] = []
        self.places = Places(str(root / "proc"), str(root / "sys"), str(root / "dev"), (str(root / "lib"),))

    def run(self, command: Sequence[str], timeout_s: float) -> tuple[int, bytes, bytes]:
        line = " ".join(command)
        self.asked.append(line)
        assert timeout_s == 10
        answer = self.answers.get(line, FileNotFoundError(2, "No such file or directory"))
        if isinstance(answer, Exception):
            raise answer
        return (0, answer, b"") if isinstance(answer, bytes) else answer

    def file(self, path: str, text: str = "") -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def pci(
        self, bus_id: str, vendor: str = "0x10de", kind: str = "0x030200", device: str = "0x2bb5", node: str = ""
    ) -> None:
        for name, text in (("vendor", vendor), ("class", kind), ("device", device), ("numa_node", node)):
            self.file(f"sys/bus/pci/devices/{bus_id}/{name}", text + "\n")

    def driver(self, version: str = OPEN_VERSION, gpus: int = 0) -> None:
        self.file("proc/driver/nvidia/version", version)
        for index in range(gpus):
            where = f"proc/driver/nvidia/gpus/{gpu_outputs.bus_id(index)}/information"
            self.file(where, f"Model: \t\t NVIDIA\nDevice Minor: \t {index}\n")

    def look(self) -> gpu_look.Report:
        return gpu_look.look(self.run, self.places)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


QUERY = "nvidia-smi -q -x"
CAPABILITIES = "nvidia-smi --query-gpu=pci.bus_id,compute_cap --format=csv,noheader"
TOPOLOGY = "nvidia-smi topo -m"
P2P_READ = "nvidia-smi topo -p2p r"
P2P_WRITE = "nvidia-smi topo -p2p w"
LICENSE = "modinfo -F license nvidia"


@pytest.fixture
def eight(machine: Machine) -> Machine:
    """A machine with eight GPUs and all that belongs to it."""
    p2p = gpu_outputs.text("590-pro6000x8-topo-p2p-r.txt").encode()
    machine.answers = {
        QUERY: gpu_outputs.pro6000(8),
        CAPABILITIES: "".join(f"0000{gpu_outputs.bus_id(index).upper()}, 12.0\n" for index in range(8)).encode(),
        TOPOLOGY: gpu_outputs.text("590-pro6000x8-topo-m.txt").encode(),
        P2P_READ: p2p,
        P2P_WRITE: p2p.replace(b"OK", b"NS", 1),
        LICENSE: b"Dual MIT/GPL\n",
    }
    machine.driver(gpus=8)
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in range(8))):
        machine.file(f"dev/{name}")
    for index in range(8):
        machine.pci(gpu_outputs.bus_id(index), node="0")
    machine.file("proc/self/status", "Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t0-47\n")
    return machine


def test_everything_of_a_machine_is_in_the_report(eight: Machine) -> None:
    report = eight.look()
    assert (report.state, len(report.gpus), report.notes, report.missing_nodes) == ("ok", 8, (), ())
    assert (report.driver_version, report.cuda_version, report.kernel_module) == ("590.44.01", "13.1", "open")
    assert {one.compute_capability for one in report.gpus} == {(12, 0)}
    assert {one.capability_source for one in report.gpus} == {"driver"}
    assert [one.numa_node for one in report.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert report.gpus[4].cpu_affinity == "48-95,144-191"
    assert (len(report.links), len(report.p2p), report.allowed_cpus) == (28, 28, "0-47")
    assert (report.p2p[0].read, report.p2p[0].write) == ("OK", "NS")
    assert report.pci[1] == PciDevice("0000:11:00.0", 0x2BB5) and len(report.pci) == 8
    assert sorted(eight.asked) == sorted([QUERY, CAPABILITIES, TOPOLOGY, P2P_READ, P2P_WRITE, LICENSE])


def test_all_questions_are_asked_at_once(eight: Machine) -> None:
    together = threading.Barrier(6, timeout=5)

    def run(command: Sequence[str], timeout_s: float) -> tuple[int, bytes, bytes]:
        together.wait()
        return eight.run(command, timeout_s)

    assert gpu_look.look(run, eight.places).state == "ok"


def test_machine_without_anything_has_no_tool(machine: Machine) -> None:
    report = machine.look()
    assert (report.state, report.gpus, report.kernel_module, report.pci) == ("no_tool", (), "unknown", ())
    assert report.message == "nvidia-smi is not installed"
    assert "lane cpu" in report.remedy
    assert (report.missing_nodes, report.notes, report.allowed_cpus) == ((), (), "")


def test_hung_nvidia_smi_is_a_timeout(eight: Machine) -> None:
    eight.answers[QUERY] = TimeoutError()
    report = eight.look()
    assert (report.state, report.message) == ("timeout", "nvidia-smi -q -x did not end within 10 s")
    assert (report.driver_version, report.kernel_module, len(report.pci)) == ("590.44.01", "open", 8)
    assert "xid" in report.remedy


@pytest.mark.parametrize(
    ("error", "words"),
    [(PermissionError(13, "Permission denied"), "Permission denied"), (OSError("odd"), "odd")],
)
def test_program_that_cannot_be_run_is_told(eight: Machine, error: OSError, words: str) -> None:
    eight.answers[QUERY] = error
    report = eight.look()
    assert (report.state, report.message) == ("unreadable", f"running nvidia-smi: {words}")


def test_capabilities_by_name_when_the_driver_does_not_know_the_field(eight: Machine) -> None:
    eight.answers[CAPABILITIES] = (2, b'Field "compute_cap" is not a valid field to query.\n\n', b"")
    report = eight.look()
    assert {(one.compute_capability, one.capability_source) for one in report.gpus} == {((12, 0), "name")}


def test_answer_of_a_failed_question_does_not_count(eight: Machine) -> None:
    eight.answers[CAPABILITIES] = (3, b"00000000:01:00.0, 1.0\n", b"")
    assert eight.look().gpus[0].compute_capability == (12, 0)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (TimeoutError(), "nvidia-smi topo -m did not end within 10 s"),
        ((6, b"", b"Failed to query topology\n"), "it ended with code 6: Failed to query topology"),
        (b"", "no table of GPUs in its output"),
    ],
)
def test_topology_that_nobody_tells_is_noted_and_nodes_come_from_the_kernel(
    eight: Machine, answer: bytes | tuple[int, bytes, bytes] | Exception, why: str
) -> None:
    eight.answers[TOPOLOGY] = answer
    report = eight.look()
    assert (report.state, report.links) == ("ok", ())
    assert report.notes == (f"how the GPUs are connected is not known, from `nvidia-smi topo -m`: {why}",)
    assert {one.numa_node for one in report.gpus} == {0}


def test_node_that_the_kernel_does_not_know_is_none(eight: Machine) -> None:
    eight.answers[TOPOLOGY] = b""
    eight.pci(gpu_outputs.bus_id(3), node="-1")
    assert [one.numa_node for one in eight.look().gpus] == [0, 0, 0, None, 0, 0, 0, 0]


def test_p2p_that_nobody_tells_is_noted(eight: Machine) -> None:
    eight.answers[P2P_READ] = TimeoutError()
    report = eight.look()
    assert report.notes == (
        "whether P2P works between the GPUs is not known, from `nvidia-smi topo -p2p r`: nvidia-smi topo -p2p r did "
        "not end within 10 s",
    )
    assert report.p2p[0].read == ""


def test_single_gpu_needs_no_connections(eight: Machine) -> None:
    eight.answers.update({QUERY: gpu_outputs.pro6000(1), TOPOLOGY: b"", P2P_READ: b"", P2P_WRITE: b""})
    report = eight.look()
    assert (report.state, report.notes, report.links) == ("ok", (), ())


# --- kernel module ---


@pytest.mark.parametrize(
    ("version", "taint", "license_", "kind"),
    [
        (OPEN_VERSION, "POE", "NVIDIA", "open"),
        (CLOSED_VERSION, "OE", "Dual MIT/GPL", "proprietary"),
        ("", "POE", "Dual MIT/GPL", "proprietary"),
        ("", "OE", "NVIDIA", "open"),
        ("", "", "NVIDIA\n", "proprietary"),
        ("", None, "Dual MIT/GPL", "open"),
        ("", None, "GPL", "unknown"),
        ("garbage", None, "", "unknown"),
    ],
)
def test_kind_of_the_module_is_what_the_loaded_one_says(
    version: str, taint: str | None, license_: str, kind: str
) -> None:
    assert gpu_look.module_kind(version, taint, license_) == kind


@pytest.mark.parametrize(
    ("modules", "kind"),
    [
        ("nvidia_uvm 4 0 - Live 0x0 (OE)\nnvidia 104 2 nvidia_uvm, Live 0x0 (POE)\n", "proprietary"),
        ("nvidia 104 2 nvidia_uvm, Live 0x0000000000000000 (OE)\n", "open"),
        ("nvidia 104 0 - Live 0x0\n", "unknown"),
        ("snd 1 0 - Live 0x0\n\n", "unknown"),
    ],
)
def test_taint_of_the_loaded_module_tells_its_kind(machine: Machine, modules: str, kind: str) -> None:
    machine.file("proc/modules", modules)
    assert machine.look().kernel_module == kind


def test_version_of_the_module_comes_from_sysfs_when_proc_has_none(machine: Machine) -> None:
    machine.file("sys/module/nvidia/version", "580.95.05\n")
    assert machine.look().driver_version == "580.95.05"


@pytest.mark.parametrize(
    ("said", "libraries", "library"),
    [
        (MISMATCH + b"NVML library version: 580.82\n", ["libnvidia-ml.so.1", "libnvidia-ml.so.580.82.07"], "580.82.07"),
        (MISMATCH + b"NVML library version: 580.82\n", ["libnvidia-ml.so.580.8"], "580.82"),
        (MISMATCH + b"NVML library version: 580.82\n", [], "580.82"),
        (MISMATCH, ["libnvidia-ml.so.470.182.03"], "470.182.03"),
        (MISMATCH, [], ""),
    ],
)
def test_mismatch_names_both_versions(machine: Machine, said: bytes, libraries: Sequence[str], library: str) -> None:
    machine.answers[QUERY] = (18, said, b"")
    machine.driver()
    for name in libraries:
        machine.file(f"lib/{name}")
    report = machine.look()
    assert (report.state, report.library_version, report.driver_version) == ("mismatch", library, "590.44.01")
    assert report.message == (
        f"the NVIDIA library has version {library or 'unknown'} and the loaded kernel module has 590.44.01"
    )
    assert report.remedy.endswith("without kernel modules (590.44.01)")


def test_mismatch_without_a_module_version_says_unknown(machine: Machine) -> None:
    machine.answers[QUERY] = (18, MISMATCH, b"")
    report = machine.look()
    assert report.message.endswith("the loaded kernel module has unknown")
    assert report.remedy.endswith("without kernel modules")


def test_blackwell_with_the_closed_module_is_told_where_the_driver_shows_no_device(machine: Machine) -> None:
    machine.answers[QUERY] = (6, NO_DEVICES, b"")
    machine.driver(CLOSED_VERSION)
    machine.pci("0000:01:00.0")
    report = machine.look()
    assert report.state == "no_device"
    assert report.message.startswith(
        "the NVIDIA driver is loaded and shows no GPU: the kernel module 590.44.01 is the propr"
    )
    assert "nvidia-driver-590-open" in report.remedy


@pytest.mark.parametrize(
    ("vendor", "kind", "device"),
    [("0x1002", "0x030000", "0x2bb5"), ("0x10de", "0x040300", "0x2bb5"), ("0x10de", "0x030000", "junk")],
)
def test_only_nvidias_display_controllers_are_gpus(machine: Machine, vendor: str, kind: str, device: str) -> None:
    machine.pci("0000:01:00.0", vendor, kind, device)
    assert machine.look().pci == ()


# --- containers ---


def test_container_without_device_files_names_them(machine: Machine) -> None:
    machine.answers[QUERY] = (255, b"Failed to initialize NVML: Unknown Error\n", b"")
    machine.driver(gpus=2)
    machine.file("dev/nvidiactl")
    report = machine.look()
    assert report.state == "no_device"
    assert report.missing_nodes == ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1")
    assert report.message.endswith("; missing here: /dev/nvidia-uvm, /dev/nvidia0, /dev/nvidia1")
    assert "device cgroup" in report.remedy and "nvidia-modprobe" in report.remedy


def test_container_that_shows_no_gpus_below_proc_needs_the_first_one(machine: Machine) -> None:
    machine.answers[QUERY] = (6, NO_DEVICES, b"")
    machine.file("proc/modules", "nvidia 104 0 - Live 0x0 (OE)\n")
    assert machine.look().missing_nodes == ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")


def test_no_device_with_every_file_there_says_what_the_tool_says(machine: Machine) -> None:
    machine.answers[QUERY] = (6, NO_DEVICES, b"")
    machine.driver()
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0"):
        machine.file(f"dev/{name}")
    report = machine.look()
    assert (report.message, report.missing_nodes) == ("the NVIDIA driver is loaded and shows no GPU", ())


# --- lost GPUs ---


def test_good_gpus_are_asked_for_alone_when_the_list_stops_at_a_lost_one(eight: Machine) -> None:
    whole = {index: gpu_outputs.pro6000(index + 1) for index in range(8)}
    eight.answers[QUERY] = (15, LOST, b"")
    for index in range(8):
        alone = whole[index].decode()
        first, last = alone.index("\t<gpu "), alone.rindex("\t<gpu ")
        answer = (alone[:first] + alone[last:]).replace(f"<attached_gpus>{index + 1}<", "<attached_gpus>1<").encode()
        eight.answers[f"{QUERY} -i {gpu_outputs.bus_id(index)}"] = (15, LOST, b"") if index == 2 else answer
    report = eight.look()
    assert (report.state, [one.index for one in report.gpus]) == ("lost", [0, 1, 3, 4, 5, 6, 7])
    assert report.gpus[2].bus_id == gpu_outputs.bus_id(3)
    assert report.message == (
        "a GPU does not answer the driver: Unable to determine the device handle for GPU2: 0000:21:00.0: Unknown "
        "Error; of 8 GPUs 7 answer, and 0000:21:00.0 does not"
    )
    assert (report.cuda_version, report.gpus[2].compute_capability) == ("13.1", (12, 0))


def test_gpu_that_answers_when_asked_alone_is_listed_and_still_called_lost(machine: Machine) -> None:
    machine.driver(version="", gpus=1)
    machine.answers = {QUERY: (15, LOST, b""), f"{QUERY} -i {gpu_outputs.bus_id(0)}": gpu_outputs.pro6000(1)}
    report = machine.look()
    assert (report.state, len(report.gpus)) == ("lost", 1)
    assert report.message.endswith("Unknown Error; asked alone, all do")
    assert (report.driver_version, report.cuda_version) == ("590.44.01", "13.1")


def test_lost_gpu_of_a_whole_list_is_not_asked_for_again(eight: Machine) -> None:
    eight.answers[QUERY] = gpu_outputs.pro6000(8, {5: {"<gpu_temp>28 C<": "<gpu_temp>ERR!<"}})
    report = eight.look()
    assert (report.state, len(report.gpus), len(eight.asked)) == ("lost", 8, 6)


# --- recorded outputs ---


def test_recorded_outputs_are_looked_at_without_running_anything() -> None:
    report = gpu_look.recorded(
        gpu_outputs.xml("580-h200x2"),
        gpu_outputs.text("580-h200x2-topo-m.txt").encode(),
        gpu_outputs.text("580-h200x2-topo-p2p-r.txt").encode(),
    )
    assert (report.state, report.notes, report.kernel_module) == ("ok", (), "unknown")
    assert (report.links[0].kind, report.p2p[0].read, report.gpus[1].numa_node) == ("NV18", "OK", 0)
    assert report.gpus[0].memory_bandwidth_bytes_s == 4_800_000_000_000


def test_recording_without_tables_says_so() -> None:
    report = gpu_look.recorded(gpu_outputs.xml("580-h200x2"))
    assert [note.rpartition(": ")[2] for note in report.notes] == ["it was not recorded", "it was not recorded"]


# --- running programs ---


def test_program_gives_its_code_and_both_outputs() -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(6)"
    assert gpu_look.run_command([sys.executable, "-S", "-c", code], 10) == (6, b"out\n", b"err\n")


def test_program_that_is_not_there_or_no_program_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        gpu_look.run_command(["no-such-program-of-ours"], 1)
    (tmp_path / "plain").write_text("text")
    with pytest.raises(PermissionError):
        gpu_look.run_command([str(tmp_path / "plain")], 1)


def test_hung_program_is_killed_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"sh did not end within 0\.2 s"):
        gpu_look.run_command(["sh", "-c", f"sleep 60 & echo $! > {mark}; wait"], 0.2)
    assert time.monotonic() - began < 2
    child = int(mark.read_text())
    for _try in range(50):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)
    else:
        pytest.fail("the child lives on")


def test_program_that_cannot_be_killed_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(gpu_look, "_KILL_S", 0.05)
    monkeypatch.setattr(os, "killpg", lambda pid, _signal: killed.append(pid))
    with pytest.raises(TimeoutError):
        gpu_look.run_command(["sleep", "60"], 0.05)
    monkeypatch.undo()
    os.kill(killed[0], 9)
    os.waitpid(killed[0], 0)


def test_program_that_ends_as_it_is_killed_is_a_timeout_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(pid: int, _signal: int) -> None:
        os.kill(pid, 9)
        raise ProcessLookupError

    monkeypatch.setattr(os, "killpg", gone)
    with pytest.raises(TimeoutError):
        gpu_look.run_command(["sleep", "60"], 0.05)


def test_endless_output_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_xml, "MAX_BYTES", 1000)
    code, out, err = gpu_look.run_command([sys.executable, "-S", "-c", "print('x' * 5000)"], 10)
    assert (code, len(out), err) == (0, 1001, b"")


def test_programs_are_found_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert gpu_look.run_command(["true"], 10) == (0, b"", b"")


def test_look_at_this_machines_own_kernel_is_no_exception() -> None:
    def run(command: Sequence[str], timeout_s: float) -> tuple[int, bytes, bytes]:
        raise FileNotFoundError

    began = time.monotonic()
    report = gpu_look.look(run)
    assert report.state == "no_tool" and report.allowed_cpus
    assert time.monotonic() - began < 2


def test_process_on_a_real_h200_is_told_with_its_memory() -> None:
    xml = Path(gpu_outputs.__file__).resolve().parents[3].joinpath("fixtures/gpu/580-h200-busy.xml").read_bytes()
    [one] = gpu_look.recorded(xml).gpus
    [process] = one.processes
    assert (process.pid, process.name, process.kind) == (673, "/usr/bin/python3", "C")
    assert process.memory_bytes == 2658 << 20
    assert one.memory_used_bytes and one.memory_used_bytes > process.memory_bytes
    assert (one.compute_capability, one.persistence, one.pcie_gen_now) == ((9, 0), True, 5)
