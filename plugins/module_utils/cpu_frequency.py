# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPU governor and energy preference of the running kernel, set for every policy and put back.

A policy is a group of CPUs that share one frequency setting, in `cpufreq/policy<N>` below /sys/devices/system/cpu
(kernel document admin-guide/pm/cpufreq). The energy preference exists with intel_pstate (admin-guide/pm/intel_pstate)
and amd-pstate in its active mode (admin-guide/pm/amd-pstate); those two take only `performance` under the governor of
that name, which is why the governor is set first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import host_cpus, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

SYS_CPU = "/sys/devices/system/cpu"
#: Notes of what was there before are `cpu_governor/<policy name>`.
KEY = "cpu_governor/"

SET, ALREADY, OFFLINE = "set", "already", "offline"
RESTORED, NOT_OURS, GONE, OTHER_DRIVER, FAILED = "restored", "not_ours", "gone", "other_driver", "failed"

_PERFORMANCE = "performance"
#: Drivers that tie the preference to the governor `performance`.
_TIED_DRIVERS = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
_GOVERNOR, _GOVERNORS = "scaling_governor", "scaling_available_governors"
_PREFERENCE, _PREFERENCES = "energy_performance_preference", "energy_performance_available_preferences"
_MOST_BYTES = 65536

Write = Callable[[str, str], None]


class FrequencyError(HostError):
    """Governor or preference cannot be read or set; the text says where, why and what to do."""


@dataclass(frozen=True)
class Settings:
    """A policy's governor, and its energy preference: None where the driver has none, or none is asked for."""

    governor: str
    energy_preference: str | None = None


@dataclass(frozen=True)
class Policy:
    """CPUs that are set together. `settings` is None while all of them are offline: then nothing can be read or set."""

    name: str
    path: str
    cpus: tuple[int, ...]
    settings: Settings | None
    driver: str = ""
    governors: tuple[str, ...] = ()
    preferences: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"CPU {host_cpus.shown(frozenset(self.cpus))} ({self.name})"


@dataclass(frozen=True)
class Entry:
    """What became of one policy. `policy` is None for one that is noted and is not there any more."""

    name: str
    policy: Policy | None
    before: Settings | None
    after: Settings | None
    status: str


@dataclass(frozen=True)
class Outcome:
    """`changed` is about the kernel's values, not about our notes. `reason` says what is not supported, or is empty.

    `energy_preference_supported` is None when no preference was asked for.
    """

    changed: bool
    supported: bool
    reason: str = ""
    energy_preference_supported: bool | None = None
    entries: tuple[Entry, ...] = ()


def look(sys_cpu: str = SYS_CPU) -> tuple[Policy, ...]:
    """All policies by number, none on a machine whose frequency nobody sets. Raises FrequencyError."""
    if not os.path.isdir(sys_cpu):
        raise FrequencyError(f"looking for CPUs in {sys_cpu}: no such directory; mount /sys", path=sys_cpu)
    folder = os.path.join(sys_cpu, "cpufreq")
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise _unreadable(folder, str(error.strerror)) from error
    numbers = sorted(int(name[6:]) for name in names if re.fullmatch(r"policy(0|[1-9][0-9]{0,6})", name))
    return tuple(_policy(folder, number) for number in numbers)


def write_value(path: str, value: str) -> None:
    """Write one value to a file of the kernel, in one call. Raises OSError."""
    # Never made anew: a file that is not there is no setting of this kernel.
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, f"{value}\n".encode())
    finally:
        os.close(descriptor)


def present(wanted: Settings, sys_cpu: str, record_dir: str, check_mode: bool, write: Write = write_value) -> Outcome:
    """Set every policy. What cannot be is refused before anything is changed, as far as it can be known then.

    Raises FrequencyError and RecordError.
    """
    policies = look(sys_cpu)
    if not policies:
        return _unsupported(sys_cpu, wanted)
    active = [policy for policy in policies if policy.settings is not None]
    _check_governor(active, wanted.governor)
    for policy in active:
        _check_preference(policy, wanted)
    steps = [(policy, wanted, SET if _differs(policy, wanted) else ALREADY) for policy in active]
    notes = {f"{KEY}{policy.name}": _note(policy) for policy, target, status in steps if status == SET}
    _check_writable(steps)
    if notes and not check_mode:
        previous_values.remember(record_dir, notes)
    entries = [Entry(policy.name, policy, None, None, OFFLINE) for policy in policies if policy.settings is None]
    entries = _run(steps, entries, check_mode, write)
    without = [policy for policy in active if policy.settings and policy.settings.energy_preference is None]
    supported = None if wanted.energy_preference is None else not without
    reason = ""
    if supported is False:
        which = ", ".join(f"{policy.label} with driver {policy.driver or 'unknown'}" for policy in without)
        reason = f"there is no energy preference for {which}"
    return Outcome(_changed(entries), True, reason, supported, _ordered(entries))


