# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the hub can be reached, asked only when a model must be downloaded from it."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ansible_collections.tokforge.sglang.plugins.module_utils import model
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding

_CHECK = "hub"

#: How long (seconds) the hub may take to answer before we go on.
LIMIT_S = 3.0

_TIMED_OUT = "timed out"


@dataclass(frozen=True)
class Request:
    """What is asked.

    `model` is the model's text and `endpoint` that of the hub when the rollout gives one. `env` is the environment of
    the download. `downloaded`: whether the model is there already; `offline`: whether nothing may be downloaded.
    """

    model: str
    endpoint: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    downloaded: bool = False
    offline: bool = False


@dataclass(frozen=True)
class Address:
    """Where a connection goes. `via` is the variable of a proxy, "" for the hub itself."""

    host: str
    port: int
    tls: bool
    via: str = ""


#: Connects and gives "" or what went wrong. Raises TimeoutError when that takes too long.
Connect = Callable[[Address, float], str]


def needed(request: Request) -> bool:
    """Whether anything would be downloaded. A text of no known form is another check's to tell."""
    if request.downloaded or request.offline:
        return False
    try:
        return model.parse(request.model).kind == "hub"
    except model.ModelError:
        return False


def address(request: Request) -> Address | None:
    """Where the download would connect to, None when the hub's address is none."""
    text = request.endpoint or request.env.get("HF_ENDPOINT") or model.HUB_ENDPOINT
    hub = _address(text)
    if hub is None or _without_proxy(hub.host, request.env):
        return hub
    names = ("HTTPS_PROXY", "ALL_PROXY") if hub.tls else ("HTTP_PROXY", "ALL_PROXY")
    for name in names:
        # Programs read the small spelling first.
        for spelling in (name.lower(), name):
            if request.env.get(spelling):
                value = request.env[spelling]
                proxy = _address(value if "://" in value else f"http://{value}")
                return (
                    Address(proxy.host, proxy.port, proxy.tls, spelling) if proxy else Address("", 0, False, spelling)
                )
    return hub


def _address(text: str) -> Address | None:
    try:
        parts = urllib.parse.urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    ports = {"https": 443, "http": 80, "socks5": 1080, "socks5h": 1080, "socks4": 1080}
    if not host or parts.scheme not in ports or "\0" in host:
        return None
    return Address(host, port or ports[parts.scheme], parts.scheme == "https")


def _without_proxy(host: str, env: Mapping[str, str]) -> bool:
    """Whether NO_PROXY names the host, itself or by the end of its name."""
    for entry in (env.get("no_proxy") or env.get("NO_PROXY") or "").split(","):
        name = entry.strip().lower().lstrip(".")
        if name == "*" or (name and (host == name or host.endswith(f".{name}"))):
            return True
    return False


def reach(address: Address, limit_s: float) -> str:
    """Connect, and speak TLS where it is asked for. Raises TimeoutError."""
    answers: queue.Queue[str] = queue.Queue()
    # Looking up a name cannot be given a time limit, so all of it runs beside us and may be left behind.
    threading.Thread(target=lambda: answers.put(_connect(address, limit_s)), daemon=True).start()
    try:
        answer = answers.get(timeout=limit_s)
    except queue.Empty:
        raise TimeoutError from None
    if answer == _TIMED_OUT:
        raise TimeoutError
    return answer


def _connect(address: Address, limit_s: float) -> str:
    try:
        with socket.create_connection((address.host, address.port), timeout=limit_s) as connection:
            if address.tls:
                with ssl.create_default_context().wrap_socket(connection, server_hostname=address.host):
                    pass
    except (TimeoutError, socket.timeout):
        # Two different errors until Python 3.10.
        return _TIMED_OUT
    except ssl.SSLError as error:
        return f"its TLS certificate or protocol is refused: {error.reason or error}"
    except socket.gaierror as error:
        return f"its name cannot be resolved: {error.strerror}"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error) or type(error).__name__
    return ""


def check(request: Request, connect: Connect = reach, limit_s: float = LIMIT_S) -> list[Finding]:
    """Nothing when no download is needed; otherwise whether its first step works."""
    if not needed(request):
        return []
    target = address(request)
    given = request.endpoint or request.env.get("HF_ENDPOINT") or model.HUB_ENDPOINT
    without = "copy the model to the target and give its directory as sglang_model"
    if target is None:
        message = "the address of the hub is no http or https address"
        return [Finding(FAIL, _CHECK, message, "set sglang_hub_endpoint to an address like https://huggingface.co")]
    if not target.host:
        return [Finding(FAIL, _CHECK, f"{target.via} is no address of a proxy", "correct it, or unset it")]
    place = f"{target.host}:{target.port}"
    name = f"the proxy {place} of {target.via}" if target.via else f"the hub {place}"
    try:
        problem = connect(target, limit_s)
    except TimeoutError:
        message = f"{name} did not answer within {limit_s:g} s, and {request.model} is not downloaded yet"
        remedy = f"see whether a firewall is between, set HTTPS_PROXY or sglang_hub_endpoint, or {without}"
        return [Finding(WARN, _CHECK, message, remedy)]
    if not problem:
        behind = f"; whether it lets {urllib.parse.urlsplit(given).hostname} through is not known" if target.via else ""
        return [Finding(OK, _CHECK, f"{name} answers{behind}")]
    message = f"{name} cannot be reached: {problem}; {request.model} is not downloaded yet"
    remedy = f"set HTTPS_PROXY for the target or sglang_hub_endpoint to a mirror, or {without}"
    if target.tls and "TLS" in problem:
        remedy = f"see that the clock is right and ca-certificates is installed, or {without}"
    return [Finding(FAIL, _CHECK, message, remedy)]
