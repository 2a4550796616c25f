# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which manager runs the server."""

from __future__ import annotations

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import managers, service


@pytest.mark.parametrize(
    ("asked", "booted", "uid", "kind"),
    [
        ("auto", True, 0, "systemd"),
        ("auto", True, 1000, "supervisor"),
        ("auto", False, 0, "supervisor"),
        ("systemd", False, 1000, "systemd"),
        ("supervisor", True, 0, "supervisor"),
    ],
)
def test_manager_choice(asked: str, booted: bool, uid: int, kind: str) -> None:
    assert managers.choose_manager(asked, booted, uid) == kind


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "a;b", "x\n"])
def test_name_that_no_manager_takes_is_refused(name: str) -> None:
    with pytest.raises(service.ServiceError, match="sglang_service_name"):
        managers.make_manager("supervisor", service.Paths("/r"), name)
