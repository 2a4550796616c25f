# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workers of an SGLang router: which there are, one more, one less, over the router's HTTP API.

Tried with the released wheels of sglang-router:

- 0.3.2: GET and POST /workers, DELETE /workers/<id> with an id that the router made. 0.2.4: the same, the id is the
  URL. POST and DELETE answer 202 and are done in the background; one that does not answer is not listed until it does.
- 0.1.9: GET /list_workers, POST /add_worker?url= and /remove_worker?url=.

A router with an API key asks for it here as well (401), except 0.1.9. It sends its key to the workers that it was
started with; one that is added needs it in the request, otherwise the router cannot read the names of its models. A
request that a worker works on when it is taken out goes on to its end (tried with 0.3.2).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from ansible_collections.tokforge.sglang.plugins.module_utils import url_password

PRESENT, ABSENT = "present", "absent"
_BODY_BYTES = 1024 * 1024
# Routers that know of data parallel ranks list each as a worker of its own.
_RANK = re.compile(r"@\d+$")
_POLL_S = 0.2
# One that was listed just now may not have been checked yet.
_UNHEALTHY_S = 3.0


class RouterError(Exception):
    """The router does not do what was asked. `facts` go beside the message."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Reply:
    """An answer of the router; status 0: none, `problem` says why."""

    status: int
    body: bytes = b""
    problem: str = ""


@dataclass(frozen=True)
class Worker:
    """One entry of the router's list. `id` is what removes it, `healthy` None where the router does not say."""

    url: str
    id: str
    healthy: bool | None = None


#: Method, path with query, JSON body or None, time limit in seconds.
Call = Callable[[str, str, Optional[Any], float], Reply]


def normal(url: str) -> str:
    """One way of writing a base URL. Raises RouterError for what is none."""
    hidden = url_password.shown(url)
    none = RouterError(f"cannot use the address {hidden}: it is no http:// or https:// base URL; correct it")
    try:
        parts = urllib.parse.urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise none from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise none
    if parts.username is not None:
        raise RouterError(f"cannot use the address {hidden}: it holds a user name; keys belong into state/secrets.env")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port or (443 if parts.scheme == 'https' else 80)}{parts.path.rstrip('/')}"


def caller(router: str, key: str) -> Call:
    """Asks one router. Never raises for what it can do wrong."""
    parts = urllib.parse.urlsplit(normal(router))

    def call(method: str, path: str, body: Any | None, timeout_s: float) -> Reply:
        host, port = parts.hostname or "", parts.port or 80
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        headers = {"Accept": "application/json", "Connection": "close"}
        headers.update({"Authorization": f"Bearer {key}"} if key else {})
        headers.update({"Content-Type": "application/json"} if body is not None else {})
        try:
            connection.request(
                method, parts.path + path, body=None if body is None else json.dumps(body), headers=headers
            )
            response = connection.getresponse()
            return Reply(response.status, response.read(_BODY_BYTES))
        except socket.timeout:  # the same class as TimeoutError from Python 3.10 on
            return Reply(0, problem=f"no answer within {timeout_s:.0f} s")
        except (OSError, http.client.HTTPException) as error:
            return Reply(0, problem=str(error) or type(error).__name__)
        finally:
            connection.close()

    return call


