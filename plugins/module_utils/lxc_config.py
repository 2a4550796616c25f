# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container's configuration as text: which lines pass device nodes on, and edits that leave all others alone.

Two formats are known. Proxmox VE writes `key: value`, and below it one section for each snapshot and one for pending
changes (man page pct.conf(5); the grammar is that of pve-container, PVE::LXC::Config). LXC itself writes `key = value`
and has no sections (man page lxc.container.conf(5)). Lines below the first section header are never edited.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PROXMOX = "proxmox"
PLAIN = "lxc"

#: More than /etc/pve takes for a file (1 MiB).
MAX_BYTES = 1 << 20

MOUNT = "lxc.mount.entry"
ALLOW = "lxc.cgroup2.devices.allow"
#: The same for hosts with cgroup v1, which no supported release uses by default.
ALLOW_V1 = "lxc.cgroup.devices.allow"
DEVICE = "dev"
#: pve-container takes dev0 to dev255.
MAX_DEVICES = 256

#: Without `optional` a node that is not there stops the container.
_OPTIONS = ("bind", "optional")

_SECTION = re.compile(r"\[([^\]]*)\]\s*", re.ASCII)
_LXC_KEY = re.compile(r"(lxc\.[a-z0-9_\-.]+)(:|\s*=)\s*(.*?)\s*", re.ASCII)
_PVE_KEY = re.compile(r"([a-z][a-z_]*\d*):\s*(.+?)\s*", re.ASCII)
_PLAIN_KEY = re.compile(r"\s*(lxc\.[^=\s]+)\s*=\s*(.*?)\s*", re.ASCII)
_DEVICE_KEY = re.compile(r"dev(0|[1-9]\d{0,8})", re.ASCII)
_ALLOW_VALUE = re.compile(r"c\s+(\d{1,9}):(\*|\d{1,9})\s+([rwm]{1,3})", re.ASCII)
_MOUNT_TEXT = re.compile(r"(.*?[:=]\s*[\"']?\S+\s+\S+\s+\S+\s+)([^\s\"']+)(.*)", re.ASCII)


class ConfigError(Exception):
    """A configuration that cannot be understood or edited; the text says what to do."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Line:
    """One line: `text` without its end, `end` as it is in the file, empty key for what is no entry."""

    text: str
    end: str
    key: str
    value: str


@dataclass(frozen=True)
class Config:
    """A whole file. `main` is how many lines come before the first section header."""

    path: str
    format: str
    lines: tuple[Line, ...]
    main: int

    def value(self, key: str) -> str | None:
        """The last value of a key in the main section, which is the one that counts; None without one."""
        return next((line.value for line in reversed(self.lines[: self.main]) if line.key == key), None)


@dataclass(frozen=True)
class Device:
    """`devN: path,...` of Proxmox VE; `line` counts from 0."""

    line: int
    number: int
    path: str


@dataclass(frozen=True)
class Mount:
    """`lxc.mount.entry`; `target` begins with a slash here, in the file it is below the container's root."""

    line: int
    source: str
    target: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Allow:
    """A rule for one major number of character devices in `lxc.cgroup2.devices.allow`."""

    line: int
    major: int
    minor: str
    access: str
    version: int = 2


def parse(data: bytes, path: str) -> Config:
    """Read a configuration. `path` is for messages. Raises ConfigError for what is none, or cannot be edited safely."""
    if len(data) > MAX_BYTES:
        raise _bad(path, f"it has more than {MAX_BYTES} bytes", "give the configuration of a container")
    if b"\0" in data:
        raise _bad(path, f"line {data[: data.index(0)].count(10) + 1} holds a NUL byte", "put a backup back")
    texts = data.decode("utf-8", "surrogateescape").split("\n")
    split = [_ended(text, at < len(texts) - 1) for at, text in enumerate(texts)]
    if split and split[-1] == ("", ""):
        split.pop()
    main = next((at for at, (text, _end) in enumerate(split) if _SECTION.fullmatch(text)), len(split))
    kind = _format(path, [text for text, _end in split], main)
    lines = tuple(Line(text, end, *_entry(text, kind)) for text, end in split)
    config = Config(path, kind, lines, main)
    _refuse_strange(config)
    return config


def _ended(text: str, terminated: bool) -> tuple[str, str]:
    if not terminated:
        return text, ""
    return (text[:-1], "\r\n") if text.endswith("\r") else (text, "\n")


