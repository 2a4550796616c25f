# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the real playbooks against a root of their own and looks at what they leave: files, processes, answers.

What it says about a rollout it sees itself, in /proc, on the disk and over HTTP. Only where processes are found and
named does it use the collection's own `proc`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.tokforge.sglang.plugins.module_utils import proc

CHECKOUT = Path(__file__).resolve().parents[2]
INVENTORY = CHECKOUT / "inventories/local"
#: Seconds after which a play is given up. A deploy takes 90 s on two idle cores; the machine may be a busy one.
PLAY_TIMEOUT_S = 540
#: One short point: that a measurement is made and recorded is what counts here, not its figures.
SMALL_BENCHMARK = {
    "sglang_benchmark_concurrency": [1],
    "sglang_benchmark_input_len": 16,
    "sglang_benchmark_output_len": 8,
    "sglang_benchmark_repetitions": 1,
    # The first deploy and molecule check what is written; the others are not about that.
    "sglang_ready_output_check": False,
}

#: What the local inventory says of its host, for tests that have hosts of their own.
ON_THIS_MACHINE = {
    "ansible_connection": "local",
    "ansible_python_interpreter": sys.executable,
    "sglang_lane": "cpu",
    "sglang_index": {"inherit_pip": True},
    "sglang_torch_build": "any",
}

# Below the ports that connections are given by chance. Where it begins differs, since two runs may share a machine.
PORTS = iter([31700 + (os.getpid() + step) % 90 for step in range(90)])


def free_port() -> int:
    """A port that nobody listens on and that this run has not used before."""
    for port in PORTS:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)):
                return port
    pytest.fail("no free port between 31700 and 31789")


Tree = Mapping[str, "tuple[int, int, int, int]"]


@dataclass(frozen=True)
class Play:
    """What a run of a playbook showed.

    `silence_s`: the longest time without a new line. `crowd`: how many processes wanted each core at its end, at least
    1; limits in seconds hold for an idle machine and are multiplied by it.
    """

    code: int
    output: str
    elapsed_s: float
    silence_s: float
    crowd: float

    @property
    def counts(self) -> dict[str, int]:
        """The recap of the only host: ok, changed, failed and so on."""
        recap = self.output.rsplit("PLAY RECAP", 1)[1]
        return {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", recap)}

    @property
    def message(self) -> str:
        """The `msg` of the last failed task: what a person reads at the end."""
        last = self.output.rsplit("fatal: [localhost]: FAILED! =>", 1)[1]
        # What has to be done in any case comes after it.
        return str(yaml.safe_load(re.split(r"\n(?:TASK \[|PLAY RECAP)", last)[0])["msg"])

    @property
    def failures(self) -> int:
        """How many tasks were shown as failed, rescued ones too."""
        return self.output.count("fatal: [localhost]: FAILED!")


@dataclass
class Running:
    """A playbook that runs: its group leader, and the lines it has printed so far."""

    process: subprocess.Popen[str]
    began: float = field(default_factory=time.monotonic)
    lines: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))

    @property
    def output(self) -> str:
        return "".join(line for _when, line in self.lines)

    def wait_for(self, condition: Callable[[], bool], what: str, timeout_s: float = 240) -> None:
        """Until the condition holds, while the play runs."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, f"the play ended before {what}:\n{self.output}"
            assert time.monotonic() < deadline, f"no {what} within {timeout_s} s:\n{self.output}"
            time.sleep(0.05)

    def signal_all(self, number: int) -> None:
        """Signal the play and everything it started that is still in its process group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def finish(self, timeout_s: float = PLAY_TIMEOUT_S) -> Play:
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.signal_all(signal.SIGKILL)
            pytest.fail(f"the play did not end within {timeout_s} s:\n{self.output}")
        ended = time.monotonic()
        self._reader.join(60)
        times = [self.began, *(when for when, _line in self.lines), ended]
        silence_s = max(later - earlier for earlier, later in zip(times, times[1:], strict=False))
        crowd = max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
        return Play(code, self.output, ended - self.began, silence_s, crowd)


