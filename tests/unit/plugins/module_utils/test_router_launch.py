# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a router is started with, and what it must not be started with."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.tokforge.sglang.plugins.filter.router_argv import FilterModule as Argv
from ansible_collections.tokforge.sglang.plugins.filter.router_workers import FilterModule as Workers
from ansible_collections.tokforge.sglang.plugins.filter.server_url import FilterModule as ServerUrl

router_argv, router_workers = Argv().filters()["router_argv"], Workers().filters()["router_workers"]
server_url = ServerUrl().filters()["server_url"]
SETTINGS: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 30100,
    "workers": ["http://a:1", "http://b:2"],
    "policy": "cache_aware",
    "metrics_host": "127.0.0.1",
    "metrics_port": 29000,
    "stop_timeout_s": 60,
    "has_key": False,
}


def test_servers_of_an_inventory() -> None:
    variables = {
        "r": {},
        "all": {"sglang_host": "0.0.0.0", "sglang_port": "31000", "ansible_host": "10.0.0.1"},
        "named": {"sglang_host": "::"},
        "own": {"sglang_host": "10.0.0.3", "sglang_port": 30001},
        "six": {"sglang_host": "fd00::1"},
        "all six": {"sglang_host": "::", "ansible_host": "fd00::2"},
    }
    assert router_workers(list(variables), variables, "r") == [
        "http://127.0.0.1:30000",
        "http://10.0.0.1:31000",
        "http://named:30000",
        "http://10.0.0.3:30001",
        "http://[fd00::1]:30000",
        "http://[fd00::2]:30000",
    ]
    assert router_workers(["named"], variables, "named") == ["http://[::1]:30000"]
    assert router_workers(["all"], variables, "all") == ["http://127.0.0.1:31000"]


@pytest.mark.parametrize(
    "host", [{}, {"sglang_host": "127.0.0.2"}, {"sglang_host": "localhost"}, {"sglang_host": "::1"}]
)
def test_server_on_loopback_of_another_host_cannot_be_routed_to(host: dict[str, Any]) -> None:
    with pytest.raises(AnsibleFilterError, match="cannot route from r to far: its server is bound to"):
        router_workers(["far"], {"far": host}, "r")


NEAR, FAR, OWN = "http://127.0.0.1:30100", "http://10.0.0.1:30100", "http://10.0.0.2:30100"


@pytest.mark.parametrize(
    ("routers", "host", "asked_here", "url"),
    [
        ([], "127.0.0.1", True, "http://127.0.0.1:30000"),
        ([], "0.0.0.0", True, "http://127.0.0.1:30000"),
        ([NEAR], "0.0.0.0", True, "http://127.0.0.1:30000"),
        ([NEAR], "", True, "http://127.0.0.1:30000"),
        ([NEAR, "http://[::1]:1", "http://localhost:2"], "::", True, "http://[::1]:30000"),
        # A router on loopback is where it is asked from.
        ([NEAR], "0.0.0.0", False, "http://10.0.0.2:30000"),
        ([FAR], "0.0.0.0", True, "http://10.0.0.2:30000"),
        ([FAR], "::", True, "http://10.0.0.2:30000"),
        ([NEAR, FAR], "", True, "http://10.0.0.2:30000"),
        # The server's own machine by another name.
        ([OWN, "http://A:1"], "0.0.0.0", False, "http://127.0.0.1:30000"),
        # What is bound to one address is known by it.
        ([FAR], "10.0.0.9", True, "http://10.0.0.9:30000"),
        ([FAR], "fd00::1", True, "http://[fd00::1]:30000"),
        (["x"], "0.0.0.0", True, "http://127.0.0.1:30000"),
    ],
)
def test_server_as_its_routers_know_it(routers: list[str], host: str, asked_here: bool, url: str) -> None:
    assert server_url(routers, host, 30000, ["10.0.0.2", "A"], asked_here) == url


def test_server_with_six_as_its_routers_know_it() -> None:
    assert server_url([FAR], "::", 30000, ["fd00::2"], True) == "http://[fd00::2]:30000"


def test_command_line() -> None:
    words = router_argv(SETTINGS, {"--cb_failure_threshold": 5, "disable-retries": True, "x": False, "y": [1, "b"]})
    assert words == [
        *("-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", "30100", "--policy", "cache_aware"),
        *("--shutdown-grace-period-secs", "55", "--prometheus-host", "127.0.0.1", "--prometheus-port", "29000"),
        *("--cb-failure-threshold", "5", "--disable-retries", "--y", "1", "b"),
        *("--worker-urls", "http://a:1", "http://b:2"),
    ]


def test_short_stop_still_leaves_a_second() -> None:
    words = router_argv({**SETTINGS, "stop_timeout_s": 2}, {})
    assert words[words.index("--shutdown-grace-period-secs") + 1] == "1"


@pytest.mark.parametrize(
    ("settings", "extra", "words"),
    [
        ({"host": "0.0.0.0"}, {}, "without an API key whoever reaches it can also change its workers"),
        ({"host": "10.0.0.1"}, {}, "set sglang_router_api_key"),
        ({"workers": []}, {}, "group sglang is empty"),
        ({}, {"api-key": "x"}, "set sglang_router_api_key instead"),
        ({}, {"worker_urls": ["x"]}, "set sglang_router_workers instead"),
        ({}, {"control-plane-api-keys": "a:b:admin:c"}, "it is secret, and everybody on the machine reads command"),
        ({}, {"postgres_db_url": "postgres://u:p@h"}, "it is secret, and everybody on the machine reads command"),
        # argparse would take these for the flags above.
        ({}, {"api-k": "x"}, "cannot take --api-k from sglang_router_args: set sglang_router_api_key instead"),
        ({}, {"--redis": "redis://u:p@h"}, "cannot take --redis: it is secret"),
        ({}, {"api-key=x": True}, "its name has other characters"),
        ({}, {"Policy": "x"}, "its name has other characters"),
        ({}, {"--": "x"}, "its name has other characters"),
        ({"workers": ["http://a:1", "http://u:hunter2@b:2"]}, {}, r"http://\.\.\.@b:2: it holds a user name"),
        ({"workers": ["a:1"]}, {}, r"it is no http:// or https:// base URL; correct it \(sglang_router_workers\)"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], extra: dict[str, Any], words: str) -> None:
    with pytest.raises(AnsibleFilterError, match=words):
        router_argv({**SETTINGS, **settings}, extra)


def test_router_with_a_key_may_be_open() -> None:
    assert "0.0.0.0" in router_argv({**SETTINGS, "host": "0.0.0.0", "has_key": True}, {})
