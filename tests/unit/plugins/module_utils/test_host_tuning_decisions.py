# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is set, put back, left and skipped, for every kind of host; and what is read back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    host_tuning_check,
    host_tuning_plan,
    kernel_cmdline,
    login_limits,
    previous_values,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.cpu_frequency import Policy
from ansible_collections.tokforge.sglang.plugins.module_utils.cpu_frequency import Settings as Frequency
from ansible_collections.tokforge.sglang.plugins.module_utils.host_tuning_plan import Host, Plan, Settings, TuningError

GPU, NIC = "0000:43:00.0", "0000:21:00.0"
PLAIN = Policy("policy0", "/p", (0,), Frequency("schedutil"), "acpi-cpufreq", ("performance", "schedutil"))
WITH_PREFERENCE = dataclasses.replace(
    PLAIN, settings=Frequency("powersave", "balance_performance"), driver="amd-pstate-epp"
)
MACHINE = Host("machine", "", False, "AuthenticAMD", (PLAIN,), (GPU,), False, lambda: False)
EVERYTHING = Settings(
    cpu_governor="performance",
    energy_preference="performance",
    sysctl={"kernel.numa_balancing": 0},
    kernel_options=("nosmt",),
    iommu="pt",
    modprobe={"nvidia_uvm": {"uvm_disable_hmm": 1}},
    acs="off",
    pcie_read_request=4096,
    kernel_package="linux-image-6.1.0-28-amd64",
    limits={"memlock": "unlimited"},
    shm_size="64G",
)


def plan_of(settings: Settings, host: Host = MACHINE, **notes: Any) -> Plan:
    return host_tuning_plan.decide(settings, host, notes.pop("noted", notes), host_tuning_plan.Paths(record_dir="/r"))


def does(plan: Plan) -> dict[str, str]:
    return {name: step["do"] for name, step in plan.steps.items()}


def test_nothing_asked_and_nothing_noted_leaves_everything() -> None:
    plan = plan_of(Settings())
    # These two look at their own files, and do nothing where there are none.
    assert {name for name, do in does(plan).items() if do != "leave"} == {"modprobe", "limits"}
    assert (plan.boot, plan.skipped) == ({}, [])


def test_machine_gets_everything() -> None:
    plan = plan_of(EVERYTHING, dataclasses.replace(MACHINE, policies=(WITH_PREFERENCE,)))
    assert set(does(plan).values()) == {"set"}
    assert plan.skipped == []
    assert plan.boot == {
        "schema_version": 1,
        "sys_cpu": "/sys/devices/system/cpu",
        "sys_pci": "/sys/bus/pci",
        "record_dir": "/r",
        "cpu": {"governor": "performance", "energy_preference": "performance"},
        "acs": "off",
        "read_request": {"devices": ["gpus"], "bytes": 4096},
    }


def test_container_gets_only_what_is_its_own_and_each_other_thing_is_skipped_with_a_reason() -> None:
    plan = plan_of(EVERYTHING, dataclasses.replace(MACHINE, kind="container", container="lxc"))
    assert {name for name, do in does(plan).items() if do == "set"} == {"limits", "shm"}
    assert plan.boot == {}
    assert [each["what"] for each in plan.skipped] == [
        "CPU governor performance",
        "energy preference performance",
        "kernel parameters kernel.numa_balancing",
        "kernel options nosmt",
        "IOMMU mode pt",
        "options of kernel modules nvidia_uvm",
        "access control services off",
        "PCI Express read requests of 4096 bytes",
        "kernel package linux-image-6.1.0-28-amd64",
    ]
    assert {each["why"] for each in plan.skipped} == {
        "this is a container (lxc) and its kernel is that of the machine below it; set it there"
    }


def test_machine_without_cpu_frequencies_and_driver_without_preference_are_skipped() -> None:
    plan = plan_of(EVERYTHING, dataclasses.replace(MACHINE, policies=()))
    assert does(plan)["cpu"] == "leave" and "cpu" not in plan.boot
    assert [each["what"] for each in plan.skipped] == ["CPU governor performance"]
    plan = plan_of(EVERYTHING)
    assert plan.steps["cpu"]["energy_preference"] == ""
    assert plan.skipped == [
        {"what": "energy preference performance", "why": "the driver of the CPUs (acpi-cpufreq) has none"}
    ]


