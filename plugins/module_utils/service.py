# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start, stop and identify the one server of a root directory, under systemd or under supervisor.

Whose is a process? Only what is ours is ever signalled:
the main process the manager names, its process group, its descendants, the group that state/server.json recorded at the
last start (same boot, same session, group leader not reused), and processes whose environment names a release of this
root.
SGLang's scheduler and detokenizer overwrite their environment with their title (setproctitle), so for them it is the
group
that tells: nothing in 0.5.12.post1 or 0.5.23 leaves it.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from ansible_collections.tokforge.sglang.plugins.module_utils import proc
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.supervisor_rpc import (
    RUNNING_STATES,
    SOCKET_PATH_BYTES,
    Supervisor,
    SupervisorError,
    SupervisorGoneError,
    how_it_ended,
)

RECORD_SCHEMA = 1
ENV_RELEASE = "TOKFORGE_RELEASE"
ENV_LAUNCH_ID = "TOKFORGE_LAUNCH_ID"
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

# command, environment -> return code, standard output, standard error
Run = Callable[[Sequence[str], "Mapping[str, str] | None"], "tuple[int, str, str]"]


class ServiceError(Exception):
    """The server cannot be managed as asked. `facts` go beside the message."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Paths:
    """Where the pieces of a root directory lie."""

    root: str

    @property
    def state(self) -> str:
        return os.path.join(self.root, "state")

    @property
    def secrets(self) -> str:
        return os.path.join(self.state, "secrets.env")

    @property
    def record(self) -> str:
        return os.path.join(self.state, "server.json")

    @property
    def supervisor_config(self) -> str:
        return os.path.join(self.state, "supervisord.conf")

    @property
    def supervisor_socket(self) -> str:
        return os.path.join(self.state, "supervisor.sock")

    @property
    def supervisor_pid(self) -> str:
        return os.path.join(self.state, "supervisord.pid")

    @property
    def log(self) -> str:
        return os.path.join(self.root, "log", "server.log")

    @property
    def current(self) -> str:
        return os.path.join(self.root, "current")

    @property
    def releases(self) -> str:
        return os.path.join(os.path.realpath(self.root), "releases")


@dataclass(frozen=True)
class LogPosition:
    """A point in a log that survives rotation: `inode` names the file that had `path` then, `offset` counts its bytes.

    inode 0: the file did not exist, everything in it is new.
    """

    path: str
    inode: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Launch:
    """What the current release would be started as."""

    launch_id: str
    release: str


@dataclass(frozen=True)
class Seen:
    """What the manager says about the program.

    phase: absent (not known to the manager, or no manager), stopped (on request), running, restarting (it died and the
    manager is about to start it again), ended (it died and stays down). `ended` tells how, e.g. "exit status 1".
    `restarts` counts restarts by the manager since the last start on request, where the manager tells.
    """

    phase: str
    pid: int = 0
    ended: str = ""
    restarts: int = 0


@dataclass(frozen=True)
class Record:
    """state/server.json: the last start or stop on request, written when it was done."""

    manager: str
    name: str
    boot_id: str
    pid: int
    start_ticks: int
    session: int
    launch_id: str
    release: str
    log_position: LogPosition
    started_at: float
    config_sha256: str = ""
    stopped: bool = False


@dataclass(frozen=True)
class Observed:
    """The manager's view and ours. `own` are all living processes of the server; `main` the one the manager names."""

    seen: Seen
    main: proc.Process | None
    own: tuple[proc.Process, ...]
    launch_id: str | None
    release: str | None
    record: Record | None

    @property
    def leftovers(self) -> bool:
        """Processes of the server that the manager knows nothing of."""
        return bool(self.own) and self.main is None


@dataclass(frozen=True)
class Plan:
    """What to do: action is started, restarted, stopped, removed or none; `reason` says why in words."""

    action: str
    reason: str

    @property
    def changed(self) -> bool:
        return self.action != "none"


class Manager(Protocol):
    """What systemd and supervisor have in common here."""

    kind: str

    def seen(self) -> Seen: ...
    def members(self) -> list[int]: ...
    def config_sha256(self) -> str: ...
    def start(self, applied_sha256: str) -> None: ...
    def request_stop(self) -> bool: ...
    def settled(self) -> bool: ...
    def present(self) -> bool: ...
    def remove(self) -> None: ...


# --- identity of what should run, and of what ran last -------------------------------------------------------------


