# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which manager runs the server, and how both run commands."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

from ansible_collections.tokforge.sglang.plugins.module_utils.service import Manager, Paths, ServiceError
from ansible_collections.tokforge.sglang.plugins.module_utils.supervisor_manager import SupervisorManager
from ansible_collections.tokforge.sglang.plugins.module_utils.systemd_manager import (
    SystemdManager,
    systemd_is_pid_1,
)

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def run(command: Sequence[str], environment: Mapping[str, str] | None) -> tuple[int, str, str]:
    """Run a command that ends by itself; `environment` replaces this process's own when given."""
    try:
        done = subprocess.run(
            list(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


def choose_manager(asked: str, booted: bool, uid: int) -> str:
    """auto -> systemd where it can be used, supervisor elsewhere."""
    if asked != "auto":
        return asked
    return "systemd" if booted and uid == 0 else "supervisor"


def make_manager(asked: str, paths: Paths, name: str, supervisord: str | None = None) -> Manager:
    """The manager for a module's parameters; raises ServiceError for a name no manager takes."""
    if not NAME_PATTERN.fullmatch(name):
        raise ServiceError(
            f"cannot use the service name {name!r}: letters, digits, _ . - only; change sglang_service_name"
        )
    if choose_manager(asked, systemd_is_pid_1(), os.geteuid()) == "systemd":
        return SystemdManager(paths, name, run)
    return SupervisorManager(paths, name, supervisord, run)
