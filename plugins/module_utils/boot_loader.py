# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which boot loader holds a host's kernel command line, in which file and where in it, and what refreshes it.

Facts: PVE administration guide, "Host Bootloader" (systemd-boot takes /etc/kernel/cmdline, one line; GRUB takes
/etc/default/grub; with ESPs in /etc/kernel/proxmox-boot-uuids both are refreshed by `proxmox-boot-tool refresh`, and
update-grub alone writes a grub.cfg that is not read). GRUB manual, "Simple configuration handling": /etc/default/grub
is sourced by a POSIX shell. Debian's and Ubuntu's grub-mkconfig then sources /etc/default/grub.d/*.cfg in the order of
their names, so a later file wins. The Boot Loader Interface of systemd: the loader writes its name into the EFI
variable LoaderInfo. systemd-boot always does, GRUB since 2.12.

The assignment that counts is the last plain one over all files; it is the one that is edited, wherever it stands.
What is added to it later (`VAR="$VAR more"`) is left alone.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ansible_collections.tokforge.sglang.plugins.module_utils import containers, kernel_cmdline, shell_assignments
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError
from ansible_collections.tokforge.sglang.plugins.module_utils.kernel_cmdline import GRUB, KERNEL
from ansible_collections.tokforge.sglang.plugins.module_utils.shell_assignments import Assignment

AUTO = "auto"
CMDLINE_FILE = "kernel_cmdline_file"
#: Added for normal entries, and for all entries. grub-mkconfig writes the second one first.
VARIABLES = ("GRUB_CMDLINE_LINUX_DEFAULT", "GRUB_CMDLINE_LINUX")

_LOADER_INFO = "LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
_ATTRIBUTE_BYTES = 4
_MAX_BYTES = 1 << 20
_COMMANDS = ("/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin")


class BootLoaderError(HostError):
    """Where the command line is cannot be told, or it cannot be edited there; the text says what to do."""


@dataclass(frozen=True)
class Paths:
    """Where a host keeps what is looked at."""

    grub_default: str = "/etc/default/grub"
    grub_directory: str = "/etc/default/grub.d"
    cmdline_file: str = "/etc/kernel/cmdline"
    boot_uuids: str = "/etc/kernel/proxmox-boot-uuids"
    efi: str = "/sys/firmware/efi"
    container_marks: tuple[str, ...] = containers.MARKS
    first_environment: str = containers.FIRST_ENVIRONMENT


class Look(Protocol):
    """How files are looked at."""

    def read(self, path: str) -> bytes | None:
        """The bytes of a file, None when there is none. Raises BootLoaderError."""

    def names(self, path: str) -> list[str] | None:
        """What a directory holds, None when there is none. Raises BootLoaderError."""

    def command(self, name: str) -> str | None:
        """Path of a program, None when there is none."""


class Disk:
    """The files of this machine."""

    def read(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as stream:
                data = stream.read(_MAX_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise BootLoaderError(
                f"reading {path}: {error.strerror}; make it a readable file and run as root", file=path
            ) from error
        if len(data) > _MAX_BYTES:
            raise BootLoaderError(f"reading {path}: it is larger than 1 MiB; look what it is", file=path)
        return data

    def names(self, path: str) -> list[str] | None:
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise BootLoaderError(f"reading {path}: {error.strerror}; run as root", file=path) from error

    def command(self, name: str) -> str | None:
        return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_COMMANDS]))


@dataclass(frozen=True)
class Choice:
    """The boot loader whose configuration is edited; `refresh` is the command, empty when none is known."""

    boot_loader: str
    refresh: tuple[str, ...]


@dataclass(frozen=True)
class Elsewhere:
    """Part of the command line that is not in the place that is edited."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Place:
    """Where the command line stands: `value` is its text, between `start` and `end` of the file's text.

    `assignment` is None for a file that is nothing but the command line, and for a variable that is not assigned yet.
    """

    file: str
    data: bytes
    value: str
    syntax: str
    variable: str = ""
    assignment: Assignment | None = None
    elsewhere: tuple[Elsewhere, ...] = ()

    @property
    def lead(self) -> str:
        """What goes in front of an assignment that is added at the end of the file."""
        return "" if not self.data or self.data.endswith(b"\n") else "\n"


def choose(asked: str, paths: Paths, look: Look) -> Choice:
    """Which boot loader's configuration is to be edited. Raises BootLoaderError for what cannot be told."""
    container = _container(paths, look)
    if container:
        raise BootLoaderError(
            f"looking for the boot loader: this is a container ({container}), whose kernel is started by the "
            "hypervisor; set the kernel command line on the hypervisor",
            container=True,
        )
    boot_loader = _told(paths, look) if asked == AUTO else asked
    needed = paths.grub_default if boot_loader == GRUB else paths.cmdline_file
    if look.read(needed) is None:
        raise BootLoaderError(
            f"editing the kernel command line of {boot_loader}, {needed}: there is no such file; "
            + (
                "install GRUB or set boot_loader"
                if boot_loader == GRUB
                else "write the command line that the host has to start with, root= included, on its one line, or set "
                "boot_loader"
            ),
            boot_loader=boot_loader,
            file=needed,
        )
    return Choice(boot_loader, _refresh(boot_loader, paths, look))


def find(choice: Choice, variable: str, paths: Paths, look: Look) -> Place:
    """Where the command line stands. Raises BootLoaderError when it cannot be understood or edited."""
    if choice.boot_loader == CMDLINE_FILE:
        return _line_of(paths.cmdline_file, look.read(paths.cmdline_file) or b"")
    files = [(path, look.read(path) or b"") for path in grub_files(paths, look)]
    found = [each for path, data in files for each in _assignments(path, data)]
    base, added = _effective(found, variable)
    others = [name for name in VARIABLES if name != variable]
    parts = [each for name in others for each in _literal_parts(found, name)]
    parts += [_part(each) for each in added if not each.conditional]
    path, data = next(each for each in files if base is None or each[0] == base.file)
    if base is None and added:
        raise BootLoaderError(
            f"editing {variable} in {added[0].file} line {added[0].line}: it is added to, but has no plain value "
            f'before; write {variable}="" above that line',
            file=added[0].file,
            line=added[0].line,
        )
    return Place(path, data, base.value if base else "", GRUB, variable, base, tuple(parts))


def grub_files(paths: Paths, look: Look) -> list[str]:
    """The files that grub-mkconfig sources, in its order."""
    names = [name for name in look.names(paths.grub_directory) or [] if name.endswith(".cfg") and name[0] != "."]
    return [paths.grub_default, *(os.path.join(paths.grub_directory, name) for name in sorted(names))]


def rendered(place: Place, value: str, drop: str | None = None) -> bytes:
    """The file with another command line; `place.data` when it is the same.

    With `drop`, the `lead` of a line that was added once, that line goes when nothing is left in it.
    Raises BootLoaderError when what comes out does not read as `value`.
    """
    if place.syntax == KERNEL:
        text = _text(place.data)
        return _data(value + text[len(text.rstrip("\r\n")) :]) if value != place.value else place.data
    before = _text(place.data)
    assignment = place.assignment
    if assignment is None:
        if not value:
            return place.data
        after = before + place.lead + f"{place.variable}={_quoted(value)}\n"
    elif drop is not None and not value.strip() and _is_a_line(before, assignment):
        begin = assignment.start - len(assignment.name) - 1
        after = before[: max(0, begin - len(drop))] if assignment.end + 1 == len(before) else before[:begin]
        after += before[assignment.end + 1 :]
    else:
        after = _spliced(before, assignment, value)
    # Read again before it is written: nothing is left to chance that a boot depends on.
    again, _added = _effective(_assignments(place.file, _data(after)), place.variable)
    if (again.value if again else "") != value:
        raise BootLoaderError(
            f"editing {place.variable} in {place.file}: what was made does not read as {value!r}; edit it by hand",
            file=place.file,
        )
    return _data(after)


def already(place: Place, asked: Iterable[kernel_cmdline.Unit]) -> list[kernel_cmdline.Unit]:
    """What is asked for and not held by another part of the command line already.

    Raises BootLoaderError when another part has another value, since both would reach the kernel.
    """
    left = []
    for unit in asked:
        there = [
            (part, each)
            for part in place.elsewhere
            for each in kernel_cmdline.of_place(part.text, unit.family, unit.slot, place.syntax)
            if each.meaning is not None
        ]
        for part, each in there:
            if each.meaning != unit.meaning:
                raise BootLoaderError(
                    f"setting {' '.join(unit.texts)} in {place.file}: {part.file} line {part.line} has "
                    f"{' '.join(each.texts)}, and both would be there; change that line, or set variable to the one "
                    "that is assigned there",
                    file=part.file,
                    line=part.line,
                    tokens=unit.texts,
                )
        here = kernel_cmdline.of_place(place.value, unit.family, unit.slot, place.syntax)
        if here or not there:
            left.append(unit)
    return left


def _container(paths: Paths, look: Look) -> str:
    """What says that this is a container, empty when nothing does."""

    def read(path: str) -> bytes | None:
        try:
            return look.read(path)
        except BootLoaderError:
            if path != paths.first_environment:
                raise
            # Only root may read it, and only root gets further than this.
            return None

    return containers.mark(read, paths.container_marks, paths.first_environment)


def _told(paths: Paths, look: Look) -> str:
    """The boot loader that this host was started by."""
    if look.names(paths.efi) is None:
        return GRUB
    variables = os.path.join(paths.efi, "efivars")
    seen = look.names(variables)
    info = look.read(os.path.join(variables, _LOADER_INFO))
    if info is not None:
        name = _loader_name(info)
        for start, boot_loader in (("systemd-boot", CMDLINE_FILE), ("GRUB", GRUB)):
            if name.startswith(start):
                return boot_loader
        raise _untold(f"this host was started by {name!r}, which is not known")
    if seen:
        # systemd-boot would have left its name; GRUB before 2.12 leaves none.
        return GRUB
    files = [look.read(path) is not None for path in (paths.grub_default, paths.cmdline_file)]
    if files == [True, False]:
        return GRUB
    raise _untold(
        f"{variables} does not tell, and of {paths.grub_default} and {paths.cmdline_file} "
        + ("both are" if all(files) else "only the second is" if any(files) else "none is")
        + " there"
    )


def _loader_name(info: bytes) -> str:
    try:
        name = info[_ATTRIBUTE_BYTES:].decode("utf-16-le").rstrip("\0")
    except UnicodeDecodeError as error:
        raise _untold(f"the EFI variable {_LOADER_INFO} is not UTF-16") from error
    if not name:
        raise _untold(f"the EFI variable {_LOADER_INFO} is empty")
    return name


def _untold(why: str) -> BootLoaderError:
    return BootLoaderError(
        f"looking for the boot loader: {why}; set boot_loader to {GRUB} or {CMDLINE_FILE} "
        "(`proxmox-boot-tool status` or `efibootmgr -v` tell which one is used)"
    )


def _refresh(boot_loader: str, paths: Paths, look: Look) -> tuple[str, ...]:
    tool = look.command("proxmox-boot-tool")
    if tool and (look.read(paths.boot_uuids) or b"").strip():
        return (tool, "refresh")
    update = look.command("update-grub") if boot_loader == GRUB else None
    return (update,) if update else ()


def _text(data: bytes) -> str:
    # Bytes that are no UTF-8 come back as they were.
    return data.decode("utf-8", "surrogateescape")


def _data(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _line_of(path: str, data: bytes) -> Place:
    text = _text(data)
    value = text.rstrip("\r\n")
    for bad, why in (("\n", "has several lines"), ("\0", "has a zero byte")):
        if bad in value:
            raise BootLoaderError(f"reading {path}: it {why}; put the command line on one line", file=path)
    if not value.strip() or value.lstrip().startswith("#"):
        raise BootLoaderError(
            f"reading {path}: it holds no command line; write the one that the host has to start with, root= included",
            file=path,
        )
    return Place(path, data, value, KERNEL)


def _assignments(path: str, data: bytes) -> list[Assignment]:
    text = _text(data)
    try:
        return shell_assignments.read(text, path)
    except shell_assignments.ShellError as error:
        # A file that has nothing to do with the command line need not be understood.
        if any(name in text for name in VARIABLES):
            raise BootLoaderError(str(error), **error.facts) from error
        return []


def _effective(found: Sequence[Assignment], variable: str) -> tuple[Assignment | None, list[Assignment]]:
    """The assignment that counts, and those that add to it."""
    base: Assignment | None = None
    added: list[Assignment] = []
    unclear: Assignment | None = None
    for each in found:
        if each.name not in (variable, shell_assignments.ANY):
            continue
        if each.extends:
            added.append(each)
        elif each.why:
            unclear = unclear or each
        else:
            base, added, unclear = each, [], None
    if unclear:
        raise BootLoaderError(
            f"editing {variable} in {unclear.file} line {unclear.line}: {unclear.why}; write its value as "
            f'{variable}="..." on that line, or below it',
            file=unclear.file,
            line=unclear.line,
        )
    return base, added


def _literal_parts(found: Sequence[Assignment], variable: str) -> list[Elsewhere]:
    try:
        base, added = _effective(found, variable)
    except BootLoaderError:
        # It is not edited, so it need not be understood.
        return []
    return [_part(each) for each in [*([base] if base else []), *added] if not each.conditional]


def _part(assignment: Assignment) -> Elsewhere:
    try:
        kernel_cmdline.split(assignment.value, GRUB)
    except kernel_cmdline.CmdlineError as error:
        where = f"{assignment.file} line {assignment.line}"
        raise BootLoaderError(f"{where}: {error}", file=assignment.file, line=assignment.line) from error
    return Elsewhere(assignment.file, assignment.line, assignment.value)


def _is_a_line(text: str, assignment: Assignment) -> bool:
    """Whether an assignment is all of its line, as one that was added is unless somebody wrote more to it."""
    begin = assignment.start - len(assignment.name) - 1
    return text[:begin][-1:] in ("", "\n") and text[assignment.end : assignment.end + 1] == "\n"


def _quoted(value: str) -> str:
    return '"' + _escaped(value) + '"'


def _escaped(value: str) -> str:
    """A value as it stands between double quotes in a shell."""
    return re.sub(r'([\\"$`])', r"\\\1", value)


def _alike(first: str, second: str) -> int:
    """How many signs two texts begin with alike."""
    shorter = min(len(first), len(second))
    return next((at for at in range(shorter) if first[at] != second[at]), shorter)


def _spliced(text: str, assignment: Assignment, value: str) -> str:
    """The text with another value, where only what differs is written anew."""
    old = assignment.value
    first = _alike(old, value)
    rest = min(_alike(old[::-1], value[::-1]), min(len(old), len(value)) - first)
    new = value[first : len(value) - rest]
    if not assignment.quote or (assignment.quote == "'" and "'" in new):
        return text[: assignment.start] + _quoted(value) + text[assignment.end :]
    spans = assignment.spans
    behind = spans[-1][1] if spans else assignment.start + 1
    begin = spans[first][0] if first < len(spans) else behind
    end = spans[len(old) - rest - 1][1] if len(old) - rest > first else begin
    return text[:begin] + (new if assignment.quote == "'" else _escaped(new)) + text[end:]
