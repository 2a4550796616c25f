# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After a reboot TuneD has set the governor, and everything that was set before is as it was."""

from __future__ import annotations

from typing import Any


def test_tuned_runs_the_profile(host: Any) -> None:
    assert host.service("tuned").is_enabled
    assert host.service("tuned").is_running
    assert host.check_output("tuned-adm active").split()[-1] == "tokforge-host"


def test_every_policy_has_the_governor(now: dict[str, Any]) -> None:
    assert now["governors"] == {"policy0": "performance", "policy1": "performance"}


def test_kernel_has_nothing_else_of_what_was_put_back(now: dict[str, Any], before: dict[str, Any]) -> None:
    apart = {"boot_id", "files", "governors", "record"}
    assert {k: v for k, v in now.items() if k not in apart} == {k: v for k, v in before.items() if k not in apart}


def test_there_is_no_unit_for_what_tuned_does(host: Any) -> None:
    assert not host.service("tokforge-host").exists
