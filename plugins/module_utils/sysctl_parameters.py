# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kernel parameters: set in /proc/sys, kept in one file of ours in sysctl.d, and put back.

The set is declared as a whole: a parameter that was set before and is not in it any more gets back the value it had.
Of files in sysctl.d(5) with different names the later one counts, whatever directory it is in, so one that comes after
ours with another value would win at the next start. That is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import own_file, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.cpu_frequency import write_value
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

PROC_SYS = "/proc/sys"
FILE = "/etc/sysctl.d/99-tokforge-host.conf"
#: Directories besides that of our file, in the order in which one hides files of the same name in the next.
DIRECTORIES = ("/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d")
#: Notes of what was there before are `kernel_parameter/<name>`, with the value as a text.
KEY = "kernel_parameter/"

SET, ALREADY, RESTORED, GONE = "set", "already", "restored", "gone"
_NAME = re.compile(r"[A-Za-z0-9_-]+([./][A-Za-z0-9_:@+-]+)+")
_LINE = re.compile(r"(-?)\s*([^=\s][^=]*?)\s*=\s*(.*)")


class ParameterError(HostError):
    """A parameter cannot be read or set; the text says which, why and what to do."""


@dataclass(frozen=True)
class Paths:
    """Where things are."""

    proc_sys: str = PROC_SYS
    file: str = FILE
    directories: tuple[str, ...] = DIRECTORIES
    record_dir: str = previous_values.RECORD_DIR


@dataclass(frozen=True)
class Entry:
    """What became of one parameter; values are the kernel's texts with single spaces, None when there is none."""

    name: str
    before: str | None
    after: str | None
    status: str


@dataclass(frozen=True)
class Plan:
    """What is to be done: the file's new text (None to have none), and each parameter."""

    before: str | None
    text: str | None
    entries: tuple[Entry, ...]

    @property
    def changed(self) -> bool:
        return self.before != self.text or any(entry.before != entry.after for entry in self.entries)


def normalised(name: str) -> str:
    """A name with dots, as sysctl shows it. Raises ParameterError.

    As in sysctl.d(5), the first sign of the two decides: net/ipv4/conf/eth0.1/x and net.ipv4.conf.eth0/1.x are one.
    """
    if not _NAME.fullmatch(name):
        raise ParameterError(
            f"setting kernel parameter {name[:80]!r}: this is no name; write it as sysctl -a does, such as "
            "kernel.numa_balancing",
            name=name,
        )
    if re.search(r"[./]", name).group() == ".":  # type: ignore[union-attr]
        return name
    return name.translate(str.maketrans("./", "/."))


def path_of(name: str, proc_sys: str) -> str:
    """The kernel's file of a normalised name."""
    return os.path.join(proc_sys, name.translate(str.maketrans("./", "/.")))


