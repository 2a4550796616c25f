# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the server under one supervisord per root directory."""

from __future__ import annotations

import configparser
import contextlib
import os
import shlex

from ansible_collections.tokforge.sglang.plugins.module_utils import proc
from ansible_collections.tokforge.sglang.plugins.module_utils.service import Paths, Run, Seen, ServiceError, file_sha256
from ansible_collections.tokforge.sglang.plugins.module_utils.supervisor_rpc import (
    RUNNING_STATES,
    SOCKET_PATH_BYTES,
    Supervisor,
    SupervisorError,
    SupervisorGoneError,
    how_it_ended,
)


def check_supervisor_root(paths: Paths) -> None:
    """What supervisord cannot work in, said before it says it in its own words.

    The kernel limits a unix socket's path. supervisord expands % in its configuration, some settings once, some twice
    (stdout_logfile), so that no way of writing it works everywhere; and a newline ends a setting.
    """
    if "%" in paths.root or "\n" in paths.root:
        raise ServiceError(
            f"cannot supervise in {paths.root!r}: supervisord gives % and newlines in a path a meaning of their own; "
            "choose an sglang_root without them"
        )
    length = len(os.fsencode(paths.supervisor_socket))
    if length > SOCKET_PATH_BYTES:
        raise ServiceError(
            f"cannot supervise in {paths.root}: the socket path {paths.supervisor_socket} has {length} bytes "
            f"and at most {SOCKET_PATH_BYTES} fit; choose an sglang_root shorter by {length - SOCKET_PATH_BYTES} bytes",
            length_bytes=length,
            limit_bytes=SOCKET_PATH_BYTES,
        )


#: How long a supervisord without a socket may take to stop its server before both are killed.
_LOST_STOP_S = 90.0