def wanted(paths: Paths) -> Launch | None:
    """The launch of the current release, by the same rule as files/launch.py; None when there is no current release."""
    release = os.path.realpath(paths.current)
    try:
        with open(os.path.join(release, "launch.json"), "rb") as stream:
            content = stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ServiceError(
            f"cannot read {release}/launch.json: {error.strerror}; run as the server's user or root"
        ) from error
    try:
        with open(paths.secrets, "rb") as stream:
            content += stream.read()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ServiceError(
            f"cannot read {paths.secrets}: {error.strerror}; run as the server's user or root"
        ) from error
    return Launch(hashlib.sha256(content).hexdigest()[:16], release)


def log_position(path: str) -> LogPosition:
    """The end of the log now."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return LogPosition(path)
    return LogPosition(path, found.st_ino, found.st_size)


def read_record(paths: Paths) -> Record | None:
    """The record, or None when there is none that can be used (absent, torn, of another schema)."""
    try:
        with open(paths.record, encoding="utf-8") as stream:
            data = json.load(stream)
        if data.pop("schema_version") != RECORD_SCHEMA:
            return None
        return Record(**{**data, "log_position": LogPosition(**data["log_position"])})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        # It only helps to find leftovers and the log's position; without it both are found in other ways or not at all.
        return None


def write_record(paths: Paths, record: Record) -> None:
    data = json.dumps({"schema_version": RECORD_SCHEMA, **asdict(record)}, indent=1, sort_keys=True)
    write_atomic(paths.record, data.encode() + b"\n", mode=0o600)


# --- whose process, whose port ---------------------------------------------------------------------------------------


def own_processes(paths: Paths, main_pid: int, members: Sequence[int], record: Record | None) -> list[proc.Process]:
    """Every living process of this root's server (see the module's first lines for the rule)."""
    living = {process.pid: process for process in proc.processes()}
    own: set[int] = set()

    def add_group(leader: int, session: int) -> None:
        own.update(p.pid for p in living.values() if p.pgrp == leader and p.session == session)

    if main_pid in living:
        own.add(main_pid)
        if living[main_pid].pgrp == main_pid:
            add_group(main_pid, living[main_pid].session)
        own.update(process.pid for process in proc.descendants(main_pid, living.values()))
    own.update(pid for pid in members if pid in living)
    if record and record.pid and record.boot_id == proc.boot_id():
        leader = living.get(record.pid)
        if leader is None or leader.start_ticks == record.start_ticks:
            own.update(
                p.pid
                for p in living.values()
                if p.pgrp == record.pid and p.session == record.session and p.start_ticks >= record.start_ticks
            )
    prefix = paths.releases + os.sep
    marked = {pid for pid in living if proc.environ(pid).get(ENV_RELEASE, "").startswith(prefix)}
    for pid in marked:
        process = living[pid]
        own.add(pid)
        # The group only when it is the server's own: its leader is a server process, or gone.
        if process.pgrp in marked or process.pgrp not in living:
            add_group(process.pgrp, process.session)
        own.update(child.pid for child in proc.descendants(pid, living.values()))
    own.discard(os.getpid())
    return [living[pid] for pid in sorted(own)]


def port_holders(host: str, port: int) -> list[proc.Listener]:
    """Listeners that keep a server from binding host:port."""
    wanted_addresses = _addresses(host)
    any_wanted = any(address.is_unspecified for address in wanted_addresses)
    holders = []
    for listener in proc.listeners(port):
        address = _plain(ipaddress.ip_address(listener.address))
        if any_wanted or address.is_unspecified or address in wanted_addresses:
            holders.append(listener)
    return holders


def _plain(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return getattr(address, "ipv4_mapped", None) or address


def _addresses(host: str) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise ServiceError(
            f"cannot resolve the address {host}: {error}; set sglang_host to an address of this host"
        ) from error
    return {_plain(ipaddress.ip_address(address.partition("%")[0])) for address in found}


def check_port(host: str, port: int, own: Sequence[proc.Process]) -> None:
    """Fail when somebody else holds the port, naming them."""
    ours = {process.pid for process in own}
    for holder in port_holders(host, port):
        foreign = [pid for pid in holder.pids if pid not in ours]
        if holder.pids and not foreign:
            continue
        where = f"{holder.address}:{holder.port}"
        if foreign:
            who = ", ".join(f"process {pid} ({proc.cmdline(pid)})" for pid in foreign)
        else:
            who = f"a process of user id {holder.uid} that only root can name"
        raise ServiceError(
            f"cannot serve on {host}:{port}: {where} is held by {who}, which is not this server; "
            "stop it or choose another sglang_port. Nothing was changed",
            holder_pids=foreign,
            port=port,
        )


# --- deciding --------------------------------------------------------------------------------------------------------


def observe(paths: Paths, manager: Manager) -> Observed:
    """One look at everything; changes nothing."""
    seen = manager.seen()
    record = read_record(paths)
    main = proc.read_process(seen.pid) if seen.pid else None
    if main is not None and not main.alive:
        main = None
    own = own_processes(paths, main.pid if main else 0, manager.members(), record)
    environment = proc.environ(main.pid) if main else {}
    return Observed(
        seen=seen,
        main=main,
        own=tuple(own),
        launch_id=environment.get(ENV_LAUNCH_ID),
        release=environment.get(ENV_RELEASE),
        record=record,
    )


def decide(state: str, observed: Observed, launch: Launch | None, present: bool = False) -> Plan:
    """The one decision of this module. `present`: the manager still has something of ours that absent must remove."""
    if state == "absent" and present:
        return Plan("removed", "the service is still there")
    if state in ("stopped", "absent"):
        if observed.main:
            return Plan("stopped", f"process {observed.main.pid} is running")
        if observed.own:
            return Plan("stopped", f"processes {_pids(observed.own)} of an earlier start are left")
        if observed.seen.phase == "restarting":
            return Plan("stopped", "the manager is about to start it again")
        return Plan("none", "nothing is running")
    if observed.leftovers:
        return Plan(
            "restarted", f"processes {_pids(observed.own)} of an earlier start are left and nobody supervises them"
        )
    if observed.main is None:
        how = f" ({observed.seen.ended})" if observed.seen.ended else ""
        return Plan("started", f"it is not running{how}")
    if launch is None:
        return Plan("restarted", "the release will change")
    if observed.release != launch.release:
        return Plan("restarted", f"it runs {_short(observed.release)}, current is {_short(launch.release)}")
    if observed.launch_id != launch.launch_id:
        return Plan("restarted", f"launch arguments or secrets of {_short(launch.release)} changed")
    return Plan("none", f"{_short(launch.release)} is running as process {observed.main.pid}")


def _pids(processes: Sequence[proc.Process]) -> str:
    return ", ".join(str(process.pid) for process in processes)


def _short(release: str | None) -> str:
    return f"release {os.path.basename(release)}" if release else "something that was not started by this collection"


# --- acting ----------------------------------------------------------------------------------------------------------


@dataclass
class Service:
    """One server: where it is, who manages it, and the clockwork to bring it up and down."""

    paths: Paths
    manager: Manager
    name: str
    host: str
    port: int
    stop_timeout_s: float
    _known: dict[tuple[int, int], proc.Process] = field(default_factory=dict)

    def apply(self, plan: Plan, state: str, observed: Observed) -> tuple[Record | None, float | None]:
        """Do what was decided. Returns the record as it is now, and the seconds a stop took (None: nothing was
        stopped).
        """
        began, stop_s = time.monotonic(), None
        if plan.changed:
            # Also before a plain start: a unit that is about to restart, a group that lost its leader a moment ago.
            self.stop(observed)
            if plan.action != "started":
                stop_s = time.monotonic() - began
        if plan.action in ("started", "restarted"):
            return self.start(observed.record), stop_s
        if state == "started":
            return self.refresh(observed), stop_s
        self.mark_stopped(observed.record)
        if state == "absent":
            self.manager.remove()
        return observed.record, stop_s

    def start(self, previous: Record | None) -> Record:
        """Bring the current release up. Nothing of an earlier start may be left."""
        check_port(self.host, self.port, [])
        # It exists from now on, so that its inode is known and it is found again after a rotation by rename.
        try:
            with open(self.paths.log, "ab"):
                position = log_position(self.paths.log)
        except OSError as error:
            raise ServiceError(
                f"cannot start the server of {self.paths.root}: {self.paths.log} cannot be written: {error.strerror}; "
                "configure the server first (role sglang_server)"
            ) from error
        self.manager.start(previous.config_sha256 if previous else "")
        # The launcher becomes the server within milliseconds; what it was started as is then in its environment.
        main: proc.Process | None = None
        environment: dict[str, str] = {}
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            seen = self.manager.seen()
            main = proc.read_process(seen.pid) if seen.pid else None
            environment = proc.environ(main.pid) if main else {}
            if ENV_LAUNCH_ID in environment or seen.phase in ("ended", "restarting"):
                break
            time.sleep(0.05)
        launch = wanted(self.paths)
        record = Record(
            manager=self.manager.kind,
            name=self.name,
            boot_id=proc.boot_id(),
            pid=main.pid if main else 0,
            start_ticks=main.start_ticks if main else 0,
            session=main.session if main else 0,
            launch_id=environment.get(ENV_LAUNCH_ID) or (launch.launch_id if launch else ""),
            release=environment.get(ENV_RELEASE) or (launch.release if launch else ""),
            log_position=position,
            started_at=time.time(),
            config_sha256=self.manager.config_sha256(),
        )
        write_record(self.paths, record)
        return record

    def stop(self, observed: Observed) -> None:
        """SIGTERM to the server's own processes, SIGKILL after stop_timeout_s, and proof that none is left."""
        record = observed.record
        self._remember(observed.own)
        asked = self.manager.request_stop()

        def find() -> list[proc.Process]:
            main_pid = observed.main.pid if observed.main and proc.same(observed.main) else 0
            self._remember(own_processes(self.paths, main_pid, self.manager.members(), record))
            # Also those that left the group after we saw them.
            return [process for process in self._known.values() if proc.same(process)]

        left = proc.kill_all(find, self.stop_timeout_s, first=None if asked else signal.SIGTERM)
        if left:
            raise ServiceError(
                f"cannot stop the server of {self.paths.root}: process {left[0].pid} ({proc.cmdline(left[0].pid)}) "
                "does not end even after SIGKILL; look at its state in /proc (a hung driver call needs a reboot)",
                left=[process.pid for process in left],
            )
        if not proc.wait_until(self.manager.settled, timeout_s=10):
            raise ServiceError(
                f"cannot stop the server of {self.paths.root}: its processes have ended but {self.manager.kind} "
                "still calls it running; look at the manager's own log"
            )

    def _remember(self, processes: Sequence[proc.Process]) -> None:
        self._known.update({(process.pid, process.start_ticks): process for process in processes})

    def mark_stopped(self, record: Record | None) -> None:
        """Note that it is down on request, so that nobody takes it for a crash."""
        if record and not record.stopped:
            write_record(self.paths, replace(record, stopped=True))

    def refresh(self, observed: Observed) -> Record | None:
        """Follow a restart by the manager: the record then names the process that runs now."""
        record, main = observed.record, observed.main
        if not main:
            return record
        current = proc.boot_id()
        if record and (record.pid, record.start_ticks, record.boot_id) == (main.pid, main.start_ticks, current):
            return record
        record = Record(
            manager=self.manager.kind,
            name=self.name,
            boot_id=current,
            pid=main.pid,
            start_ticks=main.start_ticks,
            session=main.session,
            launch_id=observed.launch_id or "",
            release=observed.release or "",
            log_position=record.log_position if record else LogPosition(self.paths.log),
            started_at=time.time(),
            config_sha256=record.config_sha256 if record else "",
        )
        write_record(self.paths, record)
        return record