def absent(sys_cpu: str, record_dir: str, check_mode: bool, write: Write = write_value) -> Outcome:
    """Put back what is noted, and forget it. Raises FrequencyError and RecordError.

    Policies that are offline keep their note, since the kernel gives them the old governor when they come back.
    """
    notes = {key: value for key, value in previous_values.read(record_dir).items() if key.startswith(KEY)}
    policies = look(sys_cpu)
    if not policies:
        return _unsupported(sys_cpu, None)
    steps: list[tuple[Policy, Settings, str]] = []
    entries: list[Entry] = []
    for policy in policies:
        key = f"{KEY}{policy.name}"
        before = policy.settings
        if before is None:
            entries.append(Entry(policy.name, policy, None, None, OFFLINE))
        elif key not in notes:
            entries.append(Entry(policy.name, policy, before, before, NOT_OURS))
        else:
            settings, driver = _noted(key, notes[key], record_dir)
            if driver != policy.driver:
                # `powersave` is the usual choice of one driver and the lowest clock of another.
                entries.append(Entry(policy.name, policy, before, before, OTHER_DRIVER))
            else:
                steps.append((policy, settings, RESTORED))
    there = {policy.name for policy in policies}
    gone = [key[len(KEY) :] for key in notes if key[len(KEY) :] not in there]
    entries += [Entry(name, None, None, None, GONE) for name in gone]
    _check_writable(steps)
    entries = _run(steps, entries, check_mode, write)
    if not check_mode:
        done = (RESTORED, GONE, OTHER_DRIVER)
        previous_values.forget(record_dir, [f"{KEY}{entry.name}" for entry in entries if entry.status in done])
    return Outcome(_changed(entries), True, "", None, _ordered(entries))


def lines(entries: Sequence[Entry], after: bool) -> str:
    """The settings as text, one policy a line, before or after."""
    texts = []
    for entry in entries:
        settings = entry.after if after else entry.before
        if settings is not None and entry.policy is not None:
            preference = "" if settings.energy_preference is None else f", {settings.energy_preference}"
            texts.append(f"{entry.policy.label}: {settings.governor}{preference}\n")
    return "".join(texts)


def described(entry: Entry) -> dict[str, Any]:
    """An entry as plain values."""
    policy = entry.policy
    return {
        "name": entry.name,
        "cpus": list(policy.cpus) if policy else [],
        "driver": policy.driver if policy else "",
        "before": _plain(entry.before),
        "after": _plain(entry.after),
        "available": {
            "governors": list(policy.governors) if policy else [],
            "energy_preferences": list(policy.preferences) if policy else [],
        },
        "status": entry.status,
    }


def _plain(settings: Settings | None) -> dict[str, str | None] | None:
    if settings is None:
        return None
    return {"governor": settings.governor, "energy_preference": settings.energy_preference}


def _changed(entries: Sequence[Entry]) -> bool:
    return any(entry.before != entry.after for entry in entries)


def _ordered(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: (len(entry.name), entry.name)))


def _unsupported(sys_cpu: str, wanted: Settings | None) -> Outcome:
    reason = (
        f"{os.path.join(sys_cpu, 'cpufreq')} has no policies: no driver of this kernel sets the CPU frequency, as in "
        "most virtual machines and containers; the machine below them is the place for it"
    )
    asked = wanted is not None and wanted.energy_preference is not None
    return Outcome(False, False, reason, False if asked else None)


def _policy(folder: str, number: int) -> Policy:
    name = f"policy{number}"
    path = os.path.join(folder, name)
    offline = Policy(name, path, (number,), None)
    try:
        cpus = _cpus(path, "affected_cpus")
        if not cpus:
            return Policy(name, path, _cpus(path, "related_cpus") or (number,), None)
        settings = _settings(path)
        governors = tuple(_read(path, _GOVERNORS).split())
        driver = _read(path, "scaling_driver")
    except OSError as error:
        # Newer kernels answer so for all files of a policy whose CPUs are offline.
        if error.errno == errno.EBUSY:
            return offline
        raise _unreadable(path, f"{error.strerror} ({os.path.basename(str(error.filename))})") from error
    return Policy(name, path, cpus, settings, driver, governors, _preferences(path))