class Rollout:
    """One root directory and one port, as an inventory would name them."""

    def __init__(self, root: Path, port: int, uv_cache: Path) -> None:
        self.root, self.port, self.inventory = root, port, INVENTORY
        # Set by keep_secret: the file with secret variables, and the two keys that the server then asks for.
        self.secrets: Path | None = None
        self.key = self.admin_key = ""
        self.variables: dict[str, Any] = {
            "sglang_root": str(root),
            "sglang_port": port,
            "sglang_uv_cache": str(uv_cache),
            **SMALL_BENCHMARK,
        }

    def keep_secret(self, file: Path, variables: dict[str, Any]) -> None:
        """From here on every play gets these variables, from a file: arguments are for all to read."""
        file.touch(mode=0o600)
        file.write_text(json.dumps(variables))
        self.secrets = file
        self.key = variables["sglang_server_api_key"]
        self.admin_key = variables["sglang_server_admin_api_key"]

    # --- running playbooks -------------------------------------------------------------------------------------------

    def start(self, playbook: str, *options: str, **variables: Any) -> Running:
        command = [str(Path(sys.executable).with_name("ansible-playbook")), playbook, *options]
        return self._start([*command, *self._asked(variables)])

    def start_command(self, name: str, *options: str) -> Running:
        """The same with `tokforge-rollout NAME`."""
        command = [sys.executable, "-m", "tokforge_rollout", name, *options]
        return self._start([*command, *self._asked({})], PYTHONPATH=str(CHECKOUT))

    def _asked(self, variables: dict[str, Any]) -> list[str]:
        asked = ["-i", str(self.inventory), "-e", json.dumps({**self.variables, **variables})]
        return asked + (["-e", f"@{self.secrets}"] if self.secrets else [])

    def _start(self, command: list[str], **env: str) -> Running:
        process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env=os.environ | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        return Running(process)

    def run(self, playbook: str, *options: str, **variables: Any) -> Play:
        return self.start(playbook, *options, **variables).finish()

    def deploy(self, *options: str, **variables: Any) -> Play:
        return self.run("deploy.yml", *options, **variables)

    # --- looking at processes ----------------------------------------------------------------------------------------

    def server(self) -> proc.Process | None:
        """The server's main process: the oldest that a launcher below this root started. None when none runs."""
        releases = f"{self.root}/releases/"
        found = [p for p in proc.processes() if proc.environ(p.pid).get("TOKFORGE_RELEASE", "").startswith(releases)]
        return min(found, key=lambda process: process.start_ticks, default=None)

    def must_run(self) -> proc.Process:
        found = self.server()
        assert found, f"no server of {self.root} runs"
        return found

    def processes(self) -> dict[int, str]:
        """Every process that works in this root or names it: servers, supervisord, installers, plays."""
        found = {}
        for process in proc.processes():
            with contextlib.suppress(OSError):
                entry = Path("/proc", str(process.pid))
                command = entry.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                cwd = os.readlink(entry / "cwd")
                if str(self.root) in command or f"{cwd}/".startswith(f"{self.root}/"):
                    found[process.pid] = command.strip() or process.comm
        return found

    def settle(self, timeout_s: float = 60) -> dict[int, str]:
        """Processes that are still there after the time, other than supervisord."""
        left: dict[int, str] = {}

        def gone() -> bool:
            left.clear()
            left.update({pid: command for pid, command in self.processes().items() if "supervisord" not in command})
            return not left

        proc.wait_until(gone, timeout_s, poll_s=0.2)
        return left

    def listening(self) -> bool:
        return bool(proc.listeners(self.port))

    def supervisorctl(self, *arguments: str) -> str:
        tool = next(path for path in self.root.glob("venvs/*/bin/supervisorctl"))
        command = [str(tool), "-s", f"unix://{self.root}/state/supervisor.sock", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout

    def end_everything(self) -> None:
        """SIGKILL to every process, by process id, until none is left: what a power cut does."""
        while found := self.processes():
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # --- looking at files --------------------------------------------------------------------------------------------

    def release(self) -> int | None:
        """The number of the current release, None without one."""
        link = self.root / "current"
        return int(os.path.basename(os.readlink(link))) if link.is_symlink() else None

    def releases(self) -> list[str]:
        return sorted(os.listdir(self.root / "releases"))

    def environments(self) -> dict[str, Path]:
        """Complete SGLang environments: version -> environment.json."""
        found = {}
        for path in self.root.glob("venvs/*/environment.json"):
            version = json.loads(path.read_text())["versions"].get("sglang")
            if version:
                found[version] = path
        return found

    def half_environments(self) -> list[Path]:
        """Directories of environments without the marker that makes them complete."""
        return [
            path for path in self.root.glob("venvs/*") if path.is_dir() and not (path / "environment.json").exists()
        ]

    def installing(self) -> bool:
        """Whether packages of SGLang's environment are being written now."""
        return any((path / "lib").exists() and _entries(path) > 40 for path in self.half_environments_of_sglang())

    def half_environments_of_sglang(self) -> list[Path]:
        # uv leaves no pip in an environment; the tools environment, made with venv, begins with it.
        return [path for path in self.half_environments() if not list(path.glob("bin/pip*"))]

    def installed(self, marker: Path) -> dict[str, str]:
        """What an environment's own Python finds installed in it: distribution -> version."""
        program = (
            "import importlib.metadata as m, json, re\n"
            "print(json.dumps({re.sub('[-_.]+', '-', d.name).lower(): d.version for d in m.distributions()}))"
        )
        command = [str(marker.parent / "bin/python"), "-I", "-c", program]
        answer: dict[str, str] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        return answer

    def facts(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads((self.root / "facts/sglang.fact").read_text())
        return answer

    # --- asking the server -------------------------------------------------------------------------------------------

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | _bearer(self.key)
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data, headers=headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())

    def status(self, method: str, path: str, key: str = "", **headers: str) -> int:
        """The HTTP status for whoever has this key, or none."""
        body = b"{}" if method in ("POST", "PUT", "PATCH") else None
        url, sent = f"http://127.0.0.1:{self.port}{path}", {"Content-Type": "application/json"} | headers | _bearer(key)
        request = urllib.request.Request(url, data=body, method=method, headers=sent)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    def version(self) -> str:
        """The version that the server itself tells."""
        return str(self.ask("/server_info")["version"])

    def generate(self, tokens: int = 4) -> int:
        """Ask for so many tokens; how many came."""
        sampling = {"max_new_tokens": tokens, "ignore_eos": True}
        answer = self.ask("/generate", {"text": "The way", "sampling_params": sampling})
        return int(answer["meta_info"]["completion_tokens"])


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _entries(environment: Path) -> int:
    return sum(len(os.listdir(site)) for site in environment.glob("lib/*/site-packages"))


def tree(root: Path, leave_out: tuple[str, ...] = ()) -> Tree:
    """Mode, inode, size and time of change of everything below a directory, but names at its top that are left out."""
    found = {}
    for folder, folders, files in os.walk(root):
        if folder == str(root):
            folders[:] = [name for name in folders if name not in leave_out]
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            seen = os.lstat(path)
            found[path] = (seen.st_mode, seen.st_ino, seen.st_size, seen.st_mtime_ns)
    return found


def differences(before: Tree, after: Tree) -> list[str]:
    """Paths that came, went or changed."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def identity(path: Path) -> tuple[int, int]:
    """Inode and time of change: equal only while nobody wrote the file anew."""
    seen = path.stat()
    return seen.st_ino, seen.st_mtime_ns


@contextlib.contextmanager
def tmpfs(path: Path, options: str) -> Iterator[None]:
    """A file system of its own at `path`; the test is skipped where none may be mounted."""
    path.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tokforge-test", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        # Lazily: a process that still ends must not keep the mount, and with it the memory.
        subprocess.run(["umount", "-l", str(path)], check=True)
