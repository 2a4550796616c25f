# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One start of the real SGLang on the CPU, looked at again and again while something is done to it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, startup_look
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import World

Look = dict[str, Any]
#: How soon a failure must be known after its cause.
WITHIN_S = 3.0


class Start:
    """A server of its own, with its own log; `with` ends it by its process group."""

    def __init__(self, python: Path, model: Path, directory: Path, port: int, tp: int) -> None:
        self.log, self.port, self.tp = directory / "server.log", port, tp
        directory.mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        if tp > 1:
            environment["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(str(core % os.cpu_count()) for core in range(tp))
        command = [str(python), "-m", "sglang.launch_server", "--device", "cpu", "--model-path", str(model)]
        command += ["--load-format", "dummy", "--max-total-tokens", "8192", "--sleep-on-idle", "--port", str(port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--tp-size", str(tp)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )
        self.cursor: dict[str, Any] | None = None
        self.caused_at = 0.0

    def __enter__(self) -> Start:
        return self

    def __exit__(self, *_exception: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def look(self, stall_timeout_s: float = 300) -> Look:
        request = startup_look.Request(
            log=str(self.log),
            world=World(tp=self.tp),
            process=str(self.process.pid),
            cursor=self.cursor,
            stall_timeout_s=stall_timeout_s,
        )
        self.process.poll()  # what has ended and is not waited for looks like a process that still ends
        found = startup_look.look(request)
        self.cursor = found["cursor"]
        return found

    def until_over(self, at: str = "", cause: Callable[[], object] | None = None, stall_timeout_s: float = 300) -> Look:
        """Look until the start is ready, failed or stalled; do `cause` once when the milestone `at` is reached."""
        deadline = time.monotonic() + 240
        while True:
            found = self.look(stall_timeout_s)
            if cause and not self.caused_at and (at == "" or at in found["milestones"]):
                cause()
                self.caused_at = time.monotonic()
            elif found["state"] != "starting":
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.3)

    @property
    def since_cause_s(self) -> float:
        return time.monotonic() - self.caused_at

    def rank(self, tag: str) -> int:
        """Process id of a rank, by the title that SGLang gives it."""
        below = proc.descendants(self.process.pid, proc.processes())
        [pid] = [p.pid for p in below if " ".join(proc.argv(p.pid)).strip() == f"sglang::scheduler_{tag}"]
        return pid

    def take_port(self) -> None:
        self.thief = socket.create_server(("127.0.0.1", self.port))


def copy_and_truncate(log: Path) -> None:
    """What logrotate's copytruncate does."""
    log.with_name(f"{log.name}.1").write_bytes(log.read_bytes())
    os.truncate(log, 0)