def _settings(path: str) -> Settings:
    """What is set now. Raises OSError, and FrequencyError for an empty governor."""
    governor = _read(path, _GOVERNOR)
    if not governor:
        raise _unreadable(os.path.join(path, _GOVERNOR), "it is empty")
    try:
        preference = _read(path, _PREFERENCE) or None
    except OSError:
        # Not there, or the processor has nothing that the driver could ask.
        preference = None
    return Settings(governor, preference)


def _preferences(path: str) -> tuple[str, ...]:
    try:
        return tuple(_read(path, _PREFERENCES).split())
    except OSError:
        return ()


def _cpus(path: str, name: str) -> tuple[int, ...]:
    text = _read(path, name)
    words = text.split()
    if not all(re.fullmatch(r"[0-9]{1,7}", word) for word in words):
        raise _unreadable(os.path.join(path, name), f"{text[:60]!r} is no list of CPU numbers")
    return tuple(int(word) for word in words)


def _read(path: str, name: str) -> str:
    """One value of the kernel without its end of line. Raises OSError."""
    with open(os.path.join(path, name), "rb") as stream:
        return stream.read(_MOST_BYTES).decode("utf-8", "replace").strip()


def _unreadable(path: str, why: str) -> FrequencyError:
    return FrequencyError(
        f"reading the CPU frequency settings in {path}: {why}; look at that directory of the kernel", path=path
    )


def _differs(policy: Policy, wanted: Settings) -> bool:
    return policy.settings != _target(policy, wanted)


def _target(policy: Policy, wanted: Settings) -> Settings:
    """What the policy reads once it is set, as far as one can say without setting it."""
    now = policy.settings.energy_preference if policy.settings else None
    preference = now if now is None or wanted.energy_preference is None else wanted.energy_preference
    changes = policy.settings is not None and policy.settings.governor != wanted.governor
    if now is not None and changes and wanted.governor == _PERFORMANCE and policy.driver in _TIED_DRIVERS:
        preference = _PERFORMANCE
    return Settings(wanted.governor, preference)


def _check_governor(policies: Sequence[Policy], governor: str) -> None:
    missing = [policy for policy in policies if governor not in policy.governors]
    if not missing:
        return
    groups: dict[tuple[str, ...], list[int]] = {}
    for policy in missing:
        groups.setdefault(policy.governors, []).extend(policy.cpus)
    texts = [
        f"CPU {host_cpus.shown(frozenset(cpus))} has {', '.join(governors) or 'none'}"
        for governors, cpus in groups.items()
    ]
    raise FrequencyError(
        f"setting CPU governor {governor!r} in {os.path.dirname(missing[0].path)}: {'; '.join(texts)}; choose one of "
        "them, or load the kernel module of that governor first",
        governor=governor,
        available={policy.name: list(policy.governors) for policy in missing},
    )


def _check_preference(policy: Policy, wanted: Settings) -> None:
    preference = wanted.energy_preference
    if preference is None or policy.settings is None or policy.settings.energy_preference is None:
        return
    if preference == "default":
        why = "the kernel never reads it back, so nobody could say whether it is set"
    elif wanted.governor == _PERFORMANCE != preference and policy.driver in _TIED_DRIVERS:
        raise _preference_error(
            policy, preference, f"driver {policy.driver} allows only performance under governor performance", ()
        )
    elif policy.settings.governor == _PERFORMANCE != wanted.governor and policy.preferences == (_PERFORMANCE,):
        # The list is that of the governor that is about to go; it is looked at again after it.
        return
    elif preference not in policy.preferences:
        why = "the kernel does not list it"
    else:
        return
    raise _preference_error(policy, preference, why, [name for name in policy.preferences if name != "default"])


def _preference_error(policy: Policy, preference: str, why: str, listed: Sequence[str]) -> FrequencyError:
    remedy = f"choose one of {', '.join(listed)}" if listed else "choose another governor or preference"
    return FrequencyError(
        f"setting energy preference {preference!r} for {policy.label}: {why}; {remedy}",
        policy=policy.name,
        cpus=list(policy.cpus),
        wanted=preference,
        available={policy.name: list(listed)},
    )


