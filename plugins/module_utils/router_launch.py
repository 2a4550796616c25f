# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an SGLang router is started with: the servers of an inventory as URLs, and its arguments.

Flags as sglang-router 0.3.2 has them (`python -m sglang_router.launch_router --help`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

#: Flags that role sglang_router writes itself, and the variable that says what.
OWNED = {
    "host": "sglang_router_host",
    "port": "sglang_router_port",
    "worker-urls": "sglang_router_workers",
    "policy": "sglang_router_policy",
    "api-key": "sglang_router_api_key",
    "prometheus-host": "sglang_router_metrics_host",
    "prometheus-port": "sglang_router_metrics_port",
    "shutdown-grace-period-secs": "sglang_router_stop_timeout_s",
}
#: Flags whose value is secret, or may hold a password, and that the router takes from its command line only.
SECRET = ("control-plane-api-keys", "oracle-password", "oracle-connect-descriptor", "postgres-db-url", "redis-url")
#: Seconds of the stop that the router does not give to requests, for its own end.
_END_S = 5


class RouterLaunchError(Exception):
    """The router cannot be started as asked."""


def worker_urls(hosts: Sequence[str], variables: Mapping[str, Mapping[str, Any]], router: str) -> list[str]:
    """The base URL of each host's server, as the host `router` of the inventory reaches it.

    A server that is bound to all addresses is reached at the host's own address. One that is bound to loopback is
    reached from its own host only. Raises RouterLaunchError for one that cannot be reached.
    """
    urls = []
    for name in hosts:
        known = variables[name]
        host, port = str(known.get("sglang_host", "127.0.0.1")), known.get("sglang_port", 30000)
        if host in ("0.0.0.0", "::", ""):  # noqa: S104 (compared with, not bound to)
            host = "127.0.0.1" if name == router else str(known.get("ansible_host") or name)
        elif _is_loopback(host) and name != router:
            raise RouterLaunchError(
                f"cannot route from {router} to {name}: its server is bound to {host}, which nobody else reaches; set "
                f"sglang_host of {name} to an address that {router} reaches, or give sglang_router_workers"
            )
        urls.append(f"http://{f'[{host}]' if ':' in host else host}:{int(port)}")
    return urls


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def argv(settings: Mapping[str, Any], extra: Mapping[str, Any]) -> list[str]:
    """The router's command line after the interpreter. Raises RouterLaunchError.

    `settings`: host, port, workers, policy, metrics_host, metrics_port, stop_timeout_s, has_key. `extra`: more of the
    router's flags without dashes in front; true is a flag without a value, false and null leave it out, and a list is
    several values.
    """
    host = str(settings["host"])
    if not _is_loopback(host) and not settings["has_key"]:
        raise RouterLaunchError(
            f"cannot open the router on {host}: without an API key whoever reaches it can also change its workers; set "
            "sglang_router_api_key, or leave sglang_router_host at 127.0.0.1 behind a proxy"
        )
    if not settings["workers"]:
        raise RouterLaunchError(
            "cannot start a router without workers: group sglang is empty; fill it or give sglang_router_workers"
        )
    grace_s = max(1, int(settings["stop_timeout_s"]) - _END_S)
    words = ["-m", "sglang_router.launch_router", "--host", host, "--port", str(settings["port"])]
    words += ["--policy", str(settings["policy"]), "--shutdown-grace-period-secs", str(grace_s)]
    words += ["--prometheus-host", str(settings["metrics_host"]), "--prometheus-port", str(settings["metrics_port"])]
    for flag, value in extra.items():
        name = str(flag).lstrip("-").replace("_", "-")
        if name in OWNED:
            raise RouterLaunchError(f"cannot take --{name} from sglang_router_args: set {OWNED[name]} instead")
        if name in SECRET:
            raise RouterLaunchError(
                f"cannot take --{name}: it is secret, and this router takes it from its command line only, where "
                "everybody on the machine reads it; do without it"
            )
        if value is None or value is False:
            continue
        values = value if isinstance(value, (list, tuple)) else [] if value is True else [value]
        words += [f"--{name}", *map(str, values)]
    # Last: it takes all words that follow.
    return [*words, "--worker-urls", *map(str, settings["workers"])]