def test_machine_without_gpus_skips_what_is_for_them() -> None:
    plan = plan_of(EVERYTHING, dataclasses.replace(MACHINE, gpus=()))
    assert (does(plan)["acs"], does(plan)["read_request"]) == ("leave", "leave")
    assert [each["what"].split()[0] for each in plan.skipped] == ["energy", "access", "PCI"]
    plan = plan_of(Settings(pcie_read_request=512, pcie_devices=("gpus", NIC.upper(), NIC)))
    assert plan.steps["read_request"]["devices"] == [GPU, NIC]


def test_units_with_another_name_are_earlier_ones() -> None:
    notes = {"host_tuning_unit/b": True, "host_tuning_unit/now": True, "host_tuning_unit/a": True, "tuned": {}}
    assert host_tuning_plan.earlier_units(notes, "now") == ["a", "b"]
    assert host_tuning_plan.earlier_units({}, "now") == []


def test_gpus_of_virtual_machines_are_left_out_and_told() -> None:
    mixed = dataclasses.replace(MACHINE, gpus=(GPU, "0000:44:00.0"), given_to_vms=(NIC, "0000:44:00.0"))
    asked = Settings(acs="off", pcie_read_request=4096, pcie_devices=("gpus", NIC))
    notes = {f"pcie_read_request/{NIC}": {}, "pcie_read_request_read_only/0000:44:00.0": {}}
    plan = plan_of(asked, mixed, noted=notes)
    assert plan.steps["acs"] == {"do": "set"}
    assert plan.steps["read_request"] == {"do": "set", "devices": [GPU], "bytes": 4096, "drop": []}
    why = "the driver vfio-pci gives them to virtual machines"
    assert plan.skipped == [
        {
            "what": "access control services off above 0000:44:00.0",
            "why": f"{why}, and these services keep virtual machines apart",
        },
        {"what": f"PCI Express read requests of 4096 bytes of 0000:44:00.0, {NIC}", "why": why},
        {"what": f"putting back PCI Express read requests of {NIC}", "why": why},
    ]


def test_host_whose_gpus_are_all_given_away_gets_its_bridges_put_back() -> None:
    given = dataclasses.replace(MACHINE, given_to_vms=(GPU,))
    plan = plan_of(Settings(acs="off", pcie_read_request=512), given, noted={"pcie_acs/0000:40:01.1": {}})
    assert (plan.steps["acs"], plan.steps["read_request"]["do"], plan.boot) == ({"do": "restore"}, "leave", {})
    assert plan_of(Settings(acs="off"), given).steps["acs"] == {"do": "leave"}
    # Not asked for: nothing to tell.
    assert plan_of(Settings(), given).skipped == []


@pytest.mark.parametrize(
    ("manager", "installed", "apt", "noted", "tuned", "install", "update"),
    [
        ("auto", False, False, False, "leave", False, False),
        ("auto", False, True, False, "set", True, False),
        ("auto", True, False, False, "set", False, False),
        ("auto", False, False, True, "set", True, False),
        ("tuned", False, False, False, "set", True, True),
        ("tuned", True, False, False, "set", False, False),
        ("unit", True, True, False, "leave", False, False),
        ("unit", True, True, True, "restore", False, False),
    ],
)
def test_who_sets_the_governor(
    manager: str, installed: bool, apt: bool, noted: bool, tuned: str, install: bool, update: bool
) -> None:
    host = dataclasses.replace(MACHINE, tuned_installed=installed, apt_has_tuned=lambda: apt)
    plan = plan_of(Settings(cpu_governor="performance", cpu_manager=manager), host, **({"tuned": {}} if noted else {}))
    step = plan.steps["cpu"]
    assert (step["tuned"], step["install_tuned"], step["update_apt"]) == (tuned, install, update)
    assert ("cpu" in plan.boot) is (tuned != "set")


def test_preference_is_set_by_the_unit_also_with_tuned() -> None:
    host = dataclasses.replace(MACHINE, policies=(WITH_PREFERENCE,), tuned_installed=True)
    plan = plan_of(Settings(cpu_governor="performance", energy_preference="performance"), host)
    assert plan.steps["cpu"]["tuned"] == "set"
    assert plan.boot["cpu"] == {"governor": "performance", "energy_preference": "performance"}


