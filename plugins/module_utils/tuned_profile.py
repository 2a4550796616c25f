# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A TuneD profile of ours that sets the CPU governor on top of the profile that was active, and the way back.

TuneD keeps the name of the active profile in `active_profile`, and in `profile_mode` whether a person chose it or its
recommendation did (tuned-adm(8)). Profiles of the administrator are in the last of the `profile_dirs` that
tuned-main.conf has from TuneD 2.23 on; older releases look in /etc/tuned itself (tuned.conf(5)).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import own_file, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

CONFIG = "/etc/tuned"
ADM = "/usr/sbin/tuned-adm"
NEW_SYSTEM_PROFILES = "/usr/lib/tuned/profiles"
UNIT = "tuned.service"
#: The note of what was there before: installed, enabled, running, profile, mode.
KEY = "tuned"
#: Notes of files of ours are `tuned_profile/<path>`.
FILE_KEY = "tuned_profile/"

_AUTO = "auto"
_MANUAL = "manual"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_SHOWN_LINES = 10

Run = Callable[[Sequence[str]], tuple[int, str]]


class TunedError(HostError):
    """TuneD cannot be set; the text says why and what to do."""


@dataclass(frozen=True)
class Paths:
    """Where TuneD is. `profiles` is empty for the directory that the installed release reads."""

    config: str = CONFIG
    adm: str = ADM
    profiles: str = ""
    system_profiles: str = NEW_SYSTEM_PROFILES
    systemctl: str = "systemctl"
    record_dir: str = previous_values.RECORD_DIR


@dataclass(frozen=True)
class State:
    """How TuneD is. `profile` is empty when none is active, several are separated by spaces."""

    installed: bool
    enabled: bool = False
    running: bool = False
    profile: str = ""
    mode: str = ""

    @property
    def plain(self) -> dict[str, Any]:
        return {
            "installed": self.installed,
            "enabled": self.enabled,
            "running": self.running,
            "profile": self.profile,
            "mode": self.mode,
        }


@dataclass(frozen=True)
class Outcome:
    """How TuneD was and is. `remove_package`: it was not installed before us, so its package is to go."""

    changed: bool
    before: State
    after: State
    file: str = ""
    text_before: str | None = None
    text_after: str | None = None
    remove_package: bool = False


def look(paths: Paths, run: Run) -> State:
    """How TuneD is now. Raises TunedError for files that cannot be read."""
    if not os.path.exists(paths.adm):
        return State(False)
    enabled = run([paths.systemctl, "is-enabled", UNIT])[1].strip().splitlines()[-1:] == ["enabled"]
    running = run([paths.systemctl, "is-active", UNIT])[0] == 0
    return State(True, enabled, running, *_active(paths))


def _active(paths: Paths) -> tuple[str, str]:
    """The active profile, and who chose it."""
    profile = " ".join(_read(os.path.join(paths.config, "active_profile")).split())
    return profile, _read(os.path.join(paths.config, "profile_mode")).strip()


def profile_file(name: str, paths: Paths) -> str:
    """The file of a profile of ours. Raises TunedError for a name that is none."""
    if not _NAME.fullmatch(name):
        raise TunedError(
            f"making TuneD profile {name[:60]!r}: this is no name; use letters, digits and -", profile=name
        )
    return os.path.join(paths.profiles or _profiles(paths), name, "tuned.conf")


def rendered(governor: str, include: str) -> str:
    """The text of our profile."""
    # TuneD takes several names with commas between them, while it keeps the active ones with spaces.
    included = f"include={','.join(include.split())}\n" if include else ""
    return f"{own_file.HEADER}[main]\nsummary=CPUs for a host with GPUs\n{included}\n[cpu]\ngovernor={governor}\n"


def note(paths: Paths, check_mode: bool, run: Run) -> Outcome:
    """Only note how TuneD is, before its package is installed. Raises TunedError and RecordError."""
    state = look(paths, run)
    if not check_mode:
        previous_values.remember(paths.record_dir, {KEY: state.plain})
    return Outcome(False, state, state)


def present(name: str, governor: str, paths: Paths, check_mode: bool, run: Run) -> Outcome:
    """Have our profile active. Raises TunedError, OwnFileError and RecordError."""
    before = look(paths, run)
    noted = _noted(paths)
    file = profile_file(name, paths)
    first = noted or before
    include = first.profile if first.installed and first.profile != name else ""
    old, text = own_file.read(file), rendered(governor, include)
    after = State(True, True, True, name, _MANUAL)
    earlier = _earlier(file, paths)
    changed = old != text or before != after or _any_there(earlier)
    if not check_mode and not before.installed:
        raise TunedError(
            f"setting TuneD's profile: {paths.adm} is not there; install the package tuned", path=paths.adm
        )
    if changed and not check_mode:
        if noted is None:
            previous_values.remember(paths.record_dir, {KEY: before.plain})
        previous_values.remember(paths.record_dir, {FILE_KEY + file: True})
        own_file.write(file, text)
        if not before.running:
            # Started without a profile it would choose one, and set what that says, before it hears of ours.
            _activate(paths, name)
        if not (before.enabled and before.running):
            _do(run, [paths.systemctl, "enable", "--now", UNIT])
        _do(run, [paths.adm, "profile", name])
        found = look(paths, run)
        if found.profile != name or not found.running:
            raise TunedError(
                f"setting TuneD's profile to {name}: afterwards it has {found.profile or 'none'} and is "
                f"{'running' if found.running else 'not running'}; look at /var/log/tuned/tuned.log",
                **found.plain,
            )
        _remove(earlier, paths)
    return Outcome(changed, before, after, file, old, text)