class Router:
    """One router, in the words of whichever API it has."""

    def __init__(self, url: str, call: Call, key: str = "", timeout_s: float = 60.0) -> None:
        self.url, self.call, self.key, self.timeout_s = normal(url), call, key, timeout_s
        self.by_query = False

    def workers(self) -> list[Worker]:
        """Its workers. Raises RouterError."""
        reply = self.call("GET", "/workers", None, 10.0)
        if reply.status == 404:
            reply = self.call("GET", "/list_workers", None, 10.0)
            self.by_query = reply.status == 200
        if reply.status != 200:
            raise self._refusal("list its workers", reply)
        try:
            found = json.loads(reply.body)
            if self.by_query:
                return [Worker(str(url), str(url)) for url in found["urls"]]
            return [
                Worker(str(one["url"]), str(one.get("id") or one["url"]), one.get("is_healthy"))
                for one in found["workers"]
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RouterError(
                f"cannot list the workers of router {self.url}: its answer is none of a router; check the address"
            ) from error

    def add(self, url: str) -> None:
        """Ask for one worker more; it is listed once it answers."""
        if self.by_query:
            reply = self.call("POST", f"/add_worker?url={urllib.parse.quote(url, safe='')}", None, self.timeout_s)
        else:
            body = {"url": url, **({"api_key": self.key} if self.key else {})}
            reply = self.call("POST", "/workers", body, 10.0)
        if reply.status not in (200, 201, 202):
            raise self._refusal(f"add {url}", reply)

    def remove(self, worker: Worker) -> None:
        """Ask for one worker less. One that is gone already is no error."""
        name = urllib.parse.quote(worker.id, safe="")
        if self.by_query:
            reply = self.call("POST", f"/remove_worker?url={name}", None, 10.0)
        else:
            reply = self.call("DELETE", f"/workers/{name}", None, 10.0)
        if reply.status not in (200, 202, 204, 404):
            raise self._refusal(f"remove {worker.url}", reply)

    def _refusal(self, what: str, reply: Reply) -> RouterError:
        if reply.status in (401, 403):
            why = f"it refuses the API key ({reply.status}); let state/secrets.env hold the router's TOKFORGE_API_KEY"
        elif reply.status == 0:
            why = f"{reply.problem}; check that it runs and can be reached from here"
        elif reply.status == 404:
            why = "it knows neither /workers nor /list_workers; check that this is a router's address"
        else:
            text = reply.body[:200].decode("utf-8", "replace")
            why = f"it says {reply.status}: {text}; look at the router's log"
        return RouterError(f"cannot {what} at router {self.url}: {why}", status=reply.status)


def matching(workers: list[Worker], url: str) -> list[Worker]:
    """The entries of one server: one, or one for each of its data parallel ranks."""
    wanted = normal(url)
    found = []
    for worker in workers:
        try:
            if normal(_RANK.sub("", worker.url)) == wanted:
                found.append(worker)
        except RouterError:  # an address of another kind (grpc) is not the one that was asked for
            continue
    return found


def settle(
    router: Router,
    url: str,
    state: str,
    check_mode: bool,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Have the worker listed and healthy, or not listed, and read it back: the result of module router_worker.

    A router looks at its workers every 60 s and believes the second good answer only, but looks at once at one that is
    added. So one that it lists as unhealthy is taken out and added again, once. `warnings` are for a person.
    """
    url = normal(url)
    before = router.workers()
    there = matching(before, url)
    changed = bool(there) != (state == PRESENT)
    after = before
    warnings = []
    if state == ABSENT and not there:
        listed = ", ".join(sorted(url_password.shown(one.url) for one in before)) or "no server"
        warnings.append(
            f"router {router.url} does not list {url}; it lists {listed}; is sglang_drain_url how it knows this server?"
        )
    if not check_mode and (changed or state == PRESENT):
        if changed and state == PRESENT:
            router.add(url)
        elif changed:
            for worker in there:
                router.remove(worker)
        began = now()
        may_renew, leaving = state == PRESENT and not changed, False
        while True:
            after = router.workers()
            found = matching(after, url)
            if leaving and not found:
                router.add(url)
                leaving = False
            elif not leaving and _reached(found, state):
                break
            elif may_renew and found and now() - began >= _UNHEALTHY_S:
                for worker in found:
                    router.remove(worker)
                may_renew, leaving, changed = False, True, True
            if now() - began >= router.timeout_s:
                if leaving:  # what was asked to go may go yet
                    with contextlib.suppress(RouterError):
                        router.add(url)
                raise _late(router, url, state, found, after)
            sleep(_POLL_S)
    urls = {"before": sorted(one.url for one in before), "after": sorted(one.url for one in after)}
    if check_mode and changed:
        gone = {one.url for one in there}
        urls["after"] = sorted([*urls["before"], url] if state == PRESENT else set(urls["before"]) - gone)
    return {
        "changed": changed,
        "workers": urls["after"],
        "router_url": router.url,
        "url": url,
        "warnings": warnings,
        "diff": {side: {"workers": urls[side]} for side in ("before", "after")},
    }


def _reached(found: list[Worker], state: str) -> bool:
    if state == ABSENT:
        return not found
    return bool(found) and all(one.healthy is not False for one in found)


def _late(router: Router, url: str, state: str, found: list[Worker], all_of_them: list[Worker]) -> RouterError:
    if state == ABSENT:
        why = "it still lists it; look at the router's log"
    elif found:
        why = "it calls it unhealthy; see whether the server serves and the router's machine can reach it"
    else:
        why = "it does not list it; see whether the server serves, has the same key, and can be reached from the router"
    return RouterError(
        f"router {router.url} does not have {url} {state} after {router.timeout_s:.0f} s: {why}",
        workers=sorted(one.url for one in all_of_them),
    )