def test_preference_that_is_not_asked_for_any_more_is_put_back_before_the_governor_is_set() -> None:
    noted = {"host_tuning_energy_preference": True, "cpu_governor/policy0": {}}
    assert plan_of(Settings(cpu_governor="performance"), noted=noted).steps["cpu"]["restore_first"] is True
    assert plan_of(Settings(), noted=noted).steps["cpu"]["do"] == "restore"
    with pytest.raises(TuningError, match="no governor is asked for"):
        plan_of(Settings(energy_preference="performance"))


@pytest.mark.parametrize(
    ("note", "step"),
    [
        ("cpu_governor/policy0", "cpu"),
        ("tuned", "cpu"),
        ("kernel_parameter/vm.swappiness", "sysctl"),
        ("host_tuning_token/iommu=pt", "cmdline"),
        ("pcie_acs/0000:40:01.1", "acs"),
        ("pcie_read_request/0000:43:00.0", "read_request"),
        ("pcie_read_request_read_only/0000:43:00.0", "read_request"),
        ("kernel_package/linux-image-6.1.0-28-amd64", "kernel_package"),
        ("kernel_pin", "kernel_package"),
        ("shared_memory//dev/shm", "shm"),
    ],
)
def test_what_is_noted_and_not_asked_for_is_put_back(note: str, step: str) -> None:
    found = does(plan_of(Settings(), noted={note: {}}))
    assert found[step] == "restore"
    assert [name for name, do in found.items() if do == "restore"] == sorted(
        {step, "modprobe", "limits"}, key=list(found).index
    )


def test_tokens_that_are_not_asked_for_any_more_are_dropped_and_those_with_another_value_replaced() -> None:
    noted = {f"host_tuning_token/{token}": True for token in ("iommu=pt", "nosmt", "pci=noacs", "pci=realloc")}
    changed: dict[str, Any] = {f"kernel_cmdline//etc/default/grub/{name}": [] for name in ("iommu", "nosmt", "pci")}
    step = plan_of(Settings(kernel_options=("iommu=nopt", "pci=noacs")), noted={**noted, **changed}).steps["cmdline"]
    assert step["tokens"] == ["iommu=nopt", "pci=noacs"]
    assert step["drop"] == ["nosmt", "pci=realloc"]
    assert list(step["forget"]) == [f"host_tuning_token/{token}" for token in ("iommu=pt", "nosmt", "pci=realloc")]
    assert list(step["notes"]) == ["host_tuning_token/iommu=nopt", "host_tuning_token/pci=noacs"]


def test_sizes_of_huge_pages_keep_their_numbers_when_they_go() -> None:
    tokens = ["hugepagesz=1G", "hugepages=16", "hugepagesz=2M", "hugepages=512"]
    first = plan_of(Settings(kernel_options=tokens)).steps["cmdline"]
    pairs = ["host_tuning_token/hugepagesz=1G hugepages=16", "host_tuning_token/hugepagesz=2M hugepages=512"]
    assert list(first["notes"]) == pairs
    noted = {**first["notes"], "kernel_cmdline//f/hugepages": []}
    gone = plan_of(Settings(), noted=noted).steps["cmdline"]
    assert (gone["drop"], list(gone["forget"])) == (tokens, pairs)
    less = plan_of(Settings(kernel_options=[*tokens[:1], "hugepages=8"]), noted=noted).steps["cmdline"]
    assert (less["drop"], list(less["forget"])) == (tokens[2:], pairs)
    assert (
        kernel_cmdline.restore(" ".join(tokens), kernel_cmdline.wanted(gone["drop"]), {"hugepages": []}, "kernel") == ""
    )


def test_file_of_ours_goes_also_when_the_notes_are_lost() -> None:
    assert plan_of(Settings(), dataclasses.replace(MACHINE, has_sysctl_file=True)).steps["sysctl"]["do"] == "restore"


