# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading systemd, and what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import service, systemd_manager

UNIT = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "MainPID": "41", "NRestarts": "0"}


@pytest.mark.parametrize(
    ("changes", "stopped", "phase", "ended"),
    [
        ({}, False, "running", ""),
        ({"LoadState": "not-found", "ActiveState": "inactive", "MainPID": "0"}, False, "absent", ""),
        ({"LoadState": "not-found"}, False, "running", ""),  # its file was removed while it ran
        ({"ActiveState": "inactive", "SubState": "dead", "MainPID": "0", "ExecMainCode": "0"}, False, "stopped", ""),
        (
            {
                "ActiveState": "inactive",
                "MainPID": "0",
                "Result": "success",
                "ExecMainCode": "1",
                "ExecMainStatus": "0",
            },
            False,
            "ended",
            "exited with code 0",
        ),
        (
            {
                "ActiveState": "inactive",
                "MainPID": "0",
                "Result": "success",
                "ExecMainCode": "2",
                "ExecMainStatus": "15",
            },
            True,
            "stopped",
            "",
        ),
        (
            {"ActiveState": "failed", "MainPID": "0", "Result": "signal", "ExecMainCode": "2", "ExecMainStatus": "9"},
            False,
            "ended",
            "was killed by signal 9 (SIGKILL)",
        ),
        (
            {"ActiveState": "failed", "MainPID": "0", "Result": "oom-kill", "ExecMainCode": "2", "ExecMainStatus": "9"},
            False,
            "ended",
            "was killed by signal 9 (SIGKILL) (oom-kill)",
        ),
        (
            {
                "ActiveState": "activating",
                "SubState": "auto-restart",
                "MainPID": "0",
                "Result": "exit-code",
                "ExecMainCode": "1",
                "ExecMainStatus": "1",
            },
            False,
            "restarting",
            "exited with code 1",
        ),
        ({"ActiveState": "deactivating", "SubState": "stop-sigterm"}, False, "running", ""),
        (
            {
                "ActiveState": "failed",
                "MainPID": "0",
                "Result": "core-dump",
                "ExecMainCode": "3",
                "ExecMainStatus": "11",
            },
            False,
            "ended",
            "was killed by signal 11 (SIGSEGV) and dumped core",
        ),
        (
            {"ActiveState": "failed", "MainPID": "0", "Result": "resources", "ExecMainCode": "0"},
            False,
            "ended",
            "ended (resources)",
        ),
    ],
)
def test_systemd_state(changes: Mapping[str, str], stopped: bool, phase: str, ended: str) -> None:
    seen = systemd_manager.systemd_seen({**UNIT, **changes}, stopped)
    assert (seen.phase, seen.ended if phase != "stopped" else "") == (phase, ended)


class Systemctl:
    """Answers as systemctl does, and remembers what was asked."""

    def __init__(self, **shown: str) -> None:
        self.shown = {**UNIT, "UnitFileState": "enabled", "NeedDaemonReload": "no", **shown}
        self.calls: list[str] = []

    def __call__(self, command: Sequence[str], environment: Mapping[str, str] | None) -> tuple[int, str, str]:
        assert command[0] == "systemctl"
        if command[1] == "show":
            return 0, "".join(f"{name}={value}\n" for name, value in self.shown.items()), ""
        self.calls.append(" ".join(command[1:]))
        return (1, "", "denied") if self.shown.get("fail") else (0, "", "")


def test_systemd_start_reloads_enables_and_forgets_earlier_failures(tmp_path: Path) -> None:
    systemctl = Systemctl(NeedDaemonReload="yes", UnitFileState="disabled", ActiveState="failed")
    systemd_manager.SystemdManager(service.Paths(str(tmp_path)), "sglang", systemctl).start("")
    assert systemctl.calls == [
        "daemon-reload",
        "enable --quiet sglang.service",
        "reset-failed sglang.service",
        "start sglang.service",
    ]


def test_systemd_start_of_a_settled_unit_only_starts(tmp_path: Path) -> None:
    systemctl = Systemctl(ActiveState="inactive")
    systemd_manager.SystemdManager(service.Paths(str(tmp_path)), "sglang", systemctl).start("")
    assert systemctl.calls == ["start sglang.service"]


def test_systemd_removal_twice_asks_only_what_can_succeed(tmp_path: Path) -> None:
    systemctl = Systemctl(ActiveState="failed")
    manager = systemd_manager.SystemdManager(service.Paths(str(tmp_path)), "sglang", systemctl)
    manager.remove()
    assert systemctl.calls == ["disable --quiet sglang.service", "reset-failed sglang.service"]
    systemctl.calls.clear()
    systemctl.shown.update(LoadState="not-found", UnitFileState="", ActiveState="inactive")
    manager.remove()
    assert systemctl.calls == []


def test_systemd_start_without_a_unit_names_the_role(tmp_path: Path) -> None:
    with pytest.raises(service.ServiceError, match="sglang_server"):
        systemd_manager.SystemdManager(service.Paths(str(tmp_path)), "sglang", Systemctl(LoadState="not-found")).start(
            ""
        )


def test_systemctl_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(
        service.ServiceError, match=r"systemctl stop --no-block sglang.service failed with code 1: denied"
    ):
        systemd_manager.SystemdManager(service.Paths(str(tmp_path)), "sglang", Systemctl(fail="yes")).request_stop()


def test_systemd_members_are_the_whole_control_group(tmp_path: Path) -> None:
    group = tmp_path / "cg/system.slice/sglang.service"
    (group / "inner").mkdir(parents=True)
    (group / "cgroup.procs").write_text("41\n42\n")
    (group / "inner/cgroup.procs").write_text("43\n")
    systemctl = Systemctl(ControlGroup="/system.slice/sglang.service")
    manager = systemd_manager.SystemdManager(service.Paths(str(tmp_path)), "sglang", systemctl, str(tmp_path / "cg"))
    assert sorted(manager.members()) == [41, 42, 43]
    systemctl.shown["ControlGroup"] = "/"  # never the whole machine
    assert manager.members() == []
