# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server while it is profiled: its endpoints, and a load that keeps it decoding.

`/server_info` and `/generate` take the API key; `/start_profile` and `/stop_profile` take the admin key when the server
has one, else the API key (read in SGLang 0.5.10.post1 to 0.5.23). A refused profile answers 500, with the reason in the
server's log only.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

_ASK_TIMEOUT_S = 10.0
# The first profile of a process loads CUPTI.
_START_TIMEOUT_S = 120.0
_SAID_BYTES = 300
# So that the profile's own time limit is told, not the connection's.
_SPARE_S = 10.0
# Its thread looks at each token whether to go on; one that waits for a token ends with this process.
_JOIN_S = 2.0


class ProfileRunError(Exception):
    """A profile that could not be made. `facts` go beside the message."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Keys:
    """The server's keys; None for none."""

    api_key: str | None = None
    admin_api_key: str | None = None


@dataclass(frozen=True)
class Shape:
    """Requests that are sent at once: how many, tokens of each prompt and of each answer."""

    batch: int
    input_len: int
    output_len: int


class Server:
    """The server's endpoints that a profile needs."""

    def __init__(self, url: str, keys: Keys) -> None:
        self.url = url.rstrip("/")
        self._key, self._admin_key = keys.api_key, keys.admin_api_key or keys.api_key
        # No proxy: a proxy of the machine does not know this machine's loopback.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def open(self, path: str, body: object, timeout_s: float, admin: bool = False) -> http.client.HTTPResponse:
        """Send a request; a body makes it a POST. Raises HTTPError, OSError, HTTPException."""
        key = self._admin_key if admin else self._key
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, headers)
        opened: http.client.HTTPResponse = self._opener.open(request, timeout=timeout_s)
        return opened

    def about(self) -> dict[str, Any]:
        """What /server_info says; {} when the server does not tell. Raises ProfileRunError when nothing answers."""
        try:
            with self.open("/server_info", None, _ASK_TIMEOUT_S) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                raise self._refused("/server_info", error.code) from error
            return {}
        except (OSError, http.client.HTTPException) as error:
            raise ProfileRunError(
                f"profile of {self.url}: no answer ({getattr(error, 'reason', None) or error}); start the server or "
                "correct host and port"
            ) from error
        except (ValueError, RecursionError) as error:
            raise ProfileRunError(
                f"profile of {self.url}: the answer of /server_info is no JSON; another program may hold the port"
            ) from error
        return told if isinstance(told, dict) else {}

    def start_profile(self, directory: str, steps: int, activities: list[str]) -> None:
        """Begin. Raises ProfileRunError."""
        body = {
            "output_dir": directory,
            "num_steps": steps,
            "activities": activities,
            "profile_by_stage": False,
            "with_stack": False,
            "record_shapes": False,
        }
        try:
            with self.open("/start_profile", body, _START_TIMEOUT_S, admin=True):
                return
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                raise self._refused("/start_profile", error.code) from error
            said = error.read(_SAID_BYTES).decode("utf-8", "replace").strip()
            if error.code == 404:
                why = "it has no /start_profile; another program may hold the port"
            elif error.code >= 500:
                # SGLang's own reason stands in its log only.
                why = f"it answers HTTP {error.code} ({said}); another profile may be running; see the server's log"
            else:
                why = f"it answers HTTP {error.code} ({said}); this release may name the parameters otherwise"
            raise ProfileRunError(f"starting a profile of {self.url}: {why}", http_status=error.code) from error
        except (OSError, http.client.HTTPException) as error:
            raise ProfileRunError(
                f"starting a profile of {self.url}: no answer ({getattr(error, 'reason', None) or error}); "
                "see the server's log"
            ) from error

    def stop_profile(self) -> None:
        """End the profile if it has not ended; SGLang answers 500 when none is running."""
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            self.open("/stop_profile", {}, _START_TIMEOUT_S, admin=True),
        ):
            pass

    def _refused(self, path: str, status: int) -> ProfileRunError:
        return ProfileRunError(
            f"profile of {self.url}: {path} is refused (HTTP {status}); give the server's api_key, and its "
            "admin_api_key when it has one",
            http_status=status,
        )


class Load:
    """Requests that decode at once, in one stream."""

    def __init__(self, server: Server, shape: Shape, timeout_s: float) -> None:
        self._server, self._shape, self._timeout_s = server, shape, timeout_s
        self._thread = threading.Thread(target=self._work, name="profile-load", daemon=True)
        self._decoding = threading.Event()
        self._made: dict[int, int] = {}
        self._stopping = False
        self._failure = ""

    @property
    def tokens(self) -> int:
        """Tokens that all requests have made together."""
        return sum(list(self._made.values()))

    @property
    def running(self) -> bool:
        """Whether requests are still being answered."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Send them."""
        self._thread.start()

    def wait_until_decoding(self, deadline: float) -> None:
        """Return when each request has made a second token. Raises ProfileRunError."""
        while not self._decoding.wait(0.05):
            if not self.running:
                raise ProfileRunError(
                    f"profile of {self._server.url}: its load failed ({self._failure or 'it ended too early'}); "
                    "see the server's log"
                )
            if time.monotonic() > deadline:
                raise ProfileRunError(
                    f"profile of {self._server.url}: {self._shape.batch} requests were not all decoding within "
                    f"{self._timeout_s:g} s; lower batch, or wait until the server has less to do"
                )

    def end(self) -> None:
        """Hang up at the next token; the server then ends requests that are not finished."""
        self._stopping = True
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)

    def _work(self) -> None:
        asked = self._shape
        # Different prompts, so that the prefix cache changes nothing; small numbers, which every vocabulary has.
        prompts = [[10 + (row * 31 + place * 7) % 89 for place in range(asked.input_len)] for row in range(asked.batch)]
        for row, prompt in enumerate(prompts):
            prompt[0] = 10 + row % 89
        body = {
            "input_ids": prompts,
            "sampling_params": {"max_new_tokens": asked.output_len, "ignore_eos": True, "temperature": 0},
            "stream": True,
        }
        try:
            with self._server.open("/generate", body, self._timeout_s + _SPARE_S) as lines:
                for line in lines:
                    if self._stopping:
                        return
                    if line.startswith(b"data: {"):
                        self._take(json.loads(line[6:]))
        except urllib.error.HTTPError as error:
            self._failure = f"HTTP {error.code}: {error.read(_SAID_BYTES).decode('utf-8', 'replace').strip()}"
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            self._failure = "" if self._stopping else f"{type(error).__name__}: {error}"

    def _take(self, message: dict[str, Any]) -> None:
        if "error" in message:
            raise ValueError(str(message["error"])[:_SAID_BYTES])
        # Without an index there is one request, or one prompt of a batch (then its id tells it).
        which = message.get("index", 0)
        self._made[which] = int(message["meta_info"]["completion_tokens"])
        if len(self._made) == self._shape.batch and min(self._made.values()) >= 2:
            self._decoding.set()