def _entry(text: str, kind: str) -> tuple[str, str]:
    """Key and value of a line, both empty for a comment, a blank line and anything else."""
    if kind == PLAIN:
        match = _PLAIN_KEY.fullmatch(text)
        if not match:
            return "", ""
        value = match[2]
        # LXC takes off one pair of quotes.
        quoted = len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]
        return match[1], value[1:-1] if quoted else value
    match = _LXC_KEY.fullmatch(text)
    if match:
        return match[1], match[3]
    match = _PVE_KEY.fullmatch(text)
    return (match[1], match[2]) if match else ("", "")


def _format(path: str, texts: Sequence[str], main: int) -> str:
    """Proxmox VE always has a root file system line; LXC's own format has nothing but `lxc.` keys and `=`."""
    keys = {_entry(text, PROXMOX)[0] for text in texts[:main]}
    if "rootfs" in keys:
        return PROXMOX
    others = sorted(key for key in keys if key and not key.startswith("lxc."))
    if others or main < len(texts):
        what = f"key {others[0]}" if others else f"section {texts[main].strip()}"
        raise _bad(
            path, f"it has {what} and no rootfs", "give the configuration of a container, as pct or LXC writes it"
        )
    if not any(_PLAIN_KEY.fullmatch(text) for text in texts):
        raise _bad(path, "it has no entry that tells its format", "give the configuration of a container that exists")
    return PLAIN


def _refuse_strange(config: Config) -> None:
    numbers: dict[int, int] = {}
    for at, line in enumerate(config.lines[: config.main]):
        if config.format == PLAIN and not line.key and line.text.strip() and not line.text.lstrip().startswith("#"):
            raise _bad(config.path, f"line {at + 1} is no `key = value`", "correct it, LXC does not take it either")
        match = _DEVICE_KEY.fullmatch(line.key)
        if match:
            first = numbers.setdefault(int(match[1]), at)
            if first != at:
                why = f"{line.key} is in line {first + 1} and in line {at + 1}, of which only one counts"
                raise _bad(config.path, why, "remove one of them")


def refuse_locked(config: Config) -> None:
    """Raise ConfigError for a container that Proxmox VE is at work on, such as a backup: its file is not ours then."""
    lock = config.value("lock") if config.format == PROXMOX else None
    if lock:
        raise ConfigError(
            f"editing the container's configuration {config.path}: the container is locked ({lock}); wait for that to "
            "end, or run `pct unlock` when nothing is at work on it",
            path=config.path,
            lock=lock,
        )


def devices(config: Config) -> tuple[Device, ...]:
    """The devN entries of the main section. The path is empty where an entry names none."""
    if config.format == PLAIN:
        return ()
    found = ((at, line, _DEVICE_KEY.fullmatch(line.key)) for at, line in enumerate(config.lines[: config.main]))
    return tuple(Device(at, int(match[1]), device_path(line.value)) for at, line, match in found if match)


def device_path(value: str) -> str:
    """The path in the value of a devN entry: the part without a name, or the one that is named `path`."""
    for part in value.split(","):
        name, equals, rest = part.strip().partition("=")
        if not equals or name == "path":
            path = rest if equals else name
            return _tidy(path) if path else ""
    return ""


def mounts(config: Config) -> tuple[Mount, ...]:
    """The mount entries of the main section that have at least a source and a target."""
    found = []
    for at, line in enumerate(config.lines[: config.main]):
        fields = line.value.split() if line.key == MOUNT else []
        if len(fields) > 1:
            options = tuple(fields[3].split(",")) if len(fields) > 3 else ()
            found.append(Mount(at, _tidy(fields[0]), _tidy("/" + fields[1]), options))
    return tuple(found)


def allows(config: Config) -> tuple[Allow, ...]:
    """The rules of the main section that name the major number of a character device."""
    found = []
    for at, line in enumerate(config.lines[: config.main]):
        match = _ALLOW_VALUE.fullmatch(line.value) if line.key in (ALLOW, ALLOW_V1) else None
        if match:
            version = 2 if line.key == ALLOW else 1
            found.append(Allow(at, int(match[1]), match[2], match[3], version))
    return tuple(found)


