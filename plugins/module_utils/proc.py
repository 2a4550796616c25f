# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What /proc says about processes and sockets, and signals that reach only the process that was meant.

A pid alone names nothing for long: it is given to another process once its owner is gone. A process is therefore a pid
together with its start time, and a signal is sent through a pidfd after that start time was read (proc(5),
pidfd_open(2)).
"""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

PROC = "/proc"
_TCP_LISTEN = "0A"
# Flags whose next word is a secret in somebody's command line; we name foreign processes in messages. The telling word
# must end there: --max-total-tokens, --tokenizer-path and --ssl-keyfile hold no secret.
_TELLING = r"--?[a-z0-9_-]*(?:keys?|token|secrets?|passw(?:or)?ds?|passphrases?|credentials?)(?![a-z])[a-z0-9_-]*"
_SECRET_FLAG = re.compile(rf"(?i)^{_TELLING}$")
_SECRET_PAIR = re.compile(rf"(?i)^({_TELLING})=.*$", re.DOTALL)
# The same in the environment's form, as `env HF_TOKEN=... program` has it, and the hub's tokens wherever they stand.
_SECRET_VARIABLE = re.compile(r"(?is)^(\w*(?:keys?|token|secrets?|passw(?:or)?d|passphrase|credentials?))=.*$")
_HUB_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{8,}")
_HIDDEN = "<redacted>"


@dataclass(frozen=True)
class Process:
    """One process as /proc/<pid>/stat had it. `start_ticks` counts clock ticks since boot and makes the pid unique."""

    pid: int
    start_ticks: int
    ppid: int
    pgrp: int
    session: int
    state: str
    comm: str

    @property
    def alive(self) -> bool:
        """False for a zombie: it runs nothing, holds no memory and no port, and cannot be killed."""
        return self.state not in "ZX"


@dataclass(frozen=True)
class Listener:
    """A listening TCP socket. `pids` is empty when its owner's descriptors may not be read (another user's process)."""

    address: str
    port: int
    uid: int
    pids: tuple[int, ...]


@dataclass(frozen=True)
class Usage:
    """What a process has used since it began. `waited_ticks`: of its children that ended and were waited for.

    `ticks` and `waited_ticks` count clock ticks of user and system time. `rchar` counts the bytes that system calls
    read, from pipes and sockets too, `read_bytes` those that a disk had to deliver, also for mapped files; both hold
    the children that were waited for, and are 0 when they may not be read (another user's process).
    """

    ticks: int
    waited_ticks: int
    rss_bytes: int
    rchar: int = 0
    read_bytes: int = 0


def read_process(pid: int, proc: str = PROC) -> Process | None:
    """The process with this pid, or None when there is none."""
    found = _stat(pid, proc)
    if found is None:
        return None
    comm, fields = found
    return Process(
        pid=pid,
        start_ticks=int(fields[19]),
        ppid=int(fields[1]),
        pgrp=int(fields[2]),
        session=int(fields[3]),
        state=fields[0],
        comm=comm,
    )


def read_usage(pid: int, proc: str = PROC) -> Usage | None:
    """What the process with this pid used, or None when there is none."""
    found = _stat(pid, proc)
    if found is None:
        return None
    fields = found[1]
    read = {"rchar": 0, "read_bytes": 0}
    try:
        with open(os.path.join(proc, str(pid), "io"), encoding="ascii") as stream:
            for line in stream:
                name, _colon, value = line.partition(":")
                if name in read:
                    read[name] = int(value)
    except OSError:
        pass
    return Usage(
        ticks=int(fields[11]) + int(fields[12]),
        waited_ticks=int(fields[13]) + int(fields[14]),
        rss_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        **read,
    )


def _stat(pid: int, proc: str) -> tuple[str, list[str]] | None:
    """The name, and what follows it: field N of proc(5) is number N - 3 of the list."""
    try:
        with open(os.path.join(proc, str(pid), "stat"), encoding="utf-8", errors="replace") as stream:
            text = stream.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name is in parentheses and may itself hold spaces and parentheses: the last one closes it.
    comm, _close, rest = text.partition("(")[2].rpartition(")")
    return comm, rest.split()


def processes(proc: str = PROC, zombies: bool = False) -> list[Process]:
    """Every process that is alive now, with `zombies` also those that nobody has waited for."""
    found = (read_process(int(name), proc) for name in os.listdir(proc) if name.isdigit())
    return [process for process in found if process is not None and (zombies or process.alive)]


def same(process: Process, proc: str = PROC) -> bool:
    """Whether exactly this process, not another one with its pid, is still alive."""
    now = read_process(process.pid, proc)
    return now is not None and now.alive and now.start_ticks == process.start_ticks


def descendants(pid: int, among: Iterable[Process]) -> list[Process]:
    """Children of `pid`, their children and so on, without `pid` itself."""
    children: dict[int, list[Process]] = {}
    for process in among:
        children.setdefault(process.ppid, []).append(process)
    found: list[Process] = []
    queue = [pid]
    while queue:
        below = children.pop(queue.pop(), [])
        found.extend(below)
        queue.extend(process.pid for process in below)
    return found


def environ(pid: int, proc: str = PROC) -> dict[str, str]:
    """The environment the process was started with; empty when it may not be read or was overwritten by its title."""
    try:
        with open(os.path.join(proc, str(pid), "environ"), "rb") as stream:
            raw = stream.read()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if b"=" in entry)
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, _sign, value in pairs}


def argv(pid: int, proc: str = PROC) -> list[str]:
    """The command line as it is, secrets included: to look at, never to show. Empty when it may not be read."""
    try:
        with open(os.path.join(proc, str(pid), "cmdline"), "rb") as stream:
            return stream.read().rstrip(b"\0").decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def cmdline(pid: int, limit: int = 200, proc: str = PROC) -> str:
    """The command line for a message: values of secret-looking flags are hidden, cut to `limit` characters."""
    text = " ".join(hide_secrets(argv(pid, proc))).strip()
    return (text[: limit - 3] + "...") if len(text) > limit else (text or "?")


def hide_secrets(words: Iterable[str]) -> list[str]:
    """The words of a command line with the value after (or inside) each secret-looking flag replaced."""
    shown: list[str] = []
    hide = False
    for word in words:
        told = word
        for pattern in (_SECRET_PAIR, _SECRET_VARIABLE):
            told = pattern.sub(lambda match: f"{match.group(1)}={_HIDDEN}", told)
        shown.append(_HIDDEN if hide else _HUB_TOKEN.sub(_HIDDEN, told))
        hide = not hide and bool(_SECRET_FLAG.match(word))
    return shown


def exited(code: int | str) -> str:
    """How a process ended, to be read after its name."""
    return f"exited with code {code}"


def killed(number: int, dumped_core: bool = False) -> str:
    """The same for the end by a signal."""
    try:
        name = f" ({signal.Signals(number).name})"
    except ValueError:  # a real-time signal
        name = ""
    return f"was killed by signal {int(number)}{name}" + (" and dumped core" if dumped_core else "")


def boot_id(proc: str = PROC) -> str:
    """Names this boot: pids and start times recorded in another boot mean nothing.

    A container that was restarted has the kernel's boot id of before but another PID 1: its start time counts too.
    """
    with open(os.path.join(proc, "sys/kernel/random/boot_id"), encoding="ascii") as stream:
        kernel = stream.read().strip()
    init = read_process(1, proc)
    return f"{kernel}-{init.start_ticks if init else 0}"


def listeners(port: int, proc: str = PROC) -> list[Listener]:
    """Who listens on this TCP port, on any local address, IPv4 and IPv6."""
    sockets: list[tuple[str, int, str]] = []
    for table in ("tcp", "tcp6"):
        try:
            with open(os.path.join(proc, "net", table), encoding="ascii") as stream:
                rows = stream.read().splitlines()[1:]
        except FileNotFoundError:  # no IPv6 in this kernel
            continue
        for row in rows:
            fields = row.split()
            address, _colon, hex_port = fields[1].rpartition(":")
            if fields[3] == _TCP_LISTEN and int(hex_port, 16) == port:
                sockets.append((_address(address), int(fields[7]), fields[9]))
    if not sockets:
        return []
    owners = _socket_owners({inode for _address, _uid, inode in sockets}, proc)
    return [Listener(address, port, uid, tuple(sorted(owners.get(inode, ())))) for address, uid, inode in sockets]


def _address(text: str) -> str:
    # Each 32-bit word is printed in the machine's byte order.
    words = b"".join(struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8))
    return socket.inet_ntop(socket.AF_INET if len(words) == 4 else socket.AF_INET6, words)


def _socket_owners(inodes: set[str], proc: str) -> Mapping[str, set[int]]:
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    owners: dict[str, set[int]] = {}
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        directory = os.path.join(proc, name, "fd")
        try:
            descriptors = os.listdir(directory)
        except OSError:  # gone, or another user's
            continue
        for descriptor in descriptors:
            try:
                target = os.readlink(os.path.join(directory, descriptor))
            except OSError:
                continue
            if target in wanted:
                owners.setdefault(wanted[target], set()).add(int(name))
    return owners


def send(process: Process, number: int) -> bool:
    """Send the signal to exactly this process. False when it is gone (also when its pid is another process's by
    now).
    """
    descriptor: int | None
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except AttributeError:  # a Python built with the headers of a kernel before 5.3
        descriptor = None
    except OSError as error:
        # A kernel before 5.3, or a sandbox without the call. ESRCH is covered above, anything else is a real error.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        descriptor = None
    try:
        # With the pidfd open the pid cannot change its meaning between this look and the signal.
        if not same(process):
            return False
        if descriptor is None:
            os.kill(process.pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return True


def kill_all(
    find: Callable[[], list[Process]], timeout_s: float, poll_s: float = 0.05, first: int | None = signal.SIGTERM
) -> list[Process]:
    """End every process that `find` gives, and those it gives later (forked in the meantime); return what is left.

    `first` is sent once to each process; who is left after `timeout_s` seconds gets SIGKILL, which is repeated for
    5 s. `first=None` waits without a signal (somebody else sent it).
    """
    told: set[tuple[int, int]] = set()
    deadline = time.monotonic() + timeout_s
    left = find()
    while left and time.monotonic() < deadline:
        for process in left:
            if first is not None and (process.pid, process.start_ticks) not in told:
                told.add((process.pid, process.start_ticks))
                send(process, first)
        time.sleep(poll_s)
        left = find()
    deadline = time.monotonic() + 5
    while left and time.monotonic() < deadline:
        for process in left:
            send(process, signal.SIGKILL)
        time.sleep(poll_s)
        left = find()
    return left


def wait_until(condition: Callable[[], bool], timeout_s: float, poll_s: float = 0.05) -> bool:
    """Whether the condition came true within `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_s)
    return True
