# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that behaves as SGLang does while it is profiled, with faults that can be chosen. Nothing but HTTP and
files: the traces are recorded ones, written where the profile was told to, in pieces.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

TRACE = (Path(__file__).parent / "fixtures" / "profile" / "0.5.23-TP-0.trace.json.gz").read_bytes()


@dataclass
class Faults:
    """What this server does otherwise than a good one.

    deny: paths that are refused for want of a key. missing: paths that it does not have. busy: /start_profile fails.
    ranks_written: how many ranks write. trace: what they write. token_s: time of a token.
    error_line: the answer is an error. tokens: after so many the answer ends. silent: no token comes.
    elsewhere: traces go to another directory. only_when_stopped: traces come with /stop_profile.
    about: what the server says of itself beside ABOUT; about_text: instead of that.
    """

    deny: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    busy: bool = False
    ranks_written: int = 1
    trace: bytes = TRACE
    token_s: float = 0.002
    silent: bool = False
    error_line: bool = False
    tokens: int = 10_000
    elsewhere: bool = False
    only_when_stopped: bool = False
    about: dict[str, Any] = field(default_factory=dict)
    about_text: bytes = b""


@dataclass
class Seen:
    """What was asked of the server, in order."""

    paths: list[str] = field(default_factory=list)
    bodies: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, str | None] = field(default_factory=dict)
    hung_up: threading.Event = field(default_factory=threading.Event)


ABOUT = {"version": "0.5.23", "device": "cpu", "tp_size": 1, "max_total_num_tokens": 200_000, "api_key": "k1"}


@contextmanager
def serve(faults: Faults) -> Iterator[tuple[str, Seen]]:
    """The URL of such a server, and what it sees."""
    seen = Seen()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"
        directory: ClassVar[list[str]] = []

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def refused(self) -> bool:
            seen.paths.append(self.path)
            seen.keys[self.path] = self.headers["Authorization"]
            if self.path in faults.deny or self.path in faults.missing:
                self.answer(401 if self.path in faults.deny else 404, b'{"error":"no"}')
                return True
            return False

        def do_GET(self) -> None:
            if not self.refused():
                self.answer(200, faults.about_text or json.dumps({**ABOUT, **faults.about}).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
            if self.refused():
                return
            seen.bodies[self.path] = body
            if self.path == "/generate":
                self.generate(len(body["input_ids"]))
            elif self.path == "/start_profile":
                if faults.busy:
                    self.answer(500, b"Internal Server Error")
                    return
                self.directory.append(body["output_dir"])
                self.answer(200, b"Start profiling.\n")
                if not faults.only_when_stopped:
                    threading.Timer(0.01, self.write).start()
            elif faults.only_when_stopped:
                self.write()
                self.answer(200)
            else:
                self.answer(500, b"Internal Server Error")

        def generate(self, count: int) -> None:
            self.send_response(200)
            self.end_headers()
            if faults.error_line:
                self.wfile.write(b'data: {"error": {"message": "out of memory"}}\n\n')
                return
            try:
                for token in range(1, faults.tokens + 1):
                    time.sleep(faults.token_s)
                    for index in range(0 if faults.silent else count):
                        line = {"index": index, "text": "x", "meta_info": {"completion_tokens": token}}
                        self.wfile.write(b"data: " + json.dumps(line).encode() + b"\n\n")
                    self.wfile.flush()
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                seen.hung_up.set()

        def write(self) -> None:
            where = Path(self.directory[-1])
            if faults.elsewhere:
                where = where.parent / "elsewhere"
                where.mkdir()
            for rank in range(faults.ranks_written):
                path = where / f"1796028295.81-TP-{rank}.trace.json.gz"
                path.write_bytes(faults.trace[: len(faults.trace) // 2])
                time.sleep(0.01)
                path.write_bytes(faults.trace)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