def pending(config: Config) -> tuple[dict[int, str], frozenset[int]]:
    """What the pending section of Proxmox VE does to devN entries at the next start: paths by number, numbers to go."""
    sets: dict[int, str] = {}
    deletes: set[int] = set()
    inside = False
    for line in config.lines[config.main :]:
        section = _SECTION.fullmatch(line.text)
        if section:
            inside = section[1].lower() == "pve:pending"
        elif inside and line.key == "delete":
            # The names may carry a mark in front of them (PVE::AbstractConfig, parse_pending_delete).
            names = (name.lstrip("!") for name in re.split(r"[\s,;]+", line.value))
            deletes.update(int(match[1]) for match in map(_DEVICE_KEY.fullmatch, names) if match)
        elif inside:
            match = _DEVICE_KEY.fullmatch(line.key)
            if match:
                sets[int(match[1])] = device_path(line.value)
    return sets, frozenset(deletes)


def entry(config: Config, key: str, value: str) -> str:
    """The text of an entry in the file's own format."""
    return f"{key} = {value}" if config.format == PLAIN else f"{key}: {value}"


def mount_text(config: Config, path: str, directory: bool) -> str:
    """A mount entry that shows a node, or a directory of nodes, of the host at the same path in the container."""
    options = ",".join((*_OPTIONS, "create=dir" if directory else "create=file"))
    return entry(config, MOUNT, f"{path} {path.lstrip('/')} none {options}")


def completed_mount(config: Config, one: Mount, directory: bool) -> str:
    """The text of an existing mount entry with the options that it needs; its own stay."""
    have = [option for option in one.options if option != "defaults"]
    more = [] if {"bind", "rbind"} & set(have) else ["bind"]
    more += [] if "optional" in have else ["optional"]
    kind = "create=dir" if directory else "create=file"
    more += [] if any(option.startswith("create=") for option in have) else [kind]
    text = config.lines[one.line].text
    if not more:
        return text
    match = _MOUNT_TEXT.fullmatch(text)
    return f"{match[1]}{','.join([*have, *more])}{match[3]}" if match else mount_text(config, one.source, directory)


def allow_text(config: Config, major: int) -> str:
    """A rule that lets the container use all nodes of a driver."""
    return entry(config, ALLOW, f"c {major}:* rwm")


def edited(config: Config, replaced: Mapping[int, str | None], added: Sequence[tuple[str, str]]) -> bytes:
    """The file with lines replaced (None removes one) and others added.

    `added` holds (key, text): the text goes behind the last line of the main section with such a key, or else behind
    the last that is alike. A file without a newline at its end has none afterwards either.
    """
    newline = next((line.end for line in config.lines if line.end), "\n")
    behind: dict[int, list[str]] = {}
    for key, text in added:
        behind.setdefault(_anchor(config, key), []).append(text)
    done = [[text, newline] for text in behind.get(-1, ())]
    for at, line in enumerate(config.lines):
        kept = replaced.get(at, line.text)
        if kept is not None:
            done.append([kept, line.end])
        done.extend([more, line.end or newline] for more in behind.get(at, ()))
    for piece in done[:-1]:
        piece[1] = piece[1] or newline
    # A blank line has nothing but its end.
    if done and done[-1][0] and not config.lines[-1].end:
        done[-1][1] = ""
    return "".join(text + end for text, end in done).encode("utf-8", "surrogateescape")


def _anchor(config: Config, key: str) -> int:
    """The line behind which an entry with this key goes, -1 for the beginning of the file."""
    main = range(config.main)
    keys = [line.key for line in config.lines[: config.main]]
    # A rule that denies all comes before those that allow: it clears what was said before it.
    same = "lxc.cgroup2.devices." if key == ALLOW else key
    low = key.startswith("lxc.")
    alike = [at for at in main if (keys[at].startswith(same) if low else _DEVICE_KEY.fullmatch(keys[at]))]
    alike = alike or [at for at in main if keys[at] and keys[at].startswith("lxc.") == low]
    return max(alike or [at for at in main if keys[at]], default=-1)


def _tidy(path: str) -> str:
    # normpath keeps two slashes in front, which POSIX leaves open and Linux does not.
    return posixpath.normpath(re.sub(r"^/+", "/", path))


def _bad(path: str, why: str, what_to_do: str) -> ConfigError:
    return ConfigError(f"reading the container's configuration {path}: {why}; {what_to_do}", path=path)
