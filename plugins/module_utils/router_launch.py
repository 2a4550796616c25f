# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an SGLang router is started with: the servers of an inventory as URLs, and its arguments.

Flags as sglang-router 0.3.2 has them (`python -m sglang_router.launch_router --help`).
"""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import readiness, router_api

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
#: Flags whose value is secret, or may hold a password. sglang-router 0.3.2 reads some of them from its environment too
#: (ATP_PASSWORD, ATP_DSN, POSTGRES_DB_URL, REDIS_URL), which the role does not set.
SECRET = ("control-plane-api-keys", "oracle-password", "oracle-connect-descriptor", "postgres-db-url", "redis-url")
#: Seconds of the stop that the router does not give to requests, for its own end.
_END_S = 5
_NAME = re.compile(r"[a-z0-9-]+")


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
        if is_wildcard(host):
            host = readiness.connect_host(host) if name == router else str(known.get("ansible_host") or name)
        elif is_loopback(host) and name != router:
            raise RouterLaunchError(
                f"cannot route from {router} to {name}: its server is bound to {host}, which nobody else reaches; set "
                f"sglang_host of {name} to an address that {router} reaches, or give sglang_router_workers"
            )
        urls.append(_url(host, port))
    return urls


def server_url(routers: Sequence[str], host: str, port: int, names: Sequence[str], asked_here: bool) -> str:
    """The base URL by which the routers know the server that is bound to `host` and `port`.

    `routers`: their base URLs. `names`: the address and the name of the server's machine, the best one first.
    `asked_here`: whether they are asked from that machine; one on loopback is where it is asked from. A server that is
    bound to all addresses is known by loopback to routers of its own machine, and by `names` to others.
    """
    if is_wildcard(host):
        alike = all(_is_near(router, names, asked_here) for router in routers)
        host = readiness.connect_host(host) if alike else names[0]
    return _url(host, port)


def _is_near(router: str, names: Sequence[str], asked_here: bool) -> bool:
    try:
        host = urllib.parse.urlsplit(router_api.normal(router)).hostname or ""
    except router_api.RouterError:  # told by whoever asks it
        return asked_here
    return asked_here if is_loopback(host) else host in [name.lower() for name in names]


def is_wildcard(host: str) -> bool:
    """Whether a server that is bound to `host` takes connections on every address."""
    return readiness.connect_host(host) != host


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{int(port)}"


def is_loopback(host: str) -> bool:
    """Whether a server that is bound to this address is reached from its own machine only."""
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
    if not is_loopback(host) and not settings["has_key"]:
        raise RouterLaunchError(
            f"cannot open the router on {host}: without an API key whoever reaches it can also change its workers; set "
            "sglang_router_api_key, or leave sglang_router_host at 127.0.0.1 behind a proxy"
        )
    if not settings["workers"]:
        raise RouterLaunchError(
            "cannot start a router without workers: group sglang is empty; fill it or give sglang_router_workers"
        )
    for worker in settings["workers"]:
        try:
            router_api.normal(str(worker))
        except router_api.RouterError as error:
            raise RouterLaunchError(f"{error} (sglang_router_workers)") from error
    grace_s = max(1, int(settings["stop_timeout_s"]) - _END_S)
    words = ["-m", "sglang_router.launch_router", "--host", host, "--port", str(settings["port"])]
    words += ["--policy", str(settings["policy"]), "--shutdown-grace-period-secs", str(grace_s)]
    words += ["--prometheus-host", str(settings["metrics_host"]), "--prometheus-port", str(settings["metrics_port"])]
    for flag, value in extra.items():
        name = str(flag).lstrip("-").replace("_", "-")
        if not _NAME.fullmatch(name):
            raise RouterLaunchError(
                "cannot take a flag from sglang_router_args: its name has other characters than a-z, 0-9 and -; give "
                "its value beside it, not in it"
            )
        # argparse takes the beginning of a name for the name.
        owned = next((known for known in OWNED if known.startswith(name)), None)
        if owned:
            raise RouterLaunchError(f"cannot take --{name} from sglang_router_args: set {OWNED[owned]} instead")
        if any(known.startswith(name) for known in SECRET):
            raise RouterLaunchError(
                f"cannot take --{name}: it is secret, and everybody on the machine reads command lines; do without it"
            )
        if value is None or value is False:
            continue
        values = value if isinstance(value, (list, tuple)) else [] if value is True else [value]
        words += [f"--{name}", *map(str, values)]
    # Last: it takes all words that follow.
    return [*words, "--worker-urls", *map(str, settings["workers"])]
