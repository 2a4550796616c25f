# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small real HTTP process with the endpoints and the faults of a server, for the service tests.

fake_server.py --port N [--name NAME] [--api-key KEY] [FAULT...]; faults are described where they are handled.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
parser.add_argument("--tokens", type=int, help="generate so many tokens whatever was asked")
given = parser.parse_args()

logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(message)s", stream=sys.stderr)
log = logging.getLogger("fake")
log.info("server_args=%s", vars(given))
if given.exit_code is not None:
    time.sleep(given.exit_after_s)
    log.error("RuntimeError: this is why it ended")
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


class Handler(BaseHTTPRequestHandler):
    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
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
        elif not self.refused():
            self.answer(200, {"object": "list", "data": [{"id": given.name}]})

    def do_POST(self) -> None:
        if self.refused():
            return
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["sampling_params"]["max_new_tokens"]
        while given.hang:
            time.sleep(60)
        tokens = given.tokens if given.tokens is not None else asked
        meta = {"completion_tokens": tokens, "finish_reason": {"type": "length"}}
        self.answer(200, {"text": given.text, "output_ids": list(range(tokens)), "meta_info": meta})

    def log_message(self, format: str, *args: object) -> None:
        log.info(format, *args)


time.sleep(given.bind_after_s)
server = ThreadingHTTPServer((given.host, given.port), Handler)
log.info("The server is fired up and ready to roll!")
server.serve_forever()