class SupervisorManager:
    """One supervisord per root, used for one program."""

    kind = "supervisor"

    def __init__(self, paths: Paths, name: str, supervisord: str | None, run: Run) -> None:
        self.paths = paths
        self.name = name
        self.supervisord = supervisord
        self._run = run
        self._rpc = Supervisor(paths.supervisor_socket)

    def seen(self) -> Seen:
        try:
            info = self._rpc.program(self.name)
            if info is None:
                return Seen("absent")
            if info.state in RUNNING_STATES and info.pid:
                return Seen("running", pid=info.pid)
            if info.state == "BACKOFF":
                # With startretries=0 this lasts one turn of supervisord's loop: the process has died.
                return Seen("ended", ended=self._how(info.spawn_error))
            if info.state in ("EXITED", "FATAL", "UNKNOWN"):
                return Seen("ended", ended=self._how(info.spawn_error))
            return Seen("stopped")
        except SupervisorGoneError:
            return Seen("absent")
        except SupervisorError as error:
            raise ServiceError(
                f"cannot ask supervisor in {self.paths.state}: {error}; look at supervisord.log there"
            ) from error

    def _how(self, spawn_error: str) -> str:
        # The log says it exactly ("terminated by SIGKILL"); supervisord's own field only "Exited too quickly".
        ended = how_it_ended(self._rpc.log_tail(), self.name)
        return ended[1] if ended else (f"ended ({spawn_error})" if spawn_error else "ended")

    def members(self) -> list[int]:
        return []

    def config_sha256(self) -> str:
        return file_sha256(self.paths.supervisor_config)

    def present(self) -> bool:
        return self._pid() is not None or bool(self._lost())

    def _lost(self) -> list[proc.Process]:
        """Our supervisord when it lives but nobody can reach it: its socket was removed, by a cleaner of /tmp perhaps.

        Left alone it would start its server again beside the one that another supervisord starts.
        """
        if self._pid() is not None:
            return []
        return [process for process in proc.processes() if process.alive and self._is_ours(proc.argv(process.pid))]

    def _is_ours(self, words: list[str]) -> bool:
        named = any(os.path.basename(word) == "supervisord" for word in words)
        return named and words[-2:] == ["-c", self.paths.supervisor_config]

    def _end_lost(self) -> bool:
        """End a supervisord that nobody can reach; it stops its server first. Says whether there was one."""
        lost = self._lost()
        if not lost:
            return False
        left = proc.kill_all(lambda: [process for process in lost if proc.same(process)], timeout_s=_LOST_STOP_S)
        if left:
            pids = ", ".join(str(process.pid) for process in left)
            raise ServiceError(
                f"cannot end supervisord of {self.paths.root}: process {pids} does not end and its socket "
                f"{self.paths.supervisor_socket} is gone; look at it in /proc"
            )
        return True

    def _pid(self) -> int | None:
        try:
            return self._rpc.pid()
        except SupervisorGoneError:
            return None
        except SupervisorError as error:
            raise ServiceError(
                f"cannot ask supervisor in {self.paths.state}: {error}; look at supervisord.log there"
            ) from error

    def start(self, applied_sha256: str) -> None:
        check_supervisor_root(self.paths)
        if self._pid() is not None and applied_sha256 != self.config_sha256():
            self.remove()  # it only reads its configuration when it starts
        if self._pid() is None:
            self._end_lost()
            self._start_supervisord()
        try:
            self._rpc.start(self.name)
        except (SupervisorGoneError, SupervisorError) as error:
            raise ServiceError(
                f"cannot start {self.name} in {self.paths.root}: {error}; look at state/supervisord.log"
            ) from error

    def _start_supervisord(self) -> None:
        supervisord = next((path for path in (self.supervisord, self._beside_the_launcher()) if _runs(path)), None)
        if supervisord is None:
            raise ServiceError(
                f"cannot start {self.name} in {self.paths.root}: supervisord is not at {self.supervisord}; "
                "install the tools environment first (role sglang_install)"
            )
        # Its environment becomes the server's: nothing of the login that ran Ansible may leak into it.
        environment = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME") if name in os.environ}
        environment.update(LANG="C.UTF-8", PATH=os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"))
        code, output, errors = self._run([supervisord, "-c", self.paths.supervisor_config], environment)
        if code != 0:
            raise ServiceError(
                f"cannot start supervisord with {self.paths.supervisor_config}: it ended with code {code}: "
                f"{(errors or output).strip()[-1000:]}; correct what it names"
            )
        if not proc.wait_until(lambda: self._pid() is not None, timeout_s=10):
            raise ServiceError(
                f"cannot start supervisord with {self.paths.supervisor_config}: it does not answer on "
                f"{self.paths.supervisor_socket} after 10 s; look at state/supervisord.log"
            )

    def _beside_the_launcher(self) -> str | None:
        """The supervisord of the tools environment that the configuration was written for: its interpreter runs the
        launcher. A play that only starts what is there need not know that environment."""
        parser = configparser.RawConfigParser()
        try:
            parser.read(self.paths.supervisor_config, encoding="utf-8")
            words = shlex.split(parser.get(f"program:{self.name}", "command"))
        except (configparser.Error, ValueError, OSError):
            return None
        return os.path.join(os.path.dirname(words[0]), "supervisord") if words else None

    def request_stop(self) -> bool:
        if self._end_lost():
            return True
        try:
            info = self._rpc.program(self.name)
            if info is None or info.state not in RUNNING_STATES:
                return False
            self._rpc.stop(self.name)
            return True
        except SupervisorGoneError:
            return False
        except SupervisorError as error:
            raise ServiceError(
                f"cannot stop {self.name} in {self.paths.root}: {error}; look at state/supervisord.log"
            ) from error

    def settled(self) -> bool:
        return self.seen().phase != "running"

    def remove(self) -> None:
        """End supervisord and wait for its end; a stale pid file or socket goes too."""
        self._end_lost()
        pid = self._pid()
        daemon = proc.read_process(pid) if pid else None
        if daemon:
            try:
                self._rpc.shutdown()
            except SupervisorGoneError:
                pass
            except SupervisorError as error:
                raise ServiceError(
                    f"cannot end supervisord of {self.paths.root}: {error}; look at state/supervisord.log"
                ) from error
            # Its programs are stopped already; it has nothing to wait for.
            if proc.kill_all(lambda: [daemon] if proc.same(daemon) else [], timeout_s=15, first=None):
                raise ServiceError(
                    f"cannot end supervisord of {self.paths.root}: process {pid} does not end; look at it in /proc"
                )
        for path in (self.paths.supervisor_socket, self.paths.supervisor_pid):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _runs(path: str | None) -> bool:
    return bool(path) and os.access(path or "", os.X_OK)
