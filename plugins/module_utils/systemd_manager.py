# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the server as the system unit that role sglang_server wrote."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ansible_collections.tokforge.sglang.plugins.module_utils import proc
from ansible_collections.tokforge.sglang.plugins.module_utils.service import Paths, Run, Seen, ServiceError, read_record

_SHOWN = (
    "LoadState",
    "LoadError",
    "ActiveState",
    "SubState",
    "MainPID",
    "Result",
    "ExecMainCode",
    "ExecMainStatus",
    "NRestarts",
    "NeedDaemonReload",
    "UnitFileState",
    "ControlGroup",
    "FragmentPath",
)


def systemd_seen(shown: Mapping[str, str], stopped_on_request: bool) -> Seen:
    """Read `systemctl show` output. A unit that is inactive after success and code 0 has still died unless we
    stopped it.
    """
    if shown.get("LoadState") in (None, "", "not-found") and shown.get("ActiveState") in (None, "inactive", "failed"):
        return Seen("absent")
    pid = int(shown.get("MainPID") or 0)
    restarts = int(shown.get("NRestarts") or 0)
    ended = _systemd_end(shown)
    if shown.get("SubState") == "auto-restart":
        return Seen("restarting", ended=ended, restarts=restarts)
    if pid and shown.get("ActiveState") not in ("inactive", "failed"):
        return Seen("running", pid=pid, restarts=restarts)
    if shown.get("ActiveState") in ("activating", "deactivating", "reloading"):
        return Seen("restarting", ended=ended, restarts=restarts)
    # ExecMainCode 0: no process was ever started since the unit was loaded.
    if stopped_on_request or (shown.get("ActiveState") == "inactive" and shown.get("ExecMainCode", "0") == "0"):
        return Seen("stopped", restarts=restarts)
    return Seen("ended", ended=ended, restarts=restarts)


def _systemd_end(shown: Mapping[str, str]) -> str:
    code, status = shown.get("ExecMainCode", "0"), int(shown.get("ExecMainStatus") or 0)
    result = shown.get("Result", "")
    # <sys/wait.h> CLD_*: 1 exited, 2 killed, 3 dumped
    if code == "1":
        text = proc.exited(status)
    elif code in ("2", "3"):
        text = proc.killed(status, dumped_core=code == "3")
    else:
        return f"ended ({result})" if result else ""
    return text if result in ("", "success", "exit-code", "signal", "core-dump") else f"{text} ({result})"


def systemctl(run: Run, unit: str, *arguments: str) -> str:
    """The output of systemctl. Raises ServiceError."""
    code, output, errors = run(["systemctl", *arguments], None)
    if code != 0:
        raise ServiceError(
            f"systemctl {' '.join(arguments)} failed with code {code}: {(errors or output).strip()[-1000:]}; "
            f"see systemctl status {unit}"
        )
    return output


def show_unit(run: Run, unit: str) -> dict[str, str]:
    """What systemd says about a unit, for `systemd_seen`. Raises ServiceError."""
    output = systemctl(run, unit, "show", unit, "--property", ",".join(_SHOWN))
    return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)


class SystemdManager:
    """A system unit that the role wrote."""

    kind = "systemd"

    def __init__(self, paths: Paths, name: str, run: Run, cgroup_root: str = "/sys/fs/cgroup") -> None:
        self.paths = paths
        self.unit = f"{name}.service"
        self._run = run
        self._cgroup_root = cgroup_root

    def _systemctl(self, *arguments: str) -> str:
        return systemctl(self._run, self.unit, *arguments)

    def _show(self) -> dict[str, str]:
        return show_unit(self._run, self.unit)

    def seen(self) -> Seen:
        record = read_record(self.paths)
        return systemd_seen(self._show(), stopped_on_request=bool(record and record.stopped))

    def members(self) -> list[int]:
        group = self._show().get("ControlGroup", "")
        if not group or group == "/":
            return []
        found: list[int] = []
        for directory, _below, files in os.walk(self._cgroup_root + group):
            if "cgroup.procs" in files:
                try:
                    with open(os.path.join(directory, "cgroup.procs"), encoding="ascii") as stream:
                        found.extend(int(line) for line in stream)
                except OSError:  # the group went away with its last process
                    continue
        return found

    def config_sha256(self) -> str:
        return ""

    def present(self) -> bool:
        return self._show().get("UnitFileState") in ("enabled", "enabled-runtime")

    def start(self, applied_sha256: str) -> None:
        shown = self._show()
        if shown.get("LoadState") != "loaded" or shown.get("NeedDaemonReload") == "yes":
            # systemd keeps what it knew of a unit that was removed and written again, also that it was not there.
            self._systemctl("daemon-reload")
            shown = self._show()
        if shown.get("LoadState") != "loaded":
            raise ServiceError(
                f"cannot start {self.unit}: systemd says {shown.get('LoadState')} {shown.get('LoadError', '')}; "
                "configure the server first (role sglang_server)"
            )
        if shown.get("UnitFileState") != "enabled":
            self._systemctl("enable", "--quiet", self.unit)
        # Earlier failures must not count against this start (StartLimitBurst), and NRestarts starts at 0 again.
        if shown.get("ActiveState") == "failed":
            self._systemctl("reset-failed", self.unit)
        self._systemctl("start", self.unit)

    def request_stop(self) -> bool:
        shown = self._show()
        if shown.get("ActiveState") in (None, "inactive", "failed"):
            return False
        self._systemctl("stop", "--no-block", self.unit)
        return True

    def settled(self) -> bool:
        return self._show().get("ActiveState") in ("inactive", "failed", "", None)

    def remove(self) -> None:
        if self.present():
            self._systemctl("disable", "--quiet", self.unit)
        # A unit that had to be killed stays listed as failed, even when its file is gone.
        if self._show().get("ActiveState") == "failed":
            self._systemctl("reset-failed", self.unit)


def systemd_is_pid_1() -> bool:
    """Whether the system manager is systemd (sd_booted(3)) and this is it."""
    init = proc.read_process(1)
    return os.path.isdir("/run/systemd/system") and init is not None and init.comm == "systemd"