def _check_writable(steps: Sequence[tuple[Policy, Settings, str]]) -> None:
    """Open what is to be written, so that a place that may not is found before the first change."""
    for policy, wanted, _status in steps:
        for name, value in _writes(policy, wanted):
            path = os.path.join(policy.path, name)
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
            except OSError as error:
                raise _refused(policy, path, value, error) from error


def _writes(policy: Policy, wanted: Settings) -> list[tuple[str, str]]:
    now = policy.settings
    found: list[tuple[str, str]] = []
    if now is None:
        return found
    if now.governor != wanted.governor:
        found.append((_GOVERNOR, wanted.governor))
    preference = wanted.energy_preference
    if preference is not None and now.energy_preference not in (None, preference):
        found.append((_PREFERENCE, preference))
    return found


def _run(
    steps: Sequence[tuple[Policy, Settings, str]], entries: Sequence[Entry], check_mode: bool, write: Write
) -> list[Entry]:
    """Do the steps. An error's facts tell what had been done until then."""
    done = list(entries)
    for policy, wanted, status in steps:
        try:
            after = _target(policy, wanted) if check_mode else _apply(policy, wanted, write)
        except FrequencyError as error:
            with contextlib.suppress(OSError, FrequencyError):
                done.append(Entry(policy.name, policy, policy.settings, _settings(policy.path), FAILED))
            error.facts.update(changed=_changed(done), policies=[described(entry) for entry in _ordered(done)])
            raise
        done.append(Entry(policy.name, policy, policy.settings, after, status))
    return done


def _apply(policy: Policy, wanted: Settings, write: Write) -> Settings:
    """Governor, then preference, each read back."""
    if policy.settings is not None and policy.settings.governor != wanted.governor:
        _set(policy, _GOVERNOR, wanted.governor, write)
    after = _now(policy)
    preference = wanted.energy_preference
    if preference is None or after.energy_preference in (None, preference):
        return after
    listed = _preferences(policy.path)
    # A number is a value without a name, which the kernel takes although it lists only names.
    if preference not in listed and not preference.isdigit():
        why = f"the kernel does not list it under governor {after.governor}"
        raise _preference_error(policy, preference, why, [name for name in listed if name != "default"])
    _set(policy, _PREFERENCE, preference, write)
    return _now(policy)


def _now(policy: Policy) -> Settings:
    try:
        return _settings(policy.path)
    except OSError as error:
        raise _unreadable(policy.path, f"{error.strerror} after {policy.label} was set") from error


def _set(policy: Policy, name: str, value: str, write: Write) -> None:
    path = os.path.join(policy.path, name)
    try:
        write(path, value)
        reads = _read(policy.path, name)
    except OSError as error:
        raise _refused(policy, path, value, error) from error
    if reads != value:
        raise FrequencyError(
            f"setting {path} of {policy.label} to {value!r}: it reads {reads!r} afterwards; another program or the "
            "firmware decides it, such as TuneD, power-profiles-daemon or a power limit of the machine",
            policy=policy.name,
            cpus=list(policy.cpus),
            wanted=value,
            reads=reads,
        )


def _refused(policy: Policy, path: str, value: str, error: OSError) -> FrequencyError:
    why = error.strerror or str(error)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        remedy = "a container cannot set the CPUs of its machine: run this on the hypervisor, as root"
    elif error.errno == errno.EBUSY:
        remedy = "the driver does not take it as it is set now; choose another governor or preference"
    else:
        remedy = "the kernel does not take it; look at its log"
    return FrequencyError(
        f"setting {path} of {policy.label} to {value!r}: {why}; {remedy}",
        policy=policy.name,
        cpus=list(policy.cpus),
        wanted=value,
    )


def _note(policy: Policy) -> dict[str, Any]:
    return {**(_plain(policy.settings) or {}), "driver": policy.driver}


def _noted(key: str, note: object, record_dir: str) -> tuple[Settings, str]:
    """The settings and the driver of a note. Raises FrequencyError for one that is none of ours."""
    if isinstance(note, Mapping):
        governor, preference, driver = (note.get(name) for name in ("governor", "energy_preference", "driver"))
        known = preference is None or (isinstance(preference, str) and preference)
        if isinstance(governor, str) and governor and isinstance(driver, str) and known:
            return Settings(governor, preference), driver
    raise FrequencyError(
        f"putting the CPU governor back in {os.path.join(record_dir, previous_values.FILE)}: {key} is not as this "
        "collection notes it; put a backup back, or remove the key and set the governor by hand",
        key=key,
        found=note,
    )
