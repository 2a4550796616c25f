# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a running server says of itself: how many requests it runs at once, how many tokens its cache holds, on what.

From `/server_info`, `/get_server_info` before 0.5.4: launch arguments, and what the schedulers found. With data
parallelism there is one state a scheduler, and the figures of one are those of its part (read in 0.5.12.post1 and
0.5.23). The answer also holds the server's keys; nothing but the figures below leaves this file.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import Target, most_at_once
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole

_ENDPOINTS = ("/server_info", "/get_server_info")
_ASK_TIMEOUT_S = 10.0
_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class ServerLimits:
    """Figures of the whole server; None for what it does not tell.

    max_running_requests: requests in one batch, over all data-parallel parts. max_total_tokens: tokens that the cache
    holds, likewise. device: "cuda", "cpu" and so on. gpus: ranks on all nodes, 0 on a CPU.
    """

    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    device: str | None = None
    gpus: int | None = None
    version: str | None = None

    def most_at_once(self, tokens: int) -> int | None:
        """Requests of `tokens` tokens each that run at once; None when the server tells neither limit."""
        return most_at_once((self.max_running_requests, self._room(tokens)))

    def last_point(self, tokens: int) -> int | None:
        """The highest concurrency to measure, with requests of `tokens` tokens each; None when there is no limit.

        The room in the cache differs a little from start to start, with the memory that was free. It is rounded down to
        four binary digits, so that two starts have this point in common.
        """
        room = self._room(tokens)
        step = 1 << max(0, room.bit_length() - 4) if room else 1
        return most_at_once((self.max_running_requests, room // step * step if room else None))

    def _room(self, tokens: int) -> int | None:
        return max(1, self.max_total_tokens // tokens) if self.max_total_tokens else None


def ask(target: Target, api_key: str | None) -> ServerLimits:
    """Ask the server; one that does not tell gives a ServerLimits with nothing in it."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    for endpoint in _ENDPOINTS:
        request = urllib.request.Request(target.url + endpoint, headers=headers)
        try:
            with opener.open(request, timeout=_ASK_TIMEOUT_S) as answer:
                return read(json.loads(answer.read(_MOST_BYTES)))
        except urllib.error.HTTPError as error:
            if error.code != 404:
                return ServerLimits()
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            return ServerLimits()
    return ServerLimits()


def read(info: Any) -> ServerLimits:
    """What the answer says; anything else than a server's answer says nothing."""
    if not isinstance(info, Mapping):
        return ServerLimits()
    listed = info.get("internal_states")
    states = [state for state in listed if isinstance(state, Mapping)] if isinstance(listed, list) else []
    replicas = _positive(info.get("dp_size")) or 1
    running = [_positive(state.get("effective_max_running_requests_per_dp")) for state in states]
    if running and all(running):
        at_once: int | None = sum(one for one in running if one)
        # Some releases answer for one part only.
        if len(running) < replicas and at_once is not None:
            at_once = at_once // len(running) * replicas
    else:
        at_once = _positive(info.get("max_running_requests"))
    tokens = _positive(info.get("max_total_num_tokens"))
    device = info.get("device")
    version = info.get("version")
    return ServerLimits(
        max_running_requests=at_once,
        max_total_tokens=tokens * replicas if tokens else None,
        device=device if isinstance(device, str) and device else None,
        gpus=_gpus(info, replicas) if isinstance(device, str) else None,
        version=version if isinstance(version, str) and version else None,
    )


def _gpus(info: Mapping[str, Any], replicas: int) -> int:
    """Ranks that have a GPU of their own. Data-parallel attention shares those of tensor parallelism."""
    if info.get("device") == "cpu":
        return 0
    ranks = (_positive(info.get("tp_size")) or 1) * (_positive(info.get("pp_size")) or 1)
    return ranks if info.get("enable_dp_attention") is True else ranks * replicas


def _positive(value: Any) -> int | None:
    return value if is_whole(value) and value > 0 else None
