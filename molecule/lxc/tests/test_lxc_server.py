# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's server: drained by a run that failed (prepare.yml), serving again since the next one (converge.yml)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

testinfra_hosts = ["ssh://lxc-guest"]
SERVES, ENDED = "The server is fired up and ready to roll!", "It was asked to end"


def seconds(host: Any, text: str) -> float:
    """A time that the guest wrote, since the epoch."""
    return float(host.check_output("date --date=%s +%%s.%%N", text))


@pytest.fixture(scope="module")
def events(host: Any) -> list[tuple[str, float]]:
    """Every begin and end of the server that its log tells, with the time."""
    pattern = re.compile(rf"^\[([^]]+)\] ({re.escape(SERVES)}|{re.escape(ENDED)})$", re.MULTILINE)
    found = pattern.findall(host.file("/opt/sglang/log/server.log").content_string)
    return [(what, seconds(host, when)) for when, what in found]


def test_server_serves(host: Any) -> None:
    ask = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:30000/v1/models').read().decode())"
    assert json.loads(host.check_output("python3 -c %s", ask))["data"] == [{"id": "tiny"}]


def test_server_ended_on_request_and_was_started_once_since(events: list[tuple[str, float]]) -> None:
    # A second run that had restarted it would show here.
    assert [what for what, _when in events] == [SERVES, ENDED, SERVES]


def test_server_ended_before_its_container_did_and_started_when_its_driver_was_there(
    host: Any, events: list[tuple[str, float]]
) -> None:
    booted = seconds(host, host.check_output("systemctl show --property=UserspaceTimestamp --value"))
    driver = float(host.check_output("stat --format=%Y /var/lib/dpkg/info/libcuda1.list"))
    (_first, _began), (_end, ended), (_again, serves) = events
    assert ended < booted < driver < serves


def test_server_is_systemds_again(host: Any) -> None:
    service = host.service("sglang")
    assert service.is_running
    assert service.is_enabled
    assert host.check_output("systemctl show --property=NRestarts --value sglang.service") == "0"
    assert not host.file("/opt/sglang/state/drained").exists
