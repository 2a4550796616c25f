# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load on a router while the servers behind it are deployed."""

from __future__ import annotations

import http.client
import json
import re
import threading


class LoadGenerator:
    """Clients that send one streamed request after the other to the router, and what became of each."""

    def __init__(self, port: int, key: str, tokens: int, clients: int = 4) -> None:
        self.port, self.key, self.tokens, self.over = port, key, tokens, threading.Event()
        self.done: list[str] = []
        self.threads = [threading.Thread(target=self.work) for _number in range(clients)]

    def __enter__(self) -> LoadGenerator:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()

    @property
    def failed(self) -> list[str]:
        return [one for one in self.done if one != "complete"]

    def work(self) -> None:
        while not self.over.is_set():
            self.done.append(self.ask())

    def ask(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sampling = {"max_new_tokens": self.tokens, "ignore_eos": True}
        body = {"text": "x", "stream": True, "sampling_params": sampling}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        try:
            connection.request("POST", "/generate", json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            return repr(error)
        finally:
            connection.close()
        # A server may send several tokens at once; an answer that is whole ends with the last of them, counted.
        counted = re.findall(rb'"completion_tokens": ?(\d+)', content)
        whole = content.rstrip().endswith(b"data: [DONE]") and counted and int(counted[-1]) == self.tokens
        complete = response.status == 200 and whole
        return "complete" if complete else f"{response.status}: {content[-100:]!r}"