def absent(name: str, paths: Paths, check_mode: bool, run: Run) -> Outcome:
    """Put back what was there before us. Raises TunedError, OwnFileError and RecordError.

    Where TuneD was not installed, the note stays until its package is gone: call it once more then.
    """
    noted = _noted(paths)
    before = look(paths, run)
    if noted is None:
        return Outcome(False, before, before)
    file = profile_file(name, paths)
    old = own_file.read(file)
    after = noted if noted.installed else State(before.installed)
    remove = not noted.installed and before.installed
    earlier = _earlier(file, paths)
    if not check_mode:
        if before.installed:
            ours = {name, *(os.path.basename(os.path.dirname(each)) for each in earlier)}
            _switch_back(before, noted, ours, paths, run)
        _remove([file, *earlier], paths)
        if not remove:
            previous_values.forget(paths.record_dir, [KEY])
    changed = old is not None or _any_there(earlier) or (before.installed and before != after)
    return Outcome(changed, before, after, file, old, None, remove)


def _earlier(file: str, paths: Paths) -> list[str]:
    """Files of ours from before the profile had the name that it has now."""
    noted = (key[len(FILE_KEY) :] for key in previous_values.read(paths.record_dir) if key.startswith(FILE_KEY))
    return sorted(each for each in noted if each != file)


def _any_there(files: Iterable[str]) -> bool:
    return any(own_file.read(each) is not None for each in files)


def _remove(files: Sequence[str], paths: Paths) -> None:
    """Remove files of ours with their directories, and forget them."""
    for file in files:
        own_file.write(file, None)
        if os.path.isdir(os.path.dirname(file)) and not os.listdir(os.path.dirname(file)):
            shutil.rmtree(os.path.dirname(file))
    previous_values.forget(paths.record_dir, [FILE_KEY + file for file in files])


def _switch_back(before: State, noted: State, ours: Collection[str], paths: Paths, run: Run) -> None:
    if before.running:
        # A running TuneD puts back what the profile changed when it switches; one that is stopped did so then.
        if not noted.installed or not noted.profile:
            _do(run, [paths.adm, "off"])
        elif (before.profile, before.mode) != (noted.profile, noted.mode):
            _do(
                run,
                [paths.adm, "auto_profile"] if noted.mode == _AUTO else [paths.adm, "profile", *noted.profile.split()],
            )
    elif before.profile in ours:
        _activate(paths, noted.profile, noted.mode)
    if before.running and not noted.running:
        _do(run, [paths.systemctl, "stop", UNIT])
    if before.enabled and not noted.enabled:
        _do(run, [paths.systemctl, "disable", UNIT])
    if not before.enabled and noted.enabled:
        _do(run, [paths.systemctl, "enable", UNIT])
    if not before.running and noted.running:
        _do(run, [paths.systemctl, "start", UNIT])
    # `off` leaves a word on who chose the profile, and with that a TuneD that is started later chooses none by itself.
    if not noted.profile and _active(paths) != (noted.profile, noted.mode):
        _activate(paths, noted.profile, noted.mode)


def _activate(paths: Paths, profile: str, mode: str = _MANUAL) -> None:
    """Write which profile TuneD is to start with."""
    try:
        for file, text in (("active_profile", profile), ("profile_mode", mode)):
            write_atomic(os.path.join(paths.config, file), f"{text}\n".encode() if text else b"")
    except OSError as error:
        raise TunedError(f"writing {paths.config}: {error.strerror}; make it writable", path=paths.config) from error


def _noted(paths: Paths) -> State | None:
    notes = previous_values.read(paths.record_dir)
    if KEY not in notes:
        return None
    value = notes[KEY]
    flags, texts = ("installed", "enabled", "running"), ("profile", "mode")
    if (
        isinstance(value, Mapping)
        and all(isinstance(value.get(name), bool) for name in flags)
        and all(isinstance(value.get(name), str) for name in texts)
    ):
        return State(**{name: value[name] for name in (*flags, *texts)})
    raise TunedError(
        f"reading how TuneD was, {os.path.join(paths.record_dir, previous_values.FILE)}: {KEY} is not as this "
        "collection notes it; put a backup back, or remove the key and choose a profile with tuned-adm by hand",
        found=value,
    )


def _profiles(paths: Paths) -> str:
    """The directory for profiles of the administrator."""
    for line in _read(os.path.join(paths.config, "tuned-main.conf")).splitlines():
        name, _equals, value = line.partition("=")
        if name.strip() == "profile_dirs" and value.strip():
            return re.split(r"\s*[,;]\s*", value.strip())[-1]
    if os.path.isdir(paths.system_profiles):
        return os.path.join(paths.config, "profiles")
    return paths.config


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 20)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise TunedError(f"reading {path}: {error.strerror}; make it readable", path=path) from error


def _do(run: Run, command: Sequence[str]) -> None:
    status, output = run(command)
    if status:
        shown = "\n".join(output.strip().splitlines()[-_SHOWN_LINES:])
        raise TunedError(
            f"running {' '.join(command)}: it ended with {status}; correct what it says and run again: {shown}",
            command=list(command),
            output=shown,
        )