def test_token_that_was_never_set_is_forgotten_and_not_put_back() -> None:
    # Noted, and then the configuration of the boot loader could not be edited; or it was there before.
    step = plan_of(Settings(), noted={"host_tuning_token/nosmt": True, "kernel_cmdline//f/iommu": []}).steps["cmdline"]
    assert (step["drop"], list(step["forget"])) == ([], ["host_tuning_token/nosmt"])


@pytest.mark.parametrize(
    ("mode", "vendor", "tokens"),
    [
        ("unchanged", "", []),
        ("pt", "GenuineIntel", ["intel_iommu=on", "iommu=pt"]),
        ("pt", "AuthenticAMD", ["iommu=pt"]),
        ("on", "GenuineIntel", ["intel_iommu=on", "iommu=nopt"]),
        ("on", "HygonGenuine", ["iommu=nopt"]),
        ("off", "GenuineIntel", ["intel_iommu=off"]),
        ("off", "AuthenticAMD", ["amd_iommu=off"]),
    ],
)
def test_iommu_mode_in_tokens(mode: str, vendor: str, tokens: list[str]) -> None:
    assert host_tuning_plan.iommu_tokens(mode, vendor) == tokens
    cpuinfo = f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t: x\n"
    assert host_tuning_plan.cpu_vendor(cpuinfo) == vendor


def test_iommu_of_other_makers_is_refused() -> None:
    assert host_tuning_plan.cpu_vendor("processor : 0\n") == ""
    with pytest.raises(TuningError, match="an unknown maker"):
        host_tuning_plan.iommu_tokens("pt", "")


def test_limits_are_for_all_and_for_root() -> None:
    text = login_limits.rendered({"nofile": 1048576, "memlock": "unlimited"})
    assert text.splitlines()[1:] == [
        "* - memlock unlimited",
        "root - memlock unlimited",
        "* - nofile 1048576",
        "root - nofile 1048576",
    ]
    assert login_limits.rendered({}) == ""


@pytest.mark.parametrize(
    "limits", [{"maxlogins": 1}, {"nofile": "many"}, {"nofile": True}, {"nofile": 1.5}, {"x\ny": 1}]
)
def test_limit_that_is_none_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(login_limits.LimitError, match=r"limits\.conf"):
        plan_of(Settings(limits=limits))


def test_wrong_size_and_wrong_read_request_are_refused_before_anything_is_changed() -> None:
    with pytest.raises(Exception, match="this is no size"):
        plan_of(Settings(shm_size="64 gigs"))
    with pytest.raises(TuningError, match="there is no such size"):
        plan_of(Settings(pcie_read_request=3000))


def test_kernel_is_pinned_on_proxmox_only() -> None:
    package = "proxmox-kernel-6.8.12-4-pve-signed"
    assert plan_of(Settings(kernel_package=package)).steps["kernel_package"]["pin"] is False
    step = plan_of(Settings(kernel_package=package), dataclasses.replace(MACHINE, proxmox=True)).steps["kernel_package"]
    assert (step["pin"], step["release"]) == (True, "6.8.12-4-pve")


