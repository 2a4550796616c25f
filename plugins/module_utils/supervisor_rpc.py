# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Talk to one supervisord over its unix socket: XML-RPC from the standard library.

Facts about supervisord 4.x (supervisor/http.py, process.py, rpcinterface.py):
it binds `<socket>.<pid>` first and links it to `<socket>`, so the longest name that fits is shorter than the kernel's
limit;
a process that dies before `startsecs` has its exit status dropped (exitstatus None) and only the log says how it ended.
"""

from __future__ import annotations

import http.client
import re
import signal
import socket
import xmlrpc.client
from dataclasses import dataclass
from typing import Any
from xml.parsers.expat import ExpatError

from ansible_collections.tokforge.sglang.plugins.module_utils import proc

# sun_path is 108 bytes with its final NUL (unix(7)); supervisord binds the name with "." and its pid (at most 4194304)
# added.
SUN_PATH_BYTES = 107
SOCKET_PATH_BYTES = SUN_PATH_BYTES - len(".4194304")

# supervisor/states.py
RUNNING_STATES = frozenset({"STARTING", "RUNNING", "STOPPING"})
# supervisor/xmlrpc.py
_BAD_NAME = 10
_NOT_RUNNING = 70
_ALREADY_STARTED = 60
_NO_FILE = 20

_SPAWNED = re.compile(r"spawned: '(?P<name>[^']*)' with pid (?P<pid>\d+)\s*$")
_ENDED = re.compile(r"(?:exited|stopped): (?P<name>\S+) \((?P<how>.*?)(?:; (?:not )?expected)?\)\s*$")


class SupervisorGoneError(Exception):
    """Nobody answers on the socket: supervisord is not running (whatever pid file or socket is left behind)."""


class SupervisorError(Exception):
    """supervisord answered with an error, or with something that is not XML-RPC."""


@dataclass(frozen=True)
class ProgramInfo:
    """One program as supervisord sees it. `pid` is 0 when it does not run; times are seconds since the epoch."""

    state: str
    pid: int
    started: int
    spawn_error: str


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _UnixTransport(xmlrpc.client.Transport):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__()
        self._path = path
        self._timeout_s = timeout_s

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        return _UnixConnection(self._path, self._timeout_s)


class Supervisor:
    """The calls this collection makes, each raising SupervisorGoneError or SupervisorError."""

    def __init__(self, socket_path: str, timeout_s: float = 10) -> None:
        self._path = socket_path
        self._timeout_s = timeout_s

    def _call(self, method: str, *arguments: object) -> Any:
        if len(self._path.encode()) > SUN_PATH_BYTES:
            raise SupervisorGoneError(f"no socket can have the path {self._path}")
        proxy = xmlrpc.client.ServerProxy(
            "http://localhost/RPC2", transport=_UnixTransport(self._path, self._timeout_s)
        )
        try:
            return getattr(proxy, method)(*arguments)
        except (FileNotFoundError, ConnectionError, http.client.RemoteDisconnected) as error:
            raise SupervisorGoneError(f"nobody answers on {self._path}: {error}") from error
        except xmlrpc.client.Fault:
            raise
        except (OSError, xmlrpc.client.Error, http.client.HTTPException, ExpatError) as error:
            raise SupervisorError(f"supervisord on {self._path} does not answer {method}: {error}") from error

    def _checked(self, method: str, *arguments: object, accept: int | None = None) -> Any:
        try:
            return self._call(method, *arguments)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode == accept:
                return None
            raise SupervisorError(f"supervisord on {self._path} refused {method}: {fault.faultString}") from fault

    def pid(self) -> int:
        """supervisord's own pid."""
        return int(self._checked("supervisor.getPID"))

    def program(self, name: str) -> ProgramInfo | None:
        """The program's state, or None when supervisord does not know it."""
        found = self._checked("supervisor.getProcessInfo", name, accept=_BAD_NAME)
        if found is None:
            return None
        return ProgramInfo(
            state=str(found["statename"]),
            pid=int(found["pid"]),
            started=int(found["start"]),
            spawn_error=str(found["spawnerr"]),
        )

    def start(self, name: str) -> None:
        """Ask for a start; does not wait for `startsecs`."""
        self._checked("supervisor.startProcess", name, False, accept=_ALREADY_STARTED)

    def stop(self, name: str) -> None:
        """Ask for a stop (the program's stopsignal to its process group); does not wait."""
        self._checked("supervisor.stopProcess", name, False, accept=_NOT_RUNNING)

    def shutdown(self) -> None:
        """End supervisord; it stops its programs first."""
        self._checked("supervisor.shutdown")

    def log_tail(self, size_bytes: int = 65536) -> str:
        """The end of supervisord's own log (not of the program's)."""
        return str(self._checked("supervisor.readLog", -size_bytes, 0, accept=_NO_FILE) or "")


def how_it_ended(log: str, name: str) -> tuple[int, str] | None:
    """(pid, words) of the program's last end that supervisord's log tells, e.g. (4711, 'exited with code 1').

    None when the log does not tell the end of the program's last start.
    """
    last: tuple[int, str] | None = None
    pid = 0
    for line in log.splitlines():
        spawned = _SPAWNED.search(line)
        if spawned and spawned.group("name") == name:
            pid, last = int(spawned.group("pid")), None
            continue
        ended = _ENDED.search(line)
        if ended and ended.group("name") == name and pid:
            last = (pid, _in_words(ended.group("how")))
    return last


def _in_words(how: str) -> str:
    """supervisor/options.py decode_wait_status, said as this collection says it everywhere."""
    code = re.fullmatch(r"exit status (\d+)", how)
    if code:
        return proc.exited(code.group(1))
    end = re.fullmatch(r"terminated by (?:(?P<name>SIG\w+)|signal (?P<number>\d+))(?P<core> \(core dumped\))?", how)
    number = int(end.group("number") or getattr(signal, end.group("name") or "", 0)) if end else 0
    return proc.killed(number, bool(end and end.group("core"))) if number else f"ended ({how})"
