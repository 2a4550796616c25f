# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After destroy.yml nothing runs and nothing is left."""

from __future__ import annotations

from typing import Any

testinfra_hosts = ["local://"]


def test_no_process_is_left(host: Any, servers: dict[int, str], told: dict[str, Any]) -> None:
    assert servers == {}
    assert [one.args for one in host.process.filter() if f"{told['root']}/" in one.args] == []


def test_port_is_free_and_the_root_is_gone(host: Any, told: dict[str, Any]) -> None:
    assert not host.socket(f"tcp://127.0.0.1:{told['port']}").is_listening
    assert not host.file(told["root"]).exists