def carry_out(service: Service, state: str, check_mode: bool, start_if: bool) -> dict[str, Any]:
    """Look, decide, act (not in check mode), and say what there is now: the result of module server_service."""
    observed = observe(service.paths, service.manager)
    launch = wanted(service.paths) if state == "started" else None
    if state == "started" and start_if and launch is None and not check_mode:
        raise ServiceError(
            f"cannot start the server of {service.paths.root}: there is no current release; "
            "stage and activate one (role sglang_release)"
        )
    plan = decide(state, observed, launch, service.manager.present()) if start_if else Plan("none", "start_if is false")
    if plan.action in ("started", "restarted"):
        check_port(service.host, service.port, observed.own)
    result: dict[str, Any] = {}
    record = observed.record
    if not check_mode:
        record, stop_s = service.apply(plan, state, observed)
        if stop_s is not None:
            result["stop_s"] = round(stop_s, 2)
    before = {"running": observed.main is not None, "release": observed.release, "launch_id": observed.launch_id}
    after = before
    if plan.changed:
        coming = launch if state == "started" else None
        after = {
            "running": state == "started",
            "release": coming.release if coming else None,
            "launch_id": coming.launch_id if coming else None,
        }
    pid = observed.main.pid if observed.main else 0
    if plan.changed and not check_mode:
        pid = record.pid if record and state == "started" else 0
    result.update(
        changed=plan.changed,
        action=plan.action,
        reason=plan.reason,
        manager=service.manager.kind,
        pid=pid,
        launch_id=after["launch_id"] or "",
        release=after["release"] or "",
        log_position=asdict(record.log_position if record else log_position(service.paths.log)),
        diff={"before": {"service": before}, "after": {"service": after}},
    )
    return result


