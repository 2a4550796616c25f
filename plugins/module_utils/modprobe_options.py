# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of kernel modules in one file of ours in modprobe.d, and whether the loaded modules have them.

The initramfs holds a copy of the file, so it is refreshed after a change. That a refresh is due is noted before the
file is written and forgotten after the refresh: a run that was killed in between is finished by the next one.
Of several lines with options of a module all count, in the order of the names of their files, and the kernel takes the
last value (modprobe.d(5)).
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import own_file, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

FILE = "/etc/modprobe.d/tokforge-host.conf"
SYS_MODULE = "/sys/module"
#: Directories besides that of our file (modprobe.d(5)).
DIRECTORIES = ("/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
REFRESH = ("update-initramfs", "-u", "-k", "all")
#: `modprobe_options_refresh/<file>` is noted as long as the initramfs has not taken a change over.
REFRESH_KEY = "modprobe_options_refresh/"

#: How the loaded module compares with what is asked.
FOLLOWED, OTHER_VALUE, NOT_LOADED, NOT_SHOWN = "followed", "other_value", "not_loaded", "not_shown"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_SHOWN_LINES = 15

Run = Callable[[Sequence[str]], tuple[int, str]]
Options = dict[str, dict[str, str]]


class OptionsError(HostError):
    """Options cannot be understood, written or taken over; the text says what to do."""


@dataclass(frozen=True)
class Loaded:
    """One parameter of a module: what is asked, what the loaded module has (empty when that is not known)."""

    module: str
    parameter: str
    wanted: str
    found: str
    status: str


@dataclass(frozen=True)
class Plan:
    """The file's text before and after, None for no file, and whether the initramfs is to be refreshed."""

    before: str | None
    text: str | None
    refresh: bool

    @property
    def writes(self) -> bool:
        return self.before != self.text

    @property
    def changed(self) -> bool:
        return self.writes or self.refresh


def wanted_options(modules: Mapping[str, Any]) -> Options:
    """Modules, with _ in all names as the kernel has them, and their parameters as texts. Raises OptionsError."""
    found: Options = {}
    for module, parameters in modules.items():
        name = str(module).replace("-", "_")
        if not _NAME.fullmatch(name) or not isinstance(parameters, Mapping):
            raise OptionsError(
                f"setting options of kernel module {str(module)[:60]!r}: it needs a name and a dictionary of its "
                "parameters; write it as nvidia_uvm: {uvm_disable_hmm: 1}",
                module=str(module),
            )
        for parameter, value in parameters.items():
            text = str(int(value)) if isinstance(value, bool) else str(value)
            key = str(parameter).replace("-", "_")
            known = found.setdefault(name, {})
            plain = isinstance(value, (str, int)) and text and text.isprintable() and not set(text) & set("\"'\\#")
            if not _NAME.fullmatch(key) or not plain:
                raise OptionsError(
                    f"setting parameter {str(parameter)[:60]!r} of kernel module {name} to {value!r}: this is no name "
                    "and value of one line without quotes; write it as modinfo -p names it",
                    module=name,
                    parameter=str(parameter),
                )
            if known.setdefault(key, text) != text:
                raise OptionsError(
                    f"setting parameter {parameter} of kernel module {name}: both {known[key]} and {text} are asked "
                    "for; leave one out",
                    module=name,
                    parameter=str(parameter),
                )
    return {name: found[name] for name in sorted(found)}


def rendered(options: Options) -> str | None:
    """The text of our file, None for no options."""
    lines = []
    for module, parameters in options.items():
        # What has a space is quoted inside, where the kernel's parser of parameters looks for quotes.
        words = [f'{name}="{value}"' if " " in value else f"{name}={value}" for name, value in parameters.items()]
        lines.append(f"options {module} {' '.join(words)}\n")
    return own_file.HEADER + "".join(lines) if lines else None


def in_file(text: str | None) -> Options:
    """The options in a text of our file, without what somebody wrote to it that we could not have written."""
    found: Options = {}
    for line in (text or "").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        for word in words[2:] if words[:1] == ["options"] else ():
            name, _equals, value = word.partition("=")
            with contextlib.suppress(OptionsError):
                for module, known in wanted_options({words[1]: {name: value}}).items():
                    found.setdefault(module, {}).update(known)
    return found


def decide(modules: Mapping[str, Any], file: str, directories: Sequence[str], record_dir: str) -> Plan:
    """Look and decide; nothing asked means no file. Raises OptionsError, OwnFileError and RecordError."""
    options = wanted_options(modules)
    _check_later_files(options, file, directories)
    before, text = own_file.read(file), rendered(options)
    due = REFRESH_KEY + file in previous_values.read(record_dir)
    return Plan(before, text, due or before != text)


def apply(plan: Plan, file: str, command: Sequence[str], record_dir: str, run: Run) -> None:
    """Note, write, refresh, forget. Raises OptionsError, OwnFileError and RecordError.

    When the refresh fails the file stays, and the next run refreshes.
    """
    key = REFRESH_KEY + file
    if plan.writes:
        previous_values.remember(record_dir, {key: True})
        own_file.write(file, plan.text)
    if not plan.refresh:
        return
    status, output = run(command)
    if status:
        shown = "\n".join(output.strip().splitlines()[-_SHOWN_LINES:])
        raise OptionsError(
            f"refreshing the initramfs after a change of {file} with {shlex.join(command)}: it ended with {status}; "
            f"correct what it says and run again: {shown}",
            file=file,
            command=list(command),
            output=shown,
        )
    previous_values.forget(record_dir, [key])


def loaded(modules: Mapping[str, Any], sys_module: str) -> list[Loaded]:
    """How the loaded modules compare with what is asked. Raises OptionsError."""
    found = []
    for module, parameters in wanted_options(modules).items():
        folder = os.path.join(sys_module, module)
        for parameter, wanted in parameters.items():
            value = _read(os.path.join(folder, "parameters", parameter))
            if not os.path.isdir(folder):
                status = NOT_LOADED
            elif value is None:
                status = NOT_SHOWN
            else:
                status = FOLLOWED if _same(wanted, value) else OTHER_VALUE
            found.append(Loaded(module, parameter, wanted, value or "", status))
    return found


def _same(wanted: str, shown: str) -> bool:
    """Whether a module's parameter has a value: the kernel shows flags as Y and N, and numbers in its own form."""
    if wanted == shown:
        return True
    if shown in ("Y", "N"):
        # As kstrtobool() in the kernel's lib/kstrtox.c reads it: by the first sign, of "on" and "off" by two.
        text = wanted.lower()
        return text.startswith(("1", "y", "t", "on") if shown == "Y" else ("0", "n", "f", "of"))
    try:
        return int(wanted, 0) == int(shown, 0)
    except ValueError:
        return False


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(65536).rstrip()
    except OSError:
        return None


def _check_later_files(options: Options, file: str, directories: Sequence[str]) -> None:
    """Raises OptionsError when a file that comes after ours sets one of the parameters to something else."""
    for path in own_file.later_files(file, directories):
        text = _read(path) or ""
        for number, line in enumerate(text.replace("\\\n", "  ").splitlines(), 1):
            words = line.split()
            if len(words) < 3 or words[0] != "options":
                continue
            module = words[1].replace("-", "_")
            for word in words[2:]:
                parameter, _equals, value = word.partition("=")
                parameter = parameter.replace("-", "_")
                wanted = options.get(module, {}).get(parameter)
                if wanted is not None and not _same(wanted, value.strip('"')):
                    raise OptionsError(
                        f"setting parameter {parameter} of kernel module {module} to {wanted} in {file}: {path} "
                        f"line {number} comes later and sets it to {value}; remove it there",
                        module=module,
                        parameter=parameter,
                        file=path,
                        line=number,
                    )
