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

import hashlib
import ipaddress
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Optional, Protocol

from ansible_collections.tokforge.sglang.plugins.module_utils import build_tools, proc
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.log_follow import LogError, LogPosition, position_now

RECORD_SCHEMA = 1
ENV_RELEASE = "TOKFORGE_RELEASE"
ENV_LAUNCH_ID = "TOKFORGE_LAUNCH_ID"

# command, environment -> return code, standard output, standard error
Run = Callable[[Sequence[str], Optional[Mapping[str, str]]], tuple[int, str, str]]


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
    def launcher(self) -> str:
        return os.path.join(self.root, "bin", "launch.py")

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
class Launch:
    """What the current release would be started as."""

    launch_id: str
    release: str


@dataclass(frozen=True)
class Seen:
    """What the manager says about the program.

    phase: absent (not known to the manager, or no manager), stopped (on request), running, restarting (it died and the
    manager is about to start it again), ended (it died and stays down). `ended` tells how, e.g. "exited with code 1".
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
    # An environment that was removed and built again has other files than those the server has loaded.
    with suppress(OSError), open(os.path.join(release, "venv", "environment.json"), "rb") as stream:
        content += stream.read()
    return Launch(hashlib.sha256(content).hexdigest()[:16], release)


def file_sha256(path: str) -> str:
    """Of the file's content, empty when there is no file."""
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except FileNotFoundError:
        return ""


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
    try:
        write_atomic(paths.record, data.encode() + b"\n", mode=0o600)
    except OSError as error:
        raise ServiceError(
            f"cannot write {paths.record}: {error.strerror}; free space there or make it writable, then run again",
            path=paths.record,
        ) from error


def log_end(paths: Paths) -> LogPosition:
    """Where the log ends now."""
    try:
        return position_now(paths.log)
    except LogError as error:
        raise ServiceError(str(error)) from error


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


def observe_settled(paths: Paths, manager: Manager, timeout_s: float = 10) -> Observed:
    """Like observe, but not in mid-start: what a process is started as stands in its environment only once the launcher
    has become the server. A manager that brings it up again after a crash may have got just so far.
    """
    observed = observe(paths, manager)
    deadline = time.monotonic() + timeout_s
    while (
        observed.main
        and observed.launch_id is None
        and _launching(paths, observed.main)
        and time.monotonic() < deadline
    ):
        time.sleep(0.05)
        observed = observe(paths, manager)
    return observed


def _launching(paths: Paths, main: proc.Process) -> bool:
    """Whether this is the launcher, or supervisord's child that is about to become it."""
    return not {paths.launcher, paths.supervisor_config}.isdisjoint(proc.argv(main.pid))


def decide(
    state: str, observed: Observed, launch: Launch | None, present: bool = False, secrets_will_change: bool = False
) -> Plan:
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
    if secrets_will_change:
        return Plan("restarted", "the secrets will change")
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
        try:
            build_tools.write(self.paths.root)
        except OSError as error:
            raise ServiceError(
                f"cannot start the server of {self.paths.root}: {self.paths.state}/{build_tools.FILE} cannot be "
                f"written: {error.strerror}; free space or make it writable"
            ) from error
        # It exists from now on, so that its inode is known and it is found again after a rotation by rename.
        try:
            with open(self.paths.log, "ab"):
                position = log_end(self.paths)
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


def check_release(paths: Paths, launch: Launch, release: int) -> None:
    """Fail when `current` is another release than the one the caller switched to."""
    if launch.release != release_path(paths, release):
        raise ServiceError(
            f"cannot start release {release} of {paths.root}: another rollout switched to {_short(launch.release)} in "
            "the meantime; run again when it has ended. Nothing was changed",
            release=release,
            current=launch.release,
        )


def release_path(paths: Paths, release: int) -> str:
    """What TOKFORGE_RELEASE is in a process that runs this release."""
    return os.path.join(paths.releases, str(release))


def carry_out(
    service: Service,
    state: str,
    check_mode: bool,
    start_if: bool,
    secrets_sha256: str | None = None,
    release: int | None = None,
) -> dict[str, Any]:
    """Look, decide, act (not in check mode), and say what there is now: the result of module server_service.

    `secrets_sha256` is what the secrets file will be: in check mode nobody has written it. `release` is the one that
    must be current; in check mode, in which nobody has switched to it, it is the one that would be.
    """
    observed = observe_settled(service.paths, service.manager)
    launch = wanted(service.paths) if state == "started" else None
    if state == "started" and start_if and launch is None and not check_mode:
        raise ServiceError(
            f"cannot start the server of {service.paths.root}: there is no current release; "
            "stage and activate one (role sglang_release)"
        )
    if launch and release is not None and start_if and not check_mode:
        check_release(service.paths, launch, release)
    if check_mode and launch and release is not None and launch.release != release_path(service.paths, release):
        launch = None  # the real run would have switched before; the release that is to come need not be there yet
    changing = check_mode and secrets_sha256 is not None and secrets_sha256 != file_sha256(service.paths.secrets)
    plan = Plan("none", "start_if is false")
    if start_if:
        plan = decide(state, observed, launch, service.manager.present(), changing)
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
            "launch_id": coming.launch_id if coming and not changing else None,
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
        log_position=asdict(record.log_position if record else log_end(service.paths)),
        diff={"before": {"service": before}, "after": {"service": after}},
    )
    return result