class System:
    """What is read back, in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        names = (
            "sys_cpu",
            "sys_pci",
            "sys_module",
            "proc_sys",
            "proc_cmdline",
            "limits_file",
            "proc_first",
            "shm",
            "fstab",
        )
        more = ("tuned_config", "unit_link", "record_dir")
        self.paths = host_tuning_check.Paths(
            **{name: str(root / name) for name in (*names, *more)}, unit="tokforge-host"
        )
        self.put("proc_sys/kernel/numa_balancing", "1\n")
        self.put("proc_cmdline", "quiet iommu=pt\n")
        for name, text in {
            "affected_cpus": "0",
            "scaling_driver": "x",
            "scaling_governor": "schedutil",
            "scaling_available_governors": "performance",
            "energy_performance_preference": "power",
            "energy_performance_available_preferences": "power performance",
        }.items():
            self.put(f"sys_cpu/cpufreq/policy0/{name}", f"{text}\n")

    def put(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def look(self, settings: Settings, host: Host = MACHINE, size: int = 0) -> host_tuning_check.Look:
        return host_tuning_check.look(plan_of(settings, host), "6.1.0-1-amd64", self.paths, lambda _point: size)


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def test_what_is_wrong_names_setting_wanted_and_found(system: System) -> None:
    host = dataclasses.replace(MACHINE, policies=(WITH_PREFERENCE,), tuned_installed=True)
    asked = dataclasses.replace(EVERYTHING, acs="unchanged", pcie_read_request=0)
    found = system.look(asked, host, 4096)
    assert [each.text.replace(str(system.root), "") for each in found.wrong(after_reboot=False)] == [
        "governor of CPU 0 (policy0): wanted performance, found schedutil",
        "energy preference of CPU 0 (policy0): wanted performance, found power",
        "TuneD's profile: wanted tokforge-host, found none",
        "kernel.numa_balancing: wanted 0, found 1",
        "limits: wanted those asked for in /limits_file, found others",
        "size of /shm: wanted 68719476736 bytes, found 4096 bytes",
        "size of /shm in /fstab: wanted 64G, found no size",
        "unit tokforge-host: wanted enabled, found no /unit_link",
    ]
    waits = [
        "kernel command line: wanted nosmt, found quiet iommu=pt",
        "running kernel: wanted 6.1.0-28-amd64, found 6.1.0-1-amd64",
    ]
    assert found.pending(after_reboot=False) == waits
    assert found.notes == [
        "parameter uvm_disable_hmm of kernel module nvidia_uvm becomes 1 when the module is loaded, which it is not yet"
    ]
    # After the reboot nothing waits for it any more. A module that is not loaded is no failure.
    assert {each.text for each in found.wrong(after_reboot=True)} > set(waits)
    assert found.pending(after_reboot=True) == []
    assert all("nvidia_uvm" not in each.text for each in found.wrong(after_reboot=True))


def test_nothing_is_wrong_when_all_is_as_asked(system: System) -> None:
    system.put("sys_cpu/cpufreq/policy0/scaling_governor", "performance\n")
    system.put("sys_cpu/cpufreq/policy0/energy_performance_preference", "performance\n")
    system.put("proc_sys/kernel/numa_balancing", "0\n")
    system.put("proc_cmdline", "nosmt quiet iommu=pt\n")
    system.put("sys_module/nvidia_uvm/parameters/uvm_disable_hmm", "Y\n")
    system.put("limits_file", login_limits.rendered({"memlock": "unlimited"}))
    system.put("fstab", f"tmpfs {system.paths.shm} tmpfs size=64G 0 0\n")
    system.put("unit_link", "")
    asked = dataclasses.replace(EVERYTHING, acs="unchanged", pcie_read_request=0, kernel_package="")
    plan = plan_of(asked, dataclasses.replace(MACHINE, policies=(WITH_PREFERENCE,)))
    # The mount point of the plan and that of the check are the same in the module.
    found = host_tuning_check.look(plan, "6.1.0-1-amd64", system.paths, lambda _point: 64 << 30)
    assert (found.differences, found.notes, found.still) == ([], [], [])


def test_module_option_with_another_value_waits_for_a_reboot_and_is_wrong_after_it(system: System) -> None:
    system.put("sys_module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n")
    found = system.look(Settings(modprobe={"nvidia_uvm": {"uvm_disable_hmm": 1}}))
    text = "parameter uvm_disable_hmm of kernel module nvidia_uvm: wanted 1, found N"
    assert (found.wrong(False), found.pending(False)) == ([], [text])
    assert ([each.text for each in found.wrong(True)], found.pending(True)) == ([text], [])


def test_option_that_is_not_shown_is_a_note_and_one_that_was_dropped_stays_until_a_reboot(system: System) -> None:
    system.put("sys_module/nvidia/parameters/other", "1\n")
    system.put("sys_module/nvidia_uvm/parameters/uvm_disable_hmm", "Y\n")
    host = dataclasses.replace(MACHINE, modprobe_before={"nvidia_uvm": {"uvm_disable_hmm": "1"}, "gone": {"x": "1"}})
    found = system.look(Settings(modprobe={"nvidia": {"NVreg_X": 1}}), host)
    assert found.differences == []
    assert "NVreg_X of kernel module nvidia is not shown" in found.notes[0]
    assert len(found.still) == 1 and "it is not set any more" in found.pending(False)[0]


def test_device_that_ignores_the_size_is_a_note(system: System) -> None:
    data = bytearray(256)
    data[0:8] = bytes.fromhex("de10b52b00001000")
    data[0x34] = 0x60
    data[0x60:0x70] = bytes.fromhex("10000200018000001028090000000000")
    path = system.root / "sys_pci/devices" / GPU / "config"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    asked = Settings(pcie_read_request=4096)
    found = system.look(asked)
    assert found.differences[0].text == f"read request of {GPU}: wanted 4096, found 512"
    previous_values.remember(system.paths.record_dir, {f"pcie_read_request_read_only/{GPU}": {}})
    found = system.look(asked)
    assert found.notes == [f"{GPU} ignores another read request size and stays at 512 bytes"]
    assert [each.setting for each in found.differences] == ["unit tokforge-host"]


FIRST = """Limit                     Soft Limit           Hard Limit           Units
Max locked memory         8388608              8388608              bytes
Max open files            1024                 524288               files
Max processes             unlimited            unlimited            processes
"""
HOST_MAP, GUEST_MAP = "         0          0 4294967295\n", "         0     100000      65536\n"


@pytest.mark.parametrize(
    ("capabilities", "uid_map", "told"),
    [
        ("000001ffffffffff", HOST_MAP, []),
        ("000001ffffffffff", GUEST_MAP, ["memlock: unlimited", "nofile: 1048576"]),
        ("000001fffeffffff", HOST_MAP, ["memlock: unlimited", "nofile: 1048576"]),
    ],
)
def test_limits_that_no_session_of_a_container_can_have_are_told(
    capabilities: str, uid_map: str, told: list[str]
) -> None:
    asked = {"memlock": "unlimited", "nofile": 1048576, "nproc": "unlimited", "rtprio": 99}
    found = login_limits.out_of_reach(asked, FIRST, f"CapEff:\t0\nCapBnd:\t{capabilities}\n", uid_map)
    assert [line.split(" is asked")[0].removeprefix("limit ") for line in found] == told
    if told:
        assert "more than 8192; raise it on the hypervisor (lxc.prlimit.memlock" in found[0]
        assert "more than 524288;" in found[1]


def test_limits_that_a_container_can_have_and_what_cannot_be_read_are_not_told() -> None:
    status = "CapBnd:\t000001fffeffffff\n"
    assert login_limits.out_of_reach({"memlock": 8192, "nofile": 524288}, FIRST, status, HOST_MAP) == []
    assert len(login_limits.out_of_reach({"memlock": 8193, "nofile": 524289}, FIRST, status, HOST_MAP)) == 2
    assert login_limits.out_of_reach({"memlock": "unlimited"}, "", status, HOST_MAP) == []
    assert login_limits.out_of_reach({"memlock": "unlimited"}, FIRST, "", "") == []


@pytest.mark.parametrize("value", ["--5", "\u00b2", "\u0663", "-5", -5, "5\n* hard nproc 1", "9" * 20])
def test_limit_whose_number_pam_would_not_take_is_refused(value: Any) -> None:
    with pytest.raises(login_limits.LimitError, match="this is no item and value"):
        login_limits.rendered({"nofile": value})


def test_limits_that_may_be_below_zero_are_taken() -> None:
    assert "* - nice -20\n" in login_limits.rendered({"nice": -20, "nofile": "1048576"})
    assert "root - memlock -1\n" in login_limits.rendered({"memlock": -1})


def test_later_file_that_gives_everybody_another_limit_is_wrong(system: System) -> None:
    asked = Settings(limits={"memlock": "unlimited", "nofile": 1048576})
    system.put("limits_file", plan_of(asked).steps["limits"]["text"])
    assert system.look(asked).differences == []
    system.put("a.conf", "* - nofile 1\n")
    system.put(
        "zz.conf", "# * - nofile 1\n* hard memlock -1 # the same\nbob - nofile 1\n* - core 0\nroot soft nofile 64\n"
    )
    system.put("zz.txt", "* - nofile 1\n")
    (system.root / "zzz.conf").mkdir()
    assert [each.text for each in system.look(asked).wrong(after_reboot=False)] == [
        f"limit nofile: wanted 1048576, found 64 in {system.root}/zz.conf line 5, which comes later"
    ]
