# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine is as inventory/group_vars/machines.yml asks, after a reboot."""

from __future__ import annotations

from typing import Any

GPU = "0001:01:00.0"
ABOVE_GPU = "0001:00:00.0"
ADAPTER = "0001:00:02.0"
FIXED = "0001:00:03.0"


def test_machine_started_again(now: dict[str, Any], before: dict[str, Any]) -> None:
    assert now["boot_id"] != before["boot_id"]


def test_every_policy_has_the_governor(now: dict[str, Any], before: dict[str, Any]) -> None:
    assert before["governors"] == {"policy0": "schedutil", "policy1": "schedutil"}
    assert now["governors"] == {"policy0": "performance", "policy1": "performance"}


def test_kernel_parameters_are_set(now: dict[str, Any], before: dict[str, Any]) -> None:
    assert (before["numa_nodes"], before["numa_balancing"], before["hugepages"]) == ("0-1", "1", "0")
    assert (now["numa_balancing"], now["hugepages"]) == ("0", "4")


def test_kernel_was_started_with_the_options_beside_those_it_had(now: dict[str, Any], before: dict[str, Any]) -> None:
    added = ["transparent_hugepage=madvise", "iommu=pt", "intel_iommu=on"]
    assert sorted(now["command_line"]) == sorted(before["command_line"] + added)


def test_module_that_the_initramfs_loads_has_its_option(now: dict[str, Any], before: dict[str, Any]) -> None:
    assert (before["uvm_disable_hmm"], now["uvm_disable_hmm"]) == ("0", "1")


def test_only_devices_asked_for_have_the_read_request(now: dict[str, Any], before: dict[str, Any]) -> None:
    assert set(before["read_requests"].values()) == {512, 128}
    assert now["read_requests"] == before["read_requests"] | {GPU: 4096, ADAPTER: 4096}
    assert now["read_requests"][FIXED] == 128


def test_other_bits_of_device_control_are_kept(now: dict[str, Any], before: dict[str, Any]) -> None:
    assert now["device_controls"] == before["device_controls"]


def test_acs_is_off_above_the_gpu_and_nowhere_else(now: dict[str, Any], before: dict[str, Any]) -> None:
    assert set(before["acs"].values()) == {0x1D}
    assert now["acs"] == before["acs"] | {ABOVE_GPU: 0}


def test_session_has_the_limits(now: dict[str, Any], before: dict[str, Any]) -> None:
    assert before["limits"]["memlock"] != ["unlimited", "unlimited"]
    assert now["limits"] == {"nofile": ["1048576", "1048576"], "memlock": ["unlimited", "unlimited"]}


def test_shared_memory_has_the_size(now: dict[str, Any], before: dict[str, Any]) -> None:
    assert before["shared_memory"] != 256 << 20
    assert now["shared_memory"] == 256 << 20


def test_unit_ran_at_this_start(host: Any) -> None:
    unit = host.service("tokforge-host")
    assert unit.is_enabled
    assert unit.is_running, host.check_output("journalctl --no-pager --unit=tokforge-host")


def test_nothing_failed_at_this_start(host: Any) -> None:
    assert host.run("systemctl is-system-running --wait").stdout.strip() == "running", host.check_output(
        "systemctl --no-pager --failed"
    )