def wanted_values(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Names and values as texts. Raises ParameterError for what is no value."""
    found: dict[str, str] = {}
    for given, value in parameters.items():
        name = normalised(str(given))
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ParameterError(
                f"setting kernel parameter {name}: {value!r} is neither a number nor a text; write the value that the "
                "kernel takes, such as 0 or 1",
                name=name,
            )
        text = " ".join(str(value).split())
        if not text or not text.isprintable():
            raise ParameterError(
                f"setting kernel parameter {name}: the value {value!r} is empty or has signs that are not printable; "
                "leave the parameter out, or write the value that the kernel takes",
                name=name,
            )
        if found.setdefault(name, text) != text:
            raise ParameterError(
                f"setting kernel parameter {name}: both {found[name]} and {text} are asked for; leave one out",
                name=name,
            )
    return found


def read_value(name: str, proc_sys: str) -> str | None:
    """What the kernel has, with single spaces; None without such a parameter. Raises ParameterError."""
    path = path_of(name, proc_sys)
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return " ".join(stream.read(65536).split())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ParameterError(
            f"reading kernel parameter {name}, {path}: {error.strerror}; choose one that can be read back", name=name
        ) from error


def rendered(values: Mapping[str, str]) -> str | None:
    """The text of our file, None for no values."""
    if not values:
        return None
    return own_file.HEADER + "".join(f"{name} = {values[name]}\n" for name in sorted(values))


def decide(parameters: Mapping[str, Any], paths: Paths) -> Plan:
    """Look and decide; an empty set puts back everything. Raises ParameterError, OwnFileError and RecordError."""
    wanted = wanted_values(parameters)
    notes = previous_values.read(paths.record_dir)
    noted = {key[len(KEY) :]: value for key, value in notes.items() if key.startswith(KEY)}
    entries: list[Entry] = []
    for name in sorted(wanted):
        before = read_value(name, paths.proc_sys)
        if before is None:
            raise ParameterError(
                f"setting kernel parameter {name}: {path_of(name, paths.proc_sys)} is not there; correct the name, "
                "or load the module that has it first",
                name=name,
            )
        entries.append(Entry(name, before, wanted[name], ALREADY if before == wanted[name] else SET))
    for name in sorted(set(noted) - set(wanted)):
        value = noted[name]
        if not isinstance(value, str):
            raise ParameterError(
                f"restoring kernel parameter {name}: what is noted of it, {value!r}, is no text; put a backup of the "
                "notes back, or remove the key and set the value by hand",
                name=name,
            )
        before = read_value(name, paths.proc_sys)
        entries.append(Entry(name, before, None if before is None else value, GONE if before is None else RESTORED))
    _check_later_files(wanted, paths)
    return Plan(own_file.read(paths.file), rendered(wanted), tuple(entries))


def apply(plan: Plan, paths: Paths) -> None:
    """Note, set, read back, write the file, forget. Raises ParameterError, OwnFileError and RecordError.

    What the kernel refuses leaves nothing behind: neither a file that would fail at each start nor a note.
    """
    # Noted also when it has the value already: what was there is known only now, and `absent` is to find it.
    ours = {KEY + entry.name: entry.before for entry in plan.entries if entry.status in (SET, ALREADY)}
    new = set(ours).difference(previous_values.read(paths.record_dir))
    previous_values.remember(paths.record_dir, ours)
    changing = [entry for entry in plan.entries if entry.after is not None and entry.before != entry.after]
    begun: list[Entry] = []
    try:
        for entry in changing:
            begun.append(entry)
            _set(entry, paths.proc_sys)
        own_file.write(paths.file, plan.text)
    except (ParameterError, own_file.OwnFileError):
        for entry in reversed(begun):
            with contextlib.suppress(ParameterError):
                _set(replace(entry, after=entry.before), paths.proc_sys)
        previous_values.forget(paths.record_dir, new)
        raise
    previous_values.forget(
        paths.record_dir, [KEY + entry.name for entry in plan.entries if entry.status in (RESTORED, GONE)]
    )


def differing(parameters: Mapping[str, Any], proc_sys: str) -> list[tuple[str, str, str | None]]:
    """Name, wanted, found of parameters that the kernel has another value of. Raises ParameterError."""
    wanted = wanted_values(parameters)
    found = {name: read_value(name, proc_sys) for name in sorted(wanted)}
    return [(name, wanted[name], value) for name, value in found.items() if value != wanted[name]]


def described(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Entries as plain values."""
    return [
        {"name": entry.name, "before": entry.before, "after": entry.after, "status": entry.status} for entry in entries
    ]


def lines(entries: Sequence[Entry], after: bool) -> str:
    """The values as text, one parameter a line, before or after."""
    pairs = [(entry.name, entry.after if after else entry.before) for entry in entries]
    return "".join(f"{name} = {value}\n" for name, value in pairs if value is not None)


def _set(entry: Entry, proc_sys: str) -> None:
    path = path_of(entry.name, proc_sys)
    try:
        write_value(path, str(entry.after))
    except OSError as error:
        remedy = "write a value that the kernel takes"
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            remedy = "a container cannot set it: run this on the machine below it, as root"
        raise ParameterError(
            f"setting kernel parameter {entry.name} to {entry.after}, {path}: {error.strerror}; {remedy}",
            name=entry.name,
            wanted=entry.after,
        ) from error
    reads = read_value(entry.name, proc_sys)
    if reads != entry.after:
        remedy = "write it as the kernel shows it"
        if "hugepages" in entry.name:
            remedy = "the kernel has not so much memory in one piece now; ask for less, or restart the machine"
        raise ParameterError(
            f"setting kernel parameter {entry.name} to {entry.after}: the kernel reads {reads} afterwards; {remedy}",
            name=entry.name,
            wanted=entry.after,
            reads=reads,
        )


def _check_later_files(wanted: Mapping[str, str], paths: Paths) -> None:
    """Raises ParameterError when a file that comes after ours sets one of the parameters to something else."""
    for file in own_file.later_files(paths.file, paths.directories):
        for number, pattern, value in _assignments(file):
            for name in wanted:
                # A pattern counts only for what no line names, and ours is named.
                if pattern == name and value != wanted[name]:
                    raise ParameterError(
                        f"setting kernel parameter {name} to {wanted[name]} in {paths.file}: {file} line "
                        f"{number} comes later and sets it to {value}; remove that line",
                        name=name,
                        file=file,
                        line=number,
                    )


def _assignments(path: str) -> list[tuple[int, str, str]]:
    """Line, normalised name and value of each assignment in a file of others; what is none is skipped."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            text = stream.read(1 << 20)
    except OSError:
        return []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        match = _LINE.fullmatch(bare)
        if match and bare[0] not in "#;" and _NAME.fullmatch(match.group(2)):
            found.append((number, normalised(match.group(2)), " ".join(match.group(3).split())))
    return found
