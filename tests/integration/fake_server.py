# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small real HTTP process with the endpoints and the faults of a server, for the service tests.

fake_server.py --port N [--name NAME] [--api-key KEY] [FAULT...]; faults are described where they are handled.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--name", default="tiny")
parser.add_argument("--text", default="Paris, of course.")
parser.add_argument("--api-key")
parser.add_argument("--admin-api-key")
parser.add_argument("--exit-code", type=int, help="say why and end at once with this code")
parser.add_argument("--exit-after-s", type=float, default=0.0)
parser.add_argument("--ignore-sigterm", action="store_true")
parser.add_argument("--children", type=int, default=0, help="fork so many processes that do nothing and ignore SIGTERM")
parser.add_argument("--escaped-child", action="store_true", help="fork one in a session of its own")
parser.add_argument("--bind-after-s", type=float, default=0.0)
parser.add_argument("--healthy-after-s", type=float, default=0.0)
parser.add_argument("--hang", action="store_true", help="/generate never answers")
parser.add_argument("--changing", action="store_true", help="every /generate answers something else")
parser.add_argument(
    "--degenerate-after", type=int, help="after so many answers the text is one character over and over"
)
parser.add_argument("--nan", action="store_true", help="log probabilities are not numbers")
parser.add_argument(
    "--noise", type=int, default=0, help="log so many benign lines before and so many others after the end"
)
parser.add_argument("--tokens", type=int, help="generate so many tokens whatever was asked")
parser.add_argument("--at-once", type=int, default=64, help="so many requests run at once, the others wait")
parser.add_argument("--token-s", type=float, default=0.0, help="seconds a token")
parser.add_argument("--tells", choices=["loads", "metrics"], action="append", default=[], help="/v1/loads, /metrics")
given = parser.parse_args()

logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(message)s", stream=sys.stderr)
log = logging.getLogger("fake")
log.info("server_args=%s", vars(given))
if given.exit_code is not None:
    time.sleep(given.exit_after_s)
    for number in range(given.noise):
        log.warning("Ignore import error when loading sglang.srt.models.m%d: No module named 'x'", number)
    try:
        raise RuntimeError("this is why it ended")
    except RuntimeError:
        log.error("Scheduler hit an exception: %s", traceback.format_exc())  # one record, as SGLang writes it
    for number in range(given.noise):
        print(f"shutdown noise {number}", file=sys.stderr)
    sys.exit(given.exit_code)
if given.ignore_sigterm:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for number in range(given.children + given.escaped_child):
    if os.fork() == 0:
        if number >= given.children:
            os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(60)

began = time.monotonic()
answers = itertools.count()
generated = itertools.count(1)
running = threading.Semaphore(given.at_once)
counted = threading.Lock()
counts = {"open": 0, "running": 0}


@contextlib.contextmanager
def counting(name: str) -> Iterator[None]:
    """Count a request while it is there."""
    with counted:
        counts[name] += 1
    try:
        yield
    finally:
        with counted:
            counts[name] -= 1


class Handler(BaseHTTPRequestHandler):
    def answer(self, status: int, body: object) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refused(self) -> bool:
        if given.api_key and self.headers.get("Authorization") != f"Bearer {given.api_key}":
            self.answer(401, {"error": "Unauthorized"})
            return True
        return False

    def do_GET(self) -> None:
        if self.path == "/health":
            ready = time.monotonic() - began >= given.healthy_after_s
            self.answer(200 if ready else 503, {})
        elif self.path == "/server_info":
            self.answer(200, {"device": "cpu", "max_running_requests": given.at_once})
        elif self.path == "/metrics" and "metrics" in given.tells:
            text = (
                f"sglang:num_running_reqs {counts['running']}\n"
                f"sglang:num_queue_reqs {counts['open'] - counts['running']}\n"
                f'sglang:http_requests_active{{endpoint="/generate",method="POST"}} {counts["open"]}\n'
            )
            self.answer(200, text.encode())
        elif self.path.startswith("/v1/loads") or self.path in ("/metrics", "/get_load"):
            if "loads" not in given.tells or not self.path.startswith("/v1/loads"):
                self.answer(404, {})
            elif not self.refused():
                waiting = counts["open"] - counts["running"]
                self.answer(200, {"loads": [{"num_running_reqs": counts["running"], "num_waiting_reqs": waiting}]})
        elif not self.refused():
            self.answer(200, {"object": "list", "data": [{"id": given.name}]})

    def do_POST(self) -> None:
        if self.refused():
            return
        content = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path == "/flush_cache":
            self.answer(200, {})
            return
        request = json.loads(content)
        with counting("open"):
            self.generate(request)

    def generate(self, request: dict[str, Any]) -> None:
        asked = request["sampling_params"]["max_new_tokens"]
        while given.hang:
            time.sleep(60)
        tokens = given.tokens if given.tokens is not None else asked
        if request.get("stream"):
            self.stream(tokens)
            return
        with running, counting("running"):
            time.sleep(tokens * given.token_s)
        first = next(answers) if given.changing else 0
        worn_out = given.degenerate_after is not None and next(generated) > given.degenerate_after
        text = "!" * 32 if worn_out else given.text
        meta: dict[str, object] = {"completion_tokens": tokens, "finish_reason": {"type": "length"}}
        if request.get("return_logprob"):
            meta["output_token_logprobs"] = [[None if given.nan else -0.5, number, None] for number in range(tokens)]
        self.answer(200, {"text": text, "output_ids": list(range(first, first + tokens)), "meta_info": meta})

    def stream(self, tokens: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        with running, counting("running"):
            for number in range(tokens):
                told = {"text": "x" * (number + 1), "meta_info": {"completion_tokens": number + 1}}
                self.wfile.write(f"data: {json.dumps(told)}\n\n".encode())
                time.sleep(given.token_s)
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:
        log.info(format, *args)


time.sleep(given.bind_after_s)
server = ThreadingHTTPServer((given.host, given.port), Handler)
log.info("The server is fired up and ready to roll!")
server.serve_forever()
