# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last lines of provision.yml."""

from __future__ import annotations

from ansible_collections.tokforge.sglang.plugins.filter.provision_summary import (
    NOTHING,
    FilterModule,
    provision_summary,
)


def test_what_waits_comes_last_and_what_two_roles_left_out_comes_once() -> None:
    skip = {"what": "kernel parameters", "why": "the kernel is that of the hypervisor"}
    assert provision_summary([skip, skip], ["0000:01:00.0 ignores it"], ["a reboot: the module is not loaded"]) == [
        "left out: kernel parameters: the kernel is that of the hypervisor",
        "note: 0000:01:00.0 ignores it",
        "waits for a reboot: the module is not loaded",
    ]


def test_nothing_to_say_is_said() -> None:
    assert provision_summary([], [], []) == [NOTHING]
    assert FilterModule().filters() == {"provision_summary": provision_summary}