# --- supervisor ------------------------------------------------------------------------------------------------------


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
        return ended[1] if ended else (spawn_error or "it has ended")

    def members(self) -> list[int]:
        return []

    def config_sha256(self) -> str:
        try:
            with open(self.paths.supervisor_config, "rb") as stream:
                return hashlib.sha256(stream.read()).hexdigest()
        except FileNotFoundError:
            return ""

    def present(self) -> bool:
        return self._pid() is not None

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
            self._start_supervisord()
        try:
            self._rpc.start(self.name)
        except (SupervisorGoneError, SupervisorError) as error:
            raise ServiceError(
                f"cannot start {self.name} in {self.paths.root}: {error}; look at state/supervisord.log"
            ) from error

    def _start_supervisord(self) -> None:
        if not self.supervisord or not os.access(self.supervisord, os.X_OK):
            raise ServiceError(
                f"cannot start {self.name} in {self.paths.root}: supervisord is not at {self.supervisord}; "
                "install the tools environment first (role sglang_install)"
            )
        # Its environment becomes the server's: nothing of the login that ran Ansible may leak into it.
        environment = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME") if name in os.environ}
        environment.update(LANG="C.UTF-8", PATH=os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"))
        code, output, errors = self._run([self.supervisord, "-c", self.paths.supervisor_config], environment)
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

    def request_stop(self) -> bool:
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


# --- systemd ---------------------------------------------------------------------------------------------------------

_SHOWN = (
    "LoadState",
    "LoadError",
    "ActiveState",
    "SubState",
    "MainPID",
    "Result",
    "ExecMainCode",
    "ExecMainStatus",
    "NRestarts",
    "NeedDaemonReload",
    "UnitFileState",
    "ControlGroup",
    "FragmentPath",
)


def systemd_seen(shown: Mapping[str, str], stopped_on_request: bool) -> Seen:
    """Read `systemctl show` output. A unit that is inactive after success and code 0 has still died unless we
    stopped it.
    """
    if shown.get("LoadState") in (None, "", "not-found") and shown.get("ActiveState") in (None, "inactive", "failed"):
        return Seen("absent")
    pid = int(shown.get("MainPID") or 0)
    restarts = int(shown.get("NRestarts") or 0)
    ended = _systemd_end(shown)
    if shown.get("SubState") == "auto-restart":
        return Seen("restarting", ended=ended, restarts=restarts)
    if pid and shown.get("ActiveState") not in ("inactive", "failed"):
        return Seen("running", pid=pid, restarts=restarts)
    if shown.get("ActiveState") in ("activating", "deactivating", "reloading"):
        return Seen("restarting", ended=ended, restarts=restarts)
    # ExecMainCode 0: no process was ever started since the unit was loaded.
    if stopped_on_request or (shown.get("ActiveState") == "inactive" and shown.get("ExecMainCode", "0") == "0"):
        return Seen("stopped", restarts=restarts)
    return Seen("ended", ended=ended, restarts=restarts)


def _systemd_end(shown: Mapping[str, str]) -> str:
    code, status = shown.get("ExecMainCode", "0"), shown.get("ExecMainStatus", "0")
    result = shown.get("Result", "")
    # <sys/wait.h> CLD_*: 1 exited, 2 killed, 3 dumped
    words = {
        "1": f"exit status {status}",
        "2": f"terminated by {_signal_name(status)}",
        "3": f"dumped core by {_signal_name(status)}",
    }
    text = words.get(code, "")
    return f"{text} ({result})" if text and result not in ("", "success", "exit-code", "signal") else (text or result)


def _signal_name(number: str) -> str:
    try:
        return signal.Signals(int(number)).name
    except ValueError:
        return f"signal {number}"


class SystemdManager:
    """A system unit that the role wrote."""

    kind = "systemd"

    def __init__(self, paths: Paths, name: str, run: Run, cgroup_root: str = "/sys/fs/cgroup") -> None:
        self.paths = paths
        self.unit = f"{name}.service"
        self._run = run
        self._cgroup_root = cgroup_root

    def _systemctl(self, *arguments: str) -> str:
        code, output, errors = self._run(["systemctl", *arguments], None)
        if code != 0:
            raise ServiceError(
                f"systemctl {' '.join(arguments)} failed with code {code}: {(errors or output).strip()[-1000:]}; "
                f"see systemctl status {self.unit}"
            )
        return output

    def _show(self) -> dict[str, str]:
        output = self._systemctl("show", self.unit, "--property", ",".join(_SHOWN))
        return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)

    def seen(self) -> Seen:
        record = read_record(self.paths)
        return systemd_seen(self._show(), stopped_on_request=bool(record and record.stopped))

    def members(self) -> list[int]:
        group = self._show().get("ControlGroup", "")
        if not group or group == "/":
            return []
        found: list[int] = []
        for directory, _, files in os.walk(self._cgroup_root + group):
            if "cgroup.procs" in files:
                try:
                    with open(os.path.join(directory, "cgroup.procs"), encoding="ascii") as stream:
                        found.extend(int(line) for line in stream)
                except OSError:  # the group went away with its last process
                    continue
        return found

    def config_sha256(self) -> str:
        return ""

    def present(self) -> bool:
        return self._show().get("UnitFileState") in ("enabled", "enabled-runtime")

    def start(self, applied_sha256: str) -> None:
        shown = self._show()
        if shown.get("LoadState") != "loaded" or shown.get("NeedDaemonReload") == "yes":
            # systemd keeps what it knew of a unit that was removed and written again, also that it was not there.
            self._systemctl("daemon-reload")
            shown = self._show()
        if shown.get("LoadState") != "loaded":
            raise ServiceError(
                f"cannot start {self.unit}: systemd says {shown.get('LoadState')} {shown.get('LoadError', '')}; "
                "configure the server first (role sglang_server)"
            )
        if shown.get("UnitFileState") != "enabled":
            self._systemctl("enable", "--quiet", self.unit)
        # Earlier failures must not count against this start (StartLimitBurst), and NRestarts starts at 0 again.
        if shown.get("ActiveState") == "failed":
            self._systemctl("reset-failed", self.unit)
        self._systemctl("start", self.unit)

    def request_stop(self) -> bool:
        shown = self._show()
        if shown.get("ActiveState") in (None, "inactive", "failed"):
            return False
        self._systemctl("stop", "--no-block", self.unit)
        return True

    def settled(self) -> bool:
        return self._show().get("ActiveState") in ("inactive", "failed", "", None)

    def remove(self) -> None:
        if self.present():
            self._systemctl("disable", "--quiet", self.unit)
        # A unit that had to be killed stays listed as failed, even when its file is gone.
        if self._show().get("ActiveState") == "failed":
            self._systemctl("reset-failed", self.unit)


def run(command: Sequence[str], environment: Mapping[str, str] | None) -> tuple[int, str, str]:
    """Run a command that ends by itself; `environment` replaces this process's own when given."""
    try:
        done = subprocess.run(
            list(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


def systemd_is_pid_1() -> bool:
    """Whether the system manager is systemd (sd_booted(3)) and this is it."""
    init = proc.read_process(1)
    return os.path.isdir("/run/systemd/system") and init is not None and init.comm == "systemd"


def choose_manager(asked: str, booted: bool, uid: int) -> str:
    """auto -> systemd where it can be used, supervisor elsewhere."""
    if asked != "auto":
        return asked
    return "systemd" if booted and uid == 0 else "supervisor"


def make_manager(asked: str, paths: Paths, name: str, supervisord: str | None = None) -> Manager:
    """The manager for a module's parameters; raises ServiceError for a name no manager takes."""
    if not NAME_PATTERN.fullmatch(name):
        raise ServiceError(
            f"cannot use the service name {name!r}: letters, digits, _ . - only; change sglang_service_name"
        )
    if choose_manager(asked, systemd_is_pid_1(), os.geteuid()) == "systemd":
        return SystemdManager(paths, name, run)
    return SupervisorManager(paths, name, supervisord, run)
